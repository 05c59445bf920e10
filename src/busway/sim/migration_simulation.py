"""The simulation of a migration: a queue with all that one can hold is moved to its twin, there and
back, while stores fail, brokers die and answers get lost (D-27, D-35)."""

from __future__ import annotations

from collections.abc import Callable

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.broker.broker import Broker
from busway.broker.seams import Grant, SessionLock, Settlement, SettlementKind
from busway.cluster import migrations
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.sim.checkers.at_rest import check_at_rest, rows_of
from busway.sim.checkers.moves import Rows, check_move
from busway.sim.history import FaultHappened, History, Violation
from busway.sim.simulation import Result
from busway.sim.troubles import Troubles
from busway.sim.world import BrokerFactory, World
from busway.store.base import SubQueueKey, SubQueueKind

SESSIONS = [f"s{number}" for number in range(9)]
HOUR_MS = 3_600_000
LIFE_MS = 20_000
"""Of some messages: shorter than a move with troubles, in which none of them may expire."""
OUTCOMES = (
    Settlement(SettlementKind.DEFER),
    Settlement(SettlementKind.DEFER, {"seen": True}),
    Settlement(SettlementKind.DEAD_LETTER, {"DeadLetterReason": "bad"}),
    Settlement(SettlementKind.ABANDON),
    Settlement(SettlementKind.COMPLETE),
)
KEPT = (SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER, SubQueueKind.TRANSFER_DEAD_LETTER)


class _Hand:
    """A client with a receiver, and nothing to say to what it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        self.messages += messages

    def finished(self, grant: Grant) -> None: ...

    def session_ready(self) -> None: ...

    def session_lost(self, error: BusError) -> None: ...

    def committed(self, tags: list[int]) -> None: ...

    def failed(self, tag: int, error: BusError) -> None:
        raise Violation("moves", f"a client is refused before anything went wrong: {error}")


class MigrationSimulation:
    def __init__(
        self,
        seed: int,
        *,
        make_broker: BrokerFactory = Broker,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.world = World(seed, stores=1 + seed % 3, make_broker=make_broker)
        self.random = self.world.random
        self.history = History(self.world.now_ms, (), tell)
        self._hand = _Hand()
        self._bodies = 0
        self.world.settle_down()
        duplicates = not self.random.randrange(3)
        self.queue = self.world.create_queue(
            Queue(
                path="orders",
                enable_partitioning=bool(self.random.randrange(2)),
                requires_session=bool(self.random.randrange(3)),
                requires_duplicate_detection=duplicates,
                max_delivery_count=1_000,
                lock_duration_ms=5_000,
            )
        )

    def run(self) -> Result:
        for _ in range(2):
            self._fill()
            locked = self._use()
            self._migrate(locked)
        self.world.run_for(2 * HOUR_MS)
        rows = self._rows(self.queue).by_body.values()
        late = [row for row in rows if row.stored.state is MessageState.SCHEDULED]
        if late:
            raise Violation("moves", f"time does not go on for {late}")
        bodies: dict[bytes, int] = {}
        for store in self.world.stores.values():
            check_at_rest(store, lambda _, row: bodies.setdefault(row.bare, len(bodies)))
        return Result(
            self.seed, self.history.digest, self.history.length, self.world.scheduler.steps
        )

    # Before.

    def _fill(self) -> None:
        """Messages of all kinds, in every partition."""
        random, now_ms = self.random, self.world.now_ms()
        for _ in range(random.randint(20, 120)):
            self._bodies += 1
            session_id = random.choice(SESSIONS) if self.queue.requires_session else None
            encoded = encode_message(
                properties=Properties(message_id=f"id-{self._bodies}", group_id=session_id),
                data=b"%d" % self._bodies,
            )
            message = Message(
                bare=scan_message(encoded).bare, size=len(encoded), session_id=session_id
            )
            if random.randrange(5) == 0:
                message.ttl_ms = LIFE_MS
            if random.randrange(6) == 0:
                message.state = MessageState.SCHEDULED
                message.expires_ms = now_ms + random.randint(3_000, HOUR_MS)
            partition = hash_of(session_id, self._bodies) % len(self.queue.placement)
            key = SubQueueKey(self.queue.incarnation, partition, SubQueueKind.MAIN)
            self._broker(key).send(key, [message], self._hand, self._bodies)
        self.world.run_for(200)

    def _use(self) -> set[bytes]:
        """Settle some; what is left locked is returned."""
        locked: set[bytes] = set()
        for partition in range(len(self.queue.placement)):
            key = SubQueueKey(self.queue.incarnation, partition, SubQueueKind.MAIN)
            broker = self._broker(key)
            lock = None
            if self.queue.requires_session:
                lock = broker.accept_session(key, None, self._hand)
                if lock is None:
                    continue
                state = b"state of %s" % lock.session_id.encode()
                broker.set_session_state(lock, state, self._hand, 0)
            locked |= self._settle_some(broker, key, lock)
        self.world.run_for(200)
        return locked

    def _settle_some(
        self, broker: Broker, key: SubQueueKey, lock: SessionLock | None
    ) -> set[bytes]:
        self._hand.messages = []
        limit = self.random.randint(1, 8)
        broker.grant(Grant(self._hand, key, limit, delete=False, session=lock))
        self.world.run_for(100)
        kept = set()
        for message in self._hand.messages:
            if not self.random.randrange(4) and message.expires_ms is None:
                kept.add(message.bare)
            else:
                assert message.lock_token is not None
                settlement = self.random.choice(OUTCOMES)
                broker.settle(key, message.lock_token, settlement, self._hand, 0)
        return kept

    # The move, with troubles.

    def _migrate(self, locked: set[bytes]) -> None:
        world, source = self.world, self.queue
        before, states = self._rows(source), self._states(source)
        stopped = migrations.start(
            world.catalog,
            source,
            partitioned=not source.enable_partitioning,
            capture=bool(self.random.randrange(2)),
            now_ms=world.now_ms(),
        )
        troubles = Troubles(world, self.history, pause_ms=(5, 400))
        world.roads_are_bad = True
        troubles.begin()
        world.run_for(self.random.randint(0, 15_000))
        troubles.end_all()
        world.roads_are_bad = False
        for store in world.stores.values():
            store.faults._scripted.clear()
        world.settle_down()
        world.run_until(lambda: self._moved(stopped))
        twin = migrations.twin_of(world.catalog, stopped)
        assert twin is not None
        check_move(before, self._rows(twin), locked & before.by_body.keys())
        if self._states(twin) != states:
            raise Violation("moves", f"states were {states}, and are {self._states(twin)}")
        if self._rows(stopped).by_body or self._states(stopped):
            raise Violation("moves", "something is left although all was moved")
        self.history.record(FaultHappened(f"{len(before.by_body)} messages were moved"))
        self.queue = migrations.switch(world.catalog, stopped, twin, world.now_ms())
        world.run_for(2 * LIFE_MS)

    def _moved(self, source: Queue) -> bool:
        return all(
            self.world.stores[store_id].serving
            and self.world.stores[store_id]
            .broker.movers.standing(source.incarnation, index)
            .finished
            for index, store_id in enumerate(source.placement)
        )

    # What is there.

    def _broker(self, key: SubQueueKey) -> Broker:
        store = self.world.owner(key)
        assert store is not None
        return store.broker

    def _sub_queues(self, queue: Queue, *kinds: SubQueueKind) -> list[SubQueueKey]:
        return [
            SubQueueKey(queue.incarnation, partition, kind)
            for partition in range(len(queue.placement))
            for kind in kinds
        ]

    def _rows(self, queue: Queue) -> Rows:
        found = []
        for key in self._sub_queues(queue, *KEPT):
            store = self.world.owner(key)
            assert store is not None
            sub_queue = store.broker.stored_sub_queue(key)
            if sub_queue is not None:
                found.append((key, rows_of(store, sub_queue.slot)))
        return Rows(found)

    def _states(self, queue: Queue) -> dict[str, bytes]:
        states = {}
        for key in self._sub_queues(queue, SubQueueKind.MAIN):
            store = self.world.owner(key)
            assert store is not None
            sub_queue = store.broker.stored_sub_queue(key)
            if sub_queue is None or sub_queue.sessions is None:
                continue
            for session_id in sub_queue.sessions.listed(-1):
                state = store.faults.inner.read_session_state(sub_queue.slot, session_id)
                if state is not None:
                    states[session_id] = state
        return states


def hash_of(session_id: str | None, number: int) -> int:
    """Of the session where there is one: it lies in one partition (P-18)."""
    return number if session_id is None else SESSIONS.index(session_id)
