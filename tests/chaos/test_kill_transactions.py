"""`kill -9` in the middle of discharges: a transaction is there as a whole, or not at all.

TXN-2, P-35, D-28. Every transaction completes some messages of a queue and sends others to it, or
to another entity as well (TXN-3), before or after it completes. Every other one settles what one
before it has settled that was rolled back. An acknowledged one has happened; of one without an
answer, everything or nothing has. So it is with requests in a transaction too: a session's state,
and messages that are scheduled and cancelled (TXN-1).

A few kills by default; `make chaos` sets BUSWAY_KILLS to many.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from busway.amqp.codec import encode_value
from busway.amqp.events import TransferReceived
from busway.amqp.performatives import Accepted, Properties, Rejected, TransactionalState
from busway.amqp.sections import MESSAGE_ANNOTATIONS, encode_message, read_properties
from busway.amqp.types import Array, Described, Symbol, Timestamp, ULong
from busway.model.partitioning import partition_of_key
from busway.sim.wire_messages import decode
from busway.testing import Server
from tests.chaos.raw_amqp import GoneError, RawClient, Requests, message
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
[[queues]]
name = "talks"
requires_session = true
[[queues]]
name = "talks-in-parts"
requires_session = true
partitioned = true
"""


@dataclass(frozen=True)
class Shape:
    """What transactions do: to which queue, and to which other."""

    queue: str
    partitioned: bool = False
    other: str | None = None
    sends_first: bool = False
    """To the other, before anything of the queue is completed: by way of that all the same."""


SHAPES = {
    "conventional": Shape("plain"),
    "partitioned": Shape("parts", partitioned=True),
    "two entities": Shape("plain", other="other"),
    "two entities, partitioned": Shape("parts", partitioned=True, other="other"),
    "the other entity first": Shape("plain", other="other", sends_first=True),
    "the other entity first, partitioned": Shape(
        "parts", partitioned=True, other="other", sends_first=True
    ),
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

        for turn in itertools.count():
            receiver.set_credit(CREDIT)
            client.until(lambda: take_in() is not None)
            partition = take_in()
            assert partition is not None
            taken = [in_hand[partition].pop(0) for _ in range(TAKES)]
            key = KEYS[partition] if shape.partitioned else None
            here, there = ledger.new_ids(TAKES), ledger.new_ids(0 if other is None else 2)
            record = ledger.begin([id_of(each) for each in taken], here + there)
            ids = [each.delivery_id for each in taken]
            if turn % 2:
                state = client.declare(control)
                receiver.settle(ids, TransactionalState(state.txn_id, Accepted()), settled=False)
                assert isinstance(client.ask(control, 0x32, state.txn_id, True), Accepted)
            state = client.declare(control)
            if other is not None and shape.sends_first:
                for each in there:
                    client.put(other, message(each, None), state)
            receiver.settle(ids, TransactionalState(state.txn_id, Accepted()), settled=False)
            for each in here:
                client.put(sender, message(each, key), state)
            if other is not None and not shape.sends_first:
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


class Talker(Worker):
    """Has a session with one scheduled message, whose id is the session's state. A transaction
    cancels it, schedules another and sets the state to that one's id."""

    def __init__(
        self, connection_string: str, ledger: TransactionLedger, shape: Shape, session_id: str
    ) -> None:
        self._session_id = session_id
        super().__init__(connection_string, ledger, shape)

    def _work(self, client: RawClient) -> None:
        ledger, session_id = self._ledger, self._session_id
        control = client.coordinator()
        client.hold_session(self._shape.queue, session_id)
        requests = client.requests(self._shape.queue)

        def replace(old_number: int, new_id: str, state: TransactionalState) -> int:
            """Returns the number of the new one."""
            set_it = {"session_id": session_id, "session_state": new_id.encode()}
            requests.ask("set-session-state", state, **set_it)
            cancel = {"sequence_numbers": Array([old_number], int)}
            requests.ask("cancel-scheduled-message", state, **cancel)
            return schedule(requests, session_id, new_id, state)

        message_id, number = look(requests, session_id, ledger)
        for turn in itertools.count():
            (new_id,) = ledger.new_ids(1)
            record = ledger.begin([message_id], [new_id])
            if turn % 2:
                state = client.declare(control)
                replace(number, new_id, state)
                assert isinstance(client.ask(control, 0x32, state.txn_id, True), Accepted)
            state = client.declare(control)
            new_number = replace(number, new_id, state)
            ledger.ask(record)
            self._ended(record, client.ask(control, 0x32, state.txn_id, False))
            if record.outcome is Outcome.DONE:
                message_id, number = new_id, new_number
                ledger.deliver(message_id)  # as good as seen: its number is known


def schedule(
    requests: Requests, session_id: str, message_id: str, state: TransactionalState | None = None
) -> int:
    """For a time that no test waits for; returns its number."""
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(time.time() * 1000) + 86_400_000)}
    properties = Properties(message_id=message_id, group_id=session_id)
    annotations = encode_value(Described(ULong(MESSAGE_ANNOTATIONS), due))
    payload = annotations + encode_message(properties=properties, data=b"later")
    answer = requests.ask("schedule-message", state, messages=[{"message": payload}])
    (number,) = answer["sequence-numbers"]
    return int(number)


def look(requests: Requests, session_id: str, ledger: TransactionLedger) -> tuple[str, int]:
    """The id and the number of the one message of a session: the one that its state names."""
    peek = {"from_sequence_number": 0, "message_count": 10, "session_id": session_id}
    (entry,) = requests.ask("peek-message", **peek)["messages"]
    message_id = str(read_properties(entry["message"]).message_id)
    state = requests.ask("get-session-state", session_id=session_id)["session-state"]
    assert bytes(state).decode() == message_id, "half of a transaction"
    ledger.deliver(message_id)
    annotations = decode(entry["message"])[MESSAGE_ANNOTATIONS]
    return message_id, int(annotations["x-opt-sequence-number"])


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


def kill_around_a_discharge(
    server: Server, chance: random.Random, ledger: TransactionLedger, workers: Sequence[Worker]
) -> None:
    goal = ledger.asked + chance.randrange(1, 40)

    def enough() -> bool:
        failed = any(worker.unexpected for worker in workers)
        return failed or (ledger.asked >= goal and ledger.count(Outcome.DONE) > 0)

    wait_until(enough)
    time.sleep(chance.uniform(0, 0.004))  # somewhere between its first byte and its answer
    server.kill()
    for worker in workers:
        worker.join()
        assert worker.unexpected == []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_transaction_is_whole_or_not_at_all_after_kills_around_its_discharge(
    server: Server, chance: random.Random, shape: Shape
) -> None:
    ledger = TransactionLedger()
    sow(server, ledger, shape)
    for _ in range(KILLS):
        server.start()
        workers = [Worker(server.connection_string, ledger, shape) for _ in range(WORKERS)]
        kill_around_a_discharge(server, chance, ledger, workers)
    ledger.judge(harvest(server, ledger, shape))
    print({outcome.name: ledger.count(outcome) for outcome in Outcome})


@pytest.mark.parametrize("queue", ["talks", "talks-in-parts"])
def test_a_session_s_state_and_scheduled_messages_change_together_over_kills(
    server: Server, chance: random.Random, queue: str
) -> None:
    ledger = TransactionLedger()
    shape, sessions = Shape(queue), [f"session {each}" for each in range(WORKERS)]
    with server, RawClient(server.connection_string) as client:
        requests = client.requests(queue)
        for session_id in sessions:
            client.hold_session(queue, session_id)
            (seed,) = ledger.new_ids(1)
            schedule(requests, session_id, seed)
            set_it = {"session_id": session_id, "session_state": seed.encode()}
            requests.ask("set-session-state", **set_it)
            ledger.seeds.add(seed)
    for _ in range(KILLS):
        server.start()
        workers = [Talker(server.connection_string, ledger, shape, each) for each in sessions]
        kill_around_a_discharge(server, chance, ledger, workers)
    with server, RawClient(server.connection_string) as client:
        requests = client.requests(queue)
        for session_id in sessions:
            client.hold_session(queue, session_id)
        ledger.judge([look(requests, session_id, ledger)[0] for session_id in sessions])
    print({outcome.name: ledger.count(outcome) for outcome in Outcome})
