"""Time to live: what the .NET client shows of it, and what becomes of a message after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sdk import result
from world import (
    World,
    date_time_offset,
    message,
    peeked,
    python_time,
    receive_one,
    wait_until,
)

# isort: split

from System import TimeSpan


def lives_until_enqueued_and(found: Any, time_to_live: TimeSpan) -> bool:
    """What a client computes from: enqueued, time to live, and the end that it shows."""
    end = found.EnqueuedTime.Add(time_to_live)
    return abs(end.Subtract(found.ExpiresAt).TotalMilliseconds) <= 1


@pytest.mark.short
def test_an_expired_message_is_gone_or_dead_lettered(world: World) -> None:
    gone, buried = world.queue(), world.queue(DeadLetteringOnMessageExpiration=True)
    for queue in (gone, buried):
        world.send(queue, message("short", TimeToLive=TimeSpan.FromMilliseconds(300)))
    dead = receive_one(world.receiver(buried, dead_letters=True))
    assert dead.DeadLetterReason == "TTLExpiredException"
    wait_until(lambda: result(world.receiver(gone).PeekMessageAsync(0)) is None)


@pytest.mark.short
def test_a_message_shows_its_time_to_live_and_its_end(world: World) -> None:
    queue = world.queue()
    world.send(queue, message("a day", TimeToLive=TimeSpan.FromDays(1)))
    found = receive_one(world.receiver(queue))
    assert found.TimeToLive == TimeSpan.FromDays(1)
    assert lives_until_enqueued_and(found, TimeSpan.FromDays(1))


def test_a_message_without_one_never_ends(world: World) -> None:
    queue = world.queue()
    world.send(queue, "for ever")
    assert receive_one(world.receiver(queue)).TimeToLive == TimeSpan.MaxValue


def test_a_hundred_days_are_a_hundred_days(world: World) -> None:
    queue = world.queue()
    world.send(queue, message("long", TimeToLive=TimeSpan.FromDays(100)))
    found = receive_one(world.receiver(queue))
    assert found.TimeToLive == TimeSpan.FromDays(100)
    assert lives_until_enqueued_and(found, TimeSpan.FromDays(100))


def test_the_default_of_the_queue_is_shown(world: World) -> None:
    queue = world.queue(DefaultMessageTimeToLive=TimeSpan.FromDays(100))
    world.send(queue, "no time of its own")
    found = receive_one(world.receiver(queue))
    assert found.TimeToLive == TimeSpan.FromDays(100)
    assert lives_until_enqueued_and(found, TimeSpan.FromDays(100))


def test_the_shorter_of_two_times_counts(world: World) -> None:
    queue = world.queue(DefaultMessageTimeToLive=TimeSpan.FromMinutes(7))
    world.send(queue, message("a day", TimeToLive=TimeSpan.FromDays(1)))
    found = receive_one(world.receiver(queue))
    assert found.TimeToLive == TimeSpan.FromMinutes(7)
    assert lives_until_enqueued_and(found, TimeSpan.FromMinutes(7))


def test_the_time_of_a_scheduled_message_begins_when_it_is_due(world: World) -> None:
    queue = world.queue()
    due = date_time_offset(datetime.now(UTC) + timedelta(seconds=1))
    later = message("later", TimeToLive=TimeSpan.FromMinutes(5))
    result(world.sender(queue).ScheduleMessageAsync(later, due))
    found = receive_one(world.receiver(queue))
    assert python_time(found.EnqueuedTime) >= python_time(due)
    assert lives_until_enqueued_and(found, TimeSpan.FromMinutes(5))


def test_a_dead_letter_of_a_topic_with_a_long_default_is_read(world: World) -> None:
    topic = world.topic("s", DefaultMessageTimeToLive=TimeSpan.FromDays(60))
    world.send(topic, "buried")
    receiver = world.receiver(topic, "s")
    result(receiver.DeadLetterMessageAsync(receive_one(receiver), "Bad"))
    dead_letters = world.receiver(topic, "s", dead_letters=True)
    assert peeked(dead_letters, 1)[0].DeadLetterReason == "Bad"
    assert receive_one(dead_letters).Body.ToString() == "buried"


def test_the_longest_time_there_is_is_no_time_at_all(world: World) -> None:
    queue = world.queue()
    world.send(queue, message("for ever", TimeToLive=TimeSpan.MaxValue))
    found = receive_one(world.receiver(queue))
    assert found.TimeToLive.CompareTo(TimeSpan.FromDays(10_000)) > 0
