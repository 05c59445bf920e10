"""A world to simulate: stores with a broker each, a catalog, and what can happen to them (D-35).

Everything in it runs on one `Scheduler`, so one seed decides all of it. A store here is a
`MemoryDisk`, which survives, behind a `FaultyStore` and a `SimulatedDisk`, which are its owner's
and die with it. Tests of single behaviours use the same world with one store and no faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from busway.broker.broker import Broker
from busway.broker.commits import WayState
from busway.broker.fan_outs import SLICE_COPIES
from busway.broker.seams import Entities, Host, StorePort
from busway.cluster.catalog import Catalog, Change
from busway.model.entities import Entity, Queue, Rule, Subscription, Topic
from busway.sim.disk import LATENCY_MS, SimulatedDisk
from busway.sim.exchange import SimulatedExchange
from busway.sim.scheduler import Scheduler, SimulatedTimer
from busway.store.base import SubQueueKey, SubQueueKind
from busway.store.faults import CommitOutcome, Fault, FaultyStore
from busway.store.memory import MemoryDisk, MemoryStore

PURGE_LOOK_MS = 1_000
SMALL_BYTES = 100_000
SMALL_SLICE = 2

BrokerFactory = Callable[[StorePort, Host, Entities], Broker]


class MortalHost:
    """The host of one process: once that is killed, nothing it had planned happens any more."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.alive = True

    def now_ms(self) -> int:
        return self._scheduler.now_ms()

    def steady_ms(self) -> int:
        return self._scheduler.steady_ms()

    def clock_ms(self) -> int:
        return self._scheduler.clock_ms()

    def soon(self, callback: Callable[[], None]) -> None:
        self._scheduler.soon(lambda: callback() if self.alive else None)

    def next_round(self, callback: Callable[[], None]) -> None:
        self._scheduler.next_round(lambda: callback() if self.alive else None)

    def at(self, due_ms: int, callback: Callable[[], None]) -> SimulatedTimer:
        return self._scheduler.at(due_ms, lambda: callback() if self.alive else None)

    def random_bytes(self, count: int) -> bytes:
        return self._scheduler.random_bytes(count)


class RoomyStore(MemoryStore):
    """A memory store on a disk that can be said to be nearly full (D-9)."""

    def __init__(self, disk: MemoryDisk, room: Callable[[], int | None]) -> None:
        super().__init__(disk)
        self._room = room

    def free_bytes(self) -> int | None:
        super().free_bytes()
        return self._room()


class StoreAndBroker:
    """One messaging store for the length of a simulation, and its broker of the moment."""

    def __init__(self, world: World, store_id: str) -> None:
        self.store_id = store_id
        self.medium = MemoryDisk(store_id)
        """What survives every crash."""
        self.free_bytes: int | None = None
        self.lives = 0
        """How many brokers it has had; whoever talks to one remembers which it was."""
        self.disturbances = 0
        """How often its broker became available or unavailable, or died."""
        self.disturbed_ms = 0
        self._world = world
        self._exchange = SimulatedExchange(world, self)
        self._begin_life()

    def _begin_life(self) -> None:
        world = self._world
        self.lives += 1
        self._disturb()
        self.host = MortalHost(world.scheduler)
        self.faults = FaultyStore(RoomyStore(self.medium, lambda: self.free_bytes))
        self.port = SimulatedDisk(world.scheduler, self.faults, world.latency_ms)
        self.broker = world.make_broker(self.port, self.host, world.catalog)
        self.broker.slice_copies = world.slice_copies
        self.broker.exchange = self.broker.exchange or self._exchange
        self.broker.on_availability = self._on_availability
        self.running = True
        self.stopping = False
        self.broker.start()

    def _disturb(self) -> None:
        self.disturbances += 1
        self.disturbed_ms = self._world.now_ms()

    def _on_availability(self) -> None:
        self._disturb()
        for listener in self._world.availability_listeners:
            listener(self)

    @property
    def serving(self) -> bool:
        return self.running and self.broker.available

    # What can happen to it.

    def crash(self, *, finish_commit: bool) -> None:
        """The process dies at once; its clients see it as a closed connection."""
        assert self.running
        self.running = False
        self._disturb()
        self.host.alive = False
        self.port.kill(finish_commit=finish_commit)
        for listener in self._world.crash_listeners:
            listener(self)

    def restart(self) -> None:
        assert not self.running
        self._begin_life()

    def stop(self) -> None:
        """Graceful: what is staged is committed and answered, then the store is closed."""
        assert self.running
        self.stopping = True

        def stopped() -> None:
            if self.broker.state is WayState.STOPPED:
                self.running = False
                for listener in self._world.crash_listeners:
                    listener(self)

        self.broker.stop(stopped)

    def hang(self) -> None:
        self.port.pause()

    def recover(self) -> None:
        """No fault any more; a hung disk goes on where it was."""
        self.faults.be(Fault.NONE)
        self.port.latency_ms = self._world.latency_ms
        self.free_bytes = None
        self.port.resume()

    def next_commits_end(self, *outcomes: CommitOutcome) -> None:
        self.faults.script(*outcomes)


class SmallQueue(Queue):
    """LIM-4: full after a dozen messages."""

    __slots__ = ()

    @property
    def max_size_bytes(self) -> int:
        return SMALL_BYTES


class World:
    """Scheduler, catalog, stores and brokers, from one seed."""

    def __init__(
        self,
        seed: int = 0,
        *,
        stores: int = 1,
        latency_ms: tuple[int, int] = LATENCY_MS,
        make_broker: BrokerFactory = Broker,
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.latency_ms = latency_ms
        self.make_broker = make_broker
        self.slice_copies = SMALL_SLICE if seed % 2 else SLICE_COPIES
        """Of fan-outs: in every other world nearly each takes several rounds."""
        self.catalog = Catalog.open(None)
        self.crash_listeners: list[Callable[[StoreAndBroker], None]] = []
        self.availability_listeners: list[Callable[[StoreAndBroker], None]] = []
        self.purges_under_way: set[tuple[int, str]] = set()
        """Deleted incarnations, by the store that still has to forget them (D-16)."""
        self.roads_are_bad = False
        """Whether answers to transfers get lost (D-27)."""
        ids = [f"store-{position}" for position in range(stores)]
        self.catalog.stores.register(ids)
        self.catalog.listen(self._on_change)
        self.stores = {store_id: StoreAndBroker(self, store_id) for store_id in ids}

    # Time.

    def now_ms(self) -> int:
        return self.scheduler.now_ms()

    def run_for(self, duration_ms: int) -> None:
        self.scheduler.run_for(duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 600_000) -> None:
        self.scheduler.run_until(condition, limit_ms)

    def settle_down(self) -> None:
        """Until every broker serves and has no commit on its way."""
        self.run_until(lambda: all(each.serving for each in self.stores.values()))
        self.run_for(100)

    # Entities.

    def create_queue(self, description: Queue) -> Queue:
        return self.catalog.create_queue(description, self.now_ms())

    def create_small_queue(self, description: Queue) -> Queue:
        """Of a size that the product lets nobody choose, so that it is full after a while."""
        queue = self.create_queue(description)
        small = SmallQueue(**{each.name: getattr(queue, each.name) for each in fields(queue)})
        self.catalog._remember(small)
        return small

    def create_topic(self, description: Topic) -> Topic:
        return self.catalog.create_topic(description, self.now_ms())

    def create_subscription(
        self, description: Subscription, rules: Sequence[Rule] | None = None
    ) -> Subscription:
        """With the default rule, unless others are given (RUL-1)."""
        return self.catalog.create_subscription(description, self.now_ms(), rules)

    def delete_queue(self, queue: Queue) -> None:
        self.catalog.delete(queue.path, self.now_ms())

    def owner(self, key: SubQueueKey) -> StoreAndBroker | None:
        """Who has this partition; None once the entity is deleted."""
        queue = self.catalog.get(key.incarnation)
        return None if queue is None else self.stores[queue.placement[key.partition]]

    def _on_change(self, change: Change) -> None:
        if change.before is not None and change.after is None:
            for store_id in dict.fromkeys(change.before.placement):
                self.purges_under_way.add((change.before.incarnation, store_id))
                self._purge(change.before.incarnation, self.stores[store_id])
        elif change.after is not None:
            for store_id in dict.fromkeys(change.after.placement):
                self.stores[store_id].broker.entity_changed(change.after)

    def _purge(self, incarnation: int, store: StoreAndBroker) -> None:
        """As a node does it: ask for it, and again after a crash, until it is done."""
        task = (incarnation, store.store_id)
        asked_in_life = store.lives if store.running else 0

        def done() -> None:
            self.purges_under_way.discard(task)
            self.catalog.purged(*task)

        def look() -> None:
            if task in self.purges_under_way:
                if store.lives != asked_in_life:
                    self._purge(incarnation, store)
                else:
                    self.scheduler.after(PURGE_LOOK_MS, look)

        if store.running:
            store.broker.purge(incarnation, done)
        self.scheduler.after(PURGE_LOOK_MS, look)


def sub_queues_of(entity: Entity, kind: SubQueueKind = SubQueueKind.MAIN) -> list[SubQueueKey]:
    """One key for each partition."""
    return [
        SubQueueKey(entity.incarnation, partition, kind)
        for partition in range(len(entity.placement))
    ]
