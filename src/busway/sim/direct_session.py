"""A session receiver without a gateway: it takes a session, works in it, goes or loses it (D-24).

By id or the next that is free; it receives under the session's lock, renews that, keeps a state,
fetches what was deferred. When the session is gone it looks for another, until it is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from busway.broker.seams import Grant, SessionLock
from busway.model.errors import BusError
from busway.model.message import Message
from busway.model.partitioning import partition_of_key
from busway.sim.direct import Setting, answer_of
from busway.sim.direct_holder import DirectHolder, Held
from busway.sim.habits import Habits
from busway.sim.history import (
    Answer,
    Holder,
    RemovalUnknown,
    SessionAccepted,
    SessionLeft,
    SessionLost,
    SessionRenewed,
    StateRead,
    StateReadStarted,
    StateSetEnded,
    StateSetStarted,
    Violation,
)
from busway.sim.world import StoreAndBroker, sub_queues_of
from busway.store.base import SubQueueKey, SubQueueKind

LOOK_AGAIN_MS = 2_000
STATES = (b"", b"one", b"two, and longer", bytes(300), None)


@dataclass(slots=True)
class Lent:
    store: StoreAndBroker
    left: int
    holding: int


class DirectSessionReceiver(DirectHolder):
    """A `Receiver`, a `Watcher` and a `SessionHolder`, too."""

    def __init__(
        self,
        setting: Setting,
        name: str,
        queue: Holder,
        habits: Habits,
        session_ids: Sequence[str],
        *,
        delete: bool,
        drains: bool = False,
    ) -> None:
        super().__init__(setting, name, queue, SubQueueKind.MAIN, habits)
        self._session_ids = session_ids
        self._delete = delete
        self._drains = drains
        """Stays until its session is empty, and does nothing but receive."""
        self._keys = sub_queues_of(queue)
        self._lock: SessionLock | None = None
        self._holding = 0
        self._store: StoreAndBroker | None = None
        self._ready = False
        self._granting = False
        self._seeking = False
        self._grants: dict[Grant, Lent] = {}
        self._state_sets: dict[int, StoreAndBroker] = {}
        self._state_reads: dict[int, StoreAndBroker] = {}
        self._watched_in_life: dict[str, int] = {}
        self._world.availability_listeners.append(self._watch)
        for store in dict.fromkeys(self._store_of(key) for key in self._keys):
            self._watch(store)
        self._seek_soon(0)

    @property
    def idle(self) -> bool:
        nothing_asked = not self._grants and not self._state_sets and not self._state_reads
        return super().idle and nothing_asked

    def close(self) -> None:
        self.closed = True
        for key in self._keys:
            if self._store_of(key).running:
                self._store_of(key).broker.unwatch(key, self)
        self.leave()

    # Taking a session.

    def _watch(self, store: StoreAndBroker) -> None:
        if not self.closed and store.running and self._is_new(store):
            self._watched_in_life[store.store_id] = store.lives
            for key in self._keys:
                if self._store_of(key) is store:
                    store.broker.watch(key, self)

    def _is_new(self, store: StoreAndBroker) -> bool:
        return self._watched_in_life.get(store.store_id) != store.lives

    def ready(self, key: SubQueueKey) -> None:
        if self._lock is None:
            self._seek_soon(self._random.choice((0, 0, 20)))

    def _seek_soon(self, delay_ms: int) -> None:
        if not self._seeking:
            self._seeking = True
            self._world.scheduler.after(delay_ms, self._seek)

    def _seek(self) -> None:
        self._seeking = False
        if self.closed or self._lock is not None:
            return
        by_id = bool(self._session_ids) if self._drains else self._random.randrange(5) < 2
        wish = self._random.choice(self._session_ids) if by_id else None
        keys = list(self._keys)
        if wish is not None:
            keys = [keys[partition_of_key(wish, len(keys))]]
        self._random.shuffle(keys)
        for key in keys:
            store = self._store_of(key)
            if store.serving and self._accept(store, key, wish):
                return
        self._seek_soon(self._random.randint(1, LOOK_AGAIN_MS))

    def _accept(self, store: StoreAndBroker, key: SubQueueKey, wish: str | None) -> bool:
        try:
            lock = store.broker.accept_session(key, wish, self)
        except BusError:
            return False
        if lock is None:
            return False
        if wish is not None and lock.session_id != wish:
            raise Violation("sessions", f"{wish} was asked for, and {lock.session_id} given")
        self._lock, self._store, self._ready = lock, store, True
        self._holding = holding = self._setting.next_number()
        self._setting.history.record(
            SessionAccepted(
                holding,
                self.name,
                key,
                lock.session_id,
                lock.locked_until_ms,
                store.broker.epoch,
                store.disturbances,
            )
        )
        self._grant_soon()
        if not self._drains:
            self._plan(holding)
        elif wish is not None:
            for number in list(self._setting.deferred.get(key, {})):
                self.fetch_deferred(number)
        return True

    def _plan(self, holding: int) -> None:
        random, duration_ms = self._random, self.queue.lock_duration_ms

        def later(latest_ms: int, what: str) -> None:
            def do() -> None:
                if self._holding == holding and self._lock is not None:
                    getattr(self, what)()

            self._world.scheduler.after(random.randint(0, latest_ms), do)

        for what, percent in (
            ("read_state", 60),
            ("set_state", 50),
            ("set_state", 30),
            ("renew", 40),
            ("renew", 30),
            ("recall", 20),
            ("leave", 60),
        ):
            if random.randrange(100) < percent:
                later(random.choice((20, 500, duration_ms)), what)

    # In a session.

    def session_ready(self) -> None:
        self._ready = True
        self._grant_soon()

    def _grant_soon(self) -> None:
        if not self._granting:
            self._granting = True
            self._world.scheduler.soon(self._grant)

    def _grant(self) -> None:
        self._granting = False
        lock, store = self._lock, self._store
        if lock is None or store is None or not self._ready or not store.serving:
            return
        if any(lent.holding == self._holding for lent in self._grants.values()):
            return
        limit = self._random.choice((1, 2, 5, 20))
        grant = Grant(self, lock.key, limit, delete=self._delete, session=lock)
        self._grants[grant] = Lent(store, limit, self._holding)
        store.broker.grant(grant)

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        lent = self._grants.get(grant)
        if lent is None:
            raise Violation("grants", f"{self.name}: delivered on a grant that is finished")
        lent.left -= len(messages)
        if lent.left < 0:
            raise Violation("grants", f"{self.name}: more was delivered than was granted")
        for message in messages:
            self._received(grant.key, message, lent.store, lent.holding)

    def finished(self, grant: Grant) -> None:
        lent = self._grants.pop(grant, None)
        if lent is None:
            raise Violation("grants", f"{self.name}: a grant was finished twice")
        if lent.holding == self._holding and self._lock is not None:
            self._ready = lent.left == 0
            if self._ready:
                self._grant_soon()
            else:
                self._leave_if_drained()

    def recall(self) -> None:
        for grant, lent in list(self._grants.items()):
            if lent.store.running:
                lent.store.broker.recall(grant)

    def renew(self) -> None:
        assert self._lock is not None
        assert self._store is not None
        if not self._store.running:
            return
        try:
            until_ms = self._store.broker.renew_session(self._lock)
        except BusError:
            return
        self._setting.history.record(SessionRenewed(self._holding, until_ms))

    def _renew(self, held: Held) -> bool:
        """SES-5: a message of a session has no lock of its own to renew."""
        return False

    def leave(self) -> None:
        lock, store = self._lock, self._store
        if lock is None or store is None:
            return
        self._lock = None
        self._setting.history.record(SessionLeft(self._holding))
        if store.running:
            store.broker.leave_session(lock)
        self._seek_soon(self._random.randint(0, 500))

    def session_lost(self, error: BusError) -> None:
        store = self._store
        if self._lock is None or store is None:
            raise Violation("sessions", f"{self.name} lost a session that it does not have")
        self._lock = None
        self._setting.history.record(SessionLost(self._holding, store.disturbances))
        self._seek_soon(self._random.randint(0, 500))

    def _leave_if_drained(self) -> None:
        busy = self._ready or self._in_hand or self._settling or self._asking
        if self._drains and not busy:
            self.leave()

    # Deferred messages and state.

    def fetch_deferred(self, number: int) -> None:
        """In the session that it holds."""
        lock = self._lock
        if lock is not None and number in self._setting.deferred.get(lock.key, {}):
            holding = self._holding
            self._ask_for_deferred(
                lock.key,
                [number],
                not self._drains and self._random.randrange(3) == 0,
                lock,
                lambda message, store: self._received(lock.key, message, store, holding),
            )

    @property
    def held_key(self) -> SubQueueKey | None:
        return None if self._lock is None else self._lock.key

    @property
    def held_session(self) -> str | None:
        return None if self._lock is None else self._lock.session_id

    def set_state(self) -> None:
        assert self._lock is not None
        assert self._store is not None
        if not self._store.running:
            return
        change = self._setting.next_number()
        state = self._random.choice(STATES)
        self._state_sets[change] = self._store
        self._setting.history.record(StateSetStarted(change, self._holding, state))
        self._store.broker.set_session_state(self._lock, state, self, change)

    def read_state(self) -> None:
        assert self._lock is not None
        assert self._store is not None
        if not self._store.running:
            return
        read = self._setting.next_number()
        self._state_reads[read] = self._store
        self._setting.history.record(StateReadStarted(read, self._holding))

        def done(outcome: bytes | BusError | None) -> None:
            if self._state_reads.pop(read, None) is None:
                raise Violation("answers", f"the state {read} was told twice")
            if not isinstance(outcome, BusError):
                self._setting.history.record(StateRead(read, outcome))

        self._store.broker.session_state(self._lock, done)

    # Answers.

    def _end(self, settlement: int, answer: Answer) -> None:
        if self._state_sets.pop(settlement, None) is not None:
            self._setting.history.record(StateSetEnded(settlement, answer))
        else:
            super()._end(settlement, answer)
            self._leave_if_drained()

    def failed(self, tag: int, error: BusError) -> None:
        self._end(tag, answer_of(error))

    def _crashed(self, store: StoreAndBroker) -> None:
        super()._crashed(store)
        for change in [change for change, asked in self._state_sets.items() if asked is store]:
            self._end(change, Answer.UNKNOWN)
        for read in [read for read, asked in self._state_reads.items() if asked is store]:
            del self._state_reads[read]
        cut_off = 0
        for grant, lent in list(self._grants.items()):
            if lent.store is store:
                del self._grants[grant]
                cut_off += grant.reserved
        if cut_off:
            self._setting.history.record(RemovalUnknown(self.queue.incarnation, (), cut_off))
        if self._store is store and self._lock is not None:
            self._lock = None
            self._setting.history.record(SessionLost(self._holding, store.disturbances))
            self._seek_soon(self._random.randint(0, 500))
