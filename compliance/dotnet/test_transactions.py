"""Transactions on one entity: all or nothing, and what is refused leaves nothing behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sdk import result
from transaction import KEY, RollBack, keyed, nothing_in, transaction
from world import (
    World,
    bodies,
    complete,
    date_time_offset,
    is_empty,
    message,
    receive_one,
    received,
    refusal,
)

# isort: split

from Azure.Messaging.ServiceBus import ServiceBusMessage, ServiceBusMessageState
from System import Array, BinaryData, InvalidOperationException

# --- on one entity -------------------------------------------------------------------------------


@pytest.mark.short
def test_sends_are_seen_after_the_commit_and_not_before(world: World) -> None:
    queue = world.queue()
    sender = world.sender(queue)
    with transaction():
        result(sender.SendMessageAsync(keyed("one")))
        many = Array[ServiceBusMessage]([keyed("two"), keyed("three")])
        result(sender.SendMessagesAsync(many))
        assert nothing_in(world, queue)
    assert bodies(received(world.receiver(queue), 3)) == ["one", "two", "three"]


@pytest.mark.short
def test_what_is_rolled_back_was_never_there(world: World) -> None:
    queue = world.queue()
    with transaction():
        result(world.sender(queue).SendMessageAsync(keyed("never")))
        raise RollBack
    assert is_empty(world.receiver(queue))


@pytest.mark.short
def test_a_completion_and_a_send_are_one(world: World) -> None:
    queue = world.queue()
    world.send(queue, keyed("request"))
    receiver = world.receiver(queue)
    request = receive_one(receiver)
    with transaction():
        complete(receiver, request)
        result(world.sender(queue).SendMessageAsync(keyed("answer")))
    answer = receive_one(receiver)
    assert answer.Body.ToString() == "answer"
    complete(receiver, answer)
    assert nothing_in(world, queue)


def test_all_settlements_take_part(world: World) -> None:
    queue = world.queue()
    world.send(queue, *(keyed(body) for body in ("abandon", "defer", "bury", "complete")))
    receiver = world.receiver(queue)
    abandon, defer, bury, done = received(receiver, 4)
    with transaction():
        result(receiver.AbandonMessageAsync(abandon))
        result(receiver.DeferMessageAsync(defer))
        result(receiver.DeadLetterMessageAsync(bury, "Buried"))
        complete(receiver, done)
        assert is_empty(receiver)
    again = receive_one(receiver)
    assert (again.Body.ToString(), again.DeliveryCount) == ("abandon", 2)
    deferred = result(receiver.ReceiveDeferredMessageAsync(defer.SequenceNumber))
    assert deferred.Body.ToString() == "defer"
    assert receive_one(world.receiver(queue, dead_letters=True)).DeadLetterReason == "Buried"
    with transaction():
        complete(receiver, deferred, again)
    assert nothing_in(world, queue)


@pytest.mark.short
def test_a_message_whose_completion_was_rolled_back_can_be_settled(world: World) -> None:
    queue = world.queue()
    world.send(queue, keyed("kept"))
    receiver = world.receiver(queue)
    kept = receive_one(receiver)
    with transaction():
        complete(receiver, kept)
        raise RollBack
    assert is_empty(receiver), "TXN-2: it stays locked"
    complete(receiver, kept)
    assert nothing_in(world, queue)


def test_schedules_take_part(world: World) -> None:
    queue = world.queue()
    sender, receiver = world.sender(queue), world.receiver(queue)
    due = date_time_offset(datetime.now(UTC) + timedelta(hours=1))
    with transaction():
        result(sender.ScheduleMessageAsync(keyed("never"), due))
        raise RollBack
    with transaction():
        number = result(sender.ScheduleMessageAsync(keyed("later"), due))
        assert nothing_in(world, queue)
    (scheduled,) = result(receiver.PeekMessagesAsync(5, 0))
    assert scheduled.State == ServiceBusMessageState.Scheduled
    assert scheduled.SequenceNumber == number


def test_a_cancelled_schedule_comes_back_with_a_rollback(world: World) -> None:
    queue = world.queue()
    sender = world.sender(queue)
    due = date_time_offset(datetime.now(UTC) + timedelta(hours=1))
    number = result(sender.ScheduleMessageAsync(keyed("later"), due))
    with transaction():
        result(sender.CancelScheduledMessageAsync(number))
        raise RollBack
    assert not nothing_in(world, queue)
    with transaction():
        result(sender.CancelScheduledMessageAsync(number))
    assert nothing_in(world, queue)


def test_the_state_of_a_session_takes_part(world: World) -> None:
    queue = world.queue(RequiresSession=True)
    world.send(queue, message("step", SessionId="s"))
    receiver = world.opened(result(world.client.AcceptSessionAsync(queue, "s")))
    step = receive_one(receiver)
    result(receiver.SetSessionStateAsync(BinaryData("before")))
    with transaction():
        complete(receiver, step)
        result(receiver.SetSessionStateAsync(BinaryData("undone")))
        raise RollBack
    assert result(receiver.GetSessionStateAsync()).ToString() == "before"
    with transaction():
        complete(receiver, step)
        result(receiver.SetSessionStateAsync(BinaryData("after")))
    assert result(receiver.GetSessionStateAsync()).ToString() == "after"
    assert is_empty(receiver)


def test_renewals_and_deferred_receives_are_done_inside_a_transaction_as_outside(
    world: World,
) -> None:
    queue = world.queue(RequiresSession=True)
    world.send(queue, *(message(body, SessionId="s") for body in ("one", "two")))
    receiver = world.opened(result(world.client.AcceptSessionAsync(queue, "s")))
    one, two = received(receiver, 2)
    result(receiver.DeferMessageAsync(two))
    with transaction():
        complete(receiver, one)
        result(receiver.RenewSessionLockAsync())
        deferred = result(receiver.ReceiveDeferredMessageAsync(two.SequenceNumber))
        assert result(receiver.GetSessionStateAsync()) is None
        complete(receiver, deferred)
    assert nothing_in(world, queue)


# --- what is refused, and that nothing of it stays -----------------------------------------------


def refused_in_a_transaction(world: World, queue: str, first: Any, second: Any) -> Any:
    """The exception of the second send; the first must be gone with it."""
    sender = world.sender(queue)

    def both() -> None:
        with transaction():
            result(sender.SendMessageAsync(first))
            result(sender.SendMessageAsync(second))

    error = refusal(both, InvalidOperationException)
    assert nothing_in(world, queue)
    return error


@pytest.mark.short
def test_a_transaction_on_a_partitioned_queue_needs_a_key(world: World) -> None:  # P-33
    queue = world.queue()
    if not world.partitioned:
        with transaction():
            world.send(queue, "no key is needed", "and none here")
        assert len(received(world.receiver(queue), 2)) == 2
        return
    error = refused_in_a_transaction(world, queue, keyed("a key"), message("no key"))
    assert "must have a SessionId or a PartitionKey" in error.Message


def test_a_refused_transaction_cannot_be_completed(world: World) -> None:  # P-33
    """Who swallows the refusal of a send is told again, and nothing is committed."""
    if not world.partitioned:
        pytest.skip("a conventional entity refuses no key")
    queue = world.queue()

    def swallow() -> None:
        with transaction():
            world.send(queue, keyed("first"))
            refusal(lambda: world.send(queue, "no key"), InvalidOperationException)

    refusal(swallow, Exception)
    assert nothing_in(world, queue)


@pytest.mark.short
def test_two_keys_in_a_transaction_are_refused_on_a_partitioned_queue(world: World) -> None:  # P-34
    queue = world.queue()
    if not world.partitioned:
        with transaction():
            world.send(queue, keyed("a", "one"), keyed("b", "two"))
        assert len(received(world.receiver(queue), 2)) == 2
        return
    error = refused_in_a_transaction(world, queue, keyed("a", "one"), keyed("b", "two"))
    assert "Local transactions cannot span multiple entities or partitions" in error.Message
    assert "one" in error.Message
    assert "two" in error.Message


def test_the_messages_of_a_transaction_lie_in_one_partition(world: World) -> None:  # P-35, P-36
    queue = world.queue()
    world.send(queue, keyed("before"))
    with transaction():
        world.send(queue, keyed("one"), keyed("two"))
    found = received(world.receiver(queue), 3)
    assert bodies(found) == ["before", "one", "two"]
    assert len({each.SequenceNumber >> 48 for each in found}) == 1


def test_a_partition_key_beside_a_session_must_equal_it(world: World) -> None:  # P-37
    """The SDK refuses such a message itself, so its raw annotations are written."""
    queue = world.queue(RequiresSession=True)
    wrong = message("wrong", SessionId="session")
    wrong.GetRawAmqpMessage().MessageAnnotations["x-opt-partition-key"] = "other"
    right = message("right", SessionId="session")
    error = refused_in_a_transaction(world, queue, right, wrong)
    assert "PartitionKey" in error.Message
    assert "SessionId" in error.Message


def test_a_transaction_on_a_session_queue_needs_a_session(world: World) -> None:  # P-37
    queue = world.queue(RequiresSession=True)
    right = message("right", SessionId=KEY)
    error = refused_in_a_transaction(world, queue, right, keyed("no session"))
    assert "session" in error.Message.lower()


@pytest.mark.short
def test_two_sessions_in_a_transaction_are_refused_on_a_partitioned_queue(
    world: World,
) -> None:  # P-38
    queue = world.queue(RequiresSession=True)
    first, second = message("a", SessionId="one"), message("b", SessionId="two")
    if not world.partitioned:
        with transaction():
            world.send(queue, first, second)
        for session in ("one", "two"):
            accepted = world.opened(result(world.client.AcceptSessionAsync(queue, session)))
            receive_one(accepted)
        return
    error = refused_in_a_transaction(world, queue, first, second)
    assert "Local transactions cannot span multiple entities or partitions" in error.Message
    assert "one" in error.Message
    assert "two" in error.Message


@pytest.mark.short
def test_two_queues_in_a_transaction_are_refused_and_it_is_said_what_to_set(world: World) -> None:
    one, two = world.queue(), world.queue()

    def both() -> None:
        with transaction():
            world.send(one, keyed("one"))
            world.send(two, keyed("two"))

    error = refusal(both, InvalidOperationException)
    assert "Local transactions cannot span multiple top-level entities" in error.Message
    assert "EnableCrossEntityTransactions" in error.Message
    assert nothing_in(world, one, two)
