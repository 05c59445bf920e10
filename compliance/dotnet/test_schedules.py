"""Messages for later: scheduled, seen before their time by a peek only, and cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sdk import result
from world import (
    World,
    bodies,
    date_time_offset,
    is_empty,
    message,
    peeked,
    python_time,
    receive_one,
    received,
    refusal,
)

# isort: split

from Azure.Messaging.ServiceBus import (
    ServiceBusFailureReason,
    ServiceBusMessage,
    ServiceBusMessageState,
)
from System import Array, Int64


def due_in(seconds: float) -> Any:
    return date_time_offset(datetime.now(UTC) + timedelta(seconds=seconds))


@pytest.mark.short
def test_a_scheduled_message_comes_at_its_time(world: World) -> None:
    queue = world.queue()
    due = due_in(1)
    number = result(world.sender(queue).ScheduleMessageAsync(message("later"), due))
    receiver = world.receiver(queue)
    (waiting,) = peeked(receiver, 1)
    assert waiting.State == ServiceBusMessageState.Scheduled
    assert waiting.SequenceNumber == number
    found = receive_one(receiver)
    assert found.Body.ToString() == "later"
    assert found.State == ServiceBusMessageState.Active
    assert python_time(found.EnqueuedTime) >= python_time(due)


@pytest.mark.short
def test_a_cancelled_message_never_comes(world: World) -> None:
    queue = world.queue()
    sender = world.sender(queue)
    number = result(sender.ScheduleMessageAsync(message("never"), due_in(3600)))
    result(sender.CancelScheduledMessageAsync(number))
    assert result(world.receiver(queue).PeekMessageAsync(0)) is None
    error = refusal(lambda: result(sender.CancelScheduledMessageAsync(number)))
    assert error.Reason == ServiceBusFailureReason.MessageNotFound


def test_many_are_scheduled_and_cancelled_at_once(world: World) -> None:
    queue = world.queue()
    sender = world.sender(queue)
    messages = Array[ServiceBusMessage]([message(str(n), PartitionKey="k") for n in range(5)])
    numbers = list(result(sender.ScheduleMessagesAsync(messages, due_in(3600))))
    assert len(set(numbers)) == 5
    result(sender.CancelScheduledMessagesAsync(Array[Int64](numbers[:3])))
    assert bodies(peeked(world.receiver(queue), 2)) == ["3", "4"]


def test_a_message_may_say_itself_when_it_is_due(world: World) -> None:
    queue = world.queue()
    world.send(queue, message("later", ScheduledEnqueueTime=due_in(3600)), "now")
    receiver = world.receiver(queue, deletes=True)
    assert receive_one(receiver).Body.ToString() == "now"
    assert is_empty(receiver)
    (scheduled,) = peeked(receiver, 1)
    assert scheduled.State == ServiceBusMessageState.Scheduled
    result(world.sender(queue).CancelScheduledMessageAsync(scheduled.SequenceNumber))
    assert result(receiver.PeekMessageAsync(0)) is None


def test_a_scheduled_message_of_a_session_comes_in_its_session(world: World) -> None:
    queue = world.queue(RequiresSession=True)
    later = message("later", SessionId="s")
    result(world.sender(queue).ScheduleMessageAsync(later, due_in(0.5)))
    receiver = world.opened(result(world.client.AcceptNextSessionAsync(queue)))
    assert receiver.SessionId == "s"
    assert bodies(received(receiver, 1)) == ["later"]
