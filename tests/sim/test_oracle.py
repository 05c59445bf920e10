"""The broker against the oracle: the same operations in virtual time, and everything that a client
can see compared (D-35).

Each operation has a second of its own, and is over within a fifth of it. Scheduled messages become
active a quarter later, everything else that time brings (locks that run out, expiry, forgotten
duplicates) half a second later, or for those three quarters. So neither side can be right by having
looked earlier or later than the other.

`BUSWAY_ORACLE_EXAMPLES` says how many histories to try, of `BUSWAY_ORACLE_STEPS` operations each.
Without it a few are, always the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from busway.broker.seams import Settlement, SettlementKind
from busway.model.errors import BusError
from busway.model.message import MessageState
from busway.sim.oracle import (
    DEAD_LETTER_TWICE,
    HELD,
    LOST,
    NOT_FOUND,
    Entry,
    Oracle,
    Properties,
    RefusedError,
    Sent,
    Session,
)
from busway.store.base import SubQueueKind
from tests.broker.several_entities import DLQ, MAIN, Holder, SeveralEntities, key_of, message
from tests.broker.single_queue import ACCEPTED, Delivered

EXAMPLES = int(os.environ.get("BUSWAY_ORACLE_EXAMPLES", "0"))
STEPS = int(os.environ.get("BUSWAY_ORACLE_STEPS", "50"))

SECOND_MS = 1_000
HALF_MS = 500
QUARTER_MS = 250
OPERATION_MS = 200
PATIENCE_MS = 25

WORDS = {
    "MessageLockLost": LOST,
    "SessionLockLost": LOST,
    "MessageNotFound": NOT_FOUND,
    "ScheduledMessageNotFound": NOT_FOUND,
    "DeadLetterTwice": DEAD_LETTER_TWICE,
    "SessionCannotBeLocked": HELD,
}
"""The oracle's word for each error of the broker."""

SESSION_IDS = st.sampled_from(["a", "b", "c"])
LIVES = st.sampled_from([None, None, None, 8, 45]).map(lambda s: s and s * SECOND_MS + HALF_MS)
SENT = st.builds(
    Sent,
    text=st.just(""),
    message_id=st.sampled_from([None, "1", "2", "3"]),
    session_id=SESSION_IDS,
    ttl_ms=LIVES,
    at_ms=st.sampled_from([None, None, None, None, -5, 3, 15]).map(
        lambda s: s and s * SECOND_MS + QUARTER_MS
    ),
)
POSITIONS = st.integers(0, 5)
DELETE = st.sampled_from([False, False, False, True])
STALE = st.sampled_from([False, False, False, False, True])
"""Whether to use a lock that may be over."""
MARKS = st.sampled_from([{}, {"mark": "x"}, {"mark": "y", "other": "z"}])


@dataclass
class Lease:
    """A session lock, on both sides."""

    holder: Holder
    lock: Session


@dataclass
class Held:
    """A message that was delivered, and whence."""

    delivered: Delivered
    kind: SubQueueKind


def quarter(time_ms: int | None) -> int | None:
    """The broker activates a message when it has looked into its store, a few ms late."""
    return None if time_ms is None else time_ms // QUARTER_MS


def seen(delivered: Delivered) -> tuple[Any, ...]:
    return (
        delivered.text,
        delivered.number,
        delivered.session_id,
        delivered.delivery_count,
        delivered.state,
        delivered.properties,
        quarter(delivered.expires_ms),
    )


def foretold(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.sent.text,
        entry.number,
        entry.sent.session_id,
        entry.count,
        entry.state,
        entry.properties,
        quarter(entry.expires_ms),
    )


def word_of(attempt: Callable[[], Any]) -> Any:
    """What the oracle does, or the word of its refusal."""
    try:
        return attempt()
    except RefusedError as refusal:
        return str(refusal)


class BrokerAgainstOracle(RuleBasedStateMachine):
    @initialize(
        requires_session=st.booleans(),
        duplicates=st.booleans(),
        dead_lettering=st.booleans(),
        most=st.sampled_from([1, 2, 10]),
        default_ttl_ms=LIVES,
    )
    def begin(
        self,
        requires_session: bool,
        duplicates: bool,
        dead_lettering: bool,
        most: int,
        default_ttl_ms: int | None,
    ) -> None:
        self.house = SeveralEntities(patience_ms=PATIENCE_MS)
        properties: dict[str, Any] = {
            "requires_session": requires_session,
            "requires_duplicate_detection": duplicates,
            "dead_lettering_on_expiration": dead_lettering,
            "max_delivery_count": most,
            "default_ttl_ms": default_ttl_ms,
            "lock_duration_ms": 30 * SECOND_MS + HALF_MS,
            "duplicate_window_ms": 20 * SECOND_MS + HALF_MS,
        }
        self.queue = self.house.queue(**properties)
        self.oracle = Oracle(Properties(**properties), self.house.now_ms())
        self.texts = 0
        self.held: list[Held] = []
        self.leases: list[Lease] = []
        self._done()

    @property
    def has_sessions(self) -> bool:
        return self.oracle.properties.requires_session

    def _done(self) -> None:
        """On to the next second, past what falls due before it; then everything is compared, and
        the next operation begins."""
        assert self.house.now_ms() % SECOND_MS < OPERATION_MS, "took too long to be compared"
        self.house.run(-self.house.now_ms() % SECOND_MS)
        self.oracle.advance(self.house.now_ms())
        self._compare()
        self.oracle.advance(self.house.now_ms())

    def _compare(self) -> None:
        oracle, house = self.oracle, self.house
        for kind in (MAIN, DLQ):
            dead = kind is DLQ
            entries = oracle.peek(dead=dead)
            peeked = house.peek(self.queue, kind=kind)
            assert [seen(each) for each in peeked] == [foretold(each) for each in entries]
            counters = house.counters(self.queue, kind)
            assert (counters.active, counters.deferred, counters.scheduled) == tuple(
                oracle.count(state, dead=dead) for state in MessageState
            )
        if self.has_sessions:
            assert house.sessions(self.queue) == oracle.listed()
        for lease in self.leases:
            assert lease.holder.held.valid is lease.lock.valid

    # --- Sending ---------------------------------------------------------------------------------

    @rule(batch=st.lists(SENT, min_size=1, max_size=4))
    def send(self, batch: list[Sent]) -> None:
        for sent in batch:
            self.texts += 1
            sent.text = f"m{self.texts}"
            if sent.at_ms is not None:
                sent.at_ms += self.house.now_ms()
        self.house.send(
            self.queue,
            *(
                message(
                    sent.text,
                    message_id=sent.message_id,
                    session_id=sent.session_id,
                    ttl_ms=sent.ttl_ms,
                    at_ms=sent.at_ms,
                )
                for sent in batch
            ),
        )
        self.oracle.send(batch)
        self._done()

    def _numbers(self, state: MessageState, positions: Sequence[int]) -> list[int]:
        """Of messages in this state, or of any if there is none."""
        entries = [entry for entry in self.oracle.entries if entry.state is state]
        entries = entries or self.oracle.entries
        return [entries[each % len(entries)].number if entries else each for each in positions]

    @rule(positions=st.lists(POSITIONS, min_size=1, max_size=2))
    def cancel(self, positions: list[int]) -> None:
        asked = self._numbers(MessageState.SCHEDULED, positions)
        outcome = self.house.cancel(self.queue, *asked)
        expected = word_of(lambda: self.oracle.cancel(asked)) or ACCEPTED
        assert WORDS.get(outcome, outcome) == expected
        self._done()

    # --- Receiving -------------------------------------------------------------------------------

    def _receive(
        self, limit: int, *, delete: bool, dead: bool = False, lease: Lease | None = None
    ) -> None:
        kind = DLQ if dead else MAIN
        holder = None if lease is None else lease.holder
        lock = None if lease is None else lease.lock
        delivered = self.house.receive(self.queue, limit, kind=kind, delete=delete, holder=holder)
        entries = self.oracle.receive(limit, dead=dead, delete=delete, holder=lock)
        self._delivered(delivered, entries, kind, lock, delete)

    def _delivered(
        self,
        delivered: list[Delivered],
        entries: list[Entry],
        kind: SubQueueKind,
        lock: Session | None,
        delete: bool,
    ) -> None:
        assert [seen(each) for each in delivered] == [foretold(each) for each in entries]
        if not delete:
            for each, entry in zip(delivered, entries, strict=True):
                self.oracle.lock(entry, each.token, lock)
                self.held.append(Held(each, kind))
        self._done()

    @precondition(lambda self: not self.has_sessions)
    @rule(limit=st.integers(1, 4), delete=DELETE)
    def receive(self, limit: int, delete: bool) -> None:
        self._receive(limit, delete=delete)

    @precondition(lambda self: self.oracle.peek(dead=True))
    @rule(limit=st.integers(1, 3), delete=DELETE)
    def receive_dead_letters(self, limit: int, delete: bool) -> None:
        self._receive(limit, delete=delete, dead=True)

    @precondition(lambda self: self.leases)
    @rule(position=POSITIONS, stale=STALE, limit=st.integers(1, 3), delete=DELETE)
    def receive_in_session(self, position: int, stale: bool, limit: int, delete: bool) -> None:
        self._receive(limit, delete=delete, lease=self._lease(position, stale))

    @rule(
        positions=st.lists(POSITIONS, min_size=1, max_size=2),
        delete=DELETE,
        position=POSITIONS,
        stale=STALE,
    )
    def receive_deferred(
        self, positions: list[int], delete: bool, position: int, stale: bool
    ) -> None:
        asked = self._numbers(MessageState.DEFERRED, positions)
        lease = self._lease(position, stale) if self.leases else None
        holder = None if lease is None else lease.holder
        lock = None if lease is None else lease.lock
        outcome = self.house.receive_deferred(self.queue, *asked, holder=holder, delete=delete)
        expected = word_of(lambda: self.oracle.receive_deferred(asked, holder=lock, delete=delete))
        if isinstance(outcome, str) or isinstance(expected, str):
            # Which of two reasons is named is nobody's business.
            assert isinstance(outcome, str), expected
            assert isinstance(expected, str), outcome
            self._done()
        else:
            self._delivered(outcome, expected, MAIN, lock, delete)

    # --- Settling: a rule for each, so that most of what happens is that -------------------------

    def _pick(self, position: int, stale: bool) -> Held:
        """A message that is locked still, if there is one and nothing else is asked for."""
        valid = {entry.token for entry in self.oracle.entries if entry.token is not None}
        locked = [each for each in self.held if each.delivered.token in valid]
        pool = self.held if stale or not locked else locked
        return pool[position % len(pool)]

    def _settle(
        self, kind: SettlementKind, position: int, stale: bool, changes: dict[str, str]
    ) -> None:
        held = self._pick(position, stale)
        outcome = self.house.settle(
            self.queue, held.delivered, Settlement(kind, changes), held.kind
        )
        token = held.delivered.token
        expected = word_of(lambda: self.oracle.settle(token, kind, changes)) or ACCEPTED
        assert WORDS.get(outcome or "", outcome) == expected
        self._done()

    @precondition(lambda self: self.held)
    @rule(position=POSITIONS, stale=STALE)
    def complete(self, position: int, stale: bool) -> None:
        self._settle(SettlementKind.COMPLETE, position, stale, {})

    @precondition(lambda self: self.held)
    @rule(position=POSITIONS, stale=STALE, changes=MARKS)
    def abandon(self, position: int, stale: bool, changes: dict[str, str]) -> None:
        self._settle(SettlementKind.ABANDON, position, stale, changes)

    @precondition(lambda self: self.held)
    @rule(position=POSITIONS, stale=STALE)
    def release(self, position: int, stale: bool) -> None:
        self._settle(SettlementKind.RELEASE, position, stale, {})

    @precondition(lambda self: self.held)
    @rule(position=POSITIONS, stale=STALE, changes=MARKS)
    def defer(self, position: int, stale: bool, changes: dict[str, str]) -> None:
        if self._pick(position, stale).kind is MAIN:  # a dead letter is not asked for by number
            self._settle(SettlementKind.DEFER, position, stale, changes)

    @precondition(lambda self: self.held)
    @rule(position=POSITIONS, stale=STALE, changes=MARKS)
    def dead_letter(self, position: int, stale: bool, changes: dict[str, str]) -> None:
        self._settle(SettlementKind.DEAD_LETTER, position, stale, changes)

    @precondition(lambda self: self.held)
    @rule(position=POSITIONS, stale=STALE)
    def renew(self, position: int, stale: bool) -> None:
        held = self._pick(position, stale)
        key, token = key_of(self.queue, held.kind), held.delivered.token
        outcome: Any
        try:
            (outcome,) = self.house.broker_of(self.queue).renew(key, [token])
        except BusError as error:
            outcome = WORDS[error.kind.name]
        assert outcome == word_of(lambda: self.oracle.renew(token))
        self._done()

    # --- Sessions --------------------------------------------------------------------------------

    def _lease(self, position: int, stale: bool) -> Lease:
        valid = [lease for lease in self.leases if lease.lock.valid]
        pool = self.leases if stale or not valid else valid
        return pool[position % len(pool)]

    @precondition(lambda self: self.has_sessions)
    @rule(session_id=SESSION_IDS)
    def accept(self, session_id: str) -> None:
        outcome: Any
        try:
            outcome = self.house.hold(self.queue, session_id)
        except BusError as error:
            outcome = WORDS[error.kind.name]
        expected = word_of(lambda: self.oracle.accept(session_id))
        if isinstance(expected, str):
            assert outcome == expected
        else:
            assert isinstance(outcome, Holder), outcome
            self.leases.append(Lease(outcome, expected))
        self._done()

    @precondition(lambda self: self.has_sessions)
    @rule()
    def accept_next(self) -> None:
        """Which of several is next is the broker's choice (SES-7)."""
        holder = self.house.accept(self.queue)
        free = self.oracle.free_sessions()
        if holder is None:
            assert free == set()
        else:
            assert holder.session_id in free
            self.leases.append(Lease(holder, self.oracle.accept(holder.session_id)))
        self._done()

    @precondition(lambda self: self.leases)
    @rule(position=POSITIONS, stale=STALE)
    def leave(self, position: int, stale: bool) -> None:
        lease = self._lease(position, stale)
        self.house.leave(self.queue, lease.holder)
        self.oracle.leave(lease.lock)
        self._done()

    @precondition(lambda self: self.leases)
    @rule(position=POSITIONS, stale=STALE)
    def renew_session(self, position: int, stale: bool) -> None:
        lease = self._lease(position, stale)
        outcome: Any
        try:
            outcome = self.house.broker_of(self.queue).renew_session(lease.holder.held)
        except BusError as error:
            outcome = WORDS[error.kind.name]
        assert outcome == word_of(lambda: self.oracle.renew_session(lease.lock))
        self._done()

    @precondition(lambda self: self.leases)
    @rule(
        position=POSITIONS,
        stale=STALE,
        state=st.sampled_from([None, b"", b"half way", b"x" * 50]),
    )
    def set_and_get_state(self, position: int, stale: bool, state: bytes | None) -> None:
        lease = self._lease(position, stale)
        outcome = self.house.set_state(self.queue, lease.holder, state)
        expected = word_of(lambda: self.oracle.set_state(lease.lock, state)) or ACCEPTED
        assert WORDS.get(outcome or "", outcome) == expected
        got = self.house.state(self.queue, lease.holder)
        got = WORDS.get(got, got) if isinstance(got, str) else got
        assert got == word_of(lambda: self.oracle.state(lease.lock))
        self._done()

    # --- What befalls both -----------------------------------------------------------------------

    @rule(what=st.sampled_from(["short", "lock", "long", "delete", "crash"]), count=POSITIONS)
    def befall(self, what: str, count: int) -> None:
        if what == "crash":
            self.house.crash(self.queue, finish_commit=count % 2 == 0)
            for lease in self.leases:  # whoever has one was connected to the process that died
                lease.holder.held.valid = False
            self.oracle.crash()
        elif what == "delete":
            found: list[Any] = []
            broker, now_ms = self.house.broker_of(self.queue), self.house.now_ms()
            broker.delete_batch(key_of(self.queue), count + 1, now_ms, None, found.append)
            self.house.run()
            assert found == [self.oracle.delete_batch(count + 1, now_ms)]
        else:
            self.house.run({"short": 3, "lock": 31, "long": 60}[what] * SECOND_MS)
            self.oracle.advance(self.house.now_ms())
        self._done()


TestBrokerAgainstOracle = BrokerAgainstOracle.TestCase
TestBrokerAgainstOracle.settings = settings(
    max_examples=EXAMPLES or 150,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None if not EXAMPLES else settings().database,
    suppress_health_check=list(HealthCheck),
)
