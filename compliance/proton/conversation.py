"""A connection of Qpid Proton that a test speaks through, one statement after the other.

Proton's own blocking wrapper opens links and waits; what it has no words for (coordinator,
transactional state, an outcome looked at instead of raised) is here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from proton import Delivery, Described, Link, Message, Terminus, symbol, ulong
from proton.handlers import MessagingHandler
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

PATIENCE_S = 10.0
DECLARE, DISCHARGE = ulong(0x31), ulong(0x32)
DECLARED, TRANSACTIONAL = 0x33, 0x34
ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27

_names = count(1)
_taken: Counter[str] = Counter()


def take(kind: str, flavour: str) -> str:
    """The next entity of a pool of `compliance/entities.py`."""
    prefix = f"{kind}-partitioned" if flavour == "partitioned" else kind
    _taken[prefix] += 1
    return f"{prefix}-{_taken[prefix]}"


def keyed(body: str, key: str = "key", **fields: Any) -> Message:
    """With a key, so that a transaction may send it to a partitioned entity too (P-33)."""
    annotations = {symbol("x-opt-partition-key"): key}
    return Message(body=body, annotations=annotations, **fields)


@dataclass(frozen=True)
class Outcome:
    """How the broker answered a delivery."""

    state: int
    transaction: bytes | None = None
    condition: str = ""
    text: str = ""


class Inbox(MessagingHandler):
    """Keeps what comes, unsettled, until the test asks for it."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.arrived: list[tuple[Message, Delivery]] = []

    def on_message(self, event: Any) -> None:
        self.arrived.append((event.message, event.delivery))

    def on_link_error(self, event: Any) -> None:
        pass  # The conversation looks at the link itself.


class _Coordinator(LinkOption):
    def apply(self, link: Link) -> None:
        link.target.type = Terminus.COORDINATOR
        link.target.address = None
        link.target.capabilities.put_object(symbol("amqp:local-transactions"))


class _Via(LinkOption):
    """Send-via: the link goes to one entity, its messages to another (amqp.md 14)."""

    def __init__(self, destination: str) -> None:
        self.destination = destination

    def apply(self, link: Link) -> None:
        link.properties = {symbol("com.microsoft:transfer-destination-address"): self.destination}


class _Second(LinkOption):
    """Peek-lock as the SDKs ask for it: the broker settles last (amqp.md 10)."""

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND


class Conversation:
    """By SASL PLAIN with rule and key of the connection string, unless others are given."""

    def __init__(self, *, user: str | None = None, password: str | None = None) -> None:
        parts = dict(
            part.split("=", 1)
            for part in os.environ["BUSWAY_CONNECTION_STRING"].rstrip(";").split(";")
        )
        self._kept: list[object] = []
        self.connection = BlockingConnection(
            parts["Endpoint"].replace("sb://", "amqp://").rstrip("/"),
            timeout=PATIENCE_S,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            user=parts["SharedAccessKeyName"] if user is None else user,
            password=parts["SharedAccessKey"] if password is None else password,
        )

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def wait(self, condition: Callable[[], object], what: str) -> None:
        self.connection.wait(condition, timeout=PATIENCE_S, msg=what)

    # --- links -------------------------------------------------------------------------------

    def sender(self, address: str, *, destination: str | None = None) -> Link:
        options = [] if destination is None else [_Via(destination)]
        name = f"sender-{next(_names)}"  # Proton's own would be the same for the same address.
        return self.connection.create_sender(address, name=name, options=options).link

    def receiver(self, address: str) -> Receiver:
        inbox = Inbox()
        blocking = self.connection.create_receiver(
            address, credit=0, handler=inbox, options=[_Second()]
        )
        self._kept.append(blocking)  # It takes the handler off the link when it is collected.
        return Receiver(self, blocking.link, inbox)

    def coordinator(self) -> Coordinator:
        return Coordinator(self, self.connection.create_sender(None, options=[_Coordinator()]).link)

    # --- deliveries --------------------------------------------------------------------------

    def send(self, link: Link, message: Message, transaction: bytes | None = None) -> Outcome:
        delivery = link.send(message)
        if transaction is not None:
            delivery.local.data = [transaction]
            delivery.update(TRANSACTIONAL)
        return self.outcome(delivery)

    def outcome(self, delivery: Delivery) -> Outcome:
        """Wait until the broker has settled, and tell how."""
        self.wait(lambda: delivery.settled, "the broker settles")
        told = self.told(delivery)
        delivery.settle()
        return told

    @staticmethod
    def told(delivery: Delivery) -> Outcome:
        """What the broker has said of it last."""
        state, data = int(delivery.remote_state), delivery.remote.data
        condition = delivery.remote.condition
        if state == TRANSACTIONAL:
            transaction, outcome = data[0], data[1] if len(data) > 1 else None
            return Outcome(_code(outcome), bytes(transaction))
        if state == DECLARED:
            return Outcome(state, bytes(data[0]))
        if condition is not None:
            return Outcome(state, None, condition.name, condition.description or "")
        return Outcome(state)


def _code(outcome: Described | None) -> int:
    return -1 if outcome is None else int(outcome.descriptor)


@dataclass
class Receiver:
    conversation: Conversation
    link: Link
    inbox: Inbox

    def receive(self, number: int = 1) -> list[tuple[Message, Delivery]]:
        """Give as much credit as is missing, and wait until all are there."""
        missing = number - len(self.inbox.arrived)
        if missing > self.link.credit:
            self.link.flow(missing - self.link.credit)
        self.conversation.wait(
            lambda: len(self.inbox.arrived) >= number, f"{number} messages arrive"
        )
        taken, self.inbox.arrived[:] = self.inbox.arrived[:number], self.inbox.arrived[number:]
        return taken

    def is_empty(self) -> bool:
        """Drain: the broker sends what it has, and gives the credit back."""
        self.link.drain(1)
        self.conversation.wait(
            lambda: self.link.credit == 0 or self.inbox.arrived, "the broker drains"
        )
        self.link.drain_mode = False
        return not self.inbox.arrived

    def settle(
        self, delivery: Delivery, state: int = ACCEPTED, transaction: bytes | None = None
    ) -> Outcome:
        """In a transaction the broker answers and leaves it unsettled: the discharge decides."""
        if transaction is None:
            delivery.update(state)
            return self.conversation.outcome(delivery)
        delivery.local.data = [transaction, Described(ulong(state), [])]
        delivery.update(TRANSACTIONAL)
        self.conversation.wait(lambda: delivery.remote_state, "the broker answers")
        assert not delivery.settled
        return self.conversation.told(delivery)


@dataclass
class Coordinator:
    conversation: Conversation
    link: Link

    def declare(self) -> bytes:
        outcome = self.conversation.send(self.link, Message(body=Described(DECLARE, [None])))
        assert outcome.state == DECLARED, outcome
        assert outcome.transaction
        return outcome.transaction

    def commit(self, transaction: bytes) -> Outcome:
        return self._discharge(transaction, fail=False)

    def roll_back(self, transaction: bytes) -> Outcome:
        return self._discharge(transaction, fail=True)

    def _discharge(self, transaction: bytes, *, fail: bool) -> Outcome:
        body = Described(DISCHARGE, [transaction, fail])
        return self.conversation.send(self.link, Message(body=body))
