"""Which namespace a host name means, and the gateway of each.

A client says whom it wants to talk to: AMQP in sasl-init and open, HTTP in the header `Host`. A
namespace is meant by

* a host name that the configuration lists for it (`contoso.example.net`, `127.0.0.2`),
* its own name, alone or as the first label of a host name: `contoso`, `contoso.localhost`,
  `contoso.servicebus.windows.net`.

Every other name, and an address that nobody has listed, means the default namespace. Ports, upper
case and a dot at the end do not matter. The name opens nothing: each namespace has its own rules
and keys, so a token of one is worth nothing at another (D-34).

The resource in a token names a host as well. It must be a name of the namespace to which the token
is shown: one of those above, the name by which the client has called it, or, for the default
namespace, this machine: `localhost`, its address, its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from busway.amqp.partial import PartialRoom
from busway.broker.seams import Host
from busway.cluster.catalogs import Catalogs
from busway.gateway.budget import Budget
from busway.gateway.connection import GatewayConnection, Peer
from busway.gateway.gateway import Gateway, GatewaySettings
from busway.gateway.router import Owner
from busway.model.names import host_name, is_loopback, is_same_host, name_key


class Namespaces:
    """A gateway for each catalog, over the same owners and one budget."""

    def __init__(
        self,
        host: Host,
        catalogs: Catalogs,
        owners: Mapping[str, Owner],
        settings: GatewaySettings | None = None,
        hosts: Mapping[str, str] | None = None,
        machine: Iterable[str] = (),
    ) -> None:
        """`hosts` has the names of namespaces by the host names that are listed for them;
        `machine` are names and addresses of this one."""
        settings = settings or GatewaySettings()
        self._budget = Budget(settings.uncommitted_bytes_max)
        self._gateways = {
            name_key(catalog.namespace.name): Gateway(host, catalog, owners, settings, self._budget)
            for catalog in catalogs
        }
        room = PartialRoom(settings.partial_bytes_max)
        for gateway in self._gateways.values():
            gateway.partial_room = room  # of the whole node
        self.default = self._gateways[name_key(catalogs.default.namespace.name)]
        self._by_host = {
            host_name(listed): self._gateways[name_key(name)]
            for listed, name in (hosts or {}).items()
        }
        self._machine = {host_name(each) for each in machine}
        for gateway in self._gateways.values():
            gateway.answers_to = partial(self._answers_to, gateway)

    def gateways(self) -> Sequence[Gateway]:
        """The default one first."""
        return tuple(self._gateways.values())

    def gateway_of(self, hostname: str) -> Gateway:
        name = host_name(hostname)
        listed = self._by_host.get(name)
        if listed is not None:
            return listed
        return self._gateways.get(name.partition(".")[0], self.default)

    def _answers_to(self, gateway: Gateway, called: str, named: str) -> bool:
        """Whether a token for `named` may be shown to who was called `called`."""
        name = host_name(named)
        if self.gateway_of(name) is not gateway:
            return False
        if gateway is not self.default:
            return True  # only its own names lead there
        own = name_key(gateway.catalog.namespace.name)
        return (
            is_same_host(called, named)
            or is_loopback(name)
            or name in self._by_host
            or name in self._machine
            or name.partition(".")[0] == own
        )

    def connect(
        self,
        peer: Peer,
        on_output: Callable[[], None],
        *,
        encrypted: bool = False,
        websocket: bool = False,
    ) -> GatewayConnection:
        """A new AMQP connection; it says itself which namespace it is for."""
        return GatewayConnection(
            self.default,
            peer,
            on_output,
            encrypted=encrypted,
            websocket=websocket,
            gateway_of=self.gateway_of,
        )

    def over_budget(self) -> bool:
        """Whether sockets should not be read for now (D-8)."""
        return self._budget.exceeded
