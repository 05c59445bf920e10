"""The sessions of a sub-queue: who holds which, what is in each, which is free (SES, D-24).

A session lives in one partition (P-18). It is there while it has active messages or a state, or
while somebody holds it. Its lock covers the locks of all its messages (SES-5): when the holder
leaves they return uncounted (SES-9), when the lock runs out each counts as a delivery (SES-8).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from busway.broker.line import Line
from busway.broker.seams import SessionHolder, SessionLock
from busway.broker.window import WindowBudget
from busway.model.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, BusError
from busway.model.message import Message
from busway.store.base import SessionRecord

if TYPE_CHECKING:
    from busway.broker.sub_queue import SubQueue


class Session:
    __slots__ = ("active", "line", "lock", "session_id", "state_bytes", "updated_ms")

    def __init__(self, session_id: str, line: Line) -> None:
        self.session_id = session_id
        self.line = line
        self.active = 0
        """Committed active messages, kept as a row of its own (D-13)."""
        self.updated_ms: int | None = None
        """When its state was set; None if it has none (SES-10)."""
        self.state_bytes = 0
        self.lock: SessionLock | None = None

    @property
    def is_empty(self) -> bool:
        return not self.active and self.updated_ms is None


class SessionTable:
    """All sessions of one sub-queue."""

    def __init__(self, sub_queue: SubQueue, budget: WindowBudget) -> None:
        self._sub_queue = sub_queue
        self._budget = budget
        self._sessions: dict[str, Session] = {}
        self._free: dict[Session, None] = {}
        """Nobody holds them and they have messages; first come, first served (SES-7)."""
        self._touched: dict[str, None] = {}
        self._expiries: list[tuple[int, int, SessionLock]] = []
        """A heap: the lock duration of an entity may become shorter while locks are held."""
        self._entries = 0
        self._removing: dict[int, SessionLock] = {}
        """By number: who receives and deletes it, while nobody knows yet whether it is gone."""

    # What there is.

    def get(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            line = Line(self._sub_queue, self._budget, 0, session_id)
            session = self._sessions[session_id] = Session(session_id, line)
        return session

    def has(self, session_id: str | None) -> bool:
        return session_id in self._sessions

    def load(self, record: SessionRecord) -> None:
        """As the store has it."""
        session = self.get(record.session_id)
        session.active = session.line.in_store = record.active
        session.updated_ms = record.updated_ms
        session.state_bytes = record.state_bytes
        if session.active:
            self._free[session] = None

    def state_set(self, session_id: str, state: bytes | None, updated_ms: int) -> None:
        session = self.get(session_id)
        session.updated_ms = None if state is None else updated_ms
        session.state_bytes = len(state or b"")
        self._touched[session_id] = None

    def lines(self) -> Iterable[Line]:
        return [session.line for session in self._sessions.values()]

    def listed(self, updated_after_ms: int | None) -> list[str]:
        """Sessions with active messages or a state, or, if a time is given, those whose state was
        set after it (management-amqp.md 5.4); in a stable order."""
        return sorted(
            session.session_id
            for session in self._sessions.values()
            if (
                not session.is_empty
                if updated_after_ms is None
                else session.updated_ms is not None and session.updated_ms > updated_after_ms
            )
        )

    # Locks.

    def accept(
        self, session_id: str | None, holder: SessionHolder, now_ms: int, duration_ms: int
    ) -> SessionLock | None:
        """Lock this session (SES-6), or the next that is free (SES-7); None if none is."""
        if session_id is None:
            session = self._next_free()
            if session is None:
                return None
        else:
            session = self.get(session_id)
            if session.lock is not None:
                raise BusError(SESSION_CANNOT_BE_LOCKED, session_id=session_id)
        self._free.pop(session, None)
        lock = SessionLock(self._sub_queue.key, session.session_id, holder, now_ms + duration_ms)
        session.lock = lock
        self._watch(lock)
        return lock

    def renew(self, lock: SessionLock, now_ms: int, duration_ms: int) -> int:
        if not lock.valid or lock.locked_until_ms <= now_ms:
            raise BusError(SESSION_LOCK_LOST)
        lock.locked_until_ms = now_ms + duration_ms
        self._watch(lock)
        return lock.locked_until_ms

    def _watch(self, lock: SessionLock) -> None:
        self._entries += 1
        heappush(self._expiries, (lock.locked_until_ms, self._entries, lock))

    def leave(self, lock: SessionLock) -> list[Message]:
        """The lock ends. Gives the messages that its holder had and has not settled."""
        if not lock.valid:
            return []
        lock.valid = False
        session = self._sessions[lock.session_id]
        session.lock = None
        session.line.held_back += len(lock.held) + lock.removing
        session.line.finish_all()
        self._touched[session.session_id] = None
        return [message for message in lock.held.values() if message.staged is None]

    def remove_for(self, lock: SessionLock, message: Message) -> None:
        """Its removal is staged (D-6). Should that fail, nothing may have overtaken it (SES-4)."""
        self._removing[message.number] = lock
        lock.removing += 1

    def removal_decided(self, message: Message) -> None:
        """It is gone, or here again; if it was removed for nobody of a session, nothing happens."""
        lock = self._removing.pop(message.number, None)
        if lock is not None:
            lock.removing -= 1
            if not lock.valid:
                self.outcome_known(message)

    def outcome_known(self, message: Message) -> None:
        """Of one that a holder had who is gone: it has returned, or is no more (SES-4)."""
        assert message.session_id is not None
        line = self.get(message.session_id).line
        line.held_back -= 1
        assert line.held_back >= 0
        self.touched(line)

    def lock_of(self, message: Message) -> SessionLock | None:
        """The lock under which a message was delivered, if that is still there."""
        session = self._sessions.get(message.session_id or "")
        lock = None if session is None else session.lock
        return lock if lock is not None and message.lock_token in lock.held else None

    def expired(self, now_ms: int) -> list[SessionLock]:
        found: dict[SessionLock, None] = {}  # renewed in the instant of its taking, it is in twice
        while self._expiries and self._expiries[0][0] <= now_ms:
            due_ms, _, lock = heappop(self._expiries)
            if lock.valid and lock.locked_until_ms == due_ms:
                found[lock] = None
        return list(found)

    def next_due_ms(self) -> int | None:
        while self._expiries and not self._expiries[0][2].valid:
            heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else None

    def void(self) -> None:
        """The store was lost, and every lock with it (D-5)."""
        for session in list(self._sessions.values()):
            lock, session.lock = session.lock, None
            if lock is not None:
                lock.valid = False
                lock.holder.session_lost(BusError(SESSION_LOCK_LOST))

    # Waking.

    def touched(self, line: Line) -> None:
        """Look at this session when everything that happens now has happened."""
        assert line.session_id is not None
        self._touched[line.session_id] = None

    def wake(self) -> bool:
        """Serve those who hold a session; True if there is one that nobody holds."""
        touched, self._touched = self._touched, {}
        for session_id in touched:
            session = self._sessions.get(session_id)
            if session is None:
                continue
            line = session.line
            if session.lock is not None:
                line.serve_waiting()
                if line.may_have_more:
                    session.lock.holder.session_ready()
            elif line.held_back:
                continue  # it is looked at again when their outcome is known
            elif line.may_have_more:
                self._free[session] = None
            elif session.is_empty and not line.paging:
                del self._sessions[session_id]
        return bool(self._free)

    def wake_all(self) -> None:
        self._touched.update(dict.fromkeys(self._sessions))

    def _next_free(self) -> Session | None:
        while self._free:
            session = next(iter(self._free))
            del self._free[session]
            if session.lock is None and session.line.may_have_more:
                return session
        return None
