"""The simulation of a migration: a queue, or a topic and its subscriptions, with all that they can
hold is moved to its twin, there and back, while stores fail, brokers die and answers get lost
(D-27, D-35). Some of the moves are called off in the middle, and must come back."""

from __future__ import annotations

from collections.abc import Callable

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.broker.broker import Broker
from busway.broker.seams import Grant, SessionLock, Settlement, SettlementKind
from busway.cluster import migrations
from busway.model.entities import Course, Entity, Queue, Rule, SqlFilter, Subscription, Topic
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.model.partitioning import partition_of_key
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
SOME = [Rule(name="odd", filter=SqlFilter("sys.MessageId LIKE '%1' OR sys.MessageId LIKE '%3'"))]
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
        self.with_sessions = bool(self.random.randrange(3))
        self.entity = self._topic() if seed % 5 < 2 else self._queue()

    def _queue(self) -> Queue | Topic:
        return self.world.create_queue(
            Queue(
                path="orders",
                enable_partitioning=bool(self.random.randrange(2)),
                requires_session=self.with_sessions,
                requires_duplicate_detection=not self.random.randrange(3),
                max_delivery_count=1_000,
                lock_duration_ms=5_000,
            )
        )

    def _topic(self) -> Queue | Topic:
        topic = self.world.create_topic(
            Topic(
                path="news",
                enable_partitioning=bool(self.random.randrange(2)),
                requires_duplicate_detection=not self.random.randrange(3),
            )
        )
        for name in ("all", "some", "none")[: self.random.randint(1, 3)]:
            self.world.create_subscription(
                Subscription(
                    topic="news",
                    name=name,
                    requires_session=self.with_sessions,
                    max_delivery_count=1_000,
                    lock_duration_ms=5_000,
                ),
                {"some": SOME, "none": []}.get(name),
            )
        return topic

    @property
    def _subscriptions(self) -> list[Subscription]:
        topic = self.entity
        return self.world.catalog.subscriptions(topic) if isinstance(topic, Topic) else []

    @property
    def _holding(self) -> list[Entity]:
        """All whose messages move: the queue; or the topic and its subscriptions."""
        return [self.entity, *self._subscriptions]

    def _rules(self) -> list[list[Rule]]:
        return [self.world.catalog.rules(each) for each in self._subscriptions]

    def run(self) -> Result:
        for _ in range(2):
            self._fill()
            locked = self._use()
            self._migrate(locked)
        self.world.run_for(2 * HOUR_MS)
        for entity in self._holding:
            rows = self._rows(entity).by_body.values()
            late = [row for row in rows if row.stored.state is MessageState.SCHEDULED]
            if late:
                raise Violation("moves", f"time does not go on for {late}")
        bodies: dict[tuple[int, bytes], int] = {}
        for store in self.world.stores.values():
            check_at_rest(
                store,
                lambda key, row: bodies.setdefault((key.incarnation, row.bare), len(bodies)),
            )
        return Result(
            self.seed, self.history.digest, self.history.length, self.world.scheduler.steps
        )

    # Before.

    def _fill(self) -> None:
        """Messages of all kinds, in every partition."""
        random, now_ms = self.random, self.world.now_ms()
        for _ in range(random.randint(20, 120)):
            self._bodies += 1
            session_id = random.choice(SESSIONS) if self.with_sessions else None
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
            partition = partition_for(session_id, self._bodies, len(self.entity.placement))
            key = SubQueueKey(self.entity.incarnation, partition, SubQueueKind.MAIN)
            self._broker(key).send(key, [message], self._hand, self._bodies)
        self.world.run_for(200)

    def _use(self) -> dict[int, set[bytes]]:
        """Settle some; what is left locked is returned, by incarnation."""
        locked: dict[int, set[bytes]] = {}
        for entity in self._holding:
            if isinstance(entity, Topic):
                continue
            kept = locked[entity.incarnation] = set()
            for key in self._sub_queues(entity, SubQueueKind.MAIN):
                broker = self._broker(key)
                lock = None
                if self.with_sessions:
                    lock = broker.accept_session(key, None, self._hand)
                    if lock is None:
                        continue
                    state = b"state of %s" % lock.session_id.encode()
                    broker.set_session_state(lock, state, self._hand, 0)
                kept |= self._settle_some(broker, key, lock)
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

    def _migrate(self, locked: dict[int, set[bytes]]) -> None:
        world, source = self.world, self.entity
        before = {each.incarnation: self._rows(each) for each in self._holding}
        states = {each.incarnation: self._states(each) for each in self._holding}
        rules = self._rules()
        stopped = migrations.start(
            world.catalog,
            source,
            partitioned=not source.enable_partitioning,
            capture=bool(self.random.randrange(2)),
            now_ms=world.now_ms(),
        )
        called_off = not self.random.randrange(3)
        self._with_troubles()
        if called_off:
            migrations.set_course(world.catalog, stopped, Course.CALLED_OFF, world.now_ms())
        pairs = migrations.pairs_of(world.catalog, stopped)
        world.run_until(lambda: self._empty([pair.source for pair in pairs]))
        if called_off:
            migrations.set_course(world.catalog, stopped, Course.BACK, world.now_ms())
            self._with_troubles()
            pairs = migrations.pairs_of(world.catalog, stopped)
            world.run_until(lambda: self._empty([pair.twin for pair in pairs]))
        for pair in pairs:
            full, empty = (pair.source, pair.twin) if called_off else (pair.twin, pair.source)
            was = before[pair.source.incarnation]
            had = locked.get(pair.source.incarnation, set()) & was.by_body.keys()
            check_move(was, self._rows(full), had, there_and_back=called_off)
            if self._states(full) != states[pair.source.incarnation]:
                raise Violation("moves", f"the states are {self._states(full)}")
            if self._rows(empty).by_body or self._states(empty):
                raise Violation("moves", "something is left although all was moved")
        count = sum(len(each.by_body) for each in before.values())
        self.history.record(FaultHappened(f"{count} messages were moved"))
        end = migrations.call_off if called_off else migrations.switch
        self.entity = end(world.catalog, stopped, world.now_ms())
        if self._rules() != rules:
            raise Violation("moves", "a subscription has other rules")
        world.run_for(2 * LIFE_MS)

    def _with_troubles(self) -> None:
        world = self.world
        troubles = Troubles(world, self.history, pause_ms=(5, 400))
        world.roads_are_bad = True
        troubles.begin()
        world.run_for(self.random.randint(0, 15_000))
        troubles.end_all()
        world.roads_are_bad = False
        for store in world.stores.values():
            store.faults._scripted.clear()
        world.settle_down()

    def _empty(self, givers: list[Entity]) -> bool:
        return all(
            self.world.stores[store_id].serving
            and self.world.stores[store_id]
            .broker.movers.standing(giver.incarnation, index)
            .finished
            for giver in givers
            for index, store_id in enumerate(giver.placement)
        )

    # What is there.

    def _broker(self, key: SubQueueKey) -> Broker:
        store = self.world.owner(key)
        assert store is not None
        return store.broker

    def _sub_queues(self, entity: Entity, *kinds: SubQueueKind) -> list[SubQueueKey]:
        return [
            SubQueueKey(entity.incarnation, partition, kind)
            for partition in range(len(entity.placement))
            for kind in kinds
        ]

    def _rows(self, entity: Entity) -> Rows:
        found = []
        for key in self._sub_queues(entity, *KEPT):
            store = self.world.owner(key)
            assert store is not None
            sub_queue = store.broker.stored_sub_queue(key)
            if sub_queue is not None:
                found.append((key, rows_of(store, sub_queue.slot)))
        return Rows(found)

    def _states(self, entity: Entity) -> dict[str, bytes]:
        states = {}
        for key in self._sub_queues(entity, SubQueueKind.MAIN):
            store = self.world.owner(key)
            assert store is not None
            sub_queue = store.broker.stored_sub_queue(key)
            if sub_queue is None or sub_queue.sessions is None:
                continue
            for session_id in [each.session_id for each in sub_queue.sessions.listed(-1)]:
                state = store.faults.inner.read_session_state(sub_queue.slot, session_id)
                if state is not None:
                    states[session_id] = state
        return states


def partition_for(session_id: str | None, number: int, partitions: int) -> int:
    """By its session where there is one: that lies in one partition (P-18)."""
    if session_id is None:
        return number % partitions
    return partition_of_key(session_id, partitions)
