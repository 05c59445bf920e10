"""A client's end of a connection that writes performatives as Azure.Messaging.ServiceBus does.

It gives the addresses, link properties, capabilities and windows that the .NET library gives, most
of which no other library does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from busway.amqp import codec
from busway.amqp.connection import AMQP_HEADER, SASL_HEADER
from busway.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Composite,
    Disposition,
    Flow,
    Open,
    Properties,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from busway.amqp.sections import encode_message, read_application_properties, read_properties
from busway.amqp.types import Symbol, UInt
from tests.amqp.pair import frames
from tests.gateway.world import HOST, SomePeer, World, body, sas

UINT_MAX = 2**32 - 1
EMPTY_FRAME = bytes.fromhex("0000000802000000")
IDLE_TIMEOUT_MS = 60_000
"""Of .NET; it takes a connection as dead if it hears nothing for so long."""
OPEN = Open(
    "scope-identifier",
    HOST,
    max_frame_size=65_536,
    idle_time_out=IDLE_TIMEOUT_MS,
    desired_capabilities=["a-capability-that-nobody-has"],
    properties={
        Symbol("product"): "azsdk-net-Azure.Messaging.ServiceBus",
        Symbol("version"): "7.20.1",
        Symbol("framework"): ".NET 8.0.0",
        Symbol("platform"): "Linux",
        Symbol("user-agent"): "azsdk-net-ServiceBus/7.20.1 (.NET 8.0.0; Linux)",
    },
)
TIMEOUT = {Symbol("com.microsoft:timeout"): UInt(59_999)}
MANAGEMENT = TIMEOUT | {Symbol("com.microsoft:entity-type"): "entity-mgmt"}
LINK_PROPERTIES = TIMEOUT | {
    Symbol("com.microsoft:client-version"): "7.20.1",
    Symbol("com.microsoft:tracking-id"): "11111111-2222-3333-4444-555555555555",
    Symbol("com.microsoft:something-of-tomorrow"): [1, {"of": "any type"}],
}

F = TypeVar("F", bound=Composite)


@dataclass(frozen=True)
class RequestLink:
    channel: int
    handle: int
    reply_to: str


class Peer:
    """A .NET client's end of a connection, with a session for `$cbs` on channel 0."""

    def __init__(self, world: World, *, life_s: int = 3600) -> None:
        self.world = world
        self.server = world.namespaces.connect(SomePeer(), lambda: None, encrypted=False)
        self.said: list[tuple[int, Composite, bytes]] = []
        self.empty_frames_ms: list[int] = []
        self._sent = b""
        self._channels = iter(range(1, 100))
        self._handles = iter(range(1_000))
        self._requests = 0
        world.clients.append(self)  # type: ignore[arg-type]
        self.write(SASL_HEADER + codec.encode_sasl_frame(SaslInit("ANONYMOUS", None, HOST)))
        assert self.last(SaslOutcome).code == 0
        self.write(AMQP_HEADER)
        self.send(OPEN)
        self.send(Begin(None, 1, 5_000, 5_000, 1_023))
        self._cbs = self.request_links("$cbs", TIMEOUT, channel=0)
        assert self.put_token(life_s=life_s) == 202

    # The wire.

    def carry(self) -> bool:
        up, self._sent = self._sent, b""
        if up:
            self.server.receive(up)
        down = self.server.take_output()
        if down == EMPTY_FRAME:
            self.empty_frames_ms.append(self.world.scheduler.now_ms())
        self.said += frames(down)
        return bool(up or down)

    def write(self, data: bytes) -> None:
        self._sent += data
        self.world.settle()

    def send(self, performative: Composite, payload: bytes = b"", *, channel: int = 0) -> None:
        self.write(codec.encode_frame(channel, performative, payload))

    def heard(self, kind: type[F]) -> list[F]:
        return [frame for _, frame, _ in self.said if isinstance(frame, kind)]

    def last(self, kind: type[F]) -> F:
        return self.heard(kind)[-1]

    # Sessions and links.

    def begin(self) -> int:
        """A session of its own for each link, with a window that never closes."""
        channel = next(self._channels)
        self.send(Begin(None, 1, UINT_MAX, 5_000, 1_023, properties={}), channel=channel)
        return channel

    def attach(self, channel: int, attach: Attach) -> Attach:
        """Returns the answer."""
        attach = replace(attach, handle=next(self._handles))
        self.asked = attach
        self.send(attach, channel=channel)
        return self.last(Attach)

    def request_links(self, node: str, properties: dict[Any, Any], *, channel: int) -> RequestLink:
        """A pair; the replies have credit."""
        name, reply_to = f"duplex:{node}", f"replies-{node}"
        ends = {"source": Source(node), "target": Target(reply_to), "properties": properties}
        self.attach(channel, Attach(name, 0, True, **ends))
        credit = Flow(0, 5_000, 1, 5_000, self.asked.handle, 0, 50)
        self.send(credit, channel=channel)
        ends = {"source": Source(node), "target": Target(node), "properties": properties}
        self.attach(channel, Attach(name, 0, False, initial_delivery_count=0, **ends))
        return RequestLink(channel, self.asked.handle, reply_to)

    def request(
        self, link: RequestLink, properties: dict[str, Any], content: Any
    ) -> dict[str, Any]:
        """The properties of the answer to it."""
        self._requests += 1
        asked = UUID(int=self._requests)
        payload = encode_message(
            properties=Properties(message_id=asked, reply_to=link.reply_to),
            application_properties=properties,
            body=content,
        )
        tag = self._requests.to_bytes(4, "little")
        transfer = Transfer(link.handle, self._requests, tag, 0, False)
        self.send(transfer, payload, channel=link.channel)
        (answer,) = (
            payload
            for _, frame, payload in self.said
            if isinstance(frame, Transfer) and read_properties(payload).correlation_id == asked
        )
        return dict(read_application_properties(answer))

    def put_token(self, path: str = "orders", *, life_s: int = 3600) -> int:
        name = f"sb://{HOST}/{path}"
        properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken"}
        text = sas(path, self.world, life_s=life_s)
        return int(self.request(self._cbs, properties | {"name": name}, text)["status-code"])

    def sender(
        self, name: str = "sender", *, channel: int | None = None, **fields: Any
    ) -> tuple[int, Attach]:
        """Its channel, and the broker's answer."""
        channel = self.begin() if channel is None else channel
        ends = {"source": Source("0f3c"), "target": Target("/orders")}  # a guid; an absolute path
        fields = {"properties": TIMEOUT, "initial_delivery_count": 0} | fields
        return channel, self.attach(channel, Attach(name, 0, False, **ends, **fields))

    def receiver(
        self, name: str = "receiver", *, filters: dict[Any, Any] | None = None, **fields: Any
    ) -> tuple[int, Attach]:
        channel = self.begin()
        ends = {"source": Source("/orders", filter=filters or {}), "target": Target("0f3c")}
        fields = {"snd_settle_mode": 0, "rcv_settle_mode": 1} | fields
        answer = self.attach(channel, Attach(name, 0, True, **ends, **fields))
        self.send(Flow(0, UINT_MAX, 1, 5_000, self.asked.handle, 0, 1), channel=channel)
        return channel, answer

    def put(self, channel: int, payload: bytes, number: int = 1) -> None:
        """On the link that was attached last; it must be accepted."""
        before = len(self.heard(Disposition))
        tag = number.to_bytes(4, "little")
        self.send(Transfer(self.asked.handle, number, tag, 0, False), payload, channel=channel)
        (answer,) = self.heard(Disposition)[before:]
        assert (answer.settled, answer.state) == (True, Accepted())

    def bodies(self, channel: int) -> list[str]:
        return [
            body(payload)
            for at, frame, payload in self.said
            if at == channel and isinstance(frame, Transfer)
        ]

    def pass_time(self, seconds: int) -> Iterator[int]:
        """Second after second; the caller says what the peer does in each."""
        for second in range(seconds):
            self.world.settle(for_ms=1_000)
            yield second
