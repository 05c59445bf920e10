"""One messaging store gone under load: the rest goes on, and all comes back (P-5, P-23, P-24).

The node runs in this process, because its stores can be told here to be gone; the clients are the
real SDK over real sockets.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from busway.config import load
from busway.model.message import partition_of
from busway.model.partitioning import partition_of_key
from busway.runtime.node import Node
from busway.store.base import SubQueueKind
from busway.store.faults import Fault
from tests.chaos.ledger import Ledger
from tests.chaos.traffic import ENDED_S, Traffic, connect, drain, wait_until

QUEUE = "parts"
PARTITIONS = 16
STORES = 4
GONE = 1
"""The store that goes."""
KEYS = [f"customer {number}" for number in range(40)]
CONFIG = f'[[queues]]\nname = "{QUEUE}"\npartitioned = true\n'


class NodeInThread:
    """A node with an event loop of its own."""

    def __init__(self, data: Path) -> None:
        config = data.with_suffix(".toml")
        config.write_text(CONFIG)
        flags = {"data": data, "port": 0, "stores": STORES, "config": config}
        self.node = Node(load(flags, {}))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.run(self.node.start())

    def stop(self) -> None:
        self.run(self.node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ENDED_S)

    def tell(self, fault: Fault) -> None:
        self.node.stores[GONE].faults.be(fault)

    def lose_the_store(self) -> None:
        """Gone, and known to be: a commit of no client's finds out."""

        async def commit() -> None:
            self.node.stores[GONE].broker.purge(4711, lambda: None)

        self.tell(Fault.GONE)
        self.run(commit())
        wait_until(lambda: not self.available)

    def bring_it_back(self) -> None:
        self.tell(Fault.NONE)
        wait_until(lambda: self.available)

    @property
    def available(self) -> bool:
        return self.node.stores[GONE].broker.available

    @property
    def queue(self) -> Any:
        assert self.node.namespaces is not None
        return self.node.namespaces.default.catalog.find(QUEUE)

    @property
    def gone_partitions(self) -> set[int]:
        """Those that are kept in the store that goes."""
        store_id = self.node.stores[GONE].store_id
        return {n for n, placed in enumerate(self.queue.placement) if placed == store_id}

    def count(self) -> int:
        """Active messages as the brokers count them, over all partitions (D-13)."""

        async def counted() -> int:
            incarnation = self.queue.incarnation
            return sum(
                counters.active
                for store in self.node.stores
                for partition in range(PARTITIONS)
                for kind, counters in store.broker.counters(incarnation, partition).items()
                if kind is SubQueueKind.MAIN
            )

        return int(self.run(counted()))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[NodeInThread]:
    node = NodeInThread(tmp_path / "data")
    node.start()
    yield node
    node.tell(Fault.NONE)
    node.stop()


@pytest.fixture
def client(running: NodeInThread) -> Iterator[ServiceBusClient]:
    with connect(running.node.connection_string) as client:
        yield client


def send_keyed(sender: Any, ledger: Ledger, key: str) -> bool:
    """Whether the send was taken; busy means that it was not (D-4)."""
    ids = ledger.new_ids()
    try:
        sender.send_messages(ServiceBusMessage("x", message_id=ids[0], partition_key=key))
    except OperationTimeoutError:
        ledger.refuse(ids)
        return False
    ledger.accept(ids)
    return True


def test_sends_without_a_key_go_on_and_nothing_is_lost(running: NodeInThread) -> None:
    """P-23; those on their way when the store went wait for its word (D-4)."""
    ledger = Ledger()
    with Traffic(running.node.connection_string, ledger) as traffic:
        for _ in range(6):
            traffic.send(QUEUE)
        wait_until(lambda: len(ledger.accepted) >= 100)
        running.tell(Fault.GONE)
        wait_until(lambda: not running.available)
        during = len(ledger.accepted)
        wait_until(lambda: len(ledger.accepted) >= during + 200)
        running.bring_it_back()
        after = len(ledger.accepted)
        wait_until(lambda: len(ledger.accepted) >= after + 100)
    assert traffic.unexpected == []
    assert traffic.failures == []
    assert ledger.sending == ledger.accepted
    assert running.count() == len(ledger.accepted)
    left = drain(running.node.connection_string, QUEUE)
    ledger.judge(left)
    assert len(left) == len(ledger.accepted)
    wait_until(lambda: running.count() == 0)


def test_keyed_sends_of_its_partitions_fail_as_busy_and_only_those(
    running: NodeInThread, client: ServiceBusClient
) -> None:
    """P-24, P-41."""
    ledger = Ledger()
    with Traffic(running.node.connection_string, ledger) as traffic:
        traffic.send(QUEUE)
        with client.get_queue_sender(QUEUE) as sender:
            assert all(send_keyed(sender, ledger, key) for key in KEYS)
            running.lose_the_store()
            taken = {key: send_keyed(sender, ledger, key) for key in KEYS}
            running.bring_it_back()
            assert all(send_keyed(sender, ledger, key) for key in KEYS)
    gone = running.gone_partitions
    assert len(gone) == PARTITIONS // STORES
    assert taken == {key: partition_of_key(key, PARTITIONS) not in gone for key in KEYS}
    left = drain(running.node.connection_string, QUEUE)
    ledger.judge(left)
    assert len(left) == len(ledger.accepted)


def test_receivers_go_on_with_the_rest_and_get_all_when_it_is_back(
    running: NodeInThread, client: ServiceBusClient
) -> None:
    """P-26, P-5."""
    ledger = Ledger()
    with client.get_queue_sender(QUEUE) as sender:
        for _ in range(8 * PARTITIONS):
            ids = ledger.new_ids()
            sender.send_messages(ServiceBusMessage("x", message_id=ids[0]))
            ledger.accept(ids)
    running.lose_the_store()
    with Traffic(running.node.connection_string, ledger) as traffic:
        traffic.receive(QUEUE)
        there = 8 * (PARTITIONS - len(running.gone_partitions))
        wait_until(lambda: len(ledger.completed) >= there)
        running.bring_it_back()
        wait_until(lambda: len(ledger.completed) == 8 * PARTITIONS)
    assert traffic.unexpected == []
    ledger.judge(drain(running.node.connection_string, QUEUE))


def test_a_peek_passes_over_the_store_that_is_gone(
    running: NodeInThread, client: ServiceBusClient
) -> None:
    """D-26."""
    with client.get_queue_sender(QUEUE) as sender:
        for _ in range(PARTITIONS):
            sender.send_messages(ServiceBusMessage("x"))
    running.lose_the_store()
    with client.get_queue_receiver(QUEUE) as receiver:
        seen = {partition_of(each.sequence_number) for each in receiver.peek_messages(200)}
    assert seen == set(range(PARTITIONS)) - running.gone_partitions
