"""Locks that run out, entities that are disabled, keys that cannot be: each has its reason."""

from __future__ import annotations

from typing import Any

import pytest
from sdk import result
from world import (
    World,
    bodies,
    complete,
    is_empty,
    message,
    receive_one,
    received,
    refusal,
    seconds,
)

# isort: split

from Azure.Messaging.ServiceBus import (
    ServiceBusFailureReason,
    ServiceBusMessage,
)
from Azure.Messaging.ServiceBus.Administration import EntityStatus
from System import InvalidOperationException

REASON = ServiceBusFailureReason
SHORTEST_LOCK = seconds(5)


def set_status(world: World, queue: str, status: Any) -> None:
    found = result(world.administration.GetQueueAsync(queue)).Value
    found.Status = status
    result(world.administration.UpdateQueueAsync(found))


def test_when_a_lock_runs_out_the_message_comes_again_and_its_first_holder_is_told(
    world: World,
) -> None:
    queue = world.queue(LockDuration=SHORTEST_LOCK)
    world.send(queue, "slowly")
    first, second = world.receiver(queue), world.connect().CreateReceiver(queue)
    held = receive_one(first)
    again = receive_one(second)  # after the lock of the first
    assert (again.DeliveryCount, held.DeliveryCount) == (2, 1)
    error = refusal(lambda: complete(first, held))
    assert error.Reason == REASON.MessageLockLost
    complete(second, again)


def test_when_the_lock_of_a_session_runs_out_its_holder_is_told(world: World) -> None:
    queue = world.queue(LockDuration=SHORTEST_LOCK, RequiresSession=True)
    world.send(queue, message("slowly", SessionId="s"))
    first = world.opened(result(world.client.AcceptSessionAsync(queue, "s")))
    held = receive_one(first)
    second = world.opened(result(world.connect().AcceptNextSessionAsync(queue)))
    assert receive_one(second).Body.ToString() == "slowly"
    error = refusal(lambda: complete(first, held))
    assert error.Reason == REASON.SessionLockLost


@pytest.mark.short
def test_a_disabled_queue_neither_takes_nor_gives(world: World) -> None:
    queue = world.queue()
    world.send(queue, "before")
    set_status(world, queue, EntityStatus.Disabled)
    for action in (
        lambda: world.send(queue, "never"),
        lambda: result(world.receiver(queue).ReceiveMessageAsync()),
    ):
        assert refusal(action).Reason == REASON.MessagingEntityDisabled
    set_status(world, queue, EntityStatus.Active)
    assert bodies(received(world.receiver(queue), 1)) == ["before"]


def test_what_is_disabled_for_sends_still_gives(world: World) -> None:
    queue = world.queue()
    world.send(queue, "before")
    set_status(world, queue, EntityStatus.SendDisabled)
    assert refusal(lambda: world.send(queue, "never")).Reason == REASON.MessagingEntityDisabled
    assert bodies(received(world.receiver(queue), 1)) == ["before"]


def test_what_is_disabled_for_receives_still_takes(world: World) -> None:
    queue = world.queue()
    set_status(world, queue, EntityStatus.ReceiveDisabled)
    world.send(queue, "later")
    error = refusal(lambda: result(world.receiver(queue).ReceiveMessageAsync()))
    assert error.Reason == REASON.MessagingEntityDisabled
    set_status(world, queue, EntityStatus.Active)
    assert bodies(received(world.receiver(queue), 1)) == ["later"]


def test_a_session_receiver_needs_a_queue_with_sessions_and_the_other_way_round(
    world: World,
) -> None:
    plain, sessions = world.queue(), world.queue(RequiresSession=True)
    refusal(lambda: result(world.client.AcceptSessionAsync(plain, "s")), InvalidOperationException)
    receiver = world.receiver(sessions)
    refusal(lambda: result(receiver.ReceiveMessageAsync()), InvalidOperationException)


def test_a_batch_with_two_keys_is_refused_on_a_partitioned_queue(world: World) -> None:
    """P-20: one transfer is one partition's; nothing of it is stored."""
    queue = world.queue()
    batch = result(world.sender(queue).CreateMessageBatchAsync())
    for key in ("one", "two"):
        assert batch.TryAddMessage(message(key, PartitionKey=key))

    def send() -> None:
        result(world.sender(queue).SendMessagesAsync(batch))

    if world.partitioned:
        error = refusal(send, InvalidOperationException)
        assert "TrackingId" in error.Message
        assert is_empty(world.receiver(queue))
    else:
        send()
        assert bodies(received(world.receiver(queue), 2)) == ["one", "two"]


def test_a_dead_letter_queue_takes_no_sends(world: World) -> None:
    queue = world.queue()
    dead_letters = f"{queue}/$DeadLetterQueue"
    error = refusal(lambda: world.send(dead_letters, "never"), InvalidOperationException)
    assert "Messages cannot be sent to" in error.Message
    assert is_empty(world.receiver(queue, dead_letters=True))


def test_a_received_message_is_sent_again_with_all_that_it_says(world: World) -> None:
    queue = world.queue()
    sent = message("again and again", CorrelationId="7", Subject="order", ContentType="text/plain")
    sent.ApplicationProperties["colour"] = "red"
    world.send(queue, sent)
    receiver = world.receiver(queue)
    for _ in range(3):
        found = receive_one(receiver)
        shown = (found.CorrelationId, found.Subject, found.ContentType, found.Body.ToString())
        assert shown == ("7", "order", "text/plain", "again and again")
        assert found.ApplicationProperties["colour"] == "red"
        assert found.DeliveryCount == 1
        result(world.sender(queue).SendMessageAsync(ServiceBusMessage(found)))
        complete(receiver, found)


def test_what_was_prefetched_and_not_received_is_there_for_others_after_a_close(
    world: World,
) -> None:
    queue = world.queue()
    world.send(queue, *(f"message {number}" for number in range(6)))
    keen = world.receiver(queue, prefetch=10)
    complete(keen, receive_one(keen))
    result(keen.CloseAsync())
    assert len(received(world.receiver(queue), 5)) == 5


def test_messages_go_each_to_one_of_two_receivers(world: World) -> None:
    queue = world.queue()
    sent = [f"message {number}" for number in range(20)]
    world.send(queue, *sent)
    receivers = [world.receiver(queue), world.connect().CreateReceiver(queue)]
    found: list[Any] = []
    while len(found) < len(sent):
        for receiver in receivers:
            found += result(receiver.ReceiveMessagesAsync(3, seconds(1)))
    assert sorted(bodies(found)) == sorted(sent)
