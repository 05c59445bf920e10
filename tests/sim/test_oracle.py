"""The broker against the oracle: the same operations in virtual time, and everything that a client
can see compared (D-35).

Operations begin on whole seconds and are over within a quarter of one. Scheduled messages become
active a quarter past, and everything else that time brings (locks that run out, expiry, forgotten
duplicates) falls on the half, or for those on three quarters. So neither side can be right by
having looked earlier or later than the other.

`BUSWAY_ORACLE_EXAMPLES` says how many histories to try, of `BUSWAY_ORACLE_STEPS` operations each.
Without it a few are, always the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from busway.broker.seams import SessionLock, Settlement, SettlementKind
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
from tests.broker.several_entities import DLQ, MAIN, Holder, SeveralEntities, key_of, message
from tests.broker.single_queue import ACCEPTED, Delivered

EXAMPLES = int(os.environ.get("BUSWAY_ORACLE_EXAMPLES", "0"))
STEPS = int(os.environ.get("BUSWAY_ORACLE_STEPS", "40"))

SECOND_MS = 1_000
HALF_MS = 500
QUARTER_MS = 250

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
LIVES = st.sampled_from([None, None, 2, 9, 40]).map(lambda s: s and s * SECOND_MS + HALF_MS)
SENT = st.builds(
    Sent,
    text=st.just(""),
    message_id=st.sampled_from([None, "1", "2", "3"]),
    session_id=SESSION_IDS,
    ttl_ms=LIVES,
    at_ms=st.sampled_from([None, None, None, -5, 3, 15]).map(
        lambda s: s and s * SECOND_MS + QUARTER_MS
    ),
)
SETTLEMENTS = st.sampled_from(list(SettlementKind))


class Lease:
    """A session lock, on both sides."""

    def __init__(self, holder: Holder, lock: Session) -> None:
        self.holder = holder
        self.lock = lock


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
    deliveries = Bundle("deliveries")
    leases = Bundle("leases")
    numbers = Bundle("numbers")

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
        self.house = SeveralEntities()
        properties = {
            "requires_session": requires_session,
            "requires_duplicate_detection": duplicates,
            "dead_lettering_on_expiration": dead_lettering,
            "max_delivery_count": most,
            "default_ttl_ms": default_ttl_ms,
            "lock_duration_ms": 10 * SECOND_MS + HALF_MS,
            "duplicate_window_ms": 20 * SECOND_MS + HALF_MS,
        }
        self.queue = self.house.queue(**properties)
        self._to_the_next_second()
        self.oracle = Oracle(Properties(**properties), self.house.now_ms())  # type: ignore[arg-type]
        self.texts = 0
        self.locks: list[SessionLock] = []

    @property
    def has_sessions(self) -> bool:
        return self.oracle.properties.requires_session

    def _to_the_next_second(self) -> None:
        self.house.run(-self.house.now_ms() % SECOND_MS)

    def _done(self) -> None:
        """Both go on to the next whole second, past what falls due before it."""
        assert self.house.now_ms() - self.oracle.now_ms < QUARTER_MS, "took too long to compare"
        self._to_the_next_second()
        self.oracle.advance(self.house.now_ms())

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

    @rule(target=numbers, position=st.integers(0, 7))
    def look_at_a_number(self, position: int) -> Any:
        """Numbers to ask for later are those of deferred and scheduled messages, mostly."""
        entries = [e for e in self.oracle.entries if e.state is not MessageState.ACTIVE]
        entries = entries or self.oracle.entries
        return entries[position % len(entries)].number if entries else 1

    @rule(asked=st.lists(numbers, min_size=1, max_size=2))
    def cancel(self, asked: list[int]) -> None:
        outcome = self.house.cancel(self.queue, *asked)
        expected = word_of(lambda: self.oracle.cancel(asked)) or ACCEPTED
        assert WORDS.get(outcome, outcome) == expected
        self._done()

    # --- Receiving and settling ------------------------------------------------------------------

    def _receive(
        self, limit: int, *, delete: bool, dead: bool = False, lease: Lease | None = None
    ) -> Any:
        delivered = self.house.receive(
            self.queue,
            limit,
            kind=DLQ if dead else MAIN,
            delete=delete,
            holder=None if lease is None else lease.holder,
        )
        lock = None if lease is None else lease.lock
        entries = self.oracle.receive(limit, dead=dead, delete=delete, holder=lock)
        assert [seen(each) for each in delivered] == [foretold(each) for each in entries]
        if not delete:
            for each, entry in zip(delivered, entries, strict=True):
                self.oracle.lock(entry, each.token, lock)
        self._done()
        kind = DLQ if dead else MAIN
        return multiple(*((each, kind) for each in delivered if not delete))

    @precondition(lambda self: not self.has_sessions)
    @rule(target=deliveries, limit=st.integers(1, 4), delete=st.sampled_from([False, False, True]))
    def receive(self, limit: int, delete: bool) -> Any:
        return self._receive(limit, delete=delete)

    @rule(target=deliveries, limit=st.integers(1, 3), delete=st.sampled_from([False, False, True]))
    def receive_dead_letters(self, limit: int, delete: bool) -> Any:
        return self._receive(limit, delete=delete, dead=True)

    @rule(
        target=deliveries,
        lease=leases,
        limit=st.integers(1, 3),
        delete=st.sampled_from([False, False, True]),
    )
    def receive_in_session(self, lease: Lease, limit: int, delete: bool) -> Any:
        return self._receive(limit, delete=delete, lease=lease)

    @rule(delivery=deliveries, kind=SETTLEMENTS, mark=st.sampled_from(["", "x", "y"]))
    def settle(self, delivery: tuple[Delivered, Any], kind: SettlementKind, mark: str) -> None:
        delivered, sub_queue = delivery
        if sub_queue is DLQ and kind is SettlementKind.DEFER:
            kind = SettlementKind.ABANDON  # nobody asks a dead-letter queue by number here
        changes = {"mark": mark} if mark and kind is not SettlementKind.RELEASE else {}
        outcome = self.house.settle(self.queue, delivered, Settlement(kind, changes), sub_queue)
        settle = self.oracle.settle
        expected = word_of(lambda: settle(delivered.token, kind, changes)) or ACCEPTED
        assert WORDS.get(outcome or "", outcome) == expected
        self._done()

    @rule(delivery=deliveries)
    def renew(self, delivery: tuple[Delivered, Any]) -> None:
        delivered, sub_queue = delivery
        key = key_of(self.queue, sub_queue)
        outcome: Any
        try:
            (outcome,) = self.house.broker_of(self.queue).renew(key, [delivered.token])
        except BusError as error:
            outcome = WORDS[error.kind.name]
        assert outcome == word_of(lambda: self.oracle.renew(delivered.token))
        self._done()

    def _receive_deferred(self, asked: list[int], delete: bool, lease: Lease | None) -> Any:
        holder = None if lease is None else lease.holder
        lock = None if lease is None else lease.lock
        outcome = self.house.receive_deferred(self.queue, *asked, holder=holder, delete=delete)
        expected = word_of(lambda: self.oracle.receive_deferred(asked, holder=lock, delete=delete))
        if isinstance(outcome, str) or isinstance(expected, str):
            # Which of two reasons is named is nobody's business.
            assert isinstance(outcome, str), expected
            assert isinstance(expected, str), outcome
            outcome = expected = []
        assert [seen(each) for each in outcome] == [foretold(each) for each in expected]
        if not delete:
            for each, entry in zip(outcome, expected, strict=True):
                self.oracle.lock(entry, each.token, lock)
        self._done()
        return multiple(*((each, MAIN) for each in outcome if not delete))

    @rule(
        target=deliveries,
        asked=st.lists(numbers, min_size=1, max_size=2),
        delete=st.booleans(),
    )
    def receive_deferred(self, asked: list[int], delete: bool) -> Any:
        return self._receive_deferred(asked, delete, None)

    @rule(
        target=deliveries,
        asked=st.lists(numbers, min_size=1, max_size=2),
        delete=st.booleans(),
        lease=leases,
    )
    def receive_deferred_in_session(self, asked: list[int], delete: bool, lease: Lease) -> Any:
        return self._receive_deferred(asked, delete, lease)

    @rule(count=st.integers(1, 3))
    def delete_batch(self, count: int) -> None:
        found: list[Any] = []
        now_ms = self.house.now_ms()
        broker = self.house.broker_of(self.queue)
        broker.delete_batch(key_of(self.queue), count, now_ms, None, found.append)
        self.house.run()
        assert found == [self.oracle.delete_batch(count, now_ms)]
        self._done()

    # --- Sessions --------------------------------------------------------------------------------

    @precondition(lambda self: self.has_sessions)
    @rule(target=leases, session_id=SESSION_IDS)
    def accept(self, session_id: str) -> Any:
        outcome: Any
        try:
            outcome = self.house.hold(self.queue, session_id)
        except BusError as error:
            outcome = WORDS[error.kind.name]
        expected = word_of(lambda: self.oracle.accept(session_id))
        self._done()
        if isinstance(expected, str):
            assert outcome == expected
            return multiple()
        assert isinstance(outcome, Holder), outcome
        self.locks.append(outcome.held)
        return Lease(outcome, expected)

    @precondition(lambda self: self.has_sessions)
    @rule(target=leases)
    def accept_next(self) -> Any:
        """Which of several is next is the broker's choice (SES-7)."""
        holder = self.house.accept(self.queue)
        free = self.oracle.free_sessions()
        if holder is None:
            assert free == set()
            self._done()
            return multiple()
        assert holder.session_id in free
        lease = Lease(holder, self.oracle.accept(holder.session_id))
        self.locks.append(holder.held)
        self._done()
        return lease

    @rule(lease=leases)
    def leave(self, lease: Lease) -> None:
        self.house.leave(self.queue, lease.holder)
        self.oracle.leave(lease.lock)
        self._done()

    @rule(lease=leases)
    def renew_session(self, lease: Lease) -> None:
        outcome: Any
        try:
            outcome = self.house.broker_of(self.queue).renew_session(lease.holder.held)
        except BusError as error:
            outcome = WORDS[error.kind.name]
        assert outcome == word_of(lambda: self.oracle.renew_session(lease.lock))
        self._done()

    @rule(lease=leases, state=st.sampled_from([None, b"", b"half way", b"x" * 50]))
    def set_state(self, lease: Lease, state: bytes | None) -> None:
        outcome = self.house.set_state(self.queue, lease.holder, state)
        expected = word_of(lambda: self.oracle.set_state(lease.lock, state)) or ACCEPTED
        assert WORDS.get(outcome or "", outcome) == expected
        self._done()

    @rule(lease=leases)
    def get_state(self, lease: Lease) -> None:
        outcome = self.house.state(self.queue, lease.holder)
        expected = word_of(lambda: self.oracle.state(lease.lock))
        assert (WORDS.get(outcome, outcome) if isinstance(outcome, str) else outcome) == expected
        self._done()

    # --- What befalls both -----------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 5, 11, 30]))
    def wait(self, seconds: int) -> None:
        self.house.run(seconds * SECOND_MS)
        self.oracle.advance(self.house.now_ms())

    @rule(finish_commit=st.booleans())
    def crash(self, finish_commit: bool) -> None:
        self.house.crash(self.queue, finish_commit=finish_commit)
        for lock in self.locks:
            lock.valid = False  # whoever has it was connected to the process that died
        self.oracle.crash()
        self._done()

    # --- What is compared after every operation --------------------------------------------------

    @invariant()
    def both_see_the_same(self) -> None:
        if not hasattr(self, "oracle"):
            return
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
        self._done()


TestBrokerAgainstOracle = BrokerAgainstOracle.TestCase
TestBrokerAgainstOracle.settings = settings(
    max_examples=EXAMPLES or 60,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=not EXAMPLES,
    database=None if not EXAMPLES else settings().database,
    suppress_health_check=list(HealthCheck),
)
