"""Messages set aside, and fetched by their number (DEF)."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from tests.sdk.conftest import QueueUnderTest, partition_of, renewed_past


def defer_one(queue: QueueUnderTest, body: str = "later", key: str | None = None) -> int:
    """Send, receive and defer a message; its sequence number."""
    queue.send(ServiceBusMessage(body, partition_key=key))
    message = queue.receive_one()
    queue.receiver.defer_message(message)
    return message.sequence_number


def test_a_deferred_message_is_received_by_its_number(queue: QueueUnderTest) -> None:
    """DEF-2."""
    number = defer_one(queue)
    [message] = queue.receiver.receive_deferred_messages(number)
    assert (str(message), message.sequence_number) == ("later", number)
    assert message.lock_token is not None
    assert message.locked_until_utc is not None


def test_several_deferred_messages_are_received_at_once(queue: QueueUnderTest) -> None:
    """DEF-7: those of one partition."""
    numbers = [defer_one(queue, body, "one") for body in ("first", "second", "third")]
    messages = queue.receiver.receive_deferred_messages(numbers)
    assert [str(message) for message in messages] == ["first", "second", "third"]


def test_a_deferred_message_is_completed(queue: QueueUnderTest) -> None:
    """DEF-2."""
    [message] = queue.receiver.receive_deferred_messages(defer_one(queue))
    queue.receiver.complete_message(message)
    assert queue.is_empty


def test_an_abandoned_deferred_message_stays_deferred_and_counts(queue: QueueUnderTest) -> None:
    """DEF-2: back to deferred, not to active."""
    number = defer_one(queue)
    [message] = queue.receiver.receive_deferred_messages(number)
    queue.receiver.abandon_message(message)
    assert queue.receiver.receive_messages(max_wait_time=0.5) == []
    [again] = queue.receiver.receive_deferred_messages(number)
    assert again.delivery_count == message.delivery_count + 1


def test_a_deferred_message_is_deferred_again(queue: QueueUnderTest) -> None:
    """DEF-2."""
    number = defer_one(queue)
    [message] = queue.receiver.receive_deferred_messages(number)
    queue.receiver.defer_message(message)
    [kept] = queue.peek_all()
    assert kept.state == ServiceBusMessageState.DEFERRED
    assert queue.receiver.receive_deferred_messages(number)


def test_a_deferred_message_is_dead_lettered(queue: QueueUnderTest, dead_letters: Any) -> None:
    """DEF-2."""
    number = defer_one(queue)
    [message] = queue.receiver.receive_deferred_messages(number)
    queue.receiver.dead_letter_message(message, reason="TooLate", error_description="It was over.")
    assert queue.is_empty
    dead = queue.receive_one(dead_letters)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description, dead.sequence_number) == (
        "TooLate",
        "It was over.",
        number,
    )


def test_the_lock_of_a_deferred_message_is_renewed(queue: QueueUnderTest) -> None:
    [message] = queue.receiver.receive_deferred_messages(defer_one(queue))
    before = message.locked_until_utc
    renewed = renewed_past(lambda: queue.receiver.renew_message_lock(message), before)
    assert message.locked_until_utc == renewed


def test_a_deferred_message_is_received_and_deleted(queue: QueueUnderTest) -> None:
    """DEF-3."""
    number = defer_one(queue)
    receiver = queue.open_receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    [message] = receiver.receive_deferred_messages(number)
    assert str(message) == "later"
    assert queue.is_empty


def test_a_number_that_is_not_there_is_not_found(queue: QueueUnderTest) -> None:
    """DEF-4."""
    with pytest.raises(MessageNotFoundError):
        queue.receiver.receive_deferred_messages(4711)


def test_a_message_that_is_not_deferred_is_not_found(queue: QueueUnderTest) -> None:
    """DEF-4."""
    queue.send("active")
    [message] = queue.peek_all()
    with pytest.raises(MessageNotFoundError):
        queue.receiver.receive_deferred_messages(message.sequence_number)


def test_one_number_that_is_not_there_fails_the_whole_request(queue: QueueUnderTest) -> None:
    """DEF-4: and nothing is locked by it."""
    number = defer_one(queue)
    with pytest.raises(MessageNotFoundError):
        queue.receiver.receive_deferred_messages([number, number + 1000])
    assert len(queue.receiver.receive_deferred_messages(number)) == 1


def test_a_deferred_message_that_is_locked_is_not_found(queue: QueueUnderTest) -> None:
    """DEF-4."""
    number = defer_one(queue)
    assert queue.receiver.receive_deferred_messages(number)
    with pytest.raises(MessageNotFoundError):
        queue.receiver.receive_deferred_messages(number)


def test_numbers_of_several_partitions_are_refused(queue: QueueUnderTest) -> None:
    """DEF-7, PRT-8; a conventional queue has one partition only."""
    queue.send(*(f"message {number}" for number in range(2)))
    messages = queue.receive(2)
    for message in messages:
        queue.receiver.defer_message(message)
    numbers = [message.sequence_number for message in messages]
    if queue.partitioned:
        assert len({partition_of(message) for message in messages}) == 2
        with pytest.raises(ServiceBusError):
            queue.receiver.receive_deferred_messages(numbers)
    else:
        assert len(queue.receiver.receive_deferred_messages(numbers)) == 2


def test_a_deferred_dead_letter_is_received_by_its_number(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLQ-1: deferral works there too."""
    queue.send("bad")
    queue.receiver.dead_letter_message(queue.receive_one())
    dead = queue.receive_one(dead_letters)
    dead_letters.defer_message(dead)
    [again] = dead_letters.receive_deferred_messages(dead.sequence_number)
    dead_letters.complete_message(again)
    assert queue.peek_all(dead_letters) == []
