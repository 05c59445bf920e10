"""Where a send may go a second time, and where it must not (D-4, P-23)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.performatives import Accepted, Rejected
from busway.model.message import partition_of
from busway.model.partitioning import partition_of_key
from busway.store.faults import CommitOutcome
from tests.gateway.world import Client, World, body, message, message_annotations


def stored(client: Client, path: str) -> list[tuple[str, int]]:
    """The bodies that are in the queue, and the partition of each."""
    receiver = client.receiver(path, credit=100, delete=True)
    return [
        (
            body(each.payload),
            partition_of(message_annotations(each.payload)["x-opt-sequence-number"]),
        )
        for each in receiver.deliveries
    ]


def test_a_refused_commit_sends_an_unkeyed_message_elsewhere(world: World, client: Client) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    sender = client.sender("orders")
    first = queue.placement[0]
    world.stores[first].script(CommitOutcome.REFUSED)
    assert isinstance(sender.send(message("one")), Accepted)
    ((text, partition),) = stored(client, "orders")
    assert text == "one"
    assert queue.placement[partition] != first or partition != 0


def test_a_refused_commit_fails_a_keyed_message(world: World, client: Client) -> None:
    world.queue("orders", enable_partitioning=True)
    for store in world.stores.values():
        store.script(CommitOutcome.REFUSED)
    state = client.sender("orders").send(message("one", partition_key="red"))
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:timeout"  # P-24
    assert stored(client, "orders") == []


@pytest.mark.parametrize("outcome", [CommitOutcome.UNKNOWN_DONE, CommitOutcome.UNKNOWN_NOT_DONE])
def test_an_unknown_commit_is_never_sent_twice(
    world: World, client: Client, outcome: CommitOutcome
) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    sender = client.sender("orders")
    world.stores[queue.placement[0]].script(outcome)
    delivery_id = sender.put(message("one"))
    world.settle(for_ms=10_000)
    state = sender.outcome(delivery_id)
    found = [text for text, _ in stored(client, "orders")]
    if outcome is CommitOutcome.UNKNOWN_DONE:
        assert found == ["one"]
    else:
        # Certainly not there once the store was read again: then it may go elsewhere.
        assert found == (["one"] if isinstance(state, Accepted) else [])
    assert state is not None


def test_when_no_store_can_take_it_a_send_is_answered_busy(world: World, client: Client) -> None:
    world.queue("orders", enable_partitioning=True)
    sender = client.sender("orders")
    for store_id in world.brokers:
        if world.brokers[store_id].available:
            world.make_ill(store_id)
    state = sender.send(message())
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:server-busy"


def test_a_store_that_comes_back_is_served_again(world: World, client: Client) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    client.sender("orders").fill(32)
    world.make_ill("store-0")
    receiver = client.receiver("orders", credit=100)
    well = sum(store == "store-1" for store in queue.placement)
    assert len(receiver.deliveries) == 2 * well  # P-5
    world.disks["store-0"].resume()
    world.settle(for_ms=10_000)
    assert world.brokers["store-0"].available
    assert len(receiver.deliveries) == 32


def via_keyed(text: str, via_key: str, **options: Any) -> bytes:
    return message(text, annotations={"x-opt-via-partition-key": via_key}, **options)


@pytest.mark.parametrize("detects", [False, True], ids=["", "with duplicate detection"])
def test_a_direct_send_goes_by_its_via_key_where_it_has_no_other(
    world: World, client: Client, detects: bool
) -> None:
    """Whoever completes it sends on with the same via key, in one partition (amqp.md 12)."""
    queue = world.queue("orders", enable_partitioning=True, requires_duplicate_detection=detects)
    sender = client.sender("orders")
    for n in range(8):
        sender.send(via_keyed(f"m{n}", "k", message_id=f"id-{n}"))
    sender.send_batch(*(via_keyed(f"b{n}", "k", message_id=f"b-{n}") for n in range(3)))
    partition = partition_of_key("k", len(queue.placement))
    assert {each[1] for each in stored(client, "orders")} == {partition}


@pytest.mark.parametrize("own", [{"session_id": "s"}, {"partition_key": "s"}])
def test_a_via_key_does_not_replace_a_key(
    world: World, client: Client, own: dict[str, Any]
) -> None:
    queue = world.queue("orders", enable_partitioning=True)
    sender = client.sender("orders")
    assert isinstance(sender.send(via_keyed("one", "k", **own)), Accepted)
    ((_, partition),) = stored(client, "orders")
    assert partition == partition_of_key("s", len(queue.placement))
    assert partition != partition_of_key("k", len(queue.placement))


def test_what_was_sent_with_a_via_key_is_forwarded_by_it(world: World, client: Client) -> None:
    """P-40: a key goes along."""
    queue = world.queue("orders", enable_partitioning=True)
    world.queue("entry", forward_to="orders")
    sender = client.sender("entry")
    for n in range(4):
        sender.send(via_keyed(f"m{n}", "k"))
    world.settle(for_ms=1_000)
    partition = partition_of_key("k", len(queue.placement))
    assert {each[1] for each in stored(client, "orders")} == {partition}
