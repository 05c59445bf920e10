"""Somebody who holds messages without a gateway: what becomes of them, by token (D-22, D-23).

What receivers of plain queues and of sessions have in common: a message comes, its holder decides
about it sooner or later, alone or in a transaction, and hears how that ended. What was deferred is
fetched by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from busway.amqp.codec import decode_value
from busway.broker.seams import SessionLock, SettlementKind
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.sim import habits
from busway.sim.direct import Setting, answer_of
from busway.sim.habits import Habits
from busway.sim.history import (
    Answer,
    Delivered,
    Holder,
    RemovalUnknown,
    Renewed,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.sim.world import StoreAndBroker
from busway.store.base import SubQueueKey, SubQueueKind


@dataclass(slots=True)
class Held:
    """A locked message in a client's hands."""

    key: SubQueueKey
    body: int
    number: int
    token: bytes


@dataclass(slots=True)
class SettleUnderWay:
    held: Held
    kind: SettlementKind
    store: StoreAndBroker


class DirectHolder:
    """The `Replies` of its own settlements."""

    def __init__(
        self, setting: Setting, name: str, queue: Holder, kind: SubQueueKind, habits: Habits
    ) -> None:
        self._setting = setting
        self._world = setting.world
        self._random = setting.world.random
        self._habits = habits
        self.name = name
        self.queue = queue
        self.kind = kind
        self.closed = False
        self._in_hand: dict[bytes, Held] = {}
        """Nothing was decided about them yet."""
        self._settling: dict[int, SettleUnderWay] = {}
        self._asking: dict[int, tuple[StoreAndBroker, Sequence[int], bool]] = {}
        self._world.crash_listeners.append(self._crashed)

    @property
    def idle(self) -> bool:
        return not self._settling and not self._asking

    def _store_of(self, key: SubQueueKey) -> StoreAndBroker:
        return self._world.stores[self.queue.placement[key.partition]]

    def _crashed(self, store: StoreAndBroker) -> None:
        for settlement, under_way in list(self._settling.items()):
            if under_way.store is store:
                self._end(settlement, Answer.UNKNOWN)
        for request, (asked, bodies, delete) in list(self._asking.items()):
            if asked is store:
                del self._asking[request]
                if delete:
                    self._removal_unknown(bodies)

    # Messages.

    def _received(
        self,
        key: SubQueueKey,
        message: Message,
        store: StoreAndBroker,
        holding: int | None = None,
    ) -> None:
        token, body = message.lock_token, self._setting.body_of(key, message)
        epoch = store.broker.epoch if token is None else int.from_bytes(token[2:6], "little")
        changes = decode_value(message.changes)[0] if message.changes else {}
        self._setting.history.record(
            Delivered(
                receiver=self.name,
                key=key,
                body=body,
                number=message.number,
                delivery_count=message.delivery_count,
                enqueued_ms=message.enqueued_ms,
                token=token,
                locked_until_ms=message.locked_until_ms,
                epoch=epoch,
                disturbances=store.disturbances,
                deferred=message.state is MessageState.DEFERRED,
                properties=tuple(sorted(changes.items())),
                holding=holding,
            )
        )
        if token is None:
            return
        held = self._in_hand[token] = Held(key, body, message.number, token)
        if self.closed:
            self._settle(held, SettlementKind.RELEASE)
        else:
            self._decide_later(held)

    def _decide_later(self, held: Held) -> None:
        delay_ms = self._habits.delay_ms(self._random, self.queue.lock_duration_ms)
        self._world.scheduler.after(delay_ms, lambda: self._decide(held))

    def _decide(self, held: Held) -> None:
        random = self._random
        if held.token not in self._in_hand:
            return  # in a transaction, together with another
        if random.randrange(100) < self._habits.renews_percent and self._renew(held):
            self._decide_later(held)
            return
        if random.randrange(100) < self._habits.transacts_percent and self._transact(held):
            return
        kind = self._habits.outcome(random)
        if kind is None:
            self._in_hand.pop(held.token, None)
            return
        self._settle(held, kind)
        if random.randrange(100) < self._habits.settles_twice_percent:
            self._settle(held, self._habits.outcome(random) or SettlementKind.COMPLETE)

    def _renew(self, held: Held) -> bool:
        store = self._store_of(held.key)
        if not store.serving:
            return False
        try:
            (until_ms,) = store.broker.renew(held.key, [held.token])
        except BusError:
            return False
        self._setting.history.record(Renewed(held.body, held.token, until_ms))
        return True

    # Settlements.

    def _transact(self, held: Held) -> bool:
        """Together with others of the same partition, and with sends (TXN-1)."""
        others = [each for each in self._in_hand.values() if each.key == held.key and each != held]
        chosen = [held, *others[: self._random.randrange(3)]]
        transactor = self._setting.transactor
        if transactor is None or not transactor.settle(chosen, self._habits):
            return False
        for each in chosen:
            del self._in_hand[each.token]
        return True

    def _settle(self, held: Held, kind: SettlementKind) -> None:
        self._in_hand.pop(held.token, None)
        if kind is SettlementKind.DEAD_LETTER and held.key.kind is not SubQueueKind.MAIN:
            kind = SettlementKind.COMPLETE
        store = self._store_of(held.key)
        if not store.running:
            return
        settlement, reason = habits.settlement(kind, self._random)
        number = self._setting.next_number()
        self._settling[number] = SettleUnderWay(held, kind, store)
        self._setting.history.record(
            SettleStarted(number, held.key, held.body, held.token, kind, reason)
        )
        store.broker.settle(held.key, held.token, settlement, self, number)

    def committed(self, tags: list[int]) -> None:
        for tag in tags:
            under_way = self._settling.get(tag)
            self._end(tag, Answer.DONE)
            if under_way is not None and under_way.kind is SettlementKind.DEFER:
                held = under_way.held
                self._setting.deferred.setdefault(held.key, {})[held.number] = held.body

    def failed(self, tag: int, error: BusError) -> None:
        self._end(tag, answer_of(error))

    def _end(self, settlement: int, answer: Answer) -> None:
        if self._settling.pop(settlement, None) is None:
            raise Violation("answers", f"the settlement {settlement} was answered twice")
        self._setting.history.record(SettleEnded(settlement, answer))

    # Deferred messages.

    def receive_deferred(self, key: SubQueueKey, numbers: Sequence[int], *, delete: bool) -> None:
        self._ask_for_deferred(
            key, numbers, delete, None, lambda message, store: self._received(key, message, store)
        )

    def _ask_for_deferred(
        self,
        key: SubQueueKey,
        numbers: Sequence[int],
        delete: bool,
        session: SessionLock | None,
        received: Callable[[Message, StoreAndBroker], None],
    ) -> None:
        store = self._store_of(key)
        if not store.running:
            return
        known = self._setting.deferred.get(key, {})
        request = self._setting.next_number()
        bodies = [known[number] for number in numbers]
        self._asking[request] = (store, bodies, delete)

        def done(found: list[Message] | BusError) -> None:
            if self._asking.pop(request, None) is None:
                raise Violation("answers", f"the request {request} was answered twice")
            if isinstance(found, BusError):
                if delete and answer_of(found) is Answer.UNKNOWN:
                    self._removal_unknown(bodies)
                return
            for message in found:
                received(message, store)

        store.broker.receive_deferred(key, numbers, delete, done, session)

    def _removal_unknown(self, bodies: Sequence[int]) -> None:
        self._setting.history.record(RemovalUnknown(self.queue.incarnation, tuple(bodies), 0))
