"""Looking at messages without touching them (PEEK)."""

from __future__ import annotations

from typing import Any

from azure.servicebus import ServiceBusMessage

from tests.sdk.conftest import QueueUnderTest, partition_of


def numbered(count: int) -> list[str]:
    return [f"message {number:03}" for number in range(count)]


def test_peeking_at_an_empty_queue_shows_nothing(queue: QueueUnderTest) -> None:
    assert queue.receiver.peek_messages() == []


def test_peeking_leaves_messages_where_they_are(queue: QueueUnderTest) -> None:
    """PEEK-4."""
    queue.send("untouched")
    for _ in range(3):
        [peeked] = queue.peek_all()
        assert (str(peeked), peeked.delivery_count) == ("untouched", 0)
    assert queue.receive_one().delivery_count == 0


def test_a_peeked_message_has_no_lock(queue: QueueUnderTest) -> None:
    """PEEK-1."""
    queue.send("free")
    [peeked] = queue.peek_all()
    assert peeked.locked_until_utc is None


def test_a_locked_message_is_seen(queue: QueueUnderTest) -> None:
    """LOCK-8."""
    queue.send("locked")
    locked = queue.receive_one()
    assert [each.sequence_number for each in queue.peek_all()] == [locked.sequence_number]


def test_repeated_peeks_go_on_after_the_last(queue: QueueUnderTest) -> None:
    """PEEK-2, P-32: by repeating one sees every message once; the SDK remembers the number."""
    queue.send(*numbered(50))
    seen = []
    while batch := queue.receiver.peek_messages(max_message_count=7):
        seen += [str(message) for message in batch]
    assert sorted(seen) == numbered(50)


def test_a_walk_to_the_end_is_in_the_order_of_numbers(queue: QueueUnderTest) -> None:
    """PEEK-1, PRT-5."""
    queue.send(*numbered(40))
    numbers = [message.sequence_number for message in queue.peek_all(page=6)]
    assert len(numbers) == 40
    assert numbers == sorted(numbers)


def test_a_peek_starts_at_the_number_it_is_given(queue: QueueUnderTest) -> None:
    """PEEK-1: inclusive."""
    queue.send(*(ServiceBusMessage(body, partition_key="one") for body in numbered(5)))
    third = queue.peek_all()[2]
    batch = queue.receiver.peek_messages(2, sequence_number=third.sequence_number)
    assert [str(message) for message in batch] == ["message 002", "message 003"]


def test_a_peek_shows_at_most_as_many_as_asked(queue: QueueUnderTest) -> None:
    """PEEK-2."""
    queue.send(*(ServiceBusMessage(body, partition_key="one") for body in numbered(5)))
    assert len(queue.receiver.peek_messages(3, sequence_number=1)) == 3


def test_a_peek_is_cut_at_its_size(queue: QueueUnderTest) -> None:
    """LIM-15, P-32: fewer than asked for, and all by repeating."""
    queue.send(*(ServiceBusMessage(b"x" * 100_000, partition_key="one") for _ in range(6)))
    assert 1 <= len(queue.receiver.peek_messages(6, sequence_number=1)) <= 3
    assert len(queue.peek_all()) == 6


def test_dead_letters_are_peeked_in_their_own_queue(
    queue: QueueUnderTest, dead_letters: Any
) -> None:
    """PEEK-3."""
    queue.send(*numbered(12))
    for message in queue.receive(12):
        queue.receiver.dead_letter_message(message, reason="Why")
    assert queue.is_empty
    seen = queue.peek_all(dead_letters, page=5)
    assert sorted(str(message) for message in seen) == numbered(12)
    assert {message.dead_letter_reason for message in seen} == {"Why"}


def test_a_peek_sees_every_partition(queue: QueueUnderTest) -> None:
    """D-26: one call walks them all."""
    queue.send(*numbered(32))
    partitions = {partition_of(message) for message in queue.receiver.peek_messages(100)}
    assert len(partitions) == (16 if queue.partitioned else 1)
