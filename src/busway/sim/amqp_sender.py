"""A sending link of a simulated AMQP client, to a queue or a topic; alone or in a transaction.

Where duplicates are detected it sends again what may not have arrived, and sometimes what has
(DUP-3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from busway.amqp import codec
from busway.amqp.events import Detached, Disposed, Event
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    DeliveryState,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from busway.amqp.sections import BATCH_FORMAT
from busway.amqp.session import Session
from busway.sim import direct_messages
from busway.sim.amqp_answers import answer_of, is_over_quota
from busway.sim.direct import REPEATS_MAX, Outgoing, Setting
from busway.sim.habits import Parcel
from busway.sim.history import Answer, SendEnded, Violation
from busway.sim.wire_messages import encode


class SendingClient(Protocol):
    """The connection that it is on, whichever that is by now."""

    @property
    def name(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    @property
    def setting(self) -> Setting: ...

    @property
    def session(self) -> Session | None: ...


@dataclass(slots=True)
class Sent:
    """A transfer without an answer; its `sends` are one for each copy that will be made."""

    outgoing: Outgoing
    sends: tuple[int, ...]
    times: int
    in_transaction: bool = False


def packed(
    setting: Setting, target: direct_messages.Target, parcel: Parcel
) -> tuple[Outgoing, list[bytes]]:
    """Messages as they will be sent: their sizes are what they are on the wire (LIM-4)."""
    outgoing = Outgoing.pack(setting, target, parcel)
    payloads = payloads_of(outgoing)
    outgoing.parcel = replace(parcel, sizes=tuple(len(payload) for payload in payloads))
    return outgoing, payloads


def payloads_of(outgoing: Outgoing) -> list[bytes]:
    return [
        encode(body, outgoing.parcel, size, outgoing.due_ms)
        for body, size in zip(outgoing.bodies, outgoing.parcel.sizes, strict=True)
    ]


class AmqpSender:
    def __init__(self, client: SendingClient, target: direct_messages.Target) -> None:
        self._client = client
        self._setting = client.setting
        self._target = target
        self._link: Link | None = None
        self._tags = 0
        self._under_way: dict[int, Sent] = {}
        """By delivery id, which is one for each life of the link."""

    @property
    def idle(self) -> bool:
        return not self._under_way

    @property
    def can_send(self) -> bool:
        link = self._link
        return link is not None and link.is_attached and link.credit > 0

    def attach(self) -> None:
        session = self._client.session
        if session is not None:
            name = f"{self._client.name}-sender-{self._target.path}"
            self._link = session.attach(
                name,
                LinkRole.SENDER,
                source=Source(name),
                target=Target(self._target.path),
                rcv_settle_mode=1,
            )
            self._link.context = self

    def lost(self) -> None:
        """What a transaction sent is its coordinator's business."""
        self._link = None
        under_way, self._under_way = self._under_way, {}
        for sent in under_way.values():
            if not sent.in_transaction:
                self._end(sent, Answer.UNKNOWN)

    def send(self, parcel: Parcel) -> None:
        if self.can_send:
            outgoing, payloads = packed(self._setting, self._target, parcel)
            self._send(Sent(outgoing, outgoing.start(self._setting), 1), payloads, None)

    def send_in(self, transaction_id: bytes, outgoing: Outgoing, payloads: list[bytes]) -> None:
        """What was said to be sent by whoever has the transaction."""
        state = TransactionalState(transaction_id)
        self._send(Sent(outgoing, (), 1, in_transaction=True), payloads, state)

    def _send(self, sent: Sent, payloads: list[bytes], state: DeliveryState | None) -> None:
        link = self._link
        assert link is not None
        self._tags += 1
        tag = self._tags.to_bytes(4, "big")
        if len(payloads) == 1:
            delivery_id = link.send(payloads[0], tag, state=state)
        else:
            inner = b"".join(b"\x00\x53\x75" + codec.encode_value(each) for each in payloads)
            delivery_id = link.send(inner, tag, message_format=BATCH_FORMAT, state=state)
        self._under_way[delivery_id] = sent

    def take(self, event: Event) -> None:
        if isinstance(event, Disposed):
            for delivery_id in event.delivery_ids:
                sent = self._under_way.pop(delivery_id, None)
                if sent is None:
                    raise Violation("answers", f"delivery {delivery_id} was answered twice")
                self._answered(sent, event.state)
        elif isinstance(event, Detached):
            self.lost()

    def _answered(self, sent: Sent, state: DeliveryState | None) -> None:
        if isinstance(state, Accepted) and not sent.in_transaction:
            self._end(sent, Answer.DONE)
        elif isinstance(state, Rejected):
            if not sent.in_transaction:
                self._end(sent, answer_of(state.error), is_over_quota(state.error))
        elif not sent.in_transaction or not isinstance(state, TransactionalState):
            raise Violation("answers", f"a send was answered with {state}")

    def _end(self, sent: Sent, answer: Answer, over_quota: bool = False) -> None:
        for send in sent.sends:
            self._setting.history.record(SendEnded(send, answer, over_quota))
        if self._target.requires_duplicate_detection and sent.times < REPEATS_MAX:
            random = self._setting.world.random
            if random.randrange(100) < (15 if answer is Answer.DONE else 70):
                self._setting.world.scheduler.after(
                    random.randint(0, 3_000), lambda: self._repeat(sent.outgoing, sent.times + 1)
                )

    def _repeat(self, outgoing: Outgoing, times: int) -> None:
        if self.can_send and not self._client.closed:
            sent = Sent(outgoing, outgoing.start(self._setting), times)
            self._send(sent, payloads_of(outgoing), None)
