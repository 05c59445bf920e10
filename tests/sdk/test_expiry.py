"""Time to live: who sets it, and what becomes of a message when it is over (TTL)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

from tests.sdk.conftest import QueueUnderTest, wait_until


def short_lived(body: str = "soon over") -> ServiceBusMessage:
    """With the shortest time to live that the SDK can write."""
    return ServiceBusMessage(body, time_to_live=timedelta(seconds=1))


def held_in_time(queue: QueueUnderTest, body: str = "soon over") -> ServiceBusReceivedMessage:
    """A message that was received within its time, which takes a busy machine several tries."""

    def sent_and_received() -> list[ServiceBusReceivedMessage]:
        queue.send(short_lived(body))
        return queue.receiver.receive_messages(max_wait_time=2)

    [message] = wait_until(sent_and_received)
    return message


@pytest.mark.queue(dead_lettering_on_message_expiration=True)
def test_an_expired_message_is_dead_lettered_if_the_queue_says_so(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """TTL-6, DLQ-3."""
    queue.send(short_lived())
    dead = queue.receive_one(dead_letters)
    assert str(dead) == "soon over"
    assert dead.dead_letter_reason == "TTLExpiredException"
    assert dead.dead_letter_error_description == "The message expired and was dead lettered."
    assert queue.is_empty


def test_an_expired_message_is_dropped_otherwise(queue: QueueUnderTest, dead_letters: Any) -> None:
    """TTL-6."""
    queue.send(short_lived())
    wait_until(lambda: queue.is_empty)
    assert queue.peek_all(dead_letters) == []


def test_an_expired_message_is_not_delivered(queue: QueueUnderTest) -> None:
    """TTL-4."""
    queue.send(short_lived("short"), "long")
    wait_until(lambda: len(queue.peek_all()) == 1)
    assert str(queue.receive_one()) == "long"


def test_a_message_is_received_within_its_time_to_live(queue: QueueUnderTest) -> None:
    """TTL-3."""
    queue.send(ServiceBusMessage("in time", time_to_live=timedelta(minutes=1)))
    message = queue.receive_one()
    assert message.time_to_live == timedelta(minutes=1)
    assert message.expires_at_utc == message.enqueued_time_utc + timedelta(minutes=1)


@pytest.mark.queue(default_message_time_to_live="1m")
def test_the_queue_caps_the_time_to_live(queue: QueueUnderTest) -> None:
    """TTL-1: silently."""
    queue.send(ServiceBusMessage("for ever", time_to_live=timedelta(days=7)))
    assert queue.receive_one().time_to_live == timedelta(minutes=1)


@pytest.mark.queue(default_message_time_to_live="1m")
def test_a_message_without_one_has_the_time_to_live_of_the_queue(queue: QueueUnderTest) -> None:
    """TTL-1."""
    queue.send("no word of it")
    assert queue.receive_one().time_to_live == timedelta(minutes=1)


def test_without_any_there_is_no_time_to_live(queue: QueueUnderTest) -> None:
    """DFT: unlimited, and then it is not on the wire (amqp.md 12)."""
    queue.send("no word of it")
    assert queue.receive_one().time_to_live is None


def test_a_locked_message_outlives_its_time_and_can_be_completed(queue: QueueUnderTest) -> None:
    """TTL-5."""
    held = held_in_time(queue)
    queue.send(short_lived("the clock"))
    wait_until(lambda: len(queue.peek_all()) == 1)
    queue.receiver.complete_message(held)
    assert queue.is_empty


@pytest.mark.queue(dead_lettering_on_message_expiration=True)
def test_a_locked_message_that_is_abandoned_after_its_time_expires_at_once(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """TTL-5."""
    held = held_in_time(queue)
    queue.send(short_lived("the clock"))
    wait_until(lambda: len(queue.peek_all()) == 1)
    queue.receiver.abandon_message(held)
    wait_until(lambda: queue.is_empty)
    reasons = {
        each.sequence_number: each.dead_letter_reason for each in queue.peek_all(dead_letters)
    }
    assert reasons[held.sequence_number] == "TTLExpiredException"


def test_a_dead_letter_does_not_expire(queue: QueueUnderTest, dead_letters: Any) -> None:
    """TTL-8."""
    queue.receiver.dead_letter_message(held_in_time(queue, "bad"))
    queue.send(short_lived("the clock"))
    wait_until(lambda: queue.is_empty)
    assert str(queue.receive_one(dead_letters)) == "bad"


def test_a_deferred_message_does_not_expire(queue: QueueUnderTest) -> None:
    """TTL-7."""
    message = held_in_time(queue, "later")
    queue.receiver.defer_message(message)
    queue.send(short_lived("the clock"))
    wait_until(lambda: len(queue.peek_all()) == 1)
    [kept] = queue.receiver.receive_deferred_messages(message.sequence_number)
    assert str(kept) == "later"
