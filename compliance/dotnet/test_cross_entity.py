"""Transactions across entities: through the one that the client was connected to first."""

from __future__ import annotations

import pytest
from sdk import result
from transaction import RollBack, keyed, nothing_in, transaction
from world import World, bodies, complete, message, receive_one, received, refusal

# isort: split

from System import InvalidOperationException


def crossing(world: World) -> World:
    """The same world, with a client that may combine entities; its first link is the via entity."""
    world.client = world.connect(EnableCrossEntityTransactions=True)
    return world


@pytest.mark.short
def test_a_transaction_receives_from_one_queue_and_sends_to_another(world: World) -> None:
    one, two = world.queue(), world.queue()
    world.send(one, keyed("request"))
    crossing(world)
    receiver = world.receiver(one)
    request = receive_one(receiver)
    with transaction():
        complete(receiver, request)
        result(world.sender(two).SendMessageAsync(keyed("answer")))
        assert nothing_in(world, two)
    assert bodies(received(world.connect().CreateReceiver(two), 1)) == ["answer"]
    assert nothing_in(world, one)


@pytest.mark.short
def test_a_transaction_sends_to_another_queue_before_it_completes(world: World) -> None:
    one, two = world.queue(), world.queue()
    world.send(one, keyed("request"))
    crossing(world)
    receiver = world.receiver(one)
    request = receive_one(receiver)
    with transaction():
        result(world.sender(two).SendMessageAsync(keyed("answer")))
        complete(receiver, request)
    assert bodies(received(world.connect().CreateReceiver(two), 1)) == ["answer"]
    assert nothing_in(world, one)


def test_a_rolled_back_transaction_across_queues_leaves_both_as_they_were(world: World) -> None:
    one, two = world.queue(), world.queue()
    world.send(one, keyed("request"))
    crossing(world)
    receiver = world.receiver(one)
    request = receive_one(receiver)
    with transaction():
        result(world.sender(two).SendMessageAsync(keyed("never")))
        complete(receiver, request)
        raise RollBack
    complete(receiver, request)
    assert nothing_in(world, one, two)


def test_several_destinations_take_part_through_the_first_entity(world: World) -> None:
    one, two, topic = world.queue(), world.queue(), world.topic("all")
    world.send(one, keyed("request"))
    crossing(world)
    receiver = world.receiver(one)
    request = receive_one(receiver)
    with transaction():
        result(world.sender(two).SendMessageAsync(keyed("to a queue")))
        result(world.sender(topic).SendMessageAsync(keyed("to a topic")))
        complete(receiver, request)
    other = world.connect()
    assert bodies(received(other.CreateReceiver(two), 1)) == ["to a queue"]
    assert bodies(received(other.CreateReceiver(topic, "all"), 1)) == ["to a topic"]


def test_a_transaction_key_names_the_partition_of_the_first_entity(world: World) -> None:
    """`TransactionPartitionKey` is of the via entity, `PartitionKey` of the destination (TXN-5)."""
    one, two = world.queue(), world.queue()
    world.send(one, keyed("request", "one"))
    crossing(world)
    receiver = world.receiver(one)
    request = receive_one(receiver)
    with transaction():
        complete(receiver, request)
        answer = message("answer", PartitionKey="two", TransactionPartitionKey="one")
        result(world.sender(two).SendMessageAsync(answer))
    found = receive_one(world.connect().CreateReceiver(two))
    assert (found.Body.ToString(), found.PartitionKey) == ("answer", "two")


def test_a_receiver_beside_a_first_sender_is_refused(world: World) -> None:
    """The first link of the session is the via entity, and another cannot be received from."""
    one, two = world.queue(), world.queue()
    world.send(one, keyed("request"))
    crossing(world)
    result(world.sender(two).SendMessageAsync(keyed("first")))
    refusal(lambda: receive_one(world.receiver(one)), InvalidOperationException)
