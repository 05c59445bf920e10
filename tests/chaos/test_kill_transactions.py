"""`kill -9` in the middle of discharges: a transaction is there as a whole, or not at all.

TXN-2, P-35, D-28. Every transaction completes some messages of a queue and sends others to it, or
to another entity as well (TXN-3). An acknowledged one has happened; of one without an answer,
everything or nothing has.

A few kills by default; `make chaos` sets BUSWAY_KILLS to many.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from busway.amqp.events import TransferReceived
from busway.amqp.performatives import Accepted, Rejected, TransactionalState
from busway.amqp.sections import read_properties
from busway.model.partitioning import partition_of_key
from busway.testing import Server
from tests.chaos.raw_amqp import GoneError, RawClient, message
from tests.chaos.traffic import wait_until
from tests.chaos.transaction_ledger import Outcome, Record, TransactionLedger

KILLS = int(os.environ.get("BUSWAY_KILLS", "3"))
WORKERS = 3
SEEDS = 150
TAKES = 3
CREDIT = 16 * (TAKES - 1) + 1
"""So many in hand are enough of at least one of 16 partitions."""
CONFIG = """
[[queues]]
name = "plain"
lock_duration = "5m"
max_delivery_count = 1000
[[queues]]
name = "parts"
partitioned = true
lock_duration = "5m"
max_delivery_count = 1000
[[queues]]
name = "other"
lock_duration = "5m"
"""


@dataclass(frozen=True)
class Shape:
    """What transactions do: to which queue, and to which other."""

    queue: str
    partitioned: bool = False
    other: str | None = None


SHAPES = {
    "conventional": Shape("plain"),
    "partitioned": Shape("parts", partitioned=True),
    "two entities": Shape("plain", other="other"),
    "two entities, partitioned": Shape("parts", partitioned=True, other="other"),
}
KEYS = {partition_of_key(f"key {each}", 16): f"key {each}" for each in range(400)}


class Worker:
    """Carries out one transaction after the other, until its server is gone."""

    def __init__(self, connection_string: str, ledger: TransactionLedger, shape: Shape) -> None:
        self._connection_string = connection_string
        self._ledger = ledger
        self._shape = shape
        self.unexpected: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive(), "a client hangs"

    def _run(self) -> None:
        try:
            with RawClient(self._connection_string) as client:
                self._work(client)
        except GoneError:
            return
        except BaseException as error:
            self.unexpected.append(error)

    def _work(self, client: RawClient) -> None:
        shape, ledger = self._shape, self._ledger
        control = client.coordinator()
        sender, receiver = client.sender(shape.queue), client.receiver(shape.queue)
        other = None if shape.other is None else client.sender(shape.other)
        in_hand: defaultdict[int, list[TransferReceived]] = defaultdict(list)
        arrived = client.deliveries[receiver]

        def take_in() -> int | None:
            """A partition of which there are enough in hand."""
            for event in arrived:
                ledger.deliver(id_of(event))
                in_hand[int.from_bytes(event.tag[:2], "little")].append(event)
            arrived.clear()
            return next((each for each, had in in_hand.items() if len(had) >= TAKES), None)

        while True:
            receiver.set_credit(CREDIT)
            client.until(lambda: take_in() is not None)
            partition = take_in()
            assert partition is not None
            taken = [in_hand[partition].pop(0) for _ in range(TAKES)]
            key = KEYS[partition] if shape.partitioned else None
            here, there = ledger.new_ids(TAKES), ledger.new_ids(0 if other is None else 2)
            record = ledger.begin([id_of(each) for each in taken], here + there)
            state = client.declare(control)
            ids = [each.delivery_id for each in taken]
            receiver.settle(ids, TransactionalState(state.txn_id, Accepted()), settled=False)
            for each in here:
                client.put(sender, message(each, key), state)
            if other is not None:
                for each in there:
                    client.put(other, message(each, None), state)
            ledger.ask(record)
            answer = client.ask(control, 0x32, state.txn_id, False)
            self._ended(record, answer)

    def _ended(self, record: Record, answer: object) -> None:
        if isinstance(answer, Accepted):
            record.outcome = Outcome.DONE
        else:
            assert isinstance(answer, Rejected), answer
            record.outcome = Outcome.REFUSED


def id_of(event: TransferReceived) -> str:
    return str(read_properties(event.payload).message_id)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Not started: it is started again and again."""
    return Server(config=CONFIG, data=tmp_path / "data")


@pytest.fixture
def chance() -> random.Random:
    """When to kill; a failure prints the seed through the test's own report."""
    seed = int(os.environ.get("BUSWAY_SEED", random.randrange(1 << 32)))
    print(f"BUSWAY_SEED={seed}")
    return random.Random(seed)


def sow(server: Server, ledger: TransactionLedger, shape: Shape) -> None:
    """What the first transactions take."""
    with server, RawClient(server.connection_string) as client:
        sender = client.sender(shape.queue)
        seeds = ledger.new_ids(SEEDS)
        keys = list(KEYS.values()) if shape.partitioned else [None]
        for place, each in enumerate(seeds):
            delivery_id = client.put(sender, message(each, keys[place % len(keys)]))
            assert isinstance(client.outcome(sender, delivery_id), Accepted)
        ledger.seeds.update(seeds)


def harvest(server: Server, ledger: TransactionLedger, shape: Shape) -> list[str]:
    """All that is in the queues at the end."""
    found: list[str] = []
    with server:
        queues = [queue for queue in (shape.queue, shape.other) if queue is not None]

        def all_is_there() -> bool:
            """What is sent to another entity moves there after its commit (TXN-3)."""
            with RawClient(server.connection_string) as client:
                found.extend(id_of(each) for queue in queues for each in client.take_all(queue))
            return not ledger.owed(found)

        wait_until(all_is_there)
        all_is_there()  # once more: a second copy would come now
    return found


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_transaction_is_whole_or_not_at_all_after_kills_around_its_discharge(
    server: Server, chance: random.Random, shape: Shape
) -> None:
    ledger = TransactionLedger()
    sow(server, ledger, shape)
    for _ in range(KILLS):
        server.start()
        workers = [Worker(server.connection_string, ledger, shape) for _ in range(WORKERS)]
        goal = ledger.asked + chance.randrange(1, 40)
        wait_until(lambda goal=goal: ledger.asked >= goal and ledger.count(Outcome.DONE) > 0)
        time.sleep(chance.uniform(0, 0.004))  # somewhere between its first byte and its answer
        server.kill()
        for worker in workers:
            worker.join()
            assert worker.unexpected == []
    ledger.judge(harvest(server, ledger, shape))
    print({outcome.name: ledger.count(outcome) for outcome in Outcome})
