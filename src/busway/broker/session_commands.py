"""What gateways ask of sessions: hold one, leave it, its lock and its state (SES, D-24)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from busway.broker.intake import Intake
from busway.broker.partition import Partition
from busway.broker.seams import Replies, SessionHolder, SessionLock
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Entity, Subscription, stands_still
from busway.model.errors import ENTITY_DISABLED, SERVER_BUSY, SESSION_LOCK_LOST, BusError
from busway.store.base import MessagingStore, SubQueueKey

T = TypeVar("T")


class SessionOwner(Protocol):
    @property
    def available(self) -> bool: ...

    def now_ms(self) -> int: ...

    def entity(self, incarnation: int) -> Entity: ...

    def find_sub_queue(self, key: SubQueueKey) -> SubQueue | None: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class SessionCommands:
    def __init__(self, owner: SessionOwner, intake: Intake) -> None:
        self._owner = owner
        self._intake = intake

    def accept(
        self, key: SubQueueKey, session_id: str | None, holder: SessionHolder
    ) -> SessionLock | None:
        """Lock a session, or the next that is free; None if none is. Writes nothing (D-5)."""
        self._take_work()
        partition = self._owner.partition(key.incarnation, key.partition)
        duration_ms = partition.lock_duration_ms  # raises if the entity was deleted (D-16)
        self._check_goes_on(partition)
        sub_queue = partition.sub_queue(key.kind)
        assert sub_queue.sessions is not None
        now_ms = self._owner.now_ms()
        lock = sub_queue.sessions.accept(session_id, holder, now_ms, duration_ms)
        if lock is not None:
            self._owner.lock_due(sub_queue, lock.locked_until_ms)
        return lock

    def offer(self, key: SubQueueKey) -> int | None:
        """Since when the session that `accept` gives next has waited; None if none is free."""
        sub_queue = self._owner.find_sub_queue(key)
        if not self._owner.available or sub_queue is None or sub_queue.sessions is None:
            return None
        return sub_queue.sessions.offer()

    def leave(self, lock: SessionLock) -> None:
        """The holder is gone; everything that it had returns, uncounted (SES-9)."""
        sub_queue = self._owner.find_sub_queue(lock.key)
        if not lock.valid or sub_queue is None:
            return
        partition = self._partition(lock)
        if not partition.deleted:
            partition.leave_session(sub_queue, lock)
        elif sub_queue.sessions is not None:
            sub_queue.sessions.leave(lock)  # what it had is being purged (D-16)

    def renew(self, lock: SessionLock) -> int:
        sub_queue = self._held(lock)
        assert sub_queue.sessions is not None
        duration_ms = self._partition(lock).lock_duration_ms
        until_ms = sub_queue.sessions.renew(lock, self._owner.now_ms(), duration_ms)
        self._owner.lock_due(sub_queue, until_ms)
        return until_ms

    def set_state(self, lock: SessionLock, state: bytes | None, replies: Replies, tag: int) -> None:
        try:
            self.check_state(lock, state)
            stage = self._owner.stage(1, len(state or b""))
            self.stage_state(stage, lock, state)
            stage.answer(replies, tag)
        except BusError as error:
            replies.failed(tag, error)

    def check_state(self, lock: SessionLock, state: bytes | None) -> None:
        """Raise if the state cannot be set now."""
        sub_queue = self._held(lock)
        self._check_goes_on(self._partition(lock))
        growth = self._growth(sub_queue, lock, state)
        if growth > 0:  # SES-10, D-17; who gives room back is never refused
            self._check_room(self._partition(lock), growth)

    def stage_state(self, stage: Stage, lock: SessionLock, state: bytes | None) -> None:
        """What `check_state` has let through."""
        sub_queue = self._held(lock)
        growth = self._growth(sub_queue, lock, state)
        now_ms = self._owner.now_ms()
        stage.set_session_state(sub_queue, lock.session_id, state, now_ms, lock.name)
        stage.hold_room(sub_queue, max(growth, 0))

    def _growth(self, sub_queue: SubQueue, lock: SessionLock, state: bytes | None) -> int:
        assert sub_queue.sessions is not None
        return len(state or b"") - sub_queue.sessions.get(lock.session_id).state_bytes

    def state(self, lock: SessionLock, done: Callable[[bytes | BusError | None], None]) -> None:
        try:
            sub_queue = self._held(lock)
        except BusError as error:
            done(error)
            return
        slot, session_id = sub_queue.slot, lock.session_id
        if sub_queue.stored:
            self._owner.read(lambda store: store.read_session_state(slot, session_id), done)
        else:
            done(None)

    def peek_state(
        self,
        key: SubQueueKey,
        session_id: str,
        done: Callable[[bytes | BusError | None], None],
    ) -> None:
        """A state as it is stored, without holding the session: for people who look at it."""
        try:
            self._take_work()
        except BusError as error:
            done(error)
            return
        sub_queue = self._owner.find_sub_queue(key)
        if sub_queue is None or not sub_queue.stored:
            done(None)
            return
        slot = sub_queue.slot
        self._owner.read(lambda store: store.read_session_state(slot, session_id), done)

    def listed(self, key: SubQueueKey, updated_after_ms: int | None) -> list[str]:
        """SES-11; raises *server busy* while the store is not to be had."""
        self._take_work()
        sub_queue = self._owner.find_sub_queue(key)
        if sub_queue is None or sub_queue.sessions is None:
            return []
        return [session.shown for session in sub_queue.sessions.listed(updated_after_ms)]

    # The parts.

    def _take_work(self) -> None:
        if not self._owner.available:
            raise BusError(SERVER_BUSY, refused=True)

    def _check_room(self, partition: Partition, size: int) -> None:
        entity = partition.entity
        if isinstance(entity, Subscription):
            entity = self._owner.entity(entity.topic_incarnation)  # its messages count there
        self._intake.check_room(partition, entity, size)

    def _check_goes_on(self, partition: Partition) -> None:
        entity = partition.entity
        if stands_still(entity):
            raise BusError(ENTITY_DISABLED, uri=entity.path)

    def _held(self, lock: SessionLock) -> SubQueue:
        self._take_work()
        sub_queue = self._owner.find_sub_queue(lock.key)
        if sub_queue is None or not lock.valid or lock.locked_until_ms <= self._owner.now_ms():
            raise BusError(SESSION_LOCK_LOST)
        return sub_queue

    def _partition(self, lock: SessionLock) -> Partition:
        return self._owner.partition(lock.key.incarnation, lock.key.partition)
