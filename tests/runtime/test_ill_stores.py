"""Creating, updating and deleting while a store is ill: at once, and whole when it is back (P-42).

An entity is one commit of the catalog (D-16), so no store can leave it half made. The partitions on
an ill store wait: they take part when it is back, and forget what was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from busway.cluster.catalog import Catalog
from busway.config import load
from busway.gateway.gateway import Gateway
from busway.model.durations import DAY_MS
from busway.model.entities import Queue, Subscription, Topic
from busway.model.errors import ENTITY_ALREADY_EXISTS, NOT_FOUND, BusError
from busway.model.message import Message
from busway.runtime.node import Node
from busway.runtime.stores import NodeStore
from busway.store.base import SubQueueKey, SubQueueKind
from busway.store.faults import Fault

WAIT_S = 60.0
BODY = b"\x00Su\xa0\x01x"


async def until(condition: Callable[[], object]) -> None:
    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(look(), WAIT_S)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(load({"data": tmp_path, "port": 0, "stores": 2}, {}))
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
def ill(node: Node) -> NodeStore:
    return node.stores[1]


async def be(store: NodeStore, fault: Fault) -> None:
    store.faults.be(fault)
    if fault is not Fault.NONE and store.broker.available:
        store.broker.purge(4711, lambda: None)  # a commit, which finds out
    await until(lambda: store.broker.available is (fault is Fault.NONE))


def gateway_of(node: Node) -> Gateway:
    namespaces = node.namespaces
    assert namespaces is not None
    return namespaces.default


def catalog_of(node: Node) -> Catalog:
    return gateway_of(node).catalog


class Answers:
    def __init__(self) -> None:
        self.outcome: asyncio.Future[BusError | None] = asyncio.get_running_loop().create_future()

    def committed(self, tags: list[int]) -> None:
        self.outcome.set_result(None)

    def failed(self, tag: int, error: BusError) -> None:
        self.outcome.set_result(error)


async def send(node: Node, entity: Queue | Topic, partition: int) -> BusError | None:
    answers = Answers()
    try:
        owner = gateway_of(node).router.available_owner(entity, partition)
    except BusError as error:
        return error
    key = SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN)
    owner.send(key, [Message(bare=BODY, size=len(BODY))], answers, 1)
    return await asyncio.wait_for(answers.outcome, WAIT_S)


async def send_to_all(node: Node, entity: Queue | Topic) -> list[bool]:
    """To each partition; whether it was taken."""
    partitions = range(len(entity.placement))
    return [await send(node, entity, partition) is None for partition in partitions]


def count(store: NodeStore, entity: Queue | Subscription) -> int:
    """Messages of the entity in the store."""
    found = 0
    for partition, store_id in enumerate(entity.placement):
        if store_id == store.store_id:
            counters = store.broker.counters(entity.incarnation, partition)
            if SubQueueKind.MAIN in counters:
                found += counters[SubQueueKind.MAIN].active
    return found


@pytest.mark.parametrize("fault", [Fault.ILL, Fault.GONE])
async def test_a_partitioned_queue_is_made_whole_and_serves_in_part(
    node: Node, ill: NodeStore, fault: Fault
) -> None:
    await be(ill, fault)
    queue = catalog_of(node).create_queue(Queue(path="orders", enable_partitioning=True))
    on_ill = [store_id == ill.store_id for store_id in queue.placement]
    assert sum(on_ill) == 8
    assert await send_to_all(node, queue) == [not each for each in on_ill]
    with pytest.raises(BusError) as raised:
        catalog_of(node).create_queue(Queue(path="orders"))
    assert raised.value.kind is ENTITY_ALREADY_EXISTS
    await be(ill, Fault.NONE)
    assert all(await send_to_all(node, queue))
    assert (count(node.stores[0], queue), count(ill, queue)) == (16, 8)


async def test_a_conventional_queue_is_placed_where_it_can_serve(
    node: Node, ill: NodeStore
) -> None:
    catalog = catalog_of(node)
    await be(ill, Fault.GONE)
    queues = [catalog.create_queue(Queue(path=f"q{number}")) for number in range(8)]
    assert {queue.placement for queue in queues} == {(node.stores[0].store_id,)}
    await be(ill, Fault.NONE)
    later = [catalog.create_queue(Queue(path=f"later{number}")) for number in range(8)]
    assert len({queue.placement for queue in later}) == 2


async def test_an_update_holds_for_all_partitions(node: Node, ill: NodeStore) -> None:
    catalog = catalog_of(node)
    queue = catalog.create_queue(Queue(path="orders", enable_partitioning=True))
    await be(ill, Fault.GONE)
    changed = catalog.update(Queue(path="orders", default_ttl_ms=DAY_MS))
    assert changed.version == 2
    await be(ill, Fault.NONE)
    assert all(await send_to_all(node, queue))
    for partition in range(16):
        owner = gateway_of(node).router.available_owner(changed, partition)
        peeked: asyncio.Future[list[Message] | BusError]
        peeked = asyncio.get_running_loop().create_future()
        key = SubQueueKey(queue.incarnation, partition, SubQueueKind.MAIN)
        owner.peek(key, 1, 9, 9_999, peeked.set_result)
        messages = await asyncio.wait_for(peeked, WAIT_S)
        assert isinstance(messages, list)
        assert [each.expires_ms for each in messages] == [messages[0].enqueued_ms + DAY_MS]


@pytest.mark.parametrize("fault", [Fault.ILL, Fault.GONE])
async def test_what_is_deleted_is_gone_at_once_and_forgotten_later(
    node: Node, ill: NodeStore, fault: Fault
) -> None:
    catalog = catalog_of(node)
    queue = catalog.create_queue(Queue(path="orders", enable_partitioning=True))
    assert all(await send_to_all(node, queue))
    await be(ill, fault)
    catalog.delete("orders")
    assert catalog.find("orders") is None
    with pytest.raises(BusError) as raised:
        catalog.delete("orders")
    assert raised.value.kind is NOT_FOUND
    await until(lambda: [each.stores for each in catalog.tombstones()] == [{ill.store_id}])

    again = catalog.create_queue(Queue(path="orders", enable_partitioning=True))
    assert again.incarnation != queue.incarnation
    await be(ill, Fault.NONE)
    await until(lambda: catalog.tombstones() == [])
    assert count(ill, queue) == 0
    assert count(ill, again) == 0
    assert all(await send_to_all(node, again))


async def test_a_topic_goes_with_its_subscriptions(node: Node, ill: NodeStore) -> None:
    catalog = catalog_of(node)
    topic = catalog.create_topic(Topic(path="events", enable_partitioning=True))
    audit = catalog.create_subscription(Subscription(topic="events", name="audit"))
    assert all(await send_to_all(node, topic))
    assert count(ill, audit) == 8
    await be(ill, Fault.GONE)
    catalog.delete("events")
    await until(lambda: [each.stores for each in catalog.tombstones()] == [{ill.store_id}] * 2)
    await be(ill, Fault.NONE)
    await until(lambda: catalog.tombstones() == [])
    assert count(ill, audit) == 0


async def test_deleting_many_asks_a_store_for_each_once(
    node: Node, ill: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(node)
    for number in range(30):
        catalog.create_queue(Queue(path=f"q{number}", enable_partitioning=True))
    await be(ill, Fault.GONE)
    asked: list[int] = []
    purge = ill.broker.purge

    def counted(incarnation: int, done: Callable[[], None]) -> None:
        asked.append(incarnation)
        purge(incarnation, done)

    monkeypatch.setattr(ill.broker, "purge", counted)
    for number in range(30):
        catalog.delete(f"q{number}")
    assert asked == []
    await be(ill, Fault.NONE)
    await until(lambda: catalog.tombstones() == [])
    assert len(asked) == len(set(asked)) == 30


async def test_the_tombstones_of_a_store_outlive_a_restart(tmp_path: Path) -> None:
    def configured() -> Node:
        return Node(load({"data": tmp_path, "port": 0, "stores": 2}, {}))

    first = configured()
    await first.start()
    queue = catalog_of(first).create_queue(Queue(path="orders", enable_partitioning=True))
    assert all(await send_to_all(first, queue))
    await be(first.stores[1], Fault.GONE)
    catalog_of(first).delete("orders")
    await until(lambda: len(catalog_of(first).tombstones()[0].stores) == 1)
    await first.stop()
    second = configured()
    await second.start()
    try:
        await until(lambda: catalog_of(second).tombstones() == [])
        assert count(second.stores[1], queue) == 0
    finally:
        await second.stop()
