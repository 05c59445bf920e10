"""What happens to a message that a client sends (amqp.md 8 and 13, P-17 to P-24, D-4, D-17)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from busway.amqp.events import Disposed
from busway.amqp.performatives import Accepted, Modified, Rejected
from busway.amqp.sections import read_properties
from busway.gateway.gateway import GatewaySettings
from busway.model.entities import Queue
from busway.model.message import partition_of
from busway.model.partitioning import partition_of_key
from tests.gateway.world import Client, World, message, message_annotations


def rejection(state: Any) -> str:
    """The condition; a rejection always has a full error (E5)."""
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.description is not None
    assert "TrackingId:" in state.error.description
    return state.error.condition


def partitions(client: Client, path: str, count: int) -> list[int]:
    receiver = client.receiver(path, credit=count, delete=True)
    numbers = [
        message_annotations(each.payload)["x-opt-sequence-number"] for each in receiver.deliveries
    ]
    assert len(numbers) == count
    return [partition_of(number) for number in numbers]


def test_a_send_is_accepted_after_its_commit(world: World, client: Client, queue: str) -> None:
    sender = client.sender(queue)
    for disk in world.disks.values():
        disk.pause()
    delivery_id = sender.put(message())
    world.settle()
    assert sender.outcome(delivery_id) is None
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert isinstance(sender.outcome(delivery_id), Accepted)


def test_credit_is_1000_and_is_replenished(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    assert sender.link.credit == 1000
    sender.fill(900)
    assert sender.link.credit > 400


def test_many_accepted_sends_are_acknowledged_in_few_dispositions(
    world: World, client: Client
) -> None:
    world.queue("plain")
    before = len(client.of(Disposed))
    client.sender("plain").fill(200)
    assert len(client.of(Disposed)) - before < 20


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"message_id": "m" * 129}, "com.microsoft:argument-out-of-range"),
        ({"session_id": "s" * 129}, "com.microsoft:argument-out-of-range"),
        ({"partition_key": "p" * 129}, "com.microsoft:argument-out-of-range"),
        ({"ttl_ms": 0}, "com.microsoft:argument-out-of-range"),  # TTL-9
        ({"session_id": "a", "partition_key": "b"}, "amqp:not-allowed"),  # P-20
        ({"size": 262_145}, "amqp:link:message-size-exceeded"),
    ],
)
def test_what_an_entity_does_not_take_is_rejected_and_the_link_stays(
    client: Client, queue: str, options: dict[str, Any], condition: str
) -> None:
    sender = client.sender(queue)
    assert rejection(sender.send(message(**options))) == condition
    assert isinstance(sender.send(message(message_id="m" * 128)), Accepted)


def test_a_payload_that_is_no_message_is_rejected(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    state = sender.send(b"\x00\x53\x73\xff")
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:decode-error"
    assert sender.link.is_attached


def test_a_settled_transfer_is_stored_and_not_answered(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    assert sender.send(message(), settled=True) is None
    assert sender.send(message(ttl_ms=0), settled=True) is None
    assert len(client.receiver(queue, credit=10).deliveries) == 1


def test_messages_without_a_key_go_round_robin(world: World, client: Client) -> None:
    world.queue("spread", enable_partitioning=True)  # P-22
    client.sender("spread").fill(32)
    assert sorted(partitions(client, "spread", 32)) == sorted([*range(16), *range(16)])


@pytest.mark.parametrize("key", [{"session_id": "red"}, {"partition_key": "red"}])
def test_a_key_names_the_partition(world: World, client: Client, key: dict[str, str]) -> None:
    world.queue("keyed", enable_partitioning=True)  # P-18, P-19
    client.sender("keyed").fill(5, **key)
    assert set(partitions(client, "keyed", 5)) == {partition_of_key("red", 16)}


def test_session_id_and_partition_key_may_be_the_same(world: World, client: Client) -> None:
    world.queue("keyed", enable_partitioning=True)  # P-20
    sender = client.sender("keyed")
    assert isinstance(sender.send(message(session_id="a", partition_key="a")), Accepted)


def test_a_batch_is_one_transfer_in_one_partition(world: World, client: Client) -> None:
    world.queue("batch", enable_partitioning=True)
    sender = client.sender("batch")
    state = sender.send_batch(*(message(f"m{n}") for n in range(10)))
    assert isinstance(state, Accepted)
    assert len(set(partitions(client, "batch", 10))) == 1


def test_the_messages_of_a_batch_keep_their_order(client: Client, queue: str) -> None:
    client.sender(queue).send_batch(*(message(f"m{n}") for n in range(10)))  # MSG-7
    assert client.receiver(queue, credit=20).bodies == [f"m{n}" for n in range(10)]


def test_a_batch_with_different_keys_is_refused_on_a_partitioned_entity(
    world: World, client: Client
) -> None:
    world.queue("batch", enable_partitioning=True)  # PRT-7
    world.queue("plain")
    keys = message(partition_key="a"), message(partition_key="b")
    sender = client.sender("batch", "one")
    state = sender.send_batch(*keys)
    assert rejection(state) == "amqp:not-allowed"
    mixed = sender.send_batch(message(partition_key="a"), message())
    assert rejection(mixed) == "amqp:not-allowed"
    assert isinstance(client.sender("plain", "two").send_batch(*keys), Accepted)
    assert client.receiver("batch", credit=5).deliveries == []


def test_one_bad_message_refuses_the_whole_batch(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    assert rejection(sender.send_batch(message(), message(ttl_ms=0))).startswith("com.microsoft:")
    assert rejection(sender.send_batch()) == "com.microsoft:argument-error"
    assert client.receiver(queue, credit=5).deliveries == []


# --- Stores that are ill, slow or full -----------------------------------------------------------


def test_unkeyed_messages_go_elsewhere_when_a_store_is_ill(world: World, client: Client) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    world.make_ill("store-0")
    client.sender("orders").fill(32)  # P-23
    well = {n for n, store in enumerate(queue.placement) if store == "store-1"}
    assert set(partitions(client, "orders", 32)) == well


def test_a_key_whose_store_is_ill_is_answered_busy(world: World, client: Client) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    world.make_ill("store-0")
    ill = next(
        key
        for key in map(str, range(100))
        if queue.placement[partition_of_key(key, 16)] == "store-0"
    )
    sender = client.sender("orders")
    state = sender.send(message(partition_key=ill))  # P-24
    # Every SDK tries this one send again; at *server busy* .NET pauses for all keys (P-41).
    assert rejection(state) == "com.microsoft:timeout"


def test_a_send_that_nobody_answers_times_out(world: World) -> None:
    world = World(settings=GatewaySettings(send_timeout_ms=2_000))
    world.queue("orders")
    client = world.connect()
    sender = client.sender("orders")
    for disk in world.disks.values():
        disk.pause()
    delivery_id = sender.put(message())
    world.settle(for_ms=3_000)
    assert rejection(sender.outcome(delivery_id)) == "com.microsoft:timeout"  # D-4
    assert world.gateway.budget.used_bytes == 0


def test_a_full_partition_is_skipped_until_all_are_full(world: World, client: Client) -> None:
    world.queue("small", enable_partitioning=True)
    with patch.object(Queue, "max_size_bytes", 2_000):
        sender = client.sender("small")
        pinned = message(partition_key="red", size=1_500)
        assert isinstance(sender.send(pinned), Accepted)
        assert rejection(sender.send(pinned)) == "amqp:resource-limit-exceeded"  # D-17
        for _ in range(15):
            assert isinstance(sender.send(message(size=1_500)), Accepted)
        assert rejection(sender.send(message(size=1_500))) == "amqp:resource-limit-exceeded"


def test_uncommitted_bytes_take_the_credit_away_and_give_it_back() -> None:
    world = World(settings=GatewaySettings(uncommitted_bytes_max=100_000))
    world.queue("orders")
    client = world.connect()
    sender = client.sender("orders")
    for disk in world.disks.values():
        disk.pause()
    ids = [sender.put(message(size=10_000)) for _ in range(11)]
    world.settle()
    assert world.gateway.over_budget()  # D-8
    assert sender.link.credit == 0
    for disk in world.disks.values():
        disk.resume()
    world.settle()
    assert all(isinstance(sender.outcome(each), Accepted) for each in ids)
    assert not world.gateway.over_budget()
    assert sender.link.credit == 1000


def test_lim_3_properties_have_a_largest_size_each_and_together(client: Client, queue: str) -> None:
    sender = client.sender(queue)
    fits = {"one": "x" * 32_000, "two": "y" * 32_000}
    assert isinstance(sender.send(message(application_properties=fits)), Accepted)
    one_too_large = {"big": "x" * 33_000}
    too_many = {f"p{n}": "x" * 20_000 for n in range(4)}
    for properties in (one_too_large, too_many):
        state = sender.send(message(application_properties=properties))
        assert rejection(state) == "com.microsoft:argument-out-of-range"


def test_msg_5_a_message_without_an_id_is_given_one_that_stays(client: Client, queue: str) -> None:
    """The JavaScript SDK cannot settle a message that has none."""
    client.sender(queue).fill(2)
    receiver = client.receiver(queue, credit=2)
    ids = [read_properties(each.payload).message_id for each in receiver.deliveries]
    assert len(set(ids)) == 2
    assert all(isinstance(each, str) and len(each) == 32 for each in ids)
    receiver.settle(receiver.deliveries, Modified(delivery_failed=True))
    receiver.credit(2)
    again = [read_properties(each.payload).message_id for each in receiver.deliveries[2:]]
    assert sorted(again) == sorted(ids)
