"""Clients that use transactions, and those that cancel what is scheduled (TXN, SCH-2, D-28).

A transaction settles what its client holds, sends, schedules, and sends to other entities by way
of this one; all in one store. When its broker dies with it, it is often asked for again under its
own name, because that is what a coordinator does that does not know how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from busway.broker.seams import Settlement, SettlementKind
from busway.broker.transactions import Transaction
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.sim import habits
from busway.sim.direct import Outgoing, Setting, answer_of
from busway.sim.direct_holder import Held
from busway.sim.direct_messages import Target
from busway.sim.habits import Habits
from busway.sim.history import (
    Answer,
    CancelEnded,
    CancelStarted,
    SendEnded,
    SettleEnded,
    SettleStarted,
    TransactionEnded,
    TransactionStarted,
    Violation,
)
from busway.sim.world import StoreAndBroker
from busway.store.base import SubQueueKey, SubQueueKind

LOOK_MS = 500
ASK_WITHIN_MS = 120_000
"""A transaction's outcome is known for five minutes (D-28)."""
REPEATED_PERCENT = 50


@dataclass(slots=True)
class Part:
    """Messages of a transaction: sent to `key`, or by way of it."""

    key: SubQueueKey
    outgoing: Outgoing
    via: Queue | None = None


@dataclass(slots=True)
class TransactionUnderWay:
    store: StoreAndBroker
    transaction_id: bytes
    began_ms: int
    parts: list[Part]
    settles: list[tuple[Held, SettlementKind, Settlement]]
    sends: list[int] = field(default_factory=list)
    settlements: list[int] = field(default_factory=list)
    schedules: list[tuple[Part, list[Message]]] = field(default_factory=list)
    numbers: dict[int, list[int]] = field(default_factory=dict)
    """By place among the parts: what was reserved for those that are scheduled, once for all."""
    epoch: int | None = None
    in_life: int = 0
    is_repeated: bool = False


class DirectTransactor:
    """`compose` gives the sends that a transaction in a store may have."""

    def __init__(
        self, setting: Setting, compose: Callable[[StoreAndBroker, Target | None], list[Part]]
    ) -> None:
        self._setting = setting
        self._world = setting.world
        self._random = setting.world.random
        self._compose = compose
        self._under_way: dict[int, TransactionUnderWay] = {}
        self._cancels: dict[int, StoreAndBroker] = {}
        setting.world.crash_listeners.append(self._crashed)

    @property
    def idle(self) -> bool:
        return not self._under_way and not self._cancels

    # Beginning one.

    def settle(self, held: Sequence[Held], habits_: Habits) -> bool:
        entity = self._world.catalog.get(held[0].key.incarnation)
        store = self._world.owner(held[0].key)
        if entity is None or store is None or not store.serving:
            return False
        settles = []
        for each in held:
            kind = habits_.outcome(self._random) or SettlementKind.COMPLETE
            if kind is SettlementKind.RELEASE or each.key.kind is not SubQueueKind.MAIN:
                kind = SettlementKind.COMPLETE
            settles.append((each, kind))
        via = (
            entity if isinstance(entity, Queue) and held[0].key.kind is SubQueueKind.MAIN else None
        )
        self._begin(store, self._compose(store, via), settles)
        return True

    def send(self, store: StoreAndBroker, via: Queue | None) -> None:
        """Without anything to settle."""
        parts = self._compose(store, via)
        if parts and store.serving:
            self._begin(store, parts, [])

    def _begin(
        self,
        store: StoreAndBroker,
        parts: list[Part],
        settles: list[tuple[Held, SettlementKind]],
    ) -> None:
        setting = self._setting
        number = setting.next_number()
        under_way = TransactionUnderWay(
            store, b"simulated %d" % number, self._world.now_ms(), parts, []
        )
        reasons = []
        for held, kind in settles:
            settlement, reason = habits.settlement(kind, self._random)
            under_way.settles.append((held, kind, settlement))
            under_way.settlements.append(setting.next_number())
            reasons.append(reason)
        for part in parts:
            under_way.sends += part.outgoing.start(setting, part.via)
        setting.history.record(
            TransactionStarted(number, tuple(under_way.sends), tuple(under_way.settlements))
        )
        for settling, (held, kind), reason in zip(
            under_way.settlements, settles, reasons, strict=True
        ):
            setting.history.record(
                SettleStarted(settling, held.key, held.body, held.token, kind, reason)
            )
        self._under_way[number] = under_way
        self._ask(number)

    def _ask(self, number: int) -> None:
        under_way = self._under_way[number]
        under_way.in_life = under_way.store.lives
        under_way.schedules = []
        broker = under_way.store.broker
        if not under_way.is_repeated and not self._reserve(number, under_way):
            return
        transaction = Transaction(under_way.transaction_id, epoch=under_way.epoch)
        for held, _, settlement in under_way.settles:
            transaction.settlements.append((held.key, held.token, settlement))
        for place, part in enumerate(under_way.parts):
            messages = part.outgoing.messages()
            if part.via is not None:
                for message in messages:
                    message.destination = part.outgoing.target.path
                transaction.transfers.append((part.key, messages))
            elif part.outgoing.due_ms is None:
                transaction.sends.append((part.key, messages))
            else:
                transaction.schedules.append((part.key, messages, under_way.numbers[place]))
                under_way.schedules.append((part, messages))
        broker.transact(transaction, self, number)

    def _reserve(self, number: int, under_way: TransactionUnderWay) -> bool:
        broker = under_way.store.broker
        for place, part in enumerate(under_way.parts):
            if part.via is None and part.outgoing.due_ms is not None:
                try:
                    count = len(part.outgoing.bodies)
                    under_way.numbers[place] = broker.reserve_numbers(part.key, count)
                except BusError as error:
                    self.failed(number, error)
                    return False
                under_way.epoch = broker.epoch
        return True

    # How they end.

    def committed(self, tags: list[int]) -> None:
        for tag in tags:
            under_way = self._under_way.get(tag)
            self._end(tag, Answer.DONE)
            assert under_way is not None
            for held, kind, _ in under_way.settles:
                if kind is SettlementKind.DEFER:
                    self._setting.deferred.setdefault(held.key, {})[held.number] = held.body
            for part, messages in under_way.schedules:
                self._tell_scheduled(part, messages)

    def _tell_scheduled(self, part: Part, messages: list[Message]) -> None:
        outgoing = part.outgoing
        copies = self._setting.copies_of(outgoing.target, outgoing.parcel.traits)
        for message, body in zip(messages, part.outgoing.bodies, strict=True):
            if message.state is MessageState.SCHEDULED and message.number:
                bodies = [body + higher for _, higher in copies]
                self._setting.scheduled(part.key, message.number, bodies)

    def failed(self, tag: int, error: BusError) -> None:
        under_way = self._under_way.get(tag)
        if under_way is not None and under_way.is_repeated and error.kind.retryable:
            self._ask_later(tag)  # this time it was not carried out; what of the first?
        else:
            self._end(tag, answer_of(error))

    def _end(self, number: int, answer: Answer) -> None:
        under_way = self._under_way.pop(number, None)
        if under_way is None:
            raise Violation("answers", f"the transaction {number} was answered twice: {answer}")
        record = self._setting.history.record
        for send in under_way.sends:
            record(SendEnded(send, answer))
        for settlement in under_way.settlements:
            record(SettleEnded(settlement, answer))
        record(TransactionEnded(number, answer))

    def _crashed(self, store: StoreAndBroker) -> None:
        for number, under_way in list(self._under_way.items()):
            if under_way.store is store and under_way.in_life == store.lives:
                if self._random.randrange(100) < REPEATED_PERCENT:
                    self._ask_later(number)
                else:
                    self._end(number, Answer.UNKNOWN)
        for cancel in [cancel for cancel, asked in self._cancels.items() if asked is store]:
            del self._cancels[cancel]
            self._setting.history.record(CancelEnded(cancel, Answer.UNKNOWN))

    def _ask_later(self, number: int) -> None:
        under_way = self._under_way[number]
        under_way.in_life = 0
        under_way.is_repeated = True
        self._world.scheduler.after(LOOK_MS, lambda: self._ask_again(number))

    def _ask_again(self, number: int) -> None:
        under_way = self._under_way[number]
        if self._world.now_ms() - under_way.began_ms > ASK_WITHIN_MS:
            self._end(number, Answer.UNKNOWN)
        elif under_way.store.serving:
            self._ask(number)
        else:
            self._ask_later(number)

    # Cancelling.

    def cancel(self, key: SubQueueKey, number: int, bodies: Sequence[int]) -> None:
        store = self._world.owner(key)
        if store is None or not store.running:
            return
        cancel = self._setting.next_number()
        self._cancels[cancel] = store
        self._setting.history.record(CancelStarted(cancel, tuple(bodies)))

        def done(error: BusError | None) -> None:
            if self._cancels.pop(cancel, None) is None:
                raise Violation("answers", f"the cancel {cancel} was answered twice")
            answer = Answer.DONE if error is None else answer_of(error)
            self._setting.history.record(CancelEnded(cancel, answer))

        store.broker.cancel_scheduled(key, [number], done)
