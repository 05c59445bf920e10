"""Completing, abandoning, deferring and dead-lettering a locked message, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageAlreadySettled

from tests.sdk.conftest import QueueUnderTest


def test_a_completed_message_is_gone(queue: QueueUnderTest) -> None:
    """MSG-3."""
    queue.send("done with")
    queue.receiver.complete_message(queue.receive_one())
    assert queue.is_empty


def test_completing_one_leaves_the_others(queue: QueueUnderTest) -> None:
    queue.send("first", "second", "third")
    by_body = {str(message): message for message in queue.receive(3)}
    queue.receiver.complete_message(by_body["second"])
    assert sorted(str(message) for message in queue.peek_all()) == ["first", "third"]


def test_the_first_delivery_counts_zero(queue: QueueUnderTest) -> None:
    """DLV-1."""
    queue.send("new")
    assert queue.receive_one().delivery_count == 0


def test_an_abandoned_message_comes_again_with_its_count_raised(queue: QueueUnderTest) -> None:
    """DLV-1."""
    queue.send("again and again")
    for count in range(3):
        message = queue.receive_one()
        assert message.delivery_count == count
        queue.receiver.abandon_message(message)


def test_an_abandoned_message_keeps_its_number_and_gets_a_new_lock(queue: QueueUnderTest) -> None:
    queue.send("again")
    first = queue.receive_one()
    queue.receiver.abandon_message(first)
    second = queue.receive_one()
    assert second.sequence_number == first.sequence_number
    assert second.enqueued_time_utc == first.enqueued_time_utc
    assert second.lock_token != first.lock_token


def test_an_abandoned_message_returns_to_its_place_not_to_the_end(queue: QueueUnderTest) -> None:
    """MSG-6."""
    queue.send(*(ServiceBusMessage(body, partition_key="one") for body in ("first", "second")))
    queue.receiver.abandon_message(queue.receive_one())
    assert [str(message) for message in queue.receive(2)] == ["first", "second"]


def test_a_deferred_message_is_kept_but_not_delivered(queue: QueueUnderTest) -> None:
    """DEF-1, DEF-6."""
    queue.send("later")
    queue.receiver.defer_message(queue.receive_one())
    assert queue.receiver.receive_messages(max_wait_time=0.5) == []
    [kept] = queue.peek_all()
    assert kept.state == ServiceBusMessageState.DEFERRED


def test_a_dead_lettered_message_leaves_the_queue_for_its_dead_letters(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLQ-2."""
    queue.send("bad")
    message = queue.receive_one()
    queue.receiver.dead_letter_message(
        message, reason="NotAnOrder", error_description="It has no lines."
    )
    assert queue.is_empty
    dead = queue.receive_one(dead_letters)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
        "NotAnOrder",
        "It has no lines.",
    )


def test_a_message_is_settled_once(queue: QueueUnderTest) -> None:
    queue.send("once")
    message = queue.receive_one()
    queue.receiver.complete_message(message)
    with pytest.raises(MessageAlreadySettled):
        queue.receiver.complete_message(message)


def test_many_messages_are_settled_each_in_its_own_way(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    queue.send(*(f"message {number}" for number in range(40)))
    settle = [
        queue.receiver.complete_message,
        queue.receiver.abandon_message,
        queue.receiver.defer_message,
        queue.receiver.dead_letter_message,
    ]
    messages = queue.receive(40)
    for number, message in enumerate(messages):
        settle[number % 4](message)
    left = queue.peek_all()
    assert sum(message.state == ServiceBusMessageState.DEFERRED for message in left) == 10
    assert sorted(message.delivery_count for message in left) == [1] * 20
    assert len(queue.peek_all(dead_letters)) == 10


def test_a_message_is_settled_while_others_are_still_sent(queue: QueueUnderTest) -> None:
    for number in range(10):
        queue.send(f"message {number}")
        queue.receiver.complete_message(queue.receive_one())
    assert queue.is_empty
