"""Sending with the SDK: one message, many, a batch, up to the limits and past them."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from tests.sdk.conftest import QueueUnderTest, partition_of

LIMIT_BYTES = 256 * 1024
"""LIM-1: of a whole message, and LIM-2: of a batch."""
PROPERTIES_BYTES = 512
"""More than the SDK adds to a plain body."""


def bodies(messages: list) -> list[str]:
    return [str(message) for message in messages]


def numbered(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"message {number}") for number in range(count)]


def fill(batch: ServiceBusMessageBatch) -> None:
    while True:
        batch.add_message(ServiceBusMessage(b"x" * 1000))


def test_a_message_that_was_sent_is_received(queue: QueueUnderTest) -> None:
    queue.sender.send_messages(ServiceBusMessage("hello"))
    assert str(queue.receive_one()) == "hello"


def test_a_list_is_sent_as_one_and_numbered_in_order(queue: QueueUnderTest) -> None:
    """MSG-7: consecutive numbers, per partition."""
    queue.sender.send_messages(numbered(20))
    messages = queue.peek_all()
    assert bodies(messages) == [f"message {number}" for number in range(20)]
    first = messages[0].sequence_number
    assert [message.sequence_number - first for message in messages] == list(range(20))


def test_a_batch_object_is_filled_until_it_says_that_it_is_full(queue: QueueUnderTest) -> None:
    batch = queue.sender.create_message_batch()
    assert isinstance(batch, ServiceBusMessageBatch)
    assert batch.max_size_in_bytes == LIMIT_BYTES
    with pytest.raises(MessageSizeExceededError):
        fill(batch)
    assert len(batch) > 200
    queue.sender.send_messages(batch)
    assert len(queue.peek_all()) == len(batch)


def test_a_batch_without_a_key_goes_to_one_partition(queue: QueueUnderTest) -> None:
    queue.sender.send_messages(numbered(20))
    assert len({partition_of(message) for message in queue.peek_all()}) == 1


def test_an_empty_list_sends_nothing(queue: QueueUnderTest) -> None:
    queue.sender.send_messages([])
    assert queue.is_empty


def test_mappings_are_taken_for_messages(queue: QueueUnderTest) -> None:
    queue.sender.send_messages([{"body": "a mapping", "subject": "given as a dict"}])
    message = queue.receive_one()
    assert (str(message), message.subject) == ("a mapping", "given as a dict")


def test_many_sends_on_one_link_all_arrive(queue: QueueUnderTest) -> None:
    queue.send(*numbered(100))
    assert sorted(bodies(queue.drain(100))) == sorted(bodies(numbered(100)))


def test_a_received_message_can_be_sent_again(queue: QueueUnderTest) -> None:
    queue.send(ServiceBusMessage("round", application_properties={"turn": 1}))
    first = queue.receive_one()
    queue.receiver.complete_message(first)
    queue.sender.send_messages(first)
    second = queue.receive_one()
    assert str(second) == "round"
    assert second.application_properties == {b"turn": 1}
    assert second.sequence_number != first.sequence_number
    assert second.delivery_count == 0


def test_a_message_of_several_frames_arrives_whole(queue: QueueUnderTest) -> None:
    """The broker's frames are 64 KiB: this body takes more than one, both ways."""
    body = bytes(range(256)) * 800
    queue.send(body)
    assert b"".join(queue.receive_one().body) == body


def test_a_message_up_to_the_limit_is_taken(queue: QueueUnderTest) -> None:
    """LIM-1."""
    body = b"x" * (LIMIT_BYTES - PROPERTIES_BYTES)
    queue.send(body)
    assert b"".join(queue.receive_one().body) == body


def test_a_message_past_the_limit_is_refused_and_not_stored(queue: QueueUnderTest) -> None:
    """LIM-1."""
    with pytest.raises(MessageSizeExceededError):
        queue.send(b"x" * (LIMIT_BYTES + 1))
    assert queue.is_empty


def test_a_sender_goes_on_after_a_message_was_too_large(queue: QueueUnderTest) -> None:
    with pytest.raises(MessageSizeExceededError):
        queue.send(b"x" * (4 * LIMIT_BYTES))
    queue.send("small enough")
    assert bodies(queue.peek_all()) == ["small enough"]


def test_a_list_past_the_limit_is_refused_as_a_whole(queue: QueueUnderTest) -> None:
    """LIM-2, MSG-7."""
    with pytest.raises(MessageSizeExceededError):
        queue.sender.send_messages([ServiceBusMessage(b"x" * 100_000) for _ in range(3)])
    assert queue.is_empty


def test_a_dead_letter_queue_takes_no_sends(queue: QueueUnderTest) -> None:
    """DLQ-1: messages get there by being dead-lettered only."""
    path = f"{queue.name}/$DeadLetterQueue"
    with pytest.raises(ServiceBusError), queue.client.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("by the back door"))
