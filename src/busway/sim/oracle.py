"""What a queue does, said as plainly as possible: the model that the broker is held to.

One list of messages, looked through from front to back for everything; no commits, no windows, no
indexes. `advance` moves its time: what falls due on the way happens in the order of time, and of
what falls due together locks come first, then expiry and activation in the order of numbers.

Every rule cites semantics.md. The model says nothing of who is asked or told, only of what a
client can see: deliveries, errors, peeked messages, counters, sessions, dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.broker.seams import SettlementKind
from busway.model.message import MessageState

ACTIVE, DEFERRED, SCHEDULED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED


class RefusedError(Exception):
    """An error that a client is told: lock-lost, message-not-found and the like."""


LOST = "lock lost"
NOT_FOUND = "not found"
DEAD_LETTER_TWICE = "dead-lettered twice"
HELD = "session held"


@dataclass(frozen=True)
class Properties:
    """Of the queue."""

    requires_session: bool = False
    requires_duplicate_detection: bool = False
    dead_lettering_on_expiration: bool = False
    max_delivery_count: int = 10
    lock_duration_ms: int = 60_000
    duplicate_window_ms: int = 600_000
    default_ttl_ms: int | None = None


@dataclass
class Sent:
    """What a sender says of a message."""

    text: str
    message_id: str | None = None
    session_id: str | None = None
    ttl_ms: int | None = None
    at_ms: int | None = None


@dataclass
class Entry:
    """A message in the queue or among its dead letters."""

    sent: Sent
    number: int
    enqueued_ms: int
    state: MessageState = ACTIVE
    dead: bool = False
    count: int = 0
    expires_ms: int | None = None
    token: object = None
    """Whatever names its lock; None if nobody holds it."""
    locked_until_ms: int | None = None
    holder: Session | None = None
    """The session lock that it was delivered under."""
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Session:
    """A session lock, for as long as it lasts."""

    session_id: str
    locked_until_ms: int
    valid: bool = True


class Oracle:
    def __init__(self, properties: Properties, now_ms: int) -> None:
        self.properties = properties
        self.now_ms = now_ms
        self.entries: list[Entry] = []
        self.states: dict[str, bytes] = {}
        self.sessions: dict[str, Session] = {}
        self._next_number = 1
        self._seen: dict[str, int] = {}

    # --- Time ------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Until then, everything that falls due happens."""
        while (due_ms := self._next_due_ms()) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._expire_locks()
            for entry in sorted(self.entries, key=lambda each: (each.expires_ms or 0, each.number)):
                if self._is_due(entry):
                    if entry.state is SCHEDULED:
                        self._activate(entry)
                    else:
                        self._expire(entry)
        self.now_ms = now_ms

    def _next_due_ms(self) -> int | None:
        dues = [lock.locked_until_ms for lock in self.sessions.values()]
        for entry in self.entries:
            if entry.locked_until_ms is not None:
                dues.append(entry.locked_until_ms)
            elif entry.expires_ms is not None and entry.token is None:
                dues.append(entry.expires_ms)
        return min(dues, default=None)

    def _is_due(self, entry: Entry) -> bool:
        """TTL-5: not while it is locked."""
        over = entry.expires_ms is not None and entry.expires_ms <= self.now_ms
        return over and entry.token is None

    def _expire_locks(self) -> None:
        """LOCK-4, SES-8: as if abandoned."""
        for entry in list(self.entries):
            if entry.locked_until_ms is not None and entry.locked_until_ms <= self.now_ms:
                self._unlock(entry)
                self._count_delivery(entry)
        for lock in list(self.sessions.values()):
            if lock.locked_until_ms <= self.now_ms:
                for entry in self._end(lock):
                    self._count_delivery(entry)

    def _activate(self, entry: Entry) -> None:
        """SCH-3: a new number, and its life begins."""
        entry.state = ACTIVE
        entry.number = self._number()
        entry.enqueued_ms = self.now_ms
        entry.expires_ms = self._expiry(entry.sent)

    def _expire(self, entry: Entry) -> None:
        """TTL-6."""
        if self.properties.dead_lettering_on_expiration:
            self._bury(entry, "TTLExpiredException", "The message expired and was dead lettered.")
        else:
            self.entries.remove(entry)

    # --- Sending ---------------------------------------------------------------------------------

    def send(self, batch: Sequence[Sent]) -> None:
        """MSG-7, DUP-3."""
        for sent in batch:
            if self.properties.requires_duplicate_detection and sent.message_id is not None:
                if self._seen.get(sent.message_id, 0) > self.now_ms:
                    continue
                self._seen[sent.message_id] = self.now_ms + self.properties.duplicate_window_ms
            entry = Entry(sent, self._number(), self.now_ms)
            if sent.at_ms is not None and sent.at_ms > self.now_ms:
                entry.state = SCHEDULED
                entry.expires_ms = sent.at_ms
            else:
                entry.expires_ms = self._expiry(sent)
            self.entries.append(entry)

    def cancel(self, numbers: Sequence[int]) -> None:
        """SCH-2: all or none."""
        for entry in self._numbered(numbers, SCHEDULED):
            self.entries.remove(entry)

    def _number(self) -> int:
        """SEQ-1."""
        self._next_number += 1
        return self._next_number - 1

    def _expiry(self, sent: Sent) -> int | None:
        """TTL-1, TTL-3."""
        lives = [each for each in (sent.ttl_ms, self.properties.default_ttl_ms) if each is not None]
        return self.now_ms + min(lives) if lives else None

    # --- Receiving -------------------------------------------------------------------------------

    def available(self, *, dead: bool = False, session_id: str | None = None) -> list[Entry]:
        """MSG-6: in the order of their numbers; SES-4 within a session."""
        return [
            entry
            for entry in self.peek(dead=dead)
            if entry.state is ACTIVE
            and entry.token is None
            and (session_id is None or entry.sent.session_id == session_id)
        ]

    def receive(
        self, limit: int, *, dead: bool = False, holder: Session | None = None, delete: bool = False
    ) -> list[Entry]:
        """Whoever receives gives each of them a token: `lock`."""
        if holder is not None and not holder.valid:
            return []
        if self.properties.requires_session and not dead and holder is None:
            return []
        session_id = None if holder is None else holder.session_id
        taken = self.available(dead=dead, session_id=session_id)[:limit]
        if delete:
            for entry in taken:
                self.entries.remove(entry)
        return taken

    def receive_deferred(
        self, numbers: Sequence[int], *, holder: Session | None = None, delete: bool = False
    ) -> list[Entry]:
        """DEF-2 to DEF-5."""
        found = self._numbered(numbers, DEFERRED)
        if self.properties.requires_session:
            if holder is None or not holder.valid:
                raise RefusedError(LOST)
            if any(entry.sent.session_id != holder.session_id for entry in found):
                raise RefusedError(NOT_FOUND)
        if delete:
            for entry in found:
                self.entries.remove(entry)
        return found

    def lock(self, entry: Entry, token: object, holder: Session | None = None) -> None:
        """LOCK-1; SES-5: in a session it has no time of its own."""
        entry.token = token
        entry.holder = holder
        if holder is None:
            entry.locked_until_ms = self.now_ms + self.properties.lock_duration_ms

    def renew(self, token: object) -> int:
        """LOCK-3."""
        entry = self._locked(token)
        if entry.holder is not None:
            raise RefusedError(LOST)
        entry.locked_until_ms = self.now_ms + self.properties.lock_duration_ms
        return entry.locked_until_ms

    def settle(
        self, token: object, kind: SettlementKind, changes: dict[str, str] | None = None
    ) -> None:
        """MSG-3."""
        entry = self._locked(token)
        if kind is SettlementKind.DEAD_LETTER and entry.dead:
            raise RefusedError(DEAD_LETTER_TWICE)  # DLQ-1
        self._unlock(entry)
        if kind is SettlementKind.COMPLETE:
            self.entries.remove(entry)
        elif kind is SettlementKind.RELEASE:
            self._return(entry)
        else:
            entry.properties |= changes or {}
            if kind is SettlementKind.ABANDON:
                self._count_delivery(entry)
            elif kind is SettlementKind.DEFER:
                entry.state = DEFERRED
                entry.expires_ms = None  # TTL-7
                self._count_delivery(entry)
            else:
                self._bury(entry)

    def _locked(self, token: object) -> Entry:
        """LOCK-5."""
        for entry in self.entries:
            if entry.token == token:
                return entry
        raise RefusedError(LOST)

    def _unlock(self, entry: Entry) -> None:
        entry.token = entry.locked_until_ms = entry.holder = None

    def _return(self, entry: Entry) -> None:
        """DLV-1: uncounted; TTL-5: but looked at."""
        if self._is_due(entry):
            self._expire(entry)

    def _count_delivery(self, entry: Entry) -> None:
        """DLV-1; DEF-2 and DLV-6 say where nothing follows from it."""
        entry.count += 1
        if entry.state is DEFERRED or entry.dead:
            return
        most = self.properties.max_delivery_count
        if entry.count >= most:  # DLV-3
            text = f"Message could not be consumed after {most} delivery attempts."
            self._bury(entry, "MaxDeliveryCountExceeded", text)
        else:
            self._return(entry)

    def _bury(self, entry: Entry, reason: str | None = None, text: str = "") -> None:
        """DLQ-2: with its number; TTL-8: it does not expire any more."""
        entry.dead = True
        entry.state = ACTIVE
        entry.expires_ms = None
        if reason is not None:
            entry.properties |= {REASON: reason, DESCRIPTION: text}

    def _numbered(self, numbers: Sequence[int], state: MessageState) -> list[Entry]:
        """All of them, in the order asked, or nothing (DEF-4)."""
        free = {
            entry.number: entry
            for entry in self.entries
            if not entry.dead and entry.state is state and entry.token is None
        }
        if not numbers or len(set(numbers)) != len(numbers) or not free.keys() >= set(numbers):
            raise RefusedError(NOT_FOUND)
        return [free[number] for number in numbers]

    # --- Sessions --------------------------------------------------------------------------------

    def free_sessions(self) -> set[str]:
        """SES-7: that accept-next may give."""
        ids = {entry.sent.session_id for entry in self.available()}
        return {each for each in ids if each is not None and each not in self.sessions}

    def accept(self, session_id: str) -> Session:
        """SES-3, SES-6."""
        if session_id in self.sessions:
            raise RefusedError(HELD)
        lock = Session(session_id, self.now_ms + self.properties.lock_duration_ms)
        self.sessions[session_id] = lock
        return lock

    def renew_session(self, lock: Session) -> int:
        self._check(lock)
        lock.locked_until_ms = self.now_ms + self.properties.lock_duration_ms
        return lock.locked_until_ms

    def leave(self, lock: Session) -> None:
        """SES-9."""
        if lock.valid:
            for entry in self._end(lock):
                self._return(entry)

    def set_state(self, lock: Session, state: bytes | None) -> None:
        """SES-10."""
        self._check(lock)
        if state is None:
            self.states.pop(lock.session_id, None)
        else:
            self.states[lock.session_id] = state

    def state(self, lock: Session) -> bytes | None:
        self._check(lock)
        return self.states.get(lock.session_id)

    def listed(self) -> list[str]:
        """SES-11."""
        active = {e.sent.session_id for e in self.entries if e.state is ACTIVE and not e.dead}
        return sorted({*self.states, *(each for each in active if each is not None)})

    def _check(self, lock: Session) -> None:
        if not lock.valid:
            raise RefusedError(LOST)

    def _end(self, lock: Session) -> list[Entry]:
        lock.valid = False
        del self.sessions[lock.session_id]
        held = [entry for entry in self.entries if entry.holder is lock]
        for entry in held:
            self._unlock(entry)
        return held

    # --- Looking, and what befalls it ------------------------------------------------------------

    def peek(self, *, dead: bool = False) -> list[Entry]:
        """PEEK-1."""
        there: Iterable[Entry] = (entry for entry in self.entries if entry.dead is dead)
        return sorted(there, key=lambda entry: entry.number)

    def count(self, state: MessageState, *, dead: bool = False) -> int:
        return sum(1 for entry in self.entries if entry.state is state and entry.dead is dead)

    def delete_batch(self, count: int, before_ms: int) -> int:
        """Oldest first; locked ones stay."""
        old = [entry for entry in self.available() if entry.enqueued_ms < before_ms][:count]
        for entry in old:
            self.entries.remove(entry)
        return len(old)

    def crash(self) -> None:
        """D-5: all locks are void, and nothing is counted."""
        for lock in list(self.sessions.values()):
            lock.valid = False
        self.sessions.clear()
        for entry in list(self.entries):
            if entry.token is not None:
                self._unlock(entry)
                self._return(entry)
