"""Queues: sending one and many, both ways to receive, and what becomes of a message."""

from __future__ import annotations

import pytest
from sdk import result
from world import (
    World,
    bodies,
    complete,
    is_empty,
    message,
    peeked,
    receive_one,
    received,
    refusal,
    seconds,
)

# isort: split

from Azure.Messaging.ServiceBus import (
    ServiceBusException,
    ServiceBusFailureReason,
    ServiceBusMessage,
)
from System import Array, Object, String
from System.Collections.Generic import Dictionary


@pytest.mark.short
def test_a_message_is_sent_received_and_completed(world: World) -> None:
    queue = world.queue()
    world.send(queue, "hello")
    receiver = world.receiver(queue)
    found = receive_one(receiver)
    assert found.Body.ToString() == "hello"
    assert found.DeliveryCount == 1
    complete(receiver, found)
    assert is_empty(receiver)


@pytest.mark.short
def test_messages_without_a_key_come_all_from_wherever_they_went(world: World) -> None:
    queue = world.queue()
    sent = [f"message {number}" for number in range(40)]
    world.send(queue, *sent)
    receiver = world.receiver(queue)
    found = received(receiver, len(sent))
    assert sorted(bodies(found)) == sorted(sent)
    complete(receiver, *found)


def test_messages_of_a_key_keep_their_order(world: World) -> None:
    queue = world.queue()
    sent = [f"message {number}" for number in range(20)]
    world.send(queue, *(message(each, PartitionKey="orders") for each in sent))
    assert bodies(received(world.receiver(queue, deletes=True), len(sent))) == sent


@pytest.mark.short
def test_a_batch_says_when_it_is_full_and_is_sent_as_one(world: World) -> None:
    queue = world.queue()
    sender = world.sender(queue)
    batch = result(sender.CreateMessageBatchAsync())
    assert batch.MaxSizeInBytes == 256 * 1024
    body = "x" * 50_000
    taken = 0
    while batch.TryAddMessage(message(body, PartitionKey="one")):
        taken += 1
    assert batch.Count == taken == 5
    result(sender.SendMessagesAsync(batch))
    found = received(world.receiver(queue, deletes=True), taken)
    assert len({each.SequenceNumber for each in found}) == taken


def test_a_message_that_is_too_large_is_refused_by_its_reason(world: World) -> None:
    queue = world.queue()
    sender = world.sender(queue)
    error = refusal(lambda: result(sender.SendMessageAsync(message("x" * 300_000))))
    assert error.Reason == ServiceBusFailureReason.MessageSizeExceeded
    assert not error.IsTransient
    result(sender.SendMessageAsync(message("small")))
    assert receive_one(world.receiver(queue, deletes=True)).Body.ToString() == "small"


def test_a_list_of_messages_is_sent_at_once(world: World) -> None:
    queue = world.queue()
    messages = Array[ServiceBusMessage]([message(f"{n}", PartitionKey="k") for n in range(10)])
    result(world.sender(queue).SendMessagesAsync(messages))
    assert bodies(received(world.receiver(queue, deletes=True), 10)) == [str(n) for n in range(10)]


@pytest.mark.short
def test_a_message_received_and_deleted_is_gone(world: World) -> None:
    queue = world.queue()
    world.send(queue, "once")
    receive_one(world.receiver(queue, deletes=True))
    assert is_empty(world.receiver(queue))


def test_what_was_prefetched_is_received_without_asking(world: World) -> None:
    queue = world.queue()
    world.send(queue, *(str(number) for number in range(20)))
    receiver = world.receiver(queue, prefetch=50)
    found = received(receiver, 20)
    complete(receiver, *found)
    assert is_empty(receiver)


@pytest.mark.short
def test_an_abandoned_message_comes_again_with_new_properties(world: World) -> None:
    queue = world.queue()
    world.send(queue, "again")
    receiver = world.receiver(queue)
    changed = Dictionary[String, Object]()
    changed["why"] = "not now"
    result(receiver.AbandonMessageAsync(receive_one(receiver), changed))
    found = receive_one(receiver)
    assert found.DeliveryCount == 2
    assert found.ApplicationProperties["why"] == "not now"
    complete(receiver, found)


def test_a_lock_is_renewed_and_a_completed_message_cannot_be_settled_again(world: World) -> None:
    queue = world.queue()
    world.send(queue, "locked")
    receiver = world.receiver(queue)
    found = receive_one(receiver)
    before = found.LockedUntil
    result(receiver.RenewMessageLockAsync(found))
    assert found.LockedUntil.CompareTo(before) >= 0
    complete(receiver, found)
    error = refusal(lambda: result(receiver.RenewMessageLockAsync(found)))
    assert error.Reason == ServiceBusFailureReason.MessageLockLost


def test_a_message_delivered_too_often_is_dead_lettered(world: World) -> None:
    queue = world.queue(MaxDeliveryCount=2)
    world.send(queue, "poison")
    receiver = world.receiver(queue)
    for _ in range(2):
        result(receiver.AbandonMessageAsync(receive_one(receiver)))
    dead = receive_one(world.receiver(queue, dead_letters=True))
    assert dead.DeadLetterReason == "MaxDeliveryCountExceeded"
    assert dead.Body.ToString() == "poison"


@pytest.mark.short
def test_a_message_is_dead_lettered_with_a_reason_and_resubmitted(world: World) -> None:
    queue = world.queue()
    world.send(queue, message("broken", CorrelationId="7"))
    receiver = world.receiver(queue)
    found = receive_one(receiver)
    result(receiver.DeadLetterMessageAsync(found, "BadOrder", "it has no lines"))
    dead_letters = world.receiver(queue, dead_letters=True)
    dead = receive_one(dead_letters)
    assert dead.DeadLetterReason == "BadOrder"
    assert dead.DeadLetterErrorDescription == "it has no lines"
    result(world.sender(queue).SendMessageAsync(ServiceBusMessage(dead)))
    complete(dead_letters, dead)
    again = receive_one(receiver)
    assert (again.Body.ToString(), again.CorrelationId) == ("broken", "7")
    assert again.DeliveryCount == 1
    complete(receiver, again)
    assert is_empty(dead_letters)


@pytest.mark.short
def test_a_deferred_message_is_received_by_its_number_only(world: World) -> None:
    queue = world.queue()
    world.send(queue, "later")
    receiver = world.receiver(queue)
    found = receive_one(receiver)
    result(receiver.DeferMessageAsync(found))
    assert is_empty(receiver)
    deferred = result(receiver.ReceiveDeferredMessageAsync(found.SequenceNumber))
    assert deferred.Body.ToString() == "later"
    complete(receiver, deferred)
    error = refusal(lambda: result(receiver.ReceiveDeferredMessageAsync(found.SequenceNumber)))
    assert error.Reason == ServiceBusFailureReason.MessageNotFound


@pytest.mark.short
def test_peek_shows_all_and_takes_nothing(world: World) -> None:
    queue = world.queue()
    world.send(queue, *(message(str(number), PartitionKey="k") for number in range(5)))
    receiver = world.receiver(queue)
    seen = peeked(receiver, 5)
    assert bodies(seen) == ["0", "1", "2", "3", "4"]
    assert bodies([result(receiver.PeekMessageAsync(seen[2].SequenceNumber))]) == ["2"]
    assert len(received(receiver, 5)) == 5


@pytest.mark.short
def test_an_entity_that_is_not_there_is_refused_by_its_reason(world: World) -> None:
    error = refusal(lambda: world.send("missing", "lost"), ServiceBusException)
    assert error.Reason == ServiceBusFailureReason.MessagingEntityNotFound


def test_a_receive_that_waits_is_woken_by_a_message(world: World) -> None:
    queue = world.queue()
    receiver = world.receiver(queue)
    waiting = receiver.ReceiveMessageAsync(seconds(30))
    world.send(queue, "wake up")
    assert result(waiting).Body.ToString() == "wake up"


def test_a_deferral_counts_as_a_delivery(world: World) -> None:
    queue = world.queue()
    world.send(queue, "later")
    receiver = world.receiver(queue)
    found = receive_one(receiver)
    assert found.DeliveryCount == 1
    for count in (2, 3):
        result(receiver.DeferMessageAsync(found))
        found = result(receiver.ReceiveDeferredMessageAsync(found.SequenceNumber))
        assert found.DeliveryCount == count
    complete(receiver, found)
