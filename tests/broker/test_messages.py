"""MSG, SEQ, TTL: what is sent, in which order it comes out, and how long it lives."""

from __future__ import annotations

from typing import Any

from busway.broker.seams import Grant
from busway.model.message import Message, MessageState
from busway.store.base import Batch, ExpiryPage, SubQueueKind
from busway.store.faults import CommitOutcome
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEFER,
    RELEASE,
    Answers,
    Hand,
    SingleQueue,
)


def test_msg_2_a_send_is_accepted_only_when_it_is_durable(orders: SingleQueue) -> None:
    orders.store.hang()
    command = orders.start_send("a")
    orders.run(1_000)
    assert command.outcome is None
    orders.store.recover()
    orders.run()
    assert command.outcome == ACCEPTED
    assert orders.store.medium.commit_number == 1


def test_d_5_a_message_is_not_revealed_before_its_commit(orders: SingleQueue) -> None:
    orders.store.hang()
    orders.start_send("a")
    hand = Hand()
    orders.grant(hand)
    orders.run(1_000)
    assert hand.texts == []
    assert orders.counters().active == 0


def test_msg_6_the_lowest_number_is_delivered_first(orders: SingleQueue) -> None:
    for text in "abc":
        orders.send(text)
    assert [each.text for each in orders.receive()] == ["a", "b", "c"]


def test_msg_6_an_abandoned_message_returns_to_its_place(orders: SingleQueue) -> None:
    orders.send("a", "b", "c")
    first = orders.receive_one()
    orders.settle(first, ABANDON)
    assert [each.text for each in orders.receive()] == ["a", "b", "c"]


def test_msg_6_a_released_message_returns_to_its_place(orders: SingleQueue) -> None:
    orders.send("a", "b", "c")
    first, second = orders.receive(2)
    orders.settle(second, RELEASE)
    orders.settle(first, RELEASE)
    assert [each.text for each in orders.receive()] == ["a", "b", "c"]


def test_msg_7_a_batch_has_consecutive_numbers_in_its_order(orders: SingleQueue) -> None:
    orders.start_send("x")
    orders.start_send("a", "b", "c")
    orders.start_send("y")
    orders.run()
    numbers = {each.text: each.number for each in orders.receive()}
    assert [numbers[text] for text in "abc"] == list(range(numbers["a"], numbers["a"] + 3))


def test_msg_7_a_batch_is_there_whole_or_not_at_all(orders: SingleQueue) -> None:
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    command = orders.start_send("a", "b", "c")
    orders.run()
    assert command.outcome == "ServerBusy"
    assert orders.peek() == []


def test_msg_3_a_completed_message_is_gone(orders: SingleQueue) -> None:
    orders.send("a")
    assert orders.settle(orders.receive_one(), COMPLETE) == ACCEPTED
    assert orders.peek() == []
    assert orders.counters().active == 0
    assert orders.counters().bytes == 0


def test_d_6_receive_and_delete_writes_only_what_is_removed(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.hang()
    hand = Hand()
    orders.grant(hand, 1, delete=True)
    orders.run(1_000)
    assert hand.texts == []
    orders.store.recover()
    orders.run()
    assert hand.texts == ["a"]
    assert orders.peek() == []


def test_d_6_a_removal_that_is_refused_delivers_nothing_and_keeps_it(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    assert orders.receive(delete=True) == []
    assert [each.text for each in orders.receive(delete=True)] == ["a"]


def test_seq_1_numbers_start_at_one_and_increase(orders: SingleQueue) -> None:
    orders.send("a", "b")
    orders.send("c")
    assert [each.number for each in orders.receive()] == [1, 2, 3]


def test_seq_1_numbers_go_on_after_a_crash(orders: SingleQueue) -> None:
    orders.send("a")
    orders.crash()
    orders.send("b")
    assert [each.number for each in orders.receive()] == [1, 2]


def test_seq_2_the_high_bits_name_the_partition() -> None:
    orders = SingleQueue(enable_partitioning=True)
    key = orders.key()._replace(partition=7)
    answers, hand = Answers(), Hand()
    orders.broker.send(key, [Message(bare=b"a", size=1)], answers, 1)
    orders.run()
    orders.broker.grant(Grant(hand, key, 1, delete=False))
    assert [each.number for each in hand.delivered] == [(7 << 48) + 1]


def test_d_2_a_refused_send_leaves_a_gap(orders: SingleQueue) -> None:
    orders.send("a")
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    orders.start_send("lost")
    orders.run()
    orders.send("b")
    assert [(each.text, each.number) for each in orders.receive()] == [("a", 1), ("b", 3)]


def test_ttl_4_an_expired_message_is_not_delivered(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    orders.send("b")
    orders.run(1_000)
    assert [each.text for each in orders.receive()] == ["b"]


def test_ttl_4_the_sweep_removes_what_nobody_asks_for(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    orders.run(2_000)
    assert orders.counters().active == 0
    assert orders.peek() == []


def test_ttl_4_the_sweep_removes_what_was_sent_before_a_crash(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    orders.crash()
    orders.run(2_000)
    assert orders.peek() == []


def test_ttl_4_the_sweep_gets_through_many_at_once(orders: SingleQueue) -> None:
    orders.send(*(str(index) for index in range(950)), ttl_ms=1_000)
    orders.run(10_000)
    assert orders.counters().active == 0


def test_ttl_1_the_entity_s_default_holds_for_messages_without_their_own() -> None:
    orders = SingleQueue(default_ttl_ms=1_000)
    orders.send("a")
    orders.run(2_000)
    assert orders.peek() == []


def test_ttl_1_the_smaller_one_counts() -> None:
    orders = SingleQueue(default_ttl_ms=1_000)
    orders.send("a", ttl_ms=60_000)
    orders.run(2_000)
    assert orders.peek() == []


def test_ttl_5_a_locked_message_does_not_expire(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    delivered = orders.receive_one()
    orders.run(5_000)
    assert orders.settle(delivered, COMPLETE) == ACCEPTED


def test_ttl_5_abandoning_checks_the_time_to_live_at_once() -> None:
    orders = SingleQueue(dead_lettering_on_expiration=True)
    orders.send("a", ttl_ms=1_000)
    delivered = orders.receive_one()
    orders.run(5_000)
    orders.settle(delivered, ABANDON)
    (dead,) = orders.dead_letters()
    assert dead.properties["DeadLetterReason"] == "TTLExpiredException"
    assert dead.delivery_count == 1


def test_ttl_5_releasing_checks_the_time_to_live_at_once(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    delivered = orders.receive_one()
    orders.run(5_000)
    orders.settle(delivered, RELEASE)
    assert orders.counters().active == 0


def test_ttl_5_a_lock_that_runs_out_checks_the_time_to_live_at_once(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    orders.receive_one()
    orders.run(61_000)
    assert orders.counters().active == 0


def test_ttl_5_what_expires_while_its_abandon_is_committed_is_swept(orders: SingleQueue) -> None:
    """The sweep came by while the message was marked (D-1): it has to come again."""
    orders.send("a", ttl_ms=2_000)
    delivered = orders.receive_one()
    orders.run(1_500)
    orders.store.hang()
    orders.start_send("in front of it")
    orders.run(1)
    orders.start_settle(delivered, ABANDON)
    orders.run(2_000)
    orders.store.recover()
    orders.run(5_000)
    assert [each.text for each in orders.peek()] == ["in front of it"]


def test_ttl_6_with_dead_lettering_it_moves_with_the_service_s_reason() -> None:
    orders = SingleQueue(dead_lettering_on_expiration=True)
    orders.send("a", ttl_ms=1_000)
    orders.run(2_000)
    (dead,) = orders.dead_letters()
    assert dead.properties == {
        "DeadLetterReason": "TTLExpiredException",
        "DeadLetterErrorDescription": "The message expired and was dead lettered.",
    }
    assert dead.delivery_count == 0


def test_ttl_7_a_deferred_message_outlives_its_time(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    delivered = orders.receive_one()
    orders.settle(delivered, DEFER)
    orders.run(5_000)
    assert orders.lock_deferred(delivered.number).state is MessageState.DEFERRED


def test_ttl_8_dead_letters_do_not_expire() -> None:
    orders = SingleQueue(default_ttl_ms=1_000, max_delivery_count=1)
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    orders.run(60_000)
    assert orders.counters(SubQueueKind.DEAD_LETTER).active == 1


def test_ttl_4_an_expiry_whose_commit_was_refused_is_tried_again(orders: SingleQueue) -> None:
    orders.send("a", ttl_ms=1_000)
    orders.store.next_commits_end(CommitOutcome.REFUSED, CommitOutcome.REFUSED)
    orders.run(5_000)
    assert orders.counters().active == 0


def test_ttl_4_what_could_not_be_expired_in_time_is_swept_later(orders: SingleQueue) -> None:
    """A page of the sweep that was asked for before the store hung is answered after it."""
    orders.send("first", ttl_ms=1_000)
    orders.send("second", ttl_ms=1_500)
    read_expiring = orders.store.faults.read_expiring

    def read_and_hang(*arguments: Any) -> ExpiryPage:
        page = read_expiring(*arguments)
        orders.store.hang()
        return page

    orders.store.hang()
    orders.run(1_000)  # a page is asked for
    orders.start_send("third")
    orders.run(10)
    orders.store.faults.read_expiring = read_and_hang  # type: ignore[method-assign, assignment]
    orders.store.port.resume()
    orders.run(10_000)  # the first is marked, the page of the second asked for, the mark taken off
    orders.store.faults.read_expiring = read_expiring  # type: ignore[method-assign]
    orders.store.recover()
    orders.run(10_000)
    assert [each.text for each in orders.peek()] == ["third"]


def test_ttl_4_what_a_page_brings_in_while_the_sweep_looks_is_swept_too(
    orders: SingleQueue,
) -> None:
    orders.send("stays")
    orders.send("expires", ttl_ms=1_000)
    orders.crash()
    orders.store.hang()
    orders.run(1_000)  # the sweep asks what has expired
    hand = Hand()
    orders.grant(hand, 1)  # and a page is asked for
    orders.store.recover()
    orders.run(5_000)
    assert hand.texts == ["stays"]
    assert [each.text for each in orders.peek()] == ["stays"]


def test_ttl_4_nothing_turns_in_circles_while_the_sweep_waits_for_the_store(
    orders: SingleQueue,
) -> None:
    """The simulated host fails a world in which no time passes."""
    commit = orders.store.faults.commit

    def commit_and_hang(batch: Batch) -> None:
        commit(batch)
        orders.store.hang()

    orders.send("a", ttl_ms=1_000)
    orders.store.hang()
    orders.start_send("b", ttl_ms=1)
    orders.run(1_000)  # the sweep's page waits behind a message that expires in its commit
    orders.store.faults.commit = commit_and_hang  # type: ignore[method-assign]
    orders.store.port.resume()
    orders.run(1_000)
    orders.store.faults.commit = commit  # type: ignore[method-assign]
    orders.store.recover()
    orders.run(5_000)
    assert orders.peek() == []
