"""SES: sessions, as far as a broker owns them (the links are the gateway's)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from busway.broker.seams import Grant, SettlementKind
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import DLQ, SeveralEntities, key_of, message, texts
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Hand,
    Settlement,
)

MINUTE_MS = 60_000
LOST = "SessionLockLost"
MESSAGE_LOST = "MessageLockLost"


class Sessions:
    """A queue with sessions, and shorter verbs for it."""

    def __init__(self, house: SeveralEntities, **properties: object) -> None:
        self.house = house
        self.queue = house.queue(requires_session=True, **properties)

    def send(self, session_id: str, *bodies: str) -> None:
        self.house.send(self.queue, *bodies, session_id=session_id)

    def refused(self, session_id: str) -> str:
        with pytest.raises(BusError) as refusal:
            self.house.accept(self.queue, session_id)
        return refusal.value.kind.name


@pytest.fixture
def sessions(house: SeveralEntities) -> Sessions:
    return Sessions(house)


# --- Accepting (SES-3, SES-6, SES-7) -------------------------------------------------------------


def test_ses_6_a_session_is_accepted_by_its_id(sessions: Sessions) -> None:
    sessions.send("a", "a1")
    sessions.send("b", "b1")
    holder = sessions.house.hold(sessions.queue, "b")
    assert texts(sessions.house.receive(sessions.queue, holder=holder)) == ["b1"]


def test_ses_6_a_session_without_messages_can_be_accepted(sessions: Sessions) -> None:
    holder = sessions.house.hold(sessions.queue, "nothing yet")
    assert sessions.house.receive(sessions.queue, holder=holder) == []


def test_ses_3_a_session_has_one_holder(sessions: Sessions) -> None:
    sessions.send("a", "a1")
    sessions.house.hold(sessions.queue, "a")
    assert sessions.refused("a") == "SessionCannotBeLocked"
    assert sessions.house.accept(sessions.queue) is None


def test_ses_3_its_holder_gets_future_messages_too(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    sessions.send("a", "later")
    assert holder.ready_calls > 0
    assert texts(house.receive(sessions.queue, holder=holder)) == ["later"]


def test_ses_7_the_next_session_is_the_one_that_waited_longest(sessions: Sessions) -> None:
    for session_id in ("c", "a", "b"):
        sessions.send(session_id, "1")
    accepted = [sessions.house.hold(sessions.queue).session_id for _ in range(3)]
    assert accepted == ["c", "a", "b"]
    assert sessions.house.accept(sessions.queue) is None


def test_ses_7_after_a_crash_it_is_still_the_one_that_waited_longest(sessions: Sessions) -> None:
    house = sessions.house
    for session_id in ("c", "a", "d", "b"):
        sessions.send(session_id, "first")
    holder = house.hold(sessions.queue, "a")
    house.settle(sessions.queue, house.receive_one(sessions.queue, holder=holder))
    sessions.send("a", "second")
    sessions.send("c", "second")
    house.crash(sessions.queue)
    found = [house.hold(sessions.queue).session_id for _ in range(4)]
    assert found == ["c", "d", "b", "a"]


def test_ses_7_a_session_whose_messages_are_all_deferred_is_not_next(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "a1")
    holder = house.hold(sessions.queue)
    delivered = house.receive_one(sessions.queue, holder=holder)
    house.settle(sessions.queue, delivered, DEFER)
    house.leave(sessions.queue, holder)
    assert house.accept(sessions.queue) is None


def test_ses_7_a_session_whose_messages_have_expired_is_not_next(sessions: Sessions) -> None:
    house = sessions.house
    house.send(sessions.queue, "short", session_id="a", ttl_ms=1_000)
    house.run(5_000)
    assert house.counters(sessions.queue).active == 0
    assert house.accept(sessions.queue) is None


def test_ses_7_a_session_that_was_emptied_is_not_next(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "a1")
    holder = house.hold(sessions.queue)
    house.settle(sessions.queue, house.receive_one(sessions.queue, holder=holder), COMPLETE)
    house.leave(sessions.queue, holder)
    assert house.accept(sessions.queue) is None


def test_ses_7_whoever_waits_is_told_of_a_free_session(sessions: Sessions) -> None:
    house, hand = sessions.house, Hand()
    house.broker_of(sessions.queue).watch(key_of(sessions.queue), hand)
    sessions.send("a", "a1")
    told = hand.ready_calls
    assert told > 0
    holder = house.hold(sessions.queue)
    house.leave(sessions.queue, holder)
    assert hand.ready_calls > told


# --- Order (SES-4) -------------------------------------------------------------------------------


def test_ses_4_messages_come_in_the_order_of_their_numbers(sessions: Sessions) -> None:
    house = sessions.house
    for step in range(3):
        sessions.send("a", f"a{step}")
        sessions.send("b", f"b{step}")
    holder = house.hold(sessions.queue, "a")
    assert texts(house.receive(sessions.queue, holder=holder)) == ["a0", "a1", "a2"]


@pytest.mark.parametrize(("settlement", "count"), [(ABANDON, 1), (RELEASE, 0)])
def test_ses_4_what_is_given_back_comes_before_later_ones(
    sessions: Sessions, settlement: Settlement, count: int
) -> None:
    house = sessions.house
    sessions.send("a", "1", "2", "3")
    holder = house.hold(sessions.queue, "a")
    first = house.receive_one(sessions.queue, holder=holder)
    house.settle(sessions.queue, first, settlement)
    again = house.receive(sessions.queue, holder=holder)
    assert texts(again) == ["1", "2", "3"]
    assert [each.delivery_count for each in again] == [count, 0, 0]


def test_ses_4_the_next_holder_begins_with_what_the_last_one_had(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1", "2", "3")
    holder = house.hold(sessions.queue, "a")
    house.receive(sessions.queue, 2, holder=holder)
    house.leave(sessions.queue, holder)
    following = house.hold(sessions.queue, "a")
    assert texts(house.receive(sessions.queue, holder=following)) == ["1", "2", "3"]


def test_ses_4_a_lock_that_runs_out_does_not_let_later_messages_overtake(
    sessions: Sessions,
) -> None:
    """The count of the first is still being committed when somebody else takes the session."""
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue, "a")
    house.receive_one(sessions.queue, holder=holder)
    house.world.run_until(lambda: bool(holder.lost))
    hand = Hand()
    following = house.hold(sessions.queue, "a")
    house.grant(sessions.queue, hand, holder=following)
    house.run()
    assert hand.texts == ["1", "2"]


def test_ses_4_leaving_with_a_settlement_on_its_way_does_not_let_later_ones_overtake(
    sessions: Sessions,
) -> None:
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue, "a")
    first = house.receive_one(sessions.queue, holder=holder)
    abandoned = house.start_settle(sessions.queue, first, ABANDON)
    house.leave(sessions.queue, holder)
    hand = Hand()
    following = house.hold(sessions.queue, "a")
    house.grant(sessions.queue, hand, holder=following)
    house.run()
    assert abandoned.outcome == ACCEPTED
    assert hand.texts == ["1", "2"]


def test_ses_4_a_refused_settlement_of_the_last_holder_does_not_let_later_ones_overtake(
    sessions: Sessions,
) -> None:
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue, "a")
    first = house.receive_one(sessions.queue, holder=holder)
    house.store_of(sessions.queue).next_commits_end(CommitOutcome.REFUSED)
    completed = house.start_settle(sessions.queue, first, COMPLETE)
    house.leave(sessions.queue, holder)
    following = house.hold(sessions.queue, "a")
    hand = Hand()
    house.grant(sessions.queue, hand, holder=following)
    house.run()
    assert completed.outcome == "ServerBusy"
    got = [*hand.texts, *texts(house.receive(sessions.queue, holder=following))]
    assert got == ["1", "2"]


def test_ses_4_order_holds_over_many_holders_that_abandon_and_leave(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", *(str(number) for number in range(40)))
    done: list[str] = []
    turn = 0
    while len(done) < 40:
        holder = house.hold(sessions.queue)
        batch = house.receive(sessions.queue, 3, holder=holder)
        for position, delivered in enumerate(batch):
            turn += 1
            if turn % 4 == 0:
                house.settle(sessions.queue, delivered, RELEASE)
                break
            assert position == 0 or batch[position - 1].number < delivered.number
            assert house.settle(sessions.queue, delivered, COMPLETE) == ACCEPTED
            done.append(delivered.text)
        house.leave(sessions.queue, holder)
    assert done == [str(number) for number in range(40)]


# --- Locks (SES-5, SES-8, SES-9, DLV-8) ----------------------------------------------------------


def test_ses_5_message_locks_last_as_long_as_the_session(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    delivered = house.receive_one(sessions.queue, holder=holder)
    for _ in range(5):
        house.run(40_000)
        house.broker_of(sessions.queue).renew_session(holder.held)
    assert house.settle(sessions.queue, delivered, COMPLETE) == ACCEPTED
    assert holder.lost == []


def test_ses_5_a_message_lock_of_a_session_cannot_be_renewed(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    delivered = house.receive_one(sessions.queue, holder=house.hold(sessions.queue))
    with pytest.raises(BusError) as refusal:
        house.broker_of(sessions.queue).renew(key_of(sessions.queue), [delivered.token])
    assert refusal.value.kind.name == "MessageLockLost"


def test_ses_3_renewal_counts_from_now(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    house.run(10_000)
    until_ms = house.broker_of(sessions.queue).renew_session(holder.held)
    assert until_ms == house.now_ms() + MINUTE_MS


def test_ses_8_a_lock_that_runs_out_is_told_and_settlements_fail(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    delivered = house.receive_one(sessions.queue, holder=holder)
    house.run(MINUTE_MS)
    assert holder.lost == [LOST]
    assert house.settle(sessions.queue, delivered, COMPLETE) == MESSAGE_LOST
    assert house.set_state(sessions.queue, holder, b"too late") == LOST
    with pytest.raises(BusError):
        house.broker_of(sessions.queue).renew_session(holder.held)


def test_ses_8_a_settlement_after_the_time_of_the_lock_fails_even_before_anybody_noticed(
    sessions: Sessions,
) -> None:
    """The process slept: nothing ran when the lock ended."""
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    delivered = house.receive_one(sessions.queue, holder=holder)
    house.world.scheduler.jump(2 * MINUTE_MS)
    assert house.settle(sessions.queue, delivered, COMPLETE) == LOST


def test_dlv_8_a_lock_that_runs_out_counts_deliveries(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1", "2", "3")
    holder = house.hold(sessions.queue)
    house.receive(sessions.queue, 2, holder=holder)
    house.run(MINUTE_MS)
    again = house.receive(sessions.queue, holder=house.hold(sessions.queue))
    assert [(each.text, each.delivery_count) for each in again] == [("1", 1), ("2", 1), ("3", 0)]


def test_dlv_8_leaving_counts_nothing(sessions: Sessions) -> None:
    """SES-9: the lock is free at once, and what was not settled returns as it was."""
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue)
    house.receive(sessions.queue, holder=holder)
    house.leave(sessions.queue, holder)
    again = house.receive(sessions.queue, holder=house.hold(sessions.queue))
    assert [(each.text, each.delivery_count) for each in again] == [("1", 0), ("2", 0)]
    assert holder.lost == []


def test_ses_8_a_lock_that_runs_out_too_often_dead_letters(house: SeveralEntities) -> None:
    sessions = Sessions(house, max_delivery_count=2)
    sessions.send("a", "1")
    for _ in range(2):
        house.receive(sessions.queue, holder=house.hold(sessions.queue))
        house.run(MINUTE_MS)
    assert house.accept(sessions.queue) is None
    (dead,) = house.dead_letters(sessions.queue)
    assert dead.properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert dead.session_id == "a"


def test_ses_3_a_shorter_lock_duration_holds_for_the_next_session(house: SeveralEntities) -> None:
    sessions = Sessions(house, lock_duration_ms=5 * MINUTE_MS)
    long = house.hold(sessions.queue, "long")
    house.update(sessions.queue, lock_duration_ms=10_000)
    short = house.hold(sessions.queue, "short")
    house.run(11_000)
    assert short.lost == [LOST]
    assert long.lost == []
    house.run(5 * MINUTE_MS)
    assert long.lost == [LOST]


def test_ses_9_an_old_lock_says_nothing_about_the_new_one(sessions: Sessions) -> None:
    """D-24: a lock has a generation."""
    house = sessions.house
    sessions.send("a", "1")
    old = house.hold(sessions.queue)
    stale = house.receive_one(sessions.queue, holder=old)
    house.leave(sessions.queue, old)
    new = house.hold(sessions.queue)
    fresh = house.receive_one(sessions.queue, holder=new)
    assert house.settle(sessions.queue, stale, COMPLETE) == MESSAGE_LOST
    house.leave(sessions.queue, old)
    assert house.set_state(sessions.queue, old, b"mine") == LOST
    assert house.settle(sessions.queue, fresh, COMPLETE) == ACCEPTED


def test_ses_9_leaving_while_grants_wait_finishes_them(sessions: Sessions) -> None:
    house, hand = sessions.house, Hand()
    holder = house.hold(sessions.queue, "a")
    grant = house.grant(sessions.queue, hand, holder=holder)
    house.leave(sessions.queue, holder)
    assert hand.finished_grants == [grant]


# --- State (SES-10) ------------------------------------------------------------------------------


def test_ses_10_state_is_set_read_and_cleared(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    assert house.state(sessions.queue, holder) is None
    assert house.set_state(sessions.queue, holder, b"half way") == ACCEPTED
    assert house.state(sessions.queue, holder) == b"half way"
    assert house.set_state(sessions.queue, holder, None) == ACCEPTED
    assert house.state(sessions.queue, holder) is None


def test_ses_10_an_empty_state_is_a_state(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    house.set_state(sessions.queue, holder, b"")
    assert house.state(sessions.queue, holder) == b""
    assert house.sessions(sessions.queue) == ["a"]


def test_ses_10_state_survives_messages_holders_and_crashes(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    house.set_state(sessions.queue, holder, b"kept")
    house.settle(sessions.queue, house.receive_one(sessions.queue, holder=holder), COMPLETE)
    house.leave(sessions.queue, holder)
    house.crash(sessions.queue)
    assert house.state(sessions.queue, house.hold(sessions.queue, "a")) == b"kept"


def test_ses_10_state_counts_against_the_size_of_the_entity(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    house.set_state(sessions.queue, holder, b"x" * 500)
    assert house.counters(sessions.queue).bytes == 500
    house.set_state(sessions.queue, holder, b"x" * 20)
    assert house.counters(sessions.queue).bytes == 20
    house.set_state(sessions.queue, holder, None)
    assert house.counters(sessions.queue).bytes == 0


def test_ses_10_a_state_for_which_there_is_no_room_is_refused(sessions: Sessions) -> None:
    """D-17: what is on its way counts, and who makes it smaller is not refused."""
    house = sessions.house
    room = 1_000
    big = message("big", session_id="a", size=sessions.queue.max_size_bytes - room)
    house.send(sessions.queue, big)
    a, b = (house.hold(sessions.queue, session_id) for session_id in ("a", "b"))
    first = house.start_set_state(sessions.queue, a, b"x" * 600)
    second = house.start_set_state(sessions.queue, b, b"x" * 600)
    assert second.outcome == "QuotaExceeded"
    house.run()
    assert first.outcome == ACCEPTED
    assert house.set_state(sessions.queue, b, b"x" * 400) == ACCEPTED
    assert house.set_state(sessions.queue, b, b"x" * 401) == "QuotaExceeded"
    assert house.set_state(sessions.queue, a, b"x" * 500) == ACCEPTED
    assert house.set_state(sessions.queue, b, b"x" * 500) == ACCEPTED
    assert house.state(sessions.queue, b) == b"x" * 500


def test_ses_10_the_state_of_a_subscriptions_session_counts_in_its_topic(
    house: SeveralEntities,
) -> None:
    topic = house.topic()
    subscription = house.subscription(topic, "s", requires_session=True)
    big = message("big", session_id="a", size=topic.max_size_bytes - 10)
    house.send(topic, big)
    holder = house.hold(subscription, "a")
    assert house.set_state(subscription, holder, b"x" * 11) == "QuotaExceeded"
    assert house.set_state(subscription, holder, b"x" * 10) == ACCEPTED


def test_ses_10_a_state_that_was_refused_gives_its_room_back(sessions: Sessions) -> None:
    house = sessions.house
    room = 1_000
    house.send(
        sessions.queue,
        message("big", session_id="a", size=sessions.queue.max_size_bytes - room),
    )
    holder = house.hold(sessions.queue, "a")
    house.store_of(sessions.queue).next_commits_end(CommitOutcome.REFUSED)
    assert house.set_state(sessions.queue, holder, b"x" * room) == "ServerBusy"
    house.run(2_000)
    assert house.set_state(sessions.queue, holder, b"x" * room) == ACCEPTED


def test_ses_10_states_that_follow_each_other_closely_are_counted_once(sessions: Sessions) -> None:
    """Two in one commit, and one that is staged while they are on their way."""
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    house.start_set_state(sessions.queue, holder, b"x" * 100)
    house.start_set_state(sessions.queue, holder, b"x" * 300)
    house.world.scheduler.step()
    house.start_set_state(sessions.queue, holder, b"x" * 50)
    house.run()
    assert house.state(sessions.queue, holder) == b"x" * 50
    assert house.counters(sessions.queue).bytes == 50


def test_ses_10_a_state_that_was_not_stored_is_not_there(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    house.set_state(sessions.queue, holder, b"old")
    house.store_of(sessions.queue).next_commits_end(CommitOutcome.REFUSED)
    assert house.set_state(sessions.queue, holder, b"new") == "ServerBusy"
    house.run(2_000)
    assert house.state(sessions.queue, holder) == b"old"
    assert house.counters(sessions.queue).bytes == 3


# --- Listing (SES-11) ----------------------------------------------------------------------------


def test_ses_11_sessions_with_messages_or_state_are_listed(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("b", "1")
    holder = house.hold(sessions.queue, "a")
    house.set_state(sessions.queue, holder, b"state")
    house.hold(sessions.queue, "neither")
    assert house.sessions(sessions.queue) == ["a", "b"]


def test_ses_11_a_time_asks_for_states_set_after_it(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("only messages", "1")
    house.set_state(sessions.queue, house.hold(sessions.queue, "old"), b"1")
    asked_ms = house.now_ms()
    house.run(10)
    house.set_state(sessions.queue, house.hold(sessions.queue, "new"), b"2")
    assert house.sessions(sessions.queue, asked_ms) == ["new"]
    house.crash(sessions.queue)
    assert house.sessions(sessions.queue, asked_ms) == ["new"]


def test_ses_11_a_session_without_anything_is_forgotten(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    house.settle(sessions.queue, house.receive_one(sessions.queue, holder=holder), COMPLETE)
    house.leave(sessions.queue, holder)
    assert house.sessions(sessions.queue) == []
    house.crash(sessions.queue)
    assert house.sessions(sessions.queue) == []


# --- After a crash (D-5), and beyond the window (D-12) -------------------------------------------


def test_d_5_after_a_crash_session_locks_are_void_and_counts_unchanged(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue)
    delivered = house.receive_one(sessions.queue, holder=holder)
    house.crash(sessions.queue)
    assert house.settle(sessions.queue, delivered, COMPLETE) in (LOST, MESSAGE_LOST)
    again = house.receive(sessions.queue, holder=house.hold(sessions.queue))
    assert [(each.text, each.delivery_count) for each in again] == [("1", 0), ("2", 0)]


def test_d_5_a_lost_store_takes_every_session_lock_with_it(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    house.store_of(sessions.queue).next_commits_end(CommitOutcome.UNKNOWN_DONE)
    house.start_send(sessions.queue, "2", session_id="a")
    house.run(2_000)
    assert holder.lost == [LOST]
    again = house.receive(sessions.queue, holder=house.hold(sessions.queue))
    assert texts(again) == ["1", "2"]


def test_d_12_a_session_longer_than_the_window_is_paged_in_order(sessions: Sessions) -> None:
    house = sessions.house
    expected = [str(number) for number in range(2_500)]
    for start in range(0, 2_500, 500):
        for other in ("a", "b"):
            house.send(
                sessions.queue,
                *(
                    message(body, session_id=other, size=10)
                    for body in expected[start : start + 500]
                ),
            )
    house.crash(sessions.queue)
    got: list[str] = []
    holder = house.hold(sessions.queue, "b")
    while len(got) < 2_500:
        batch = house.receive(sessions.queue, 400, holder=holder)
        assert batch
        for delivered in batch:
            house.start_settle(sessions.queue, delivered, COMPLETE)
        got += texts(batch)
        house.broker_of(sessions.queue).renew_session(holder.held)
    assert got == expected
    house.run()
    assert house.counters(sessions.queue).active == 2_500
    assert house.sessions(sessions.queue) == ["a"]


def test_d_12_after_a_crash_every_session_is_offered_again(sessions: Sessions) -> None:
    house = sessions.house
    for number in range(50):
        sessions.send(f"s{number:02}", "1", "2")
    house.crash(sessions.queue)
    holders = [house.hold(sessions.queue) for _ in range(50)]
    assert len({holder.session_id for holder in holders}) == 50
    assert house.accept(sessions.queue) is None
    for holder in holders:
        assert texts(house.receive(sessions.queue, holder=holder)) == ["1", "2"]


# --- Deferred, dead, peeked (DEF-5, SES-12, PEEK-3) ----------------------------------------------


def test_def_5_a_deferred_message_of_a_session_needs_its_lock(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue, "a")
    number = house.receive_one(sessions.queue, holder=holder).number
    house.leave(sessions.queue, holder)
    holder = house.hold(sessions.queue, "a")
    house.settle(sessions.queue, house.receive_one(sessions.queue, holder=holder), DEFER)
    other = house.hold(sessions.queue, "b")
    assert house.receive_deferred(sessions.queue, number) == LOST
    assert house.receive_deferred(sessions.queue, number, holder=other) == "MessageNotFound"
    found = house.receive_deferred(sessions.queue, number, holder=holder)
    assert not isinstance(found, str)
    assert house.settle(sessions.queue, found[0], COMPLETE) == ACCEPTED


def test_def_5_a_deferred_message_returns_with_its_session(sessions: Sessions) -> None:
    """It is deferred still, whoever comes next; and counted again only if the lock ran out."""
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue, "a")
    delivered = house.receive_one(sessions.queue, holder=holder)
    number = delivered.number
    house.settle(sessions.queue, delivered, DEFER)

    def count() -> int:
        found = house.receive_deferred(sessions.queue, number, holder=holder)
        assert not isinstance(found, str)
        return found[0].delivery_count

    assert count() == 1
    house.leave(sessions.queue, holder)
    holder = house.hold(sessions.queue, "a")
    assert count() == 1
    house.run(MINUTE_MS)
    holder = house.hold(sessions.queue, "a")
    assert count() == 2


def test_ses_12_the_dead_letter_queue_of_a_session_entity_is_plain(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "a1")
    sessions.send("b", "b1")
    for session_id in ("a", "b"):
        holder = house.hold(sessions.queue, session_id)
        delivered = house.receive_one(sessions.queue, holder=holder)
        settlement = Settlement(SettlementKind.DEAD_LETTER, {"DeadLetterReason": "broken"})
        assert house.settle(sessions.queue, delivered, settlement) == ACCEPTED
    dead = house.dead_letters(sessions.queue)
    assert [(each.text, each.session_id) for each in dead] == [("a1", "a"), ("b1", "b")]
    assert house.settle(sessions.queue, dead[0], ABANDON, DLQ) == ACCEPTED
    assert house.settle(sessions.queue, dead[1], COMPLETE, DLQ) == ACCEPTED
    assert texts(house.dead_letters(sessions.queue)) == ["a1"]
    assert house.sessions(sessions.queue) == []


def test_ses_12_a_dead_letter_of_a_session_survives_a_crash(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    house.settle(sessions.queue, house.receive_one(sessions.queue, holder=holder), DEAD_LETTER)
    house.crash(sessions.queue)
    assert texts(house.dead_letters(sessions.queue)) == ["1"]
    assert house.accept(sessions.queue) is None


def test_peek_3_inside_a_session_and_across_all(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "a1")
    sessions.send("b", "b1")
    sessions.send("a", "a2")
    assert texts(house.peek(sessions.queue)) == ["a1", "b1", "a2"]
    assert texts(house.peek(sessions.queue, session_id="a")) == ["a1", "a2"]


def test_ses_13_session_ids_that_differ_only_in_case_are_one_session(sessions: Sessions) -> None:
    sessions.send("Order", "1")
    sessions.send("ORDER", "2")
    holder = sessions.house.hold(sessions.queue, "oRDER")
    assert holder.held.name == "oRDER"
    assert texts(sessions.house.receive(sessions.queue, holder=holder)) == ["1", "2"]


def test_ses_14_on_an_entity_without_sessions_the_session_id_says_nothing(
    house: SeveralEntities,
) -> None:
    queue = house.queue()
    house.send(queue, "a1", session_id="a")
    house.send(queue, "b1", session_id="b")
    assert texts(house.receive(queue)) == ["a1", "b1"]
    house.crash(queue)
    assert texts(house.receive(queue)) == ["a1", "b1"]


def test_ses_3_receive_and_delete_in_a_session(sessions: Sessions) -> None:
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue)
    assert texts(house.receive(sessions.queue, 1, holder=holder, delete=True)) == ["1"]
    assert texts(house.receive(sessions.queue, holder=holder, delete=True)) == ["2"]
    assert house.counters(sessions.queue).active == 0


def test_d_16_a_session_of_a_deleted_entity_can_be_left(house: SeveralEntities) -> None:
    queue = house.queue(requires_session=True, dead_lettering_on_expiration=True)
    house.send(queue, "1", session_id="a", ttl_ms=1_000)
    holder = house.hold(queue, "a")
    house.receive(queue, holder=holder)
    house.run(2_000)
    house.delete(queue)
    house.leave(queue, holder)  # its message has expired, and there is nobody to ask what then
    house.run(5_000)
    assert house.world.purges_under_way == set()


def test_dlv_8_a_lock_that_runs_out_counts_even_if_its_commit_has_to_be_tried_again(
    sessions: Sessions,
) -> None:
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue)
    house.receive(sessions.queue, 1, holder=holder)
    house.store_of(sessions.queue).next_commits_end(CommitOutcome.REFUSED)
    house.run(MINUTE_MS + 5_000)
    assert holder.lost == ["SessionLockLost"]
    again = house.hold(sessions.queue)
    delivered = house.receive(sessions.queue, holder=again)
    assert [(each.text, each.delivery_count) for each in delivered] == [("1", 1), ("2", 0)]


def test_ses_8_a_lock_renewed_in_the_instant_of_its_taking_is_lost_once(sessions: Sessions) -> None:
    house = sessions.house
    holder = house.hold(sessions.queue, "a")
    house.broker_of(sessions.queue).renew_session(holder.held)
    house.run(MINUTE_MS)
    assert holder.lost == ["SessionLockLost"]


def test_ses_4_a_removal_for_the_last_holder_that_failed_does_not_let_later_ones_overtake(
    sessions: Sessions,
) -> None:
    house = sessions.house
    sessions.send("a", "1", "2")
    holder = house.hold(sessions.queue, "a")
    house.store_of(sessions.queue).next_commits_end(CommitOutcome.REFUSED)
    house.grant(sessions.queue, Hand(), 1, holder=holder, delete=True)
    house.leave(sessions.queue, holder)
    following = house.hold(sessions.queue, "a")
    hand = Hand()
    house.grant(sessions.queue, hand, holder=following)
    house.run()
    got = [*hand.texts, *texts(house.receive(sessions.queue, holder=following))]
    assert got == ["1", "2"]


def test_ses_8_nothing_is_delivered_after_the_time_of_the_lock_even_before_anybody_noticed(
    sessions: Sessions,
) -> None:
    house = sessions.house
    sessions.send("a", "1")
    holder = house.hold(sessions.queue)
    house.world.scheduler.jump(2 * MINUTE_MS)
    hand = Hand()
    house.grant(sessions.queue, hand, holder=holder)
    assert hand.texts == []
    house.run()
    assert holder.lost == ["SessionLockLost"]
    assert texts(house.receive(sessions.queue, holder=house.hold(sessions.queue))) == ["1"]


def test_d_16_nothing_is_made_for_an_entity_that_was_deleted(house: SeveralEntities) -> None:
    queue = house.queue(requires_session=True)
    house.send(queue, "1", session_id="a")
    house.delete(queue)
    house.run(5_000)
    broker = house.broker_of(queue)
    for ask in (
        lambda: house.accept(queue, "a"),
        lambda: broker.reserve_numbers(key_of(queue), 1),
    ):
        with pytest.raises(BusError) as caught:
            ask()
        assert caught.value.kind.name == "MessagingEntityNotFound"
    assert broker.find_sub_queue(key_of(queue)) is None


# --- A holder that goes while it is served -------------------------------------------------------


class Leaver(Hand):
    """Its connection fails at the first delivery, and its session is left."""

    def __init__(self, leave: Callable[[], None]) -> None:
        super().__init__()
        self._leave = leave

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        super().deliver(grant, messages)
        self._leave()


def test_ses_9_a_session_that_is_left_while_it_is_served_is_free_again(sessions: Sessions) -> None:
    house, queue = sessions.house, sessions.queue
    sessions.send("a", "a1", "a2", "a3")
    house.crash(queue)  # all of it is in the store only: the grant waits for a page
    house.run()
    holder = house.hold(queue, "a")
    leaver = Leaver(lambda: house.leave(queue, holder))
    grant = house.grant(queue, leaver, 2, holder=holder)
    house.run()
    assert leaver.texts == ["a1", "a2"]
    assert leaver.finished_grants == [grant]
    again = house.hold(queue)
    assert texts(house.receive(queue, holder=again)) == ["a1", "a2", "a3"]
