"""The dead-letter queue: how messages get there, what they carry, and how they leave (DLQ)."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue

from tests.sdk.conftest import ONCE_EACH, QueueUnderTest


def dead_letter_one(queue: QueueUnderTest, message: ServiceBusMessage) -> ServiceBusReceivedMessage:
    """Send a message, dead-letter it; as it was received before that."""
    queue.send(message)
    received = queue.receive_one()
    queue.receiver.dead_letter_message(received, reason="Why", error_description="Because.")
    return received


def test_a_dead_letter_keeps_body_properties_number_and_time(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLQ-2."""
    sent = ServiceBusMessage(
        "bad", message_id="m1", subject="s", application_properties={"a": 1, "b": "two"}
    )
    alive = dead_letter_one(queue, sent)
    dead = queue.receive_one(dead_letters)
    assert (str(dead), dead.message_id, dead.subject) == ("bad", "m1", "s")
    assert dead.sequence_number == alive.sequence_number
    assert dead.enqueued_time_utc == alive.enqueued_time_utc
    assert dead.application_properties == {
        b"a": 1,
        b"b": b"two",
        b"DeadLetterReason": b"Why",
        b"DeadLetterErrorDescription": b"Because.",
    }


def test_a_dead_letter_names_no_source_in_its_own_queue(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLQ-5."""
    dead_letter_one(queue, ServiceBusMessage("bad"))
    assert queue.receive_one(dead_letters).dead_letter_source is None


def test_a_message_is_dead_lettered_without_a_reason(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    queue.send("bad")
    queue.receiver.dead_letter_message(queue.receive_one())
    dead = queue.receive_one(dead_letters)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (None, None)


def test_a_dead_letter_is_completed(queue: QueueUnderTest, dead_letters: Any) -> None:
    dead_letter_one(queue, ServiceBusMessage("bad"))
    dead_letters.complete_message(queue.receive_one(dead_letters))
    assert queue.peek_all(dead_letters) == []


def test_a_dead_letter_counts_its_deliveries_without_end(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLV-6."""
    dead_letter_one(queue, ServiceBusMessage("bad"))
    counts = []
    for _ in range(12):
        dead = queue.receive_one(dead_letters)
        counts.append(dead.delivery_count)
        dead_letters.abandon_message(dead)
    assert counts == list(range(counts[0], counts[0] + 12))


def test_the_dead_letter_queue_is_found_by_its_path(queue: QueueUnderTest) -> None:
    dead_letter_one(queue, ServiceBusMessage("bad"))
    path = f"{queue.name}/$deadletterqueue"
    receiver = queue.open(queue.client.get_queue_receiver(path))
    assert str(queue.receive_one(receiver)) == "bad"


def test_receiving_from_the_queue_does_not_see_dead_letters(queue: QueueUnderTest) -> None:
    dead_letter_one(queue, ServiceBusMessage("bad"))
    assert queue.receiver.receive_messages(max_wait_time=0.5) == []
    assert queue.is_empty


@pytest.mark.queue(max_delivery_count=2)
def test_a_message_that_failed_too_often_is_dead_lettered(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLV-3: deliveries show 0, then 1; DLV-5: and then it says why."""
    queue.send("poison")
    for count in (0, 1):
        message = queue.receive_one()
        assert message.delivery_count == count
        queue.receiver.abandon_message(message)
    dead = queue.receive_one(dead_letters)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert dead.dead_letter_error_description == (
        "Message could not be consumed after 2 delivery attempts."
    )
    assert queue.is_empty


@pytest.mark.queue(max_delivery_count=1)
def test_with_one_delivery_allowed_the_first_failure_is_the_last(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """DLV-3."""
    queue.send("poison")
    queue.receiver.abandon_message(queue.receive_one())
    assert str(queue.receive_one(dead_letters)) == "poison"


@ONCE_EACH
@pytest.mark.queue(max_delivery_count=1, lock_duration="5s")
def test_a_lock_that_runs_out_counts_as_a_failure(queue: QueueUnderTest, dead_letters: Any) -> None:
    """LOCK-4, DLV-3."""
    queue.send("too slow")
    queue.receive_one()
    dead = queue.receive_one(dead_letters)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_dead_letters_are_repaired_and_sent_again(queue: QueueUnderTest, dead_letters: Any) -> None:
    dead_letter_one(queue, ServiceBusMessage("broken"))
    dead = queue.receive_one(dead_letters)
    queue.send(ServiceBusMessage(f"{dead} and mended", message_id=dead.message_id))
    dead_letters.complete_message(dead)
    assert str(queue.receive_one()) == "broken and mended"


def test_a_receiver_with_prefetch_drains_dead_letters(queue: QueueUnderTest) -> None:
    for number in range(20):
        dead_letter_one(queue, ServiceBusMessage(f"message {number:02}"))
    receiver = queue.open_receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER, prefetch_count=10)
    received = queue.receive(20, receiver)
    assert sorted(map(str, received)) == [f"message {number:02}" for number in range(20)]
