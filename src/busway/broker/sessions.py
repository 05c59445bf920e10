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
from busway.broker.session_keys import spelt_session_id
from busway.broker.window import WindowBudget
from busway.model.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, BusError
from busway.model.message import Message
from busway.model.session_ids import fold
from busway.store.base import SessionRecord

if TYPE_CHECKING:
    from busway.broker.sub_queue import SubQueue


class Session:
    __slots__ = ("active", "line", "lock", "name", "session_id", "state_bytes", "updated_ms")

    def __init__(self, session_id: str, line: Line) -> None:
        self.session_id = session_id
        self.name: str | None = None
        """How it was first spelt (SES-13); None if that is not known, or as it is kept."""
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

    @property
    def shown(self) -> str:
        return self.session_id if self.name is None else self.name

    @property
    def stored_name(self) -> str | None:
        return None if self.name == self.session_id else self.name


class SessionTable:
    """All sessions of one sub-queue."""

    def __init__(self, sub_queue: SubQueue, budget: WindowBudget, *, folds: bool) -> None:
        self._sub_queue = sub_queue
        self._folds = folds
        """Whether ids that differ only in case are one session."""
        self._budget = budget
        self._sessions: dict[str, Session] = {}
        self._free: dict[Session, int] = {}
        """Nobody holds them and they have messages, and since when; who has waited longest is first
        (SES-7). One that was held and has more waits anew, behind the others: by the age of its
        messages it would come again and again."""
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

    def of(self, message: Message) -> Session:
        """The session that a message belongs to; if nobody knew of it, it is spelt so."""
        assert message.session_id is not None, "a message here has a session (SES-1)"
        session = self.get(message.session_id)
        if self._folds and session.name is None:
            session.name = spelt_session_id(message)
        return session

    def named(self, session_id: str, name: str | None) -> Session:
        """A session that is spelt so, if nobody knew of it."""
        session = self.get(session_id)
        if session.name is None:
            session.name = name
        return session

    def has(self, session_id: str | None) -> bool:
        return session_id in self._sessions

    def load(self, record: SessionRecord) -> None:
        """As the store has it."""
        session = self.get(record.session_id)
        session.active = session.line.in_store = record.active
        session.name = record.name or record.session_id
        session.updated_ms = record.updated_ms
        session.state_bytes = record.state_bytes
        if session.active:
            self._free[session] = self._sub_queue.now_ms()

    def state_set(
        self, session_id: str, state: bytes | None, updated_ms: int, name: str | None
    ) -> None:
        session = self.named(session_id, name)
        session.updated_ms = None if state is None else updated_ms
        session.state_bytes = len(state or b"")
        self._touched[session_id] = None

    def lines(self) -> Iterable[Line]:
        return [session.line for session in self._sessions.values()]

    def listed(self, updated_after_ms: int | None) -> list[Session]:
        """Sessions with active messages or a state, or, if a time is given, those whose state was
        set after it (management-amqp.md 5.4); in a stable order."""
        found = [
            session
            for session in self._sessions.values()
            if (
                not session.is_empty
                if updated_after_ms is None
                else session.updated_ms is not None and session.updated_ms > updated_after_ms
            )
        ]
        return sorted(found, key=lambda session: session.session_id)

    # Locks.

    def accept(
        self, asked: str | None, holder: SessionHolder, now_ms: int, duration_ms: int
    ) -> SessionLock | None:
        """Lock this session (SES-6), or the next that is free (SES-7); None if none is."""
        if asked is None:
            session = self._next_free()
            if session is None:
                return None
        else:
            session = self.get(fold(asked) if self._folds else asked)
            if session.lock is not None:
                raise BusError(SESSION_CANNOT_BE_LOCKED, session_id=asked)
        self._free.pop(session, None)
        self._sub_queue.was_taken_from = True
        lock = SessionLock(
            self._sub_queue.key,
            session.session_id,
            holder,
            now_ms + duration_ms,
            session.shown if asked is None else asked,
        )
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
        line = self.of(message).line
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
        # One at a time: serving a session may end its lock, and touch others (SES-9).
        while self._touched:
            session_id = next(iter(self._touched))
            del self._touched[session_id]
            session = self._sessions.get(session_id)
            if session is None:
                continue
            line = session.line
            if session.lock is not None:
                line.serve_waiting()
                if session.lock is not None and line.may_have_more:
                    session.lock.holder.session_ready()
            elif line.held_back:
                continue  # it is looked at again when their outcome is known
            elif line.may_have_more:
                self._free.setdefault(session, self._sub_queue.now_ms())
            elif session.is_empty and not line.paging:
                del self._sessions[session_id]
        return bool(self._free)

    def wake_all(self) -> None:
        self._touched.update(dict.fromkeys(self._sessions))

    def offer(self) -> int | None:
        """Since when the session that is accepted next has waited; None if there is none (D-24)."""
        session = self._next_free()
        return None if session is None else self._free[session]

    def _next_free(self) -> Session | None:
        while self._free:
            session = next(iter(self._free))
            if session.lock is None and session.line.may_have_more:
                return session
            del self._free[session]
        return None
