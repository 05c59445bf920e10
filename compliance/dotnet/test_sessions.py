"""Sessions: who holds one gets its messages, in order, and keeps its state."""

from __future__ import annotations

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
    ServiceBusRetryOptions,
    ServiceBusSessionReceiverOptions,
)
from System import BinaryData, InvalidOperationException


def session_queue(world: World, **options: object) -> str:
    return world.queue(RequiresSession=True, **options)


def accept(world: World, queue: str, session: str) -> object:
    return world.opened(result(world.client.AcceptSessionAsync(queue, session)))


def accept_next(world: World, queue: str) -> object:
    return world.opened(result(world.client.AcceptNextSessionAsync(queue)))


@pytest.mark.short
def test_a_session_brings_its_own_messages_in_order(world: World) -> None:
    queue = session_queue(world)
    for number in range(10):
        world.send(queue, *(message(f"{name}{number}", SessionId=name) for name in ("a", "b")))
    receiver = accept(world, queue, "a")
    found = received(receiver, 10)
    assert bodies(found) == [f"a{number}" for number in range(10)]
    assert {each.SessionId for each in found} == {"a"}
    complete(receiver, *found)
    assert is_empty(receiver)


@pytest.mark.short
def test_the_next_session_is_one_that_nobody_holds(world: World) -> None:
    queue = session_queue(world)
    names = {f"session {number}" for number in range(8)}
    world.send(queue, *(message("hello", SessionId=name) for name in names))
    held = [accept_next(world, queue) for _ in names]
    assert {receiver.SessionId for receiver in held} == names


def test_without_a_free_session_the_wait_ends_by_time_out(world: World) -> None:
    queue = session_queue(world)
    patience = ServiceBusRetryOptions()
    patience.TryTimeout, patience.MaxRetries = seconds(1), 0
    client = world.connect(RetryOptions=patience)
    error = refusal(lambda: result(client.AcceptNextSessionAsync(queue)))
    assert error.Reason == ServiceBusFailureReason.ServiceTimeout
    assert error.IsTransient


def test_a_session_that_is_held_is_not_given_to_another(world: World) -> None:
    queue = session_queue(world)
    accept(world, queue, "mine")
    other = world.connect()
    error = refusal(lambda: result(other.AcceptSessionAsync(queue, "mine")))
    assert error.Reason == ServiceBusFailureReason.SessionCannotBeLocked


def test_a_waiting_accept_is_woken_by_the_first_message(world: World) -> None:
    queue = session_queue(world)
    waiting = world.client.AcceptNextSessionAsync(queue)
    world.send(queue, message("first", SessionId="new"))
    receiver = world.opened(result(waiting))
    assert receiver.SessionId == "new"
    assert receive_one(receiver).Body.ToString() == "first"


@pytest.mark.short
def test_the_state_of_a_session_outlives_its_receivers(world: World) -> None:
    queue = session_queue(world)
    receiver = result(world.client.AcceptSessionAsync(queue, "s"))
    assert result(receiver.GetSessionStateAsync()) is None
    result(receiver.SetSessionStateAsync(BinaryData("seen 5")))
    result(receiver.CloseAsync())
    again = accept(world, queue, "s")
    assert result(again.GetSessionStateAsync()).ToString() == "seen 5"
    result(again.SetSessionStateAsync(None))
    assert result(again.GetSessionStateAsync()) is None


def test_a_session_lock_is_renewed(world: World) -> None:
    receiver = accept(world, session_queue(world), "s")
    before = receiver.SessionLockedUntil
    result(receiver.RenewSessionLockAsync())
    assert receiver.SessionLockedUntil.CompareTo(before) >= 0


def test_a_closed_session_is_free_at_once_and_what_was_not_settled_comes_again(
    world: World,
) -> None:
    queue = session_queue(world)
    world.send(queue, message("kept", SessionId="s"))
    receiver = result(world.client.AcceptSessionAsync(queue, "s"))
    assert receive_one(receiver).DeliveryCount == 1
    result(receiver.CloseAsync())
    assert receive_one(accept_next(world, queue)).Body.ToString() == "kept"


def test_a_message_without_a_session_is_refused_with_what_to_do(world: World) -> None:
    queue = session_queue(world)
    error = refusal(lambda: world.send(queue, "no session"), InvalidOperationException)
    assert "session" in error.Message


def test_session_messages_are_deferred_and_dead_lettered_in_their_session(world: World) -> None:
    queue = session_queue(world)
    world.send(queue, *(message(body, SessionId="s") for body in ("defer", "bury")))
    receiver = accept(world, queue, "s")
    defer, bury = received(receiver, 2)
    result(receiver.DeferMessageAsync(defer))
    result(receiver.DeadLetterMessageAsync(bury, "Bad"))
    deferred = result(receiver.ReceiveDeferredMessageAsync(defer.SequenceNumber))
    assert deferred.Body.ToString() == "defer"
    complete(receiver, deferred)
    dead = receive_one(world.receiver(queue, dead_letters=True))
    assert (dead.SessionId, dead.DeadLetterReason) == ("s", "Bad")


def test_sessions_are_peeked_alone(world: World) -> None:
    queue = session_queue(world)
    world.send(queue, *(message(name, SessionId=name) for name in "abab"))
    receiver = accept(world, queue, "b")
    assert bodies(result(receiver.PeekMessagesAsync(10))) == ["b", "b"]
    options = ServiceBusSessionReceiverOptions()
    options.PrefetchCount = 10
    other = world.opened(result(world.client.AcceptSessionAsync(queue, "a", options)))
    assert bodies(received(other, 2)) == ["a", "a"]


def test_session_ids_that_differ_in_case_are_one_session(world: World) -> None:
    queue = session_queue(world)
    world.send(queue, message("one", SessionId="Basket"), message("two", SessionId="BASKET"))
    receiver = accept(world, queue, "basket")
    found = received(receiver, 2)
    assert [each.SessionId for each in found] == ["Basket", "BASKET"]
    assert bodies(found) == ["one", "two"]
