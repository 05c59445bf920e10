"""A node in memory and clients on virtual wires, driven by virtual time.

Everything between the client's bytes and the store is the real thing: engine, gateway, broker. The
client's own end is the same engine in the other role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

from busway.amqp import codec
from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import (
    Attached,
    Closed,
    Considered,
    Detached,
    Disposed,
    Event,
    Settled,
    TransferReceived,
)
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    DeliveryState,
    Error,
    Header,
    Properties,
    Source,
    Target,
)
from busway.amqp.sections import (
    BATCH_FORMAT,
    encode_message,
    read_application_properties,
    read_properties,
    walk_sections,
)
from busway.amqp.session import Session
from busway.amqp.types import Array, Described, Symbol, ULong
from busway.broker.broker import Broker
from busway.cluster.catalogs import Catalogs
from busway.gateway import auth
from busway.gateway.connection import GatewayConnection
from busway.gateway.exchange import Exchange
from busway.gateway.gateway import GatewaySettings
from busway.gateway.namespaces import Namespaces
from busway.model.entities import (
    DEFAULT_NAMESPACE,
    ROOT_RULE_NAME,
    Queue,
    Rule,
    Subscription,
    Topic,
)
from busway.model.limits import Tier
from busway.sim.disk import SimulatedDisk
from busway.sim.scheduler import Scheduler
from busway.store.faults import FaultyStore
from busway.store.memory import MemoryDisk, MemoryStore

KEY = "the-root-key"
HOST = "bus.example.net"


def key_of(namespace: str) -> str:
    """The root key of a namespace that is not the default one."""
    return f"the-key-of-{namespace}"


class World:
    """A namespace or several, each with its catalog and gateway, and a broker for each of some
    stores. `catalog` and `gateway` are those of the default namespace."""

    def __init__(
        self,
        stores: int = 2,
        settings: GatewaySettings | None = None,
        namespaces: Sequence[str] = (),
        hosts: Mapping[str, str] | None = None,
        tier: Tier | None = None,
        partitions: int | None = None,
    ) -> None:
        self.scheduler = Scheduler(7)
        self.catalogs = Catalogs.open(None)
        self.catalog = self.catalogs.namespace(DEFAULT_NAMESPACE, tier=tier, partitions=partitions)
        self.catalog.set_root_key(KEY)
        for name in namespaces:
            self.catalogs.namespace(name).set_root_key(key_of(name))
        self.stores: dict[str, FaultyStore] = {}
        self.disks: dict[str, SimulatedDisk] = {}
        self.brokers: dict[str, Broker] = {}
        exchange = Exchange(self.scheduler, self.catalogs, self.brokers)
        for index in range(stores):
            store = FaultyStore(MemoryStore(MemoryDisk(f"store-{index}")))
            disk = SimulatedDisk(self.scheduler, store)
            broker = Broker(disk, self.scheduler, self.catalogs, exchange)
            broker.start()
            store_id = f"store-{index}"
            self.stores[store_id], self.disks[store_id] = store, disk
            self.brokers[store_id] = broker
        self.catalogs.stores.register(list(self.brokers))
        self.namespaces = Namespaces(
            self.scheduler, self.catalogs, self.brokers, settings, hosts, machine=["this-machine"]
        )
        self.gateway = self.namespaces.default
        self.clients: list[Client] = []
        self.settle()
        assert all(broker.available for broker in self.brokers.values())

    def queue(self, path: str, **properties: Any) -> Queue:
        return self.catalog.create_queue(Queue(path=path, **properties))

    def topic(self, path: str, **properties: Any) -> Topic:
        return self.catalog.create_topic(Topic(path=path, **properties))

    def subscription(
        self, topic: str, name: str, rules: list[Rule] | None = None, **properties: Any
    ) -> Subscription:
        described = Subscription(topic=topic, name=name, **properties)
        return self.catalog.create_subscription(described, rules=rules)

    def make_ill(self, store_id: str) -> None:
        """Its store hangs until the broker gives up on it (D-8)."""
        self.disks[store_id].pause()
        self.queue(f"probe-of-{store_id}", enable_partitioning=True)
        sender = self.connect().sender(f"probe-of-{store_id}")
        for _ in range(16):
            sender.put(message())
        self.settle(for_ms=8_000)
        assert not self.brokers[store_id].available

    def connect(self, **options: Any) -> Client:
        return Client(self, **options)

    def settle(self, for_ms: int = 0) -> None:
        """Carry bytes and take turns until nobody has anything to say; then let time pass."""
        quiet = 0
        while quiet < 4:
            carried = [client.carry() for client in self.clients]
            self.scheduler.run_for(5)
            quiet = 0 if any(carried) else quiet + 1
        for _ in range(for_ms // 1000):
            self.scheduler.run_for(1000)
            for client in self.clients:
                client.server.tick(self.scheduler.now_ms())
                client.carry()
        if for_ms:
            self.settle()


@dataclass(frozen=True)
class SomePeer:
    connection_id: str = "c1"
    address: str = "test"
    loopback: bool = True


class Client:
    """A client's end of one connection."""

    def __init__(
        self,
        world: World,
        *,
        token: bool = True,
        password: tuple[str, str] | None = None,
        peer: SomePeer | None = None,
        encrypted: bool = False,
        host: str = HOST,
        key: str = KEY,
        namespaces: Namespaces | None = None,
    ) -> None:
        """`namespaces`: those of another gateway over the same brokers."""
        self.world = world
        self.host = host
        self.events: list[Event] = []
        self.engine = Connection(
            ConnectionSettings(container_id="client", hostname=host, credentials=password),
            role=Role.CLIENT,
        )
        self.server: GatewayConnection = (namespaces or world.namespaces).connect(
            peer or SomePeer(), lambda: None, encrypted=encrypted
        )
        world.clients.append(self)
        self.engine.open()
        self.session: Session = self.engine.begin()
        self.world.settle()
        if token and password is None:
            assert self.put_token("", key=key)["status-code"] == 202

    def carry(self) -> bool:
        up, down = self.engine.take_output(), self.server.take_output()
        if up:
            self.server.receive(up)
        if down:
            self.events += self.engine.receive(down)
        return bool(up or down)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def closed_with(self) -> Error | None:
        return next((event.error for event in self.of(Closed)), None)

    # --- Links -----------------------------------------------------------------------------------

    def attach(
        self,
        name: str,
        role: LinkRole,
        *,
        source: Any = None,
        target: Any = None,
        session: Session | None = None,
        **options: Any,
    ) -> Link:
        link = (session or self.session).attach(
            name, role, source=source or Source(name), target=target or Target(name), **options
        )
        self.world.settle()
        return link

    def sender(self, path: str, name: str = "sender", **options: Any) -> Sender:
        link = self.attach(name, LinkRole.SENDER, target=Target(path), rcv_settle_mode=1, **options)
        return Sender(self, link)

    def receiver(
        self,
        path: str,
        name: str = "receiver",
        *,
        credit: int = 0,
        delete: bool = False,
        source: Source | None = None,
        session: Session | None = None,
    ) -> Receiver:
        link = self.attach(
            name,
            LinkRole.RECEIVER,
            source=source or Source(path),
            snd_settle_mode=1 if delete else 0,
            rcv_settle_mode=0 if delete else 1,
            session=session,
        )
        receiver = Receiver(self, link)
        if credit:
            receiver.credit(credit)
        return receiver

    def is_attached(self, link: Link) -> bool:
        return any(event.link is link for event in self.of(Attached)) and link.is_attached

    def refusal(self, link: Link) -> Error | None:
        """Why the link was refused or detached."""
        return next((event.error for event in self.of(Detached) if event.link is link), None)

    # --- Requests --------------------------------------------------------------------------------

    def requests(self, node: str, session: Session | None = None, **names: Any) -> Requests:
        return Requests(self, node, session or self.session, **names)

    def put_token(self, path: str, text: str | None = None, **options: Any) -> dict[str, Any]:
        text = sas(path, self.world, host=self.host, **options) if text is None else text
        cbs = self.requests("$cbs", name=f"cbs-{len(self.events)}")
        properties, _ = cbs.call(
            {"operation": "put-token", "type": "jwt", "name": f"sb://{self.host}/{path}"}, text
        )
        cbs.close()
        return properties


def sas(
    path: str,
    world: World,
    *,
    rule: str = ROOT_RULE_NAME,
    key: str = KEY,
    life_s: int = 3600,
    host: str = HOST,
) -> str:
    resource = quote_plus(f"sb://{host}/{path}")
    expiry = str(world.scheduler.now_ms() // 1000 + life_s)
    signature = quote_plus(auth.sign(resource, expiry, key))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


class Sender:
    def __init__(self, client: Client, link: Link) -> None:
        self.client = client
        self.link = link
        self._tags = 0

    def put(
        self,
        payload: bytes,
        *,
        message_format: int = 0,
        settled: bool = False,
        state: DeliveryState | None = None,
    ) -> int:
        """Send without waiting; returns the delivery id."""
        self._tags += 1
        if self.link.credit == 0:
            self.link.credit = 1  # as Python does, which ignores it
        return self.link.send(
            payload,
            self._tags.to_bytes(4, "big"),
            settled=settled,
            message_format=message_format,
            state=state,
        )

    def outcome(self, delivery_id: int) -> DeliveryState | None:
        found = [
            event.state
            for event in self.client.of(Disposed)
            if delivery_id in event.delivery_ids and event.link is self.link
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def send(self, payload: bytes, **options: Any) -> DeliveryState | None:
        """Send and wait; returns the outcome."""
        delivery_id = self.put(payload, **options)
        self.client.world.settle()
        return self.outcome(delivery_id)

    def send_batch(self, *messages: bytes, **options: Any) -> DeliveryState | None:
        return self.send(batch(*messages), message_format=BATCH_FORMAT, **options)

    def fill(self, count: int, **options: Any) -> None:
        ids = [self.put(message(f"m{n}", **options)) for n in range(count)]
        self.client.world.settle()
        assert all(isinstance(self.outcome(each), Accepted) for each in ids)


class Receiver:
    def __init__(self, client: Client, link: Link) -> None:
        self.client = client
        self.link = link

    def credit(self, credit: int, *, drain: bool = False) -> None:
        self.link.set_credit(credit, drain=drain)
        self.client.world.settle()

    @property
    def deliveries(self) -> list[TransferReceived]:
        return [event for event in self.client.of(TransferReceived) if event.link is self.link]

    @property
    def bodies(self) -> list[str]:
        return [body(event.payload) for event in self.deliveries]

    def settle(
        self, deliveries: list[TransferReceived], state: Any, *, settled: bool = False
    ) -> Any:
        """Say the outcome; returns what the broker settled it with, None for nothing."""
        return self._decide(deliveries, state, Settled, settled=settled)

    def propose(self, deliveries: list[TransferReceived], state: Any) -> Any:
        """Say the outcome in a transaction; returns the broker's answer, which settles nothing."""
        return self._decide(deliveries, state, Considered, settled=False)

    def settled(self, deliveries: list[TransferReceived]) -> list[Any]:
        """The states that the broker has settled them with, in order."""
        ids = {event.delivery_id for event in deliveries}
        return [
            event.state
            for event in self.client.of(Settled)
            if event.link is self.link
            for _ in ids.intersection(event.delivery_ids)
        ]

    def _decide(
        self, deliveries: list[TransferReceived], state: Any, answer: type, *, settled: bool
    ) -> Any:
        ids = [event.delivery_id for event in deliveries]
        before = len(self.client.events)
        self.link.settle(ids, state, settled=settled)
        self.client.world.settle()
        answers = [
            event
            for event in self.client.events[before:]
            if isinstance(event, Settled | Considered)
            and event.link is self.link
            and set(event.delivery_ids) & set(ids)
        ]
        assert len({type(each.state) for each in answers}) <= 1
        assert all(type(each) is answer for each in answers), answers
        return answers[-1].state if answers else None


class Requests:
    """A pair of links to a node, as a client library makes it."""

    def __init__(
        self,
        client: Client,
        node: str,
        session: Session,
        *,
        name: str = "requests",
        target: str | None = None,
        credit: int = 100,
    ) -> None:
        self.client = client
        self.node = node
        self.reply_to = target or node
        self.replies = client.attach(
            name,
            LinkRole.RECEIVER,
            source=Source(node),
            target=Target(self.reply_to),
            session=session,
        )
        self.link = client.attach(
            name, LinkRole.SENDER, source=Source(node), target=Target(node), session=session
        )
        if credit:
            self.replies.set_credit(credit)
        self._next = 0
        self.state: DeliveryState | None = None
        """Of the requests' transfers: a transaction's."""

    def ask(
        self,
        properties: dict[str, Any],
        request_body: Any,
        *,
        reply_to: str | None = None,
        wait: bool = True,
    ) -> UUID:
        self._next += 1
        message_id = UUID(int=self._next)
        payload = encode_message(
            properties=Properties(message_id=message_id, reply_to=reply_to),
            application_properties=properties,
            body=request_body,
        )
        self.link.send(payload, self._next.to_bytes(4, "big"), state=self.state)
        if wait:
            self.client.world.settle()
        return message_id

    def reply(self, message_id: UUID) -> tuple[dict[str, Any], Any] | None:
        for event in self.client.of(TransferReceived):
            if event.link is self.replies:
                found = read_properties(event.payload).correlation_id
                if found == message_id and type(found) is type(message_id):
                    assert event.settled
                    return read_application_properties(event.payload), body_value(event.payload)
        return None

    def call(self, properties: dict[str, Any], request_body: Any) -> tuple[dict[str, Any], Any]:
        message_id = self.ask(properties, request_body)
        for _ in range(20):
            if (answer := self.reply(message_id)) is not None:
                return answer
            self.client.world.settle()
        raise AssertionError("no reply")

    def manage(self, operation: str, **arguments: Any) -> tuple[int, Any]:
        """One management operation: its status and body, underscores standing for hyphens."""
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        properties, answer = self.call({"operation": f"com.microsoft:{operation}"}, named)
        self.condition = properties.get("errorCondition")
        self.description = properties["statusDescription"]
        return properties["statusCode"], answer

    def close(self) -> None:
        self.link.detach()
        self.replies.detach()
        self.client.world.settle()


# --- Messages ------------------------------------------------------------------------------------


def message(
    text: str = "hello",
    *,
    message_id: Any = None,
    session_id: str | None = None,
    partition_key: str | None = None,
    ttl_ms: int | None = None,
    size: int = 0,
    annotations: dict[str, Any] | None = None,
    application_properties: dict[str, Any] | None = None,
) -> bytes:
    parts = []
    if ttl_ms is not None:
        parts.append(_section(0x70, [None, None, *_uint(ttl_ms)]))
    named = dict(annotations or {})
    if partition_key is not None:
        named["x-opt-partition-key"] = partition_key
    if named:
        parts.append(_section(0x72, {Symbol(key): value for key, value in named.items()}))
    parts.append(
        encode_message(
            properties=Properties(message_id=message_id, group_id=session_id),
            application_properties=application_properties,
            data=text.encode().ljust(size, b"."),
        )
    )
    return b"".join(parts)


def batch(*messages: bytes) -> bytes:
    """As one transfer of `BATCH_FORMAT` has them."""
    return b"".join(b"\x00\x53\x75" + codec.encode_value(each) for each in messages)


def _uint(value: int) -> list[Any]:
    from busway.amqp.types import UInt

    return [UInt(value)]


def _section(code: int, value: Any) -> bytes:
    return codec.encode_value(Described(ULong(code), value))


def sections(payload: bytes) -> dict[int, Any]:
    """Every section of a message, decoded."""
    return {
        code: codec.decode_value(payload[start:stop])[0]
        for code, _, start, stop in walk_sections(payload)
    }


def body(payload: bytes) -> str:
    return bytes(sections(payload)[0x75]).decode().rstrip(".")


def body_value(payload: bytes) -> Any:
    return sections(payload).get(0x77)


def message_annotations(payload: bytes) -> dict[str, Any]:
    return {str(key): value for key, value in sections(payload)[0x72].items()}


def header(payload: bytes) -> Header:
    fields = [*sections(payload)[0x70], None, None, None, None, None]
    return Header(*fields[:5])


def longs(*numbers: int) -> Array:
    return Array(list(numbers), int)


def uuids(*tokens: bytes) -> Array:
    return Array([UUID(bytes_le=token) for token in tokens], UUID)
