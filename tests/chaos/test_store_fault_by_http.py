"""One store of four gone under load, by request, and back: what users rehearse (P-5, P-41 to P-43).

A real server, clients of the real SDK, and the HTTP call that operators have. The outage lasts
until everything that must go on has been seen to go on; `BUSWAY_OUTAGE_S` makes it longer.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusServerBusyError,
)

from busway.model.partitioning import partition_of_key
from busway.testing import Server
from tests.chaos.ledger import Ledger
from tests.chaos.traffic import Traffic, drain, wait_until
from tests.http.asking import ask, make, manager, map_of, metrics_of

OUTAGE_S = float(os.environ.get("BUSWAY_OUTAGE_S", "0"))
STORES = 4
PARTITIONS = 16
PARTS = "parts"
PLAIN = [f"plain-{number}" for number in range(12)]
"""Conventional ones, so many that some lie in the store that goes and some do not."""
KEYS = [f"customer {number}" for number in range(40)]
ENOUGH = 30
"""So much of everything must happen while the store is gone."""


class Seen(NamedTuple):
    """What had been sent, and completed, at some time."""

    taken: Counter[str]
    completed: Counter[str]


class OutageTraffic(Traffic):
    """Clients that go on when a partition is unavailable, and write down that they were told."""

    def __init__(self, connection_string: str, ledger: Ledger) -> None:
        super().__init__(connection_string, ledger)
        self.taken: Counter[str] = Counter()
        """By key, or by queue for sends without one."""
        self.busy: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()

    def seen(self) -> Seen:
        return Seen(Counter(self.taken), Counter(self.completed))

    def send_unkeyed(self, queue: str) -> None:
        """Without patience: one *busy* ends it, and is a failure."""
        self._start(self._send_unkeyed, queue)

    def send_keyed(self, queue: str) -> None:
        self._start(self._send_keyed, queue)

    def send_patiently(self, queue: str) -> None:
        self._start(self._send_patiently, queue)

    def receive_patiently(self, queue: str) -> None:
        self._start(self._receive_patiently, queue)

    def _send_unkeyed(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_sender(queue) as sender:
            while not self._stopping.is_set():
                ids = self.ledger.new_ids()
                sender.send_messages(ServiceBusMessage("x", message_id=ids[0]))
                self.ledger.accept(ids)
                self.taken[queue] += 1

    def _send_keyed(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_sender(queue) as sender:
            while not self._stopping.is_set():
                for key in KEYS:
                    self._send_one(sender, key, partition_key=key)

    def _send_patiently(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_sender(queue) as sender:
            while not self._stopping.is_set():
                self._send_one(sender, queue)

    def _send_one(self, sender: Any, told: str, **properties: str) -> None:
        ids = self.ledger.new_ids()
        try:
            sender.send_messages(ServiceBusMessage("x", message_id=ids[0], **properties))
        except OperationTimeoutError:
            # P-24: refused for certain while it is gone; unknown if it was on its way as it went.
            self.busy[told] += 1
        else:
            self.ledger.accept(ids)
            self.taken[told] += 1

    def _receive_patiently(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_receiver(queue, prefetch_count=20) as receiver:
            while not self._stopping.is_set():
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=0.2):
                    self._complete_patiently(receiver, message, queue)

    def _complete_patiently(
        self, receiver: Any, message: ServiceBusReceivedMessage, queue: str
    ) -> None:
        message_id = str(message.message_id)
        self.ledger.see(message_id)
        self.ledger.begin_completing(message_id)
        try:
            receiver.complete_message(message)
        except (MessageLockLostError, OperationTimeoutError, ServiceBusServerBusyError):
            return  # its store went, with its lock; it may come again
        self.ledger.complete(message_id)
        self.completed[queue] += 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(
        *PLAIN,
        partitioned=[PARTS],
        data=tmp_path / "data",
        arguments=["--stores", str(STORES), "--allow-faults"],
    ) as server:
        yield server


def stores_of(server: Server) -> dict[str, list[str]]:
    """Where the partitions of each queue lie."""
    return {
        entity["name"]: [part["store"] for part in entity["partitions"]]
        for entity in map_of(server)["entities"]
    }


def got(server: Server, queue: str, element: str) -> str:
    """An element of the queue's description, as management clients read it."""
    path = f"/{queue}?api-version=2021-05"
    reply = ask(server, "GET", path, token=manager(server))
    assert reply.status == 200, reply.text
    found = re.search(f"<(?:\\w+:)?{element}[^>]*>([^<]*)<", reply.text)
    assert found is not None, reply.text
    return found[1]


def availability(server: Server, queue: str) -> str:
    """P-43: what get says; the map must agree."""
    (entity,) = map_of(server, f"?entity={queue}")["entities"]
    told = got(server, queue, "EntityAvailabilityStatus")
    return told if told == entity["availability"] else f"{told}, {entity['availability']}"


def count(server: Server, queue: str) -> int:
    (entity,) = map_of(server, f"?entity={queue}")["entities"]
    counted = sum(part["depth"]["messages"] for part in entity["partitions"])
    assert counted == int(got(server, queue, "MessageCount"))
    assert counted == metrics_of(server).sum("busway_messages", entity=queue)
    return int(counted)


def test_one_store_of_four_gone_and_back(server: Server) -> None:
    placed = stores_of(server)
    here = PLAIN[0]
    (gone,) = placed[here]
    there = next(queue for queue in PLAIN if placed[queue] != [gone])
    gone_partitions = {n for n, store in enumerate(placed[PARTS]) if store == gone}
    assert len(gone_partitions) == PARTITIONS // STORES
    gone_keys = {key for key in KEYS if partition_of_key(key, PARTITIONS) in gone_partitions}
    other_keys = set(KEYS) - gone_keys
    assert gone_keys
    assert other_keys

    ledger = Ledger()
    with OutageTraffic(server.connection_string, ledger) as traffic:
        traffic.send_unkeyed(there)

        def more_clients() -> None:
            traffic.send_unkeyed(PARTS)
            traffic.send_keyed(PARTS)
            traffic.send_patiently(here)
            for queue in (PARTS, here, there):
                traffic.receive_patiently(queue)

        more_clients()
        more_clients()

        def all_go_on(before: Seen, keys: set[str]) -> bool:
            return (
                all(traffic.taken[key] > before.taken[key] for key in keys)
                and traffic.taken[PARTS] >= before.taken[PARTS] + ENOUGH
                and traffic.taken[there] >= before.taken[there] + ENOUGH
                and traffic.completed[PARTS] >= before.completed[PARTS] + ENOUGH
                and traffic.completed[there] >= before.completed[there] + ENOUGH
            )

        wait_until(lambda: all_go_on(Seen(Counter(), Counter()), {*KEYS, here}))
        assert availability(server, PARTS) == availability(server, here) == "Available"
        assert traffic.busy == {}

        make(server, gone, "gone")
        began = time.monotonic()
        assert availability(server, PARTS) == availability(server, here) == "Limited"
        assert availability(server, there) == "Available"
        # Whose send or completion was on its way waits for the store's word (D-3); others go on.
        more_clients()
        during = traffic.seen()
        wait_until(lambda: all_go_on(during, other_keys))  # P-5, P-23, P-41
        wait_until(lambda: gone_keys | {here} <= set(traffic.busy))  # P-24
        wait_until(lambda: time.monotonic() - began >= OUTAGE_S, OUTAGE_S + 300)
        assert availability(server, PARTS) == "Limited"

        make(server, gone, "none")
        wait_until(lambda: availability(server, PARTS) == "Available")
        wait_until(lambda: availability(server, here) == "Available")
        after = traffic.seen()
        wait_until(lambda: all_go_on(after, {*KEYS, here}))

    assert traffic.unexpected == []
    assert traffic.failures == []
    assert set(traffic.busy) == gone_keys | {here}, "only what lies in the store that went"
    left: list[str] = []
    for queue in (PARTS, here, there):
        counted = count(server, queue)
        drained = drain(server.connection_string, queue)
        assert len(drained) == counted
        assert count(server, queue) == 0
        left += drained
    ledger.judge(left)
