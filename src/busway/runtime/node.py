"""A node: one process with a gateway, and the brokers of the stores that it holds.

This file owns the order of starting and stopping. Nothing is accepted before every store that can
be opened serves; on the way down, what was taken is committed and answered before anybody is sent
away.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from busway.cluster.catalog import CatalogError
from busway.cluster.catalogs import Catalogs
from busway.config import ConfigError, Configuration
from busway.gateway.exchange import Exchange
from busway.gateway.gateway import settings_for
from busway.gateway.namespaces import Namespaces
from busway.gateway.router import Owner
from busway.gateway.traced import traced
from busway.model.entities import DEFAULT_NAMESPACE, ROOT_RULE_NAME
from busway.model.errors import BusError
from busway.model.limits import CONNECTIONS_PER_NAMESPACE_MAX
from busway.runtime import clock_control
from busway.runtime.data_folder import DataFolder, StartError
from busway.runtime.disk_reserve import DiskReserve
from busway.runtime.host import Host
from busway.runtime.journal_readers import JournalReaders
from busway.runtime.listener import Listener, ListenerLimits
from busway.runtime.ports import Ports, open_ports
from busway.runtime.stores import NodeStore, open_stores, until_serving
from busway.runtime.tenants import Tenants

if TYPE_CHECKING:
    from pathlib import Path

    from busway.http.server import HttpServer
    from busway.http.services import Services
    from busway.runtime.certificate_reload import CertificateReload
    from busway.runtime.identity import Identity
    from busway.runtime.reports import Reports
    from busway.runtime.telemetry import Telemetry

log = logging.getLogger(__name__)

FIRST_SERVING_S = 5.0
"""How long the start waits for stores; one that takes longer is ill and joins later."""
LAST_COMMITS_S = 10.0
GOODBYE_S = 2.0

EVERYWHERE = ("0.0.0.0", "::", "127.0.0.1", "::1")
FIXED_PORTS = (5671, 443)
"""Dialled for messages and for administration by clients that ignore the port of a string."""
"""Addresses under which this machine is best called `localhost` in a connection string."""


class Node:
    """`start`, then serve until `stop`. Both may be called once."""

    def __init__(self, configuration: Configuration) -> None:
        self.settings = configuration.settings
        self.stores: list[NodeStore] = []
        self.ports = Ports(main=0)
        self.has_tls = False
        self._configuration = configuration
        self._folder: DataFolder | None = None
        self._catalogs: Catalogs | None = None
        self._tenants: Tenants | None = None
        self.namespaces: Namespaces | None = None
        self._listener: Listener | None = None
        self._certificates: CertificateReload | None = None
        self._telemetry: Telemetry | None = None
        self._clock: clock_control.ClockControl | None = None
        self.identity: Identity | None = None
        """None without issuers of bearer tokens."""
        self.journals: JournalReaders | None = None
        """How the journals of its stores are read, once it has started."""

    @property
    def port(self) -> int:
        return self.ports.main

    @property
    def connection_string(self) -> str:
        """Of the default namespace."""
        return next(iter(self.connection_strings.values()))

    @property
    def connection_strings(self) -> dict[str, str]:
        """For the Azure SDKs, by namespace, the default one first; without TLS, as with
        Microsoft's emulator."""
        return {
            name: f"{text}UseDevelopmentEmulator=true;"
            for name, text in self.tls_connection_strings.items()
        }

    @property
    def tls_connection_strings(self) -> dict[str, str]:
        tenants = self._tenants
        if tenants is None:
            return {}
        return {
            name: f"Endpoint=sb://{tenants.host_of(name, self._host_name)}:{self.port};"
            f"SharedAccessKeyName={ROOT_RULE_NAME};SharedAccessKey={key};"
            for name, key in tenants.keys.items()
        }

    @property
    def _host_name(self) -> str:
        """Under which clients reach the default namespace."""
        return "localhost" if self.settings.host in EVERYWHERE else self.settings.host

    @property
    def fixed_ports_connection_string(self) -> str | None:
        """For clients that dial `FIXED_PORTS`; Microsoft.Azure.ServiceBus, the older library for
        .NET, also takes no host without a dot. None where they would not find us."""
        host = self.settings.host
        address = "127.0.0.1" if host in EVERYWHERE else host
        if not self.has_tls or self._tenants is None or FIXED_PORTS[0] not in self.ports.opened:
            return None
        if "." not in address:
            return None
        key = self._tenants.keys[DEFAULT_NAMESPACE]
        return (
            f"Endpoint=sb://{address};SharedAccessKeyName={ROOT_RULE_NAME};SharedAccessKey={key};"
        )

    # --- up ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises `StartError` if it cannot."""
        settings = self.settings
        if not settings.memory:
            self._folder = DataFolder(settings.data)
            self._folder.take()
            DiskReserve(settings.data).prepare()
        self._certificates = self._certificate_reload()
        tls = None if self._certificates is None else self._certificates.load()
        host = Host(asyncio.get_running_loop(), movable=settings.allow_clock)
        if self._folder is not None:
            clock_control.begin(
                host,
                self._folder.path,
                allowed=settings.allow_clock,
                accepted=settings.accept_clock,
            )
        try:
            catalogs = Catalogs.open(
                None if self._folder is None else self._folder.catalog,
                new_id=lambda: UUID(bytes=host.random_bytes(16)),
            )
            self._catalogs = catalogs
            self._tenants = tenants = Tenants(
                self._configuration.namespaces, catalogs, self._folder
            )
            tenants.open(host.now_ms())
            # Filled as stores are found; what is on its way to one that is not there yet waits.
            owners: dict[str, Owner] = {}
            exchange = Exchange(host, catalogs, owners)
            self.stores = await open_stores(
                settings.stores,
                self._folder,
                catalogs,
                host,
                exchange,
                self._configuration.journal,
                accept_clock=settings.accept_clock,
            )
        except (CatalogError, BusError) as error:
            raise StartError(str(error)) from error
        except sqlite3.Error as error:
            # Stores say themselves what is wrong with them, so this is the catalog.
            assert self._folder is not None
            raise StartError(
                f"The catalog {self._folder.catalog} cannot be read: {error}. Put back a backup of "
                "the data folder with 'busway restore'."
            ) from error
        await until_serving(self.stores, FIRST_SERVING_S)
        if not any(store.broker.available for store in self.stores):
            problem = next((store.problem for store in self.stores if store.problem), "too slow")
            raise StartError(f"No messaging store can be opened: {problem}")
        try:
            tenants.furnish(host.now_ms())
        except ConfigError as error:
            raise StartError(str(error)) from error
        catalogs.be_quick()
        owners |= {store.store_id: store.broker for store in self.stores if store.store_id}
        self.journals = JournalReaders(
            {store.store_id: store.journals for store in self.stores if store.store_id},
            commits=lambda: sum(store.broker.commit_times.done for store in self.stores),
        )
        self.namespaces = namespaces = Namespaces(
            host,
            catalogs,
            owners,
            settings_for(self._configuration.strangers),
            hosts=tenants.hosts,
            machine=self._machine(),
        )
        if settings.otel:
            self._telemetry = telemetry = await asyncio.to_thread(_telemetry)
            for gateway in namespaces.gateways():
                gateway.endpoints = traced(telemetry)
        if settings.allow_clock:
            self._clock = clock_control.ClockControl(
                host, self._folder, catalogs, self.stores, namespaces.gateways(), tenants.furnish
            )
        await self._start_identity(namespaces)
        share = self._configuration.strangers
        sockets_max = (CONNECTIONS_PER_NAMESPACE_MAX + share.connections + 100) * len(
            namespaces.gateways()
        ) + share.http_connections
        self._listener = listener = Listener(
            host,
            lambda peer, on_output: namespaces.connect(
                peer, on_output, encrypted=peer.encrypted, websocket=peer.websocket
            ),
            limits=ListenerLimits(sockets_max=sockets_max),
            over_budget=namespaces.over_budget,
            tls=tls,
            load_http=lambda: self._load_http(host, namespaces, listener),
        )
        self.has_tls = tls is not None
        if self._certificates is not None:
            self._certificates.use = listener.use_tls
            self._certificates.start()
        self.ports = await open_ports(listener, self._configuration, has_tls=self.has_tls)
        if self._folder is not None:
            self._folder.note_served(tenants.served_at(self._host_name, self.port, self.has_tls))

    async def _start_identity(self, namespaces: Namespaces) -> None:
        configuration = self._configuration
        if not (configuration.issuers or configuration.settings.dev_tokens):
            return
        from busway.runtime.identity import Identity

        self.identity = identity = Identity(configuration)
        await identity.start()
        for gateway in namespaces.gateways():
            gateway.bearer = identity.tokens_of(gateway.catalog.namespace.name)

    def _machine(self) -> list[str]:
        """Names of this machine that clients may use for it, beside `localhost`."""
        named = [socket.gethostname()]
        return named if self.settings.host in EVERYWHERE else [*named, self.settings.host]

    def _certificate_reload(self) -> CertificateReload | None:
        """None without TLS."""
        settings = self.settings
        if not settings.tls and settings.tls_cert is None:
            return None
        from busway.runtime.certificate_reload import CertificateReload

        return CertificateReload(self._certificate_files)

    def _certificate_files(self) -> tuple[Path, Path]:
        """Raises `StartError`."""
        settings = self.settings
        if not settings.tls:
            assert settings.tls_cert is not None
            assert settings.tls_key is not None
            return settings.tls_cert, settings.tls_key
        from busway.runtime.tls import own_certificate

        assert self._folder is not None
        names = list(settings.hosts)
        if settings.host not in EVERYWHERE:
            names.append(settings.host)
        for each in self._configuration.namespaces[1:]:
            names += [f"{each.name}.localhost", *each.hosts]
        return own_certificate(self._folder.tls, names, again=self._listener is not None)

    async def reload(self) -> None:
        """Read again what may have been replaced meanwhile: the certificate, keys of issuers."""
        if self._certificates is not None:
            await self._certificates.reload()
        if self.identity is not None:
            await self.identity.reload()

    async def _load_http(
        self, host: Host, namespaces: Namespaces, listener: Listener
    ) -> HttpServer:
        """At the first request (D-33), in a thread: AMQP must not wait for what it does not use."""

        def imported() -> tuple[type[HttpServer], type[Services], type[Reports]]:
            from busway.http.server import HttpServer
            from busway.http.services import Services
            from busway.runtime.reports import Reports

            return HttpServer, Services, Reports

        make_server, make_services, make_reports = await asyncio.to_thread(imported)
        journals = self.journals
        assert journals is not None
        return make_server(
            make_services(
                host=host,
                gateway_of=namespaces.gateway_of,
                gateways=namespaces.gateways,
                stores=lambda: self.stores,
                journals=journals,
                reports=make_reports(None if self._folder is None else self._folder.path, host),
                journal_limits=self._configuration.journal,
                amqp=listener.wire_in_http,
                dev_issuer=None if self.identity is None else self.identity.dev_issuer,
                identity_header=None if self.identity is None else self.identity.header,
                allow_faults=self.settings.allow_faults,
                clock=self._clock,
                metrics_open=self.settings.metrics == "open",
                metrics_entities=self.settings.metrics_entities,
                stranger_share=self._configuration.strangers,
            )
        )

    # --- down --------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Commit and answer what was taken, say goodbye, close the stores."""
        listener = self._listener
        if self._certificates is not None:
            self._certificates.stop()
        if self.identity is not None:
            self.identity.stop()
        if listener is not None:
            listener.stop_accepting()
            listener.stop_reading()
        await self._stop_brokers()
        if self.journals is not None:
            await self.journals.close()
        if listener is not None:
            await listener.close(
                "amqp:connection:forced", "The broker is being stopped.", wait_s=GOODBYE_S
            )
        await asyncio.gather(*(within(store.thread.stop(), store.name) for store in self.stores))
        if self._telemetry is not None:
            await within(asyncio.to_thread(self._telemetry.close), "OpenTelemetry's exporters")
        if self._catalogs is not None:
            self._catalogs.close()
        if self._folder is not None:
            self._folder.release()

    async def _stop_brokers(self) -> None:
        loop = asyncio.get_running_loop()
        stopping = []
        for store in self.stores:
            if store.store_id is not None:
                stopped: asyncio.Future[None] = loop.create_future()
                store.broker.stop(partial(stopped.set_result, None))
                stopping.append(within(stopped, store.name))
        await asyncio.gather(*stopping)


def _telemetry() -> Telemetry:
    """In a thread: it takes a while to load. Raises `StartError`."""
    try:
        from busway.runtime.telemetry import Telemetry
    except ImportError as error:
        raise StartError(
            f"--otel needs OpenTelemetry, and {error.name} is not installed. Install Busway with "
            "its extra 'otel': pip install -e '/path/to/the/clone[otel]'"
        ) from error
    return Telemetry()


async def within(stopping: Awaitable[None], name: str) -> None:
    """A store that hangs must not keep the node from ending."""
    try:
        await asyncio.wait_for(stopping, LAST_COMMITS_S)
    except TimeoutError:
        log.error("ending without %s, which does not answer", name)
