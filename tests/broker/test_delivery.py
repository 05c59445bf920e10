"""D-11, D-12, D-17, D-22: grants, paging from the store, and the room that a queue has."""

from __future__ import annotations

import pytest

from busway.broker import window
from busway.broker.broker import UNCOMMITTED_BYTES_MAX
from busway.broker.seams import Grant
from busway.model.limits import MIB
from busway.model.message import Message
from busway.store.base import SubQueueKind
from busway.store.faults import CommitOutcome
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Hand,
    SingleQueue,
)

DLQ = SubQueueKind.DEAD_LETTER


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for four messages in memory: everything beyond is paged."""
    monkeypatch.setattr(window, "WINDOW_MESSAGES", 4)


def texts(count: int) -> list[str]:
    return [f"{index:03}" for index in range(count)]


# D-22


def test_d_22_a_grant_delivers_no_more_than_its_limit(orders: SingleQueue) -> None:
    orders.send("a", "b", "c")
    hand = Hand()
    grant = orders.grant(hand, 2)
    orders.run()
    assert hand.texts == ["a", "b"]
    assert hand.finished_grants == [grant]


def test_d_22_a_grant_that_finds_nothing_is_finished_at_once(orders: SingleQueue) -> None:
    hand = Hand()
    grant = orders.grant(hand)
    assert hand.finished_grants == [grant]


def test_d_22_a_watcher_hears_of_what_arrives(orders: SingleQueue) -> None:
    hand = Hand()
    orders.broker.watch(orders.key(), hand)
    orders.grant(hand)
    orders.send("a")
    assert hand.ready_calls > 0


def test_d_22_a_watcher_hears_of_what_comes_back(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    hand = Hand()
    orders.broker.watch(orders.key(), hand)
    orders.run()
    assert hand.ready_calls == 0
    orders.settle(delivered, RELEASE)
    assert hand.ready_calls > 0


def test_d_22_a_watcher_hears_when_the_store_is_back(orders: SingleQueue) -> None:
    orders.send("a")
    hand = Hand()
    orders.broker.watch(orders.key(), hand)
    orders.store.next_commits_end(CommitOutcome.UNKNOWN_DONE)
    orders.start_send("b")
    calls = hand.ready_calls
    orders.run(1_000)
    assert hand.ready_calls > calls


def test_d_22_one_who_stopped_watching_hears_nothing(orders: SingleQueue) -> None:
    hand = Hand()
    orders.broker.watch(orders.key(), hand)
    orders.broker.unwatch(orders.key(), hand)
    orders.send("a")
    assert hand.ready_calls == 0


def test_d_22_recalling_a_grant_that_waits_finishes_it_once(
    orders: SingleQueue, small_windows: None
) -> None:
    orders.send(*texts(10))
    orders.crash()
    orders.store.hang()
    hand = Hand()
    grant = orders.grant(hand)
    orders.run(100)
    waiting = hand.finished_grants == []
    orders.broker.recall(grant)
    orders.broker.recall(grant)
    assert waiting
    assert hand.finished_grants == [grant]


def test_d_22_what_is_being_removed_for_a_recalled_grant_still_comes(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.hang()
    hand = Hand()
    grant = orders.grant(hand, 5, delete=True)
    orders.run(10)
    orders.broker.recall(grant)
    assert hand.finished_grants == []
    orders.store.recover()
    orders.run()
    assert hand.texts == ["a"]
    assert hand.finished_grants == [grant]


def test_d_22_a_grant_is_finished_once_though_its_removal_was_refused(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    hand = Hand()
    grant = orders.grant(hand, 5, delete=True)
    orders.run(1_000)
    assert hand.texts == []
    assert hand.finished_grants == [grant]


def test_d_22_a_receiver_may_hand_back_while_it_is_given(orders: SingleQueue) -> None:
    """As a link does whose credit is gone: released, the message goes to the next one."""

    class Closed(Hand):
        def deliver(self, grant: Grant, messages: list[Message]) -> None:
            super().deliver(grant, messages)
            for delivered in self.delivered[-len(messages) :]:
                orders.start_settle(delivered, RELEASE)

    orders.send("a")
    closed = Closed()
    grant = orders.grant(closed, 3)
    assert closed.finished_grants == [grant]
    assert orders.receive_one().delivery_count == 0


# D-11, D-12


@pytest.mark.usefixtures("small_windows")
def test_d_11_what_does_not_fit_in_memory_comes_in_order(orders: SingleQueue) -> None:
    for text in texts(30):
        orders.send(text)
    assert [each.text for each in orders.receive()] == texts(30)


@pytest.mark.usefixtures("small_windows")
def test_d_11_messages_that_arrive_meanwhile_come_behind(orders: SingleQueue) -> None:
    orders.send(*texts(10))
    hand = Hand()
    orders.grant(hand, 30)
    for text in texts(20)[10:]:
        orders.start_send(text)
        orders.run(1)
    orders.run()
    orders.grant(hand, 30)
    orders.run()
    assert hand.texts == texts(20)


@pytest.mark.usefixtures("small_windows")
def test_d_11_returned_messages_come_before_those_in_the_store(orders: SingleQueue) -> None:
    orders.send(*texts(12))
    first = orders.receive_one()
    orders.settle(first, ABANDON)
    assert [each.text for each in orders.receive()] == texts(12)


@pytest.mark.usefixtures("small_windows")
def test_d_11_after_a_crash_everything_is_paged_in(orders: SingleQueue) -> None:
    orders.send(*texts(12))
    orders.crash()
    assert [each.text for each in orders.receive()] == texts(12)


@pytest.mark.usefixtures("small_windows")
def test_d_11_expired_messages_in_the_store_are_swept_unread(orders: SingleQueue) -> None:
    orders.send(*texts(12), ttl_ms=1_000)
    orders.send("stays")
    orders.run(5_000)
    assert orders.counters().active == 1
    assert [each.text for each in orders.receive()] == ["stays"]


@pytest.mark.usefixtures("small_windows")
def test_d_12_dead_letters_below_the_cursor_are_found(orders: SingleQueue) -> None:
    """They keep their old numbers, so they arrive in another order than they are counted."""
    orders.send(*texts(12))
    for delivered in reversed(orders.receive()):
        orders.settle(delivered, DEAD_LETTER)
    found: list[str] = []
    while dead := orders.dead_letters(3):
        found += [each.text for each in dead]
        for each in dead:
            assert orders.settle(each, COMPLETE, DLQ) == ACCEPTED
    assert sorted(found) == texts(12)
    assert orders.counters(DLQ).active == 0


@pytest.mark.usefixtures("small_windows")
def test_d_12_dead_letters_that_arrive_while_others_are_read_are_found(
    orders: SingleQueue,
) -> None:
    orders.send(*texts(20))
    locked = orders.receive()
    hand = Hand()
    orders.broker.watch(orders.key(DLQ), hand)
    for delivered in (*locked[10:], *locked[:10]):
        orders.start_settle(delivered, DEAD_LETTER)
        orders.grant(hand, 2, kind=DLQ)
        orders.run(2)
    orders.run()
    orders.grant(hand, 30, kind=DLQ)
    orders.run()
    assert sorted(hand.texts) == texts(20)


# D-13


def test_d_13_counters_come_back_from_the_store(orders: SingleQueue) -> None:
    orders.send("a", "b", "c", size=50)
    first, second, _ = orders.receive()
    orders.settle(first, DEAD_LETTER)
    orders.settle(second, COMPLETE)
    before = (orders.counters(), orders.counters(DLQ))
    orders.crash()
    assert (orders.counters(), orders.counters(DLQ)) == before
    assert (before[0].active, before[0].bytes, before[1].active) == (1, 50, 1)


# D-17


def test_d_17_a_full_queue_refuses_and_says_how_full() -> None:
    orders = SingleQueue(max_size_mb=1024)
    orders.send("a", size=1024 * MIB - 100)
    command = orders.start_send("b", size=101)
    orders.run()
    assert command.outcome == "QuotaExceeded"
    assert command.error.refused
    assert str(1024 * MIB) in command.error.text
    orders.send("just fits", size=100)


def test_d_17_dead_letters_count_too() -> None:
    orders = SingleQueue()
    orders.send("a", size=1024 * MIB)
    orders.settle(orders.receive_one(), DEAD_LETTER)
    command = orders.start_send("b")
    orders.run()
    assert command.outcome == "QuotaExceeded"


def test_d_17_staged_bytes_count(orders: SingleQueue) -> None:
    orders.send("a", size=1024 * MIB - 100)
    orders.store.hang()
    orders.start_send("b", size=60)
    assert orders.start_send("c", size=60).outcome == "QuotaExceeded"


def test_d_17_a_removed_message_makes_room(orders: SingleQueue) -> None:
    orders.send("a", size=1024 * MIB)
    orders.settle(orders.receive_one(), COMPLETE)
    orders.send("b", size=1024 * MIB)


def test_d_8_a_store_s_share_of_uncommitted_bytes_is_capped(orders: SingleQueue) -> None:
    orders.store.hang()
    orders.start_send("a", size=UNCOMMITTED_BYTES_MAX + 1)
    command = orders.start_send("b")
    assert command.outcome == "BrokerOverloaded"
    assert command.error.refused
