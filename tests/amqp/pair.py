"""Two engines and a wire between them, as a test sees it.

`Pair.settle_wire` carries bytes both ways until nobody has any; what each side was told in the
meantime is in `client_events` and `server_events`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from busway.amqp import codec
from busway.amqp.connection import AMQP_HEADER, SASL_HEADER, Connection, ConnectionSettings, Role
from busway.amqp.events import Attached, AttachRequested, Event
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Composite, Open, Source, Target
from busway.amqp.session import Session

E = TypeVar("E")


def settings(name: str = "side", **changes: Any) -> ConnectionSettings:
    return dataclasses.replace(ConnectionSettings(container_id=name), **changes)


class Pair:
    def __init__(
        self,
        client: ConnectionSettings | None = None,
        server: ConnectionSettings | None = None,
    ) -> None:
        self.client = Connection(client or settings("client"), role=Role.CLIENT)
        self.server = Connection(server or settings("server"), role=Role.SERVER)
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []

    def settle_wire(self) -> None:
        while self.client.output_size or self.server.output_size:
            self.to_server()
            self.to_client()

    def to_server(self) -> None:
        data = self.client.take_output()
        if data:
            self.server_events += self.server.receive(data)

    def to_client(self) -> None:
        data = self.server.take_output()
        if data:
            self.client_events += self.client.receive(data)

    def forget_events(self) -> None:
        self.client_events.clear()
        self.server_events.clear()

    def open(self) -> Session:
        """An open connection with one session; returns the client's end of it."""
        self.client.open()
        session = self.client.begin()
        self.settle_wire()
        return session

    def link(
        self, role: LinkRole, name: str = "link", session: Session | None = None, **changes: Any
    ) -> tuple[Link, Link]:
        """An attached link of the client's `role`; returns the client's end and the server's."""
        link, request = self.ask_for_link(role, name, session, **changes)
        request.accept()
        self.settle_wire()
        only(self.client_events, Attached)
        self.forget_events()
        return link, request

    def ask_for_link(
        self, role: LinkRole, name: str = "link", session: Session | None = None, **changes: Any
    ) -> tuple[Link, Link]:
        """A link that the server has not answered yet."""
        if session is None:
            session = self.client.sessions[0] if self.client.sessions else self.open()
        self.forget_events()
        changes = {"source": Source("queue"), "target": Target("queue")} | changes
        link = session.attach(name, role, **changes)
        self.settle_wire()
        return link, only(self.server_events, AttachRequested).link


def only(events: list[Event], kind: type[E]) -> E:
    """The one event of this kind."""
    found = every(events, kind)
    assert len(found) == 1, f"{len(found)} {kind.__name__} in {events}"
    return found[0]


def every(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


class RawClient:
    """A server and a peer that writes whatever it likes, frame by frame."""

    def __init__(self, server: ConnectionSettings | None = None, *, is_open: bool = True) -> None:
        self.server = Connection(server or settings("server"), role=Role.SERVER)
        self.events: list[Event] = []
        if is_open:
            self.send_bytes(AMQP_HEADER)
            self.send(Open("raw"))
            assert self.server.take_output().startswith(AMQP_HEADER)
            self.events.clear()

    def send_bytes(self, data: bytes) -> None:
        self.events += self.server.receive(data)

    def send(self, performative: Composite | None, payload: bytes = b"", channel: int = 0) -> None:
        self.send_bytes(codec.encode_frame(channel, performative, payload))

    def answers(self) -> list[tuple[int, Composite, bytes]]:
        """What the server has written since: channel, performative, payload."""
        return frames(self.server.take_output())


def frames(data: bytes) -> list[tuple[int, Composite, bytes]]:
    """The frames in some output, headers and empty frames left out."""
    found: list[tuple[int, Composite, bytes]] = []
    offset = 0
    while offset < len(data):
        if data[offset : offset + 8] in (AMQP_HEADER, SASL_HEADER):
            offset += 8
            continue
        decoded, offset = codec.decode_frames(data, offset, 1 << 30)
        found += [(channel, frame, payload) for _, channel, frame, payload in decoded if frame]
    return found
