"""Duplicate detection: a message id that was seen within the window is not stored again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from tests.sdk.conftest import (
    PARTITIONED,
    QueueUnderTest,
    TopicUnderTest,
    of_session,
    partition_of,
    texts,
)

DETECTION = pytest.mark.queue(requires_duplicate_detection=True)


def with_id(message_id: str, body: str = "x", **properties: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=message_id, **properties)


@DETECTION
def test_the_same_message_id_is_stored_once(queue: QueueUnderTest) -> None:
    """DUP-2, DUP-3: the second send is accepted, and dropped."""
    queue.send(with_id("1", "first"), with_id("1", "second"), with_id("2", "other"))
    assert sorted(texts(queue.peek_all())) == ["first", "other"]


@DETECTION
def test_completing_does_not_make_an_id_new(queue: QueueUnderTest) -> None:
    """DUP-5."""
    queue.send(with_id("1"))
    queue.receiver.complete_message(queue.receive_one())
    queue.send(with_id("1"))
    assert queue.is_empty


@DETECTION
def test_cancelling_does_not_make_an_id_new(queue: QueueUnderTest) -> None:
    """DUP-5, SCH-6."""
    later = datetime.now(UTC) + timedelta(hours=1)
    numbers = queue.sender.schedule_messages(with_id("1"), later)
    queue.sender.cancel_scheduled_messages(numbers)
    queue.send(with_id("1"))
    assert queue.is_empty


@DETECTION
def test_scheduled_and_other_messages_share_their_ids(queue: QueueUnderTest) -> None:
    """DUP-5, SCH-6."""
    later = datetime.now(UTC) + timedelta(hours=1)
    queue.sender.schedule_messages(with_id("1", "scheduled"), later)
    queue.send(with_id("1", "sent"), with_id("2", "sent"))
    queue.sender.schedule_messages(with_id("2", "scheduled"), later)
    assert sorted(texts(queue.peek_all())) == ["scheduled", "sent"]


@DETECTION
def test_duplicates_within_a_batch_and_of_earlier_ones_are_dropped(queue: QueueUnderTest) -> None:
    """DUP-3, MSG-7; D-29: a batch of many ids goes to many partitions."""
    queue.send(with_id("1"))
    queue.sender.send_messages([with_id(each) for each in ("1", "2", "2", "3", "4", "5")])
    queue.sender.send_messages([with_id(str(number)) for number in range(1, 8)])
    found = sorted(str(message.message_id) for message in queue.peek_all())
    assert found == ["1", "2", "3", "4", "5", "6", "7"]


def test_without_detection_the_same_id_is_stored_again(queue: QueueUnderTest) -> None:
    """DUP-1."""
    queue.send(with_id("1"), with_id("1"))
    assert len(queue.peek_all()) == 2


@pytest.mark.parametrize("kind", [PARTITIONED])
@DETECTION
def test_the_message_id_is_the_key(queue: QueueUnderTest) -> None:
    """P-21: without another key, so that an id always meets its own history."""
    queue.send(*(with_id(str(number)) for number in range(32)))
    assert len({partition_of(message) for message in queue.peek_all()}) > 8


@DETECTION
def test_the_id_counts_with_the_partition_key_where_there_are_partitions(
    queue: QueueUnderTest,
) -> None:
    """DUP-2."""
    queue.send(
        with_id("1", "first", partition_key="customer 7"),
        with_id("1", "again", partition_key="customer 7"),
        with_id("1", "other", partition_key="customer 8"),
    )
    expected = ["first", "other"] if queue.partitioned else ["first"]
    assert sorted(texts(queue.peek_all())) == expected


@pytest.mark.parametrize("kind", ["conventional"])
@pytest.mark.queue(requires_duplicate_detection=True, requires_session=True)
def test_an_id_counts_across_sessions(queue: QueueUnderTest) -> None:
    """DUP-2: on a conventional queue."""
    for message in of_session("a", "first") + of_session("b", "second"):
        message.message_id = "1"
        queue.send(message)
    assert queue.accept("b").peek_messages(10) == []
    assert texts(queue.accept("a").peek_messages(10)) == ["first"]


@pytest.mark.topic(
    '[[topics.subscriptions]]\nname = "one"\n[[topics.subscriptions]]\nname = "two"\n',
    requires_duplicate_detection=True,
)
def test_a_topic_detects_before_it_copies(topic: TopicUnderTest) -> None:
    """DUP-1."""
    topic.send(with_id("1", "first"), with_id("1", "second"))
    assert topic.bodies_in("one") == topic.bodies_in("two") == ["first"]


@pytest.mark.parametrize(("face", "kind"), [("async", PARTITIONED)])
@pytest.mark.queue(requires_duplicate_detection=True, duplicate_detection_history_time_window="20s")
def test_an_id_is_new_again_after_the_window(queue: QueueUnderTest) -> None:
    """DUP-1, DUP-3: measured from the copy that was stored, not from the last that was dropped.

    Once only: it takes the shortest window that there is. The last that is too early is so by far,
    however long its sending takes.
    """
    queue.send(with_id("1", "first"))
    [first] = queue.peek_all()
    while datetime.now(UTC) - first.enqueued_time_utc < timedelta(seconds=10):
        queue.send(with_id("1", "too early"))
        queue.receiver.receive_messages(max_message_count=2, max_wait_time=3)
    assert len(queue.peek_all()) == 1
    while datetime.now(UTC) - first.enqueued_time_utc < timedelta(seconds=20.5):
        queue.receiver.receive_messages(max_message_count=2, max_wait_time=1)
    queue.send(with_id("1", "new again"))
    assert sorted(texts(queue.peek_all())) == ["first", "new again"]
