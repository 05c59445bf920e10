"""A receiving link without a gateway: credit lent in grants, settlements by token (D-22).

It does what a gateway's fan-in and link do, for one client, and holds the broker to the rules of
grants: never more than was lent, finished once, and nothing after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busway.amqp.codec import decode_value
from busway.broker.seams import Grant, SettlementKind
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.sim import habits
from busway.sim.direct import Setting, answer_of, body_of
from busway.sim.habits import Habits
from busway.sim.history import (
    Answer,
    Delivered,
    RemovalUnknown,
    Renewed,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.sim.world import StoreAndBroker, sub_queues_of
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


@dataclass(slots=True)
class LentOut:
    """A grant that is out, and how much of it has not been delivered."""

    store: StoreAndBroker
    left: int
    recalled: bool = False


class DirectReceiver:
    """A receiving link: a `Receiver`, a `Watcher` and the `Replies` of its own settlements."""

    def __init__(
        self,
        setting: Setting,
        name: str,
        queue: Queue,
        kind: SubQueueKind,
        habits: Habits,
        *,
        delete: bool,
    ) -> None:
        self._setting = setting
        self._world = setting.world
        self._random = setting.world.random
        self._habits = habits
        self.name = name
        self.queue = queue
        self.kind = kind
        self.delete = delete
        self.credit = 0
        self.closed = False
        self._keys = sub_queues_of(queue, kind)
        self._ready: dict[SubQueueKey, None] = {}
        self._grants: dict[Grant, LentOut] = {}
        self._watched_in_life: dict[str, int] = {}
        self._settling: dict[int, SettleUnderWay] = {}
        self._asking: dict[int, tuple[StoreAndBroker, Sequence[int], bool]] = {}
        self._pumping = False
        self._world.crash_listeners.append(self._crashed)
        self._world.availability_listeners.append(self._availability_changed)
        for store in dict.fromkeys(self._store_of(key) for key in self._keys):
            self._watch(store)

    @property
    def idle(self) -> bool:
        return not self._grants and not self._settling and not self._asking

    def _store_of(self, key: SubQueueKey) -> StoreAndBroker:
        return self._world.stores[self.queue.placement[key.partition]]

    # Credit.

    def add_credit(self, credit: int) -> None:
        self.credit += credit
        self._pump_soon()

    def recall(self) -> None:
        """The credit is wanted back: a drain, or credit 0."""
        for grant, lent in list(self._grants.items()):
            lent.recalled = True
            lent.store.broker.recall(grant)
        self.credit = sum(lent.left for lent in self._grants.values())

    def close(self) -> None:
        self.closed = True
        for key in self._keys:
            store = self._store_of(key)
            if store.running:
                store.broker.unwatch(key, self)
        self.recall()

    # Being told.

    def _watch(self, store: StoreAndBroker) -> None:
        watched = self._watched_in_life.get(store.store_id) == store.lives
        if not self.closed and store.running and not watched:
            self._watched_in_life[store.store_id] = store.lives
            for key in self._keys:
                if self._store_of(key) is store:
                    store.broker.watch(key, self)
                    self._ready[key] = None
            self._pump_soon()

    def _availability_changed(self, store: StoreAndBroker) -> None:
        self._watch(store)

    def _crashed(self, store: StoreAndBroker) -> None:
        cut_off = 0
        for grant, lent in list(self._grants.items()):
            if lent.store is store:
                del self._grants[grant]
                cut_off += grant.reserved
                self.credit -= lent.left if lent.recalled else 0
        if cut_off:
            self._setting.history.record(RemovalUnknown(self.queue.incarnation, (), cut_off))
        for settlement, under_way in list(self._settling.items()):
            if under_way.store is store:
                self._end(settlement, Answer.UNKNOWN)
        for request, (asked, bodies, delete) in list(self._asking.items()):
            if asked is store:
                del self._asking[request]
                if delete:
                    self._removal_unknown(bodies)

    def ready(self, key: SubQueueKey) -> None:
        self._ready[key] = None
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._world.scheduler.soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        for key in list(self._ready):
            free = self.credit - sum(lent.left for lent in self._grants.values())
            if free <= 0 or self.closed:
                return
            store = self._store_of(key)
            del self._ready[key]
            if not store.serving:
                continue  # it says ready when it is back
            limit = self._random.randint(1, min(free, 20))
            grant = Grant(self, key, limit, delete=self.delete)
            self._grants[grant] = LentOut(store, limit)
            self._ready[key] = None  # until it says that it is empty
            store.broker.grant(grant)

    def finished(self, grant: Grant) -> None:
        lent = self._grants.pop(grant, None)
        if lent is None:
            raise Violation("grants", f"{self.name}: a grant was finished twice")
        if grant.reserved:
            raise Violation("grants", f"{self.name}: finished with {grant.reserved} to come")
        if lent.recalled:
            self.credit -= lent.left
        elif lent.left > 0:
            self._ready.pop(grant.key, None)  # it is empty, until it says otherwise
        self._pump_soon()

    # Messages.

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        lent = self._grants.get(grant)
        if lent is None:
            raise Violation("grants", f"{self.name}: delivered on a grant that is finished")
        lent.left -= len(messages)
        self.credit -= len(messages)
        if lent.left < 0:
            raise Violation("grants", f"{self.name}: more was delivered than was granted")
        for message in messages:
            self._received(grant.key, message, lent.store)

    def _received(self, key: SubQueueKey, message: Message, store: StoreAndBroker) -> None:
        token, body = message.lock_token, body_of(message)
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
            )
        )
        if token is None:
            return
        held = Held(key, body, message.number, token)
        if self.closed:
            self._settle(held, SettlementKind.RELEASE)
        else:
            self._decide_later(held)

    def _decide_later(self, held: Held) -> None:
        delay_ms = self._habits.delay_ms(self._random, self.queue.lock_duration_ms)
        self._world.scheduler.after(delay_ms, lambda: self._decide(held))

    def _decide(self, held: Held) -> None:
        random = self._random
        if random.randrange(100) < self._habits.renews_percent and self._renew(held):
            self._decide_later(held)
            return
        kind = self._habits.outcome(random)
        if kind is None:
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

    def _settle(self, held: Held, kind: SettlementKind) -> None:
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
                self._received(key, message, store)

        store.broker.receive_deferred(key, numbers, delete, done)

    def _removal_unknown(self, bodies: Sequence[int]) -> None:
        self._setting.history.record(RemovalUnknown(self.queue.incarnation, tuple(bodies), 0))
