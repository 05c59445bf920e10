"""Whole conversations as a client would write them, for tests that cut, mutate or replay bytes.

`converse` lets a client talk to a server that does what a broker does, and returns what the
client wrote. `answer` is that server's half: it grants credit, accepts, echoes and settles.
"""

from __future__ import annotations

from collections.abc import Callable

from busway.amqp.connection import Connection, ConnectionSettings
from busway.amqp.events import (
    AttachRequested,
    Disposed,
    Event,
    FlowReceived,
    TransferReceived,
    TransferTooLarge,
    UnknownDisposed,
)
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Accepted, Error, Modified, Rejected, Source, Target
from tests.amqp.pair import Pair, settings

SERVER = settings("server", max_frame_size=1024, max_message_size=5_000, max_partial_bytes=20_000)
CLIENT = settings("client", max_frame_size=512, hostname="ns.example")
LOCK_LOST = Rejected(Error("com.microsoft:message-lock-lost", "gone"))
TOO_LARGE = Rejected(Error("amqp:link:message-size-exceeded", "too large"))


def answer(events: list[Event]) -> None:
    """A server that refuses links named `no…` and sends two messages for every credit flow."""
    for event in events:
        if isinstance(event, AttachRequested):
            if event.link.name.startswith("no"):
                event.link.refuse("amqp:not-found", "no such queue")
            else:
                event.link.accept()
                event.link.set_credit(100) if not event.link.is_sender else _serve(event.link)
        elif isinstance(event, TransferReceived):
            if not event.settled:
                event.link.settle([event.delivery_id], Accepted())
        elif isinstance(event, TransferTooLarge):
            event.link.settle([event.delivery_id], TOO_LARGE)
        elif isinstance(event, FlowReceived):
            if event.link.is_sender:
                _serve(event.link)
        elif isinstance(event, Disposed):
            if not event.settled:
                event.link.settle_sent(event.delivery_ids, event.state)
        elif isinstance(event, UnknownDisposed) and not event.settled:
            event.session.settle_unknown(event.first, event.last, LOCK_LOST)


def _serve(link: Link) -> None:
    for number in range(min(link.credit, 2)):
        link.send(b"message" * 100 * number, b"0123456789abcdef", settled=number == 1)
    if link.drain:
        link.drained()


class Recording(Pair):
    """A pair whose server answers by itself, and which keeps what the client wrote."""

    def __init__(self, client: ConnectionSettings = CLIENT) -> None:
        super().__init__(client, SERVER)
        self.written = b""

    def to_server(self) -> None:
        data = self.client.take_output()
        self.written += data
        events = self.server.receive(data)
        answer(events)
        self.server_events += events


def _send(pair: Recording) -> None:
    session = pair.open()
    link = session.attach("out", LinkRole.SENDER, source=Source("me"), target=Target("queue"))
    pair.settle_wire()
    link.send(b"small", b"0001")
    link.send(b"large" * 500, b"0002")
    link.send(b"settled", b"0003", settled=True)
    link.send(b"too large" * 1000, b"0004")
    pair.settle_wire()
    link.detach()
    session.end()
    pair.client.close()


def _receive(pair: Recording) -> None:
    session = pair.open()
    link = session.attach(
        "in", LinkRole.RECEIVER, source=Source("queue"), target=Target("me"), rcv_settle_mode=1
    )
    link2 = session.attach("no such", LinkRole.RECEIVER, source=Source("nowhere"))
    pair.settle_wire()
    for credit in (1, 2, 3):
        link.set_credit(credit)
        pair.settle_wire()
    link.settle([0, 1], Accepted(), settled=False)
    link.settle([3], Modified(True, True), settled=False)
    link.settle([77], Rejected(Error("com.microsoft:dead-letter")), settled=False)
    pair.settle_wire()
    link.set_credit(5, drain=True)
    pair.settle_wire()
    assert not link2.is_attached
    link.detach()
    pair.settle_wire()
    pair.client.close()


def _many_sessions(pair: Recording) -> None:
    pair.open()
    for number in range(5):
        session = pair.client.begin()
        sender = session.attach("rpc", LinkRole.SENDER, target=Target("$cbs"))
        session.attach("rpc", LinkRole.RECEIVER, source=Source("$cbs"), target=Target("reply"))
        pair.settle_wire()
        sender.send(b"token %d" % number, b"t")
        pair.settle_wire()
        session.end()
        pair.settle_wire()
    pair.client.close("amqp:internal-error", "a bad end")


def _vanishing(pair: Recording) -> None:
    session = pair.open()
    session.attach("out", LinkRole.SENDER, target=Target("queue"))
    session.attach("out", LinkRole.RECEIVER, source=Source("queue"))
    pair.settle_wire()
    pair.client.write_frame(bytes.fromhex("0000000802000000"))


_SCRIPTS: dict[str, Callable[[Recording], None]] = {
    "send": _send,
    "receive": _receive,
    "many_sessions": _many_sessions,
    "vanishing": _vanishing,
}
NAMES = sorted(_SCRIPTS)


def converse(name: str) -> bytes:
    """What the client wrote in this conversation, from its first header on."""
    pair = Recording()
    _SCRIPTS[name](pair)
    pair.settle_wire()
    return pair.written


def play(server: Connection, data: bytes, sizes: list[int]) -> tuple[list[Event], bytes]:
    """Feed the bytes in chunks of these sizes, the last one over and over, and answer each."""
    told: list[Event] = []
    output = b""
    offset = turn = 0
    while offset < len(data):
        size = max(1, sizes[min(turn, len(sizes) - 1)])
        events = server.receive(data[offset : offset + size])
        answer(events)
        told += events
        output += server.take_output()
        offset += size
        turn += 1
    told += server.eof()
    return told, output
