"""What links feel of a namespace's tier (P-14, LIM-1, LIM-2, TXN-7)."""

from __future__ import annotations

import pytest

from busway.amqp.link import LinkRole
from busway.amqp.performatives import Accepted, Coordinator, Rejected
from busway.amqp.types import Symbol
from busway.model.entities import Queue
from busway.model.limits import KIB, MIB, Tier
from tests.gateway.world import Sender, World, message

BATCH_SIZE = "com.microsoft:max-message-batch-size"


def stored(world: World, queue: Queue) -> list[int]:
    """Messages in each partition."""
    return [
        sum(
            each.active
            for each in world.brokers[store].counters(queue.incarnation, partition).values()
        )
        for partition, store in enumerate(queue.placement)
    ]


def rejected_for_size(outcome: object, limit: int) -> bool:
    return (
        isinstance(outcome, Rejected)
        and outcome.error is not None
        and outcome.error.condition == "amqp:link:message-size-exceeded"
        and f"({limit} bytes)" in (outcome.error.description or "")
    )


def told(sender: Sender) -> tuple[object, object]:
    """The largest message and the largest batch that a client is told of."""
    properties = sender.link.properties or {}
    return sender.link.remote_max_message_size, properties.get(Symbol(BATCH_SIZE))


@pytest.mark.parametrize(
    ("tier", "size_kb", "message_bytes", "batch_bytes"),
    [
        (Tier.BASIC, None, 256 * KIB, 256 * KIB),
        (Tier.STANDARD, None, 256 * KIB, 256 * KIB),
        (Tier.PREMIUM, None, MIB, MIB),
        (Tier.PREMIUM, 4096, 4 * MIB, MIB),
    ],
)
def test_lim_1_lim_2_sizes(
    tier: Tier, size_kb: int | None, message_bytes: int, batch_bytes: int
) -> None:
    world = World(tier=tier)
    world.queue("orders", max_message_size_kb=size_kb)
    sender = world.connect().sender("orders")
    assert told(sender) == (message_bytes, batch_bytes)
    assert isinstance(sender.send(message("x" * (message_bytes - 500))), Accepted)
    assert rejected_for_size(sender.send(message("x" * message_bytes)), message_bytes)
    half = message("x" * (batch_bytes // 2))
    assert isinstance(sender.send_batch(half), Accepted)
    assert rejected_for_size(sender.send_batch(half, half), batch_bytes)
    assert isinstance(sender.send(message("the link stays")), Accepted)


def test_lim_1_a_message_of_a_hundred_megabytes_is_taken() -> None:
    """More than a connection may leave incomplete where no link says otherwise."""
    world = World(tier=Tier.PREMIUM)
    queue = world.queue("orders", max_message_size_kb=100 * 1024)
    sender = world.connect().sender("orders")
    assert isinstance(sender.send(message("x" * (100 * MIB - 500))), Accepted)
    assert stored(world, queue) == [1]


@pytest.mark.parametrize(
    ("tier", "has_them"), [(Tier.BASIC, False), (Tier.STANDARD, True), (Tier.PREMIUM, True)]
)
def test_txn_7_transactions(tier: Tier, has_them: bool) -> None:
    client = World(tier=tier).connect()
    link = client.attach("transactions", LinkRole.SENDER, target=Coordinator([]))
    assert client.is_attached(link) is has_them


@pytest.mark.parametrize("partitions", [2, 4])
def test_p14_messages_are_spread_over_the_partitions_of_the_namespace(partitions: int) -> None:
    world = World(tier=Tier.PREMIUM, partitions=partitions)
    queue = world.queue("orders")
    client = world.connect()
    client.sender("orders").fill(20)
    receiver = client.receiver("orders", credit=20)
    assert sorted(receiver.bodies) == sorted(f"m{number}" for number in range(20))
    assert stored(world, queue) == [20 // partitions] * partitions
