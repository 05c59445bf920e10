"""An AMQP client on a blocking socket, for what the SDK for Python does not do: transactions.

It is the engine in a client's role. What comes is kept until somebody asks for it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import UUID

from busway.amqp.codec import encode_value
from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import Closed, Detached, Disposed, Event, TransferReceived
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Coordinator,
    Declared,
    DeliveryState,
    Properties,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.sections import (
    AMQP_VALUE,
    MESSAGE_ANNOTATIONS,
    encode_message,
    read_application_properties,
)
from busway.amqp.types import Described, Symbol, ULong
from busway.sim.wire_messages import decode

WAIT_S = 120.0


class GoneError(ConnectionError):
    """The server went away, or said goodbye."""


class RawClient:
    """One connection with one session."""

    def __init__(self, connection_string: str) -> None:
        parts = dict(part.split("=", 1) for part in connection_string.split(";") if part)
        endpoint = parts["Endpoint"].removeprefix("sb://").rstrip("/")
        host, _, port = endpoint.rpartition(":")
        credentials = (parts["SharedAccessKeyName"], parts["SharedAccessKey"])
        try:
            self._socket = socket.create_connection((host, int(port)), WAIT_S)
        except OSError as error:
            raise GoneError(str(error)) from error
        settings = ConnectionSettings("chaos", host, credentials=credentials)
        self._engine = Connection(settings, role=Role.CLIENT)
        self._engine.open()
        self._session = self._engine.begin()
        self._tags = 0
        self.outcomes: dict[tuple[Link, int], DeliveryState | None] = {}
        """Of what was sent, by link and delivery id."""
        self.deliveries: dict[Link, list[TransferReceived]] = {}
        """What came and nobody has taken."""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    # Talking.

    def until(self, condition: Callable[[], object]) -> None:
        """Talk until it holds; `GoneError` if the server goes first."""
        while not condition():
            try:
                self._socket.sendall(self._engine.take_output())
                data = self._socket.recv(1 << 16)
            except OSError as error:
                raise GoneError(str(error)) from error
            for event in self._engine.receive(data) if data else self._engine.eof():
                self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case TransferReceived():
                self.deliveries[event.link].append(event)
            case Disposed():
                for delivery_id in event.delivery_ids:
                    self.outcomes[event.link, delivery_id] = event.state
            case Detached() | Closed():
                raise GoneError(str(event.error))
            case _:
                pass

    # Links.

    def attach(self, name: str, role: LinkRole, **ends: Any) -> Link:
        ends = {"source": Source(name), "target": Target(name), **ends}
        link = self._session.attach(name, role, **ends)
        self.until(lambda: link.is_attached)
        return link

    def sender(self, path: str) -> Link:
        return self.attach(f"to {path}", LinkRole.SENDER, target=Target(path))

    def receiver(self, path: str, *, delete: bool = False) -> Link:
        link = self.attach(
            f"from {path}",
            LinkRole.RECEIVER,
            source=Source(path),
            snd_settle_mode=1 if delete else 0,
            rcv_settle_mode=0 if delete else 1,
        )
        self.deliveries[link] = []
        return link

    def hold_session(self, path: str, session_id: str) -> None:
        """For as long as the connection lasts."""
        held = {Symbol("com.microsoft:session-filter"): session_id}
        self.attach(f"session {session_id}", LinkRole.RECEIVER, source=Source(path, filter=held))

    def requests(self, path: str) -> Requests:
        return Requests(self, f"{path}/$management")

    def coordinator(self) -> Link:
        return self.attach("coordinator", LinkRole.SENDER, target=Coordinator())

    def take_all(self, path: str) -> list[TransferReceived]:
        """Receive and delete until a drain brings nothing (amqp.md 9). Once for each client."""
        link = self.receiver(path, delete=True)
        taken: list[TransferReceived] = []
        came = -1
        while came < len(taken):
            came = len(taken)
            link.set_credit(1_000, drain=True)
            self.until(lambda: link.credit == 0)
            taken, self.deliveries[link] = taken + self.deliveries[link], []
        return taken

    # Sending.

    def put(self, link: Link, payload: bytes, state: DeliveryState | None = None) -> int:
        """Without waiting for the outcome."""
        self.until(lambda: link.credit)
        self._tags += 1
        return link.send(payload, self._tags.to_bytes(4, "big"), state=state)

    def outcome(self, link: Link, delivery_id: int) -> DeliveryState | None:
        self.until(lambda: (link, delivery_id) in self.outcomes)
        return self.outcomes.pop((link, delivery_id))

    def ask(self, link: Link, code: int, *fields: Any) -> DeliveryState | None:
        """*declare* (0x31) or *discharge* (0x32), and its outcome."""
        body = Described(ULong(code), list(fields))
        return self.outcome(link, self.put(link, encode_message(body=body)))

    def declare(self, link: Link) -> TransactionalState:
        state = self.ask(link, 0x31, None)
        assert isinstance(state, Declared), state
        return TransactionalState(state.txn_id)


class Requests:
    """A node's requests and replies, one at a time."""

    def __init__(self, client: RawClient, node: str) -> None:
        self._client = client
        self._replies = client.attach(node, LinkRole.RECEIVER)
        self._link = client.attach(node, LinkRole.SENDER)
        client.deliveries[self._replies] = []
        self._asked = 0

    def ask(self, operation: str, state: DeliveryState | None = None, **arguments: Any) -> Any:
        """What is answered, underscores standing for hyphens; it must not be refused."""
        client = self._client
        self._asked += 1
        self._replies.set_credit(1)
        request = encode_message(
            properties=Properties(message_id=UUID(int=self._asked)),
            application_properties={"operation": f"com.microsoft:{operation}"},
            body={name.replace("_", "-"): value for name, value in arguments.items()},
        )
        client.put(self._link, request, state)
        client.until(lambda: client.deliveries[self._replies])
        reply = client.deliveries[self._replies].pop().payload
        said = read_application_properties(reply)
        assert said["statusCode"] in (200, 204), (operation, said)
        return decode(reply).get(AMQP_VALUE) or {}


def message(message_id: str, key: str | None) -> bytes:
    annotations = b""
    if key is not None:
        keyed = {Symbol("x-opt-partition-key"): key}
        annotations = encode_value(Described(ULong(MESSAGE_ANNOTATIONS), keyed))
    properties = Properties(message_id=message_id)
    return annotations + encode_message(properties=properties, data=b"x" * 100)
