"""Transactions of a simulated AMQP client: declared, filled and discharged on a control link (TXN).

What its receivers hold is settled in them, and messages are sent: to the entity that they came
from, and to others by way of it (TXN-3), because all links are in the coordinator's session. Some
are given up; and whatever breaks the connection before the discharge was sent ends them undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from busway.amqp.events import Detached, Disposed, Event
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    Coordinator,
    Declared,
    DeliveryState,
    Rejected,
    Source,
)
from busway.amqp.sections import encode_message
from busway.amqp.types import Described, ULong
from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.sim import habits
from busway.sim.amqp_answers import answer_of
from busway.sim.amqp_receiver import AmqpReceiver, HeldDelivery, outcome
from busway.sim.amqp_sender import AmqpSender, packed
from busway.sim.direct import Outgoing
from busway.sim.direct_messages import Target
from busway.sim.habits import Parcel
from busway.sim.history import (
    Answer,
    Holder,
    SendEnded,
    SettleEnded,
    SettleStarted,
    TransactionEnded,
    TransactionStarted,
    Violation,
)
from busway.store.base import SubQueueKind

if TYPE_CHECKING:
    from busway.sim.amqp_clients import AmqpClient

DECLARE, DISCHARGE = 0x31, 0x32
GIVEN_UP_PERCENT = 15
OPEN_MAX_MS = 2_000

Wish = tuple[Target, Parcel, Queue | None]
"""What is to be sent, and by way of which queue if that is another."""

Compose = Callable[[Holder | None, int | None, str | None], list[Wish]]
"""What a transaction may send that settles messages of this entity, partition and session."""


@dataclass(frozen=True, slots=True)
class Settling:
    number: int
    held: HeldDelivery
    kind: SettlementKind
    changes: dict[str, Any]
    reason: str | None


@dataclass(slots=True)
class Filled:
    """A transaction with everything in it."""

    number: int
    transaction_id: bytes
    receiver: AmqpReceiver | None
    settles: list[Settling]
    sends: list[int] = field(default_factory=list)
    given_up: bool = False


class AmqpTransactor:
    """The control link of one client."""

    def __init__(self, client: AmqpClient, compose: Compose) -> None:
        self._client = client
        self._setting = client.setting
        self._random = client.random
        self._compose = compose
        self._link: Link | None = None
        self._lives = 0
        self._tags = 0
        self._declaring: dict[int, tuple[AmqpReceiver | None, list[HeldDelivery]]] = {}
        self._open: dict[int, Filled] = {}
        """By their own numbers."""
        self._discharging: dict[int, Filled] = {}
        """By delivery id."""

    @property
    def idle(self) -> bool:
        return not self._open and not self._discharging

    def attach(self) -> None:
        session = self._client.session
        if session is not None:
            self._lives += 1
            name = f"{self._client.name}-control-{self._lives}"
            self._link = session.attach(
                name, LinkRole.SENDER, source=Source(name), target=Coordinator()
            )
            self._link.context = self

    def lost(self) -> None:
        """TXN-4: what was not discharged is rolled back."""
        self._link = None
        self._declaring.clear()
        open_, self._open = self._open, {}
        discharging, self._discharging = self._discharging, {}
        for filled in open_.values():
            self._end(filled, Answer.REFUSED)
        for filled in discharging.values():
            self._end(filled, Answer.REFUSED if filled.given_up else Answer.UNKNOWN)

    # Beginning one.

    def begin(self, receiver: AmqpReceiver | None, held: list[HeldDelivery]) -> bool:
        link = self._link
        if link is None or not link.is_attached or link.credit == 0:
            return False
        self._declaring[self._ask(link, DECLARE, [None])] = (receiver, held)
        return True

    def _ask(self, link: Link, code: int, fields: list[object]) -> int:
        self._tags += 1
        payload = encode_message(body=Described(ULong(code), fields))
        return link.send(payload, self._tags.to_bytes(4, "big"))

    def take(self, event: Event) -> None:
        if isinstance(event, Detached):
            self.lost()
        elif isinstance(event, Disposed):
            for delivery_id in event.delivery_ids:
                if delivery_id in self._declaring:
                    self._declared(*self._declaring.pop(delivery_id), event.state)
                else:
                    self._discharged(self._discharging.pop(delivery_id), event.state)

    def _declared(
        self,
        receiver: AmqpReceiver | None,
        held: list[HeldDelivery],
        state: DeliveryState | None,
    ) -> None:
        if not isinstance(state, Declared):
            return  # nothing was begun
        setting, record = self._setting, self._setting.history.record
        settles = self._decide(receiver, held)
        filled = Filled(setting.next_number(), state.txn_id, receiver, settles)
        outgoing = self._pack(receiver, held)
        for _, each, _, via in outgoing:
            filled.sends += each.start(setting, via)
        numbers = tuple(settle.number for settle in settles)
        record(TransactionStarted(filled.number, tuple(filled.sends), numbers))
        for settle in settles:
            assert receiver is not None
            it = settle.held
            record(
                SettleStarted(settle.number, it.key, it.body, it.token, settle.kind, settle.reason)
            )
            receiver.settle_in(state.txn_id, it, outcome(settle.kind, settle.changes))
        for sender, each, payloads, _ in outgoing:
            sender.send_in(state.txn_id, each, payloads)
        self._open[filled.number] = filled
        delay_ms = self._random.choice((0, 0, self._random.randint(0, OPEN_MAX_MS)))
        setting.world.scheduler.after(delay_ms, lambda: self._discharge(filled))

    def _pack(
        self, receiver: AmqpReceiver | None, held: list[HeldDelivery]
    ) -> list[tuple[AmqpSender, Outgoing, list[bytes], Queue | None]]:
        wishes = self._compose(
            None if receiver is None else receiver.queue,
            held[0].key.partition if held else None,
            None if receiver is None else receiver.session_id,
        )
        found: list[tuple[AmqpSender, Outgoing, list[bytes], Queue | None]] = []
        for target, parcel, via in wishes:
            sender = self._client.sender_to(target)
            # One credit each, and there are never more than a few.
            if sender.can_send and all(each[0] is not sender for each in found):
                found.append((sender, *packed(self._setting, target, parcel), via))
        return found

    def _decide(self, receiver: AmqpReceiver | None, held: list[HeldDelivery]) -> list[Settling]:
        """What becomes of those that can still be settled."""
        settles = []
        for each in held:
            if receiver is None or not receiver.can_settle(each):
                continue
            kind = receiver.some_outcome() or SettlementKind.COMPLETE
            if kind is SettlementKind.RELEASE or each.key.kind is not SubQueueKind.MAIN:
                kind = SettlementKind.COMPLETE
            settlement, reason = habits.settlement(kind, self._random)
            number = self._setting.next_number()
            settles.append(Settling(number, each, kind, settlement.changes, reason))
        return settles

    # Ending one.

    def _discharge(self, filled: Filled) -> None:
        if filled.number not in self._open:
            return  # lost meanwhile
        link = self._link
        assert link is not None
        if link.credit == 0:
            self._setting.world.scheduler.after(100, lambda: self._discharge(filled))
            return
        del self._open[filled.number]
        filled.given_up = self._random.randrange(100) < GIVEN_UP_PERCENT
        fields: list[object] = [filled.transaction_id, filled.given_up]
        self._discharging[self._ask(link, DISCHARGE, fields)] = filled

    def _discharged(self, filled: Filled, state: DeliveryState | None) -> None:
        if isinstance(state, Accepted):
            self._end(filled, Answer.REFUSED if filled.given_up else Answer.DONE)
        elif isinstance(state, Rejected):
            self._end(filled, Answer.REFUSED if filled.given_up else answer_of(state.error))
        else:
            raise Violation("answers", f"a discharge was answered with {state}")

    def _end(self, filled: Filled, answer: Answer) -> None:
        record = self._setting.history.record
        for send in filled.sends:
            record(SendEnded(send, answer))
        for settle in filled.settles:
            record(SettleEnded(settle.number, answer))
            if filled.receiver is None:
                continue
            if answer is Answer.DONE:
                filled.receiver.was_settled(settle.held, settle.kind)
            elif answer is Answer.REFUSED and self._random.randrange(2):
                filled.receiver.decide_again(settle.held)
        record(TransactionEnded(filled.number, answer))
