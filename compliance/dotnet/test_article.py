"""examples/dotnet/Program.cs, step by step from Python: C# of an article, with today's types.

The C# itself is compiled and run in `test_csharp.py`.
"""

from __future__ import annotations

import pytest
from sdk import result
from transaction import nothing_in, transaction
from world import World, bodies, complete, message, receive_one, received, refusal, seconds

# isort: split

from System import BinaryData, InvalidOperationException


@pytest.fixture(params=["partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    """The article is about these."""
    return bool(request.param)


@pytest.mark.short
def test_a_key_names_the_partition_of_a_message(world: World) -> None:
    queue, topic = world.queue(), world.topic("all")
    assert result(world.administration.GetQueueAsync(queue)).Value.EnablePartitioning
    assert result(world.administration.GetTopicAsync(topic)).Value.EnablePartitioning
    world.send(queue, "wherever there is room")
    world.send(queue, *(message(body, PartitionKey="customer 7") for body in ("first", "second")))
    world.send(topic, "news of the day")
    receiver = world.receiver(queue)
    found = received(receiver, 3)
    of_key = [each for each in found if each.PartitionKey == "customer 7"]
    assert bodies(of_key) == ["first", "second"]
    assert len({each.SequenceNumber >> 48 for each in of_key}) == 1
    complete(receiver, *found)
    assert bodies(received(world.receiver(topic, "all"), 1)) == ["news of the day"]


@pytest.mark.short
def test_a_transaction_has_a_key(world: World) -> None:
    queue = world.queue()
    with transaction():
        world.send(
            queue, *(message(body, PartitionKey="account 1") for body in ("debit", "credit"))
        )
    receiver = world.receiver(queue)
    found = received(receiver, 2)
    assert bodies(found) == ["debit", "credit"]
    complete(receiver, *found)

    def without_a_key() -> None:
        with transaction():
            world.send(queue, "no key, so no partition to be in")

    error = refusal(without_a_key, InvalidOperationException)
    assert "must have a SessionId or a PartitionKey" in error.Message
    assert nothing_in(world, queue)


@pytest.mark.short
def test_the_session_is_the_key_of_a_transaction(world: World) -> None:
    queue = world.queue(RequiresSession=True)
    with transaction():
        world.send(queue, *(message(body, SessionId="basket 1") for body in ("bread", "milk")))
    basket = world.opened(result(world.client.AcceptSessionAsync(queue, "basket 1")))
    items = list(result(basket.ReceiveMessagesAsync(2, seconds(10))))
    items += [receive_one(basket) for _ in range(2 - len(items))]
    assert bodies(items) == ["bread", "milk"]
    complete(basket, *items)
    result(basket.SetSessionStateAsync(BinaryData.FromString("paid")))
    assert result(basket.GetSessionStateAsync()).ToString() == "paid"
