"""One simulation from one seed: a world, clients, troubles, and an end at which all is judged.

Three acts. In the first, clients work while things go wrong. In the second, everything is well
again and nobody works: what is at rest must agree with what clients were told. In the third, new
receivers empty the world: everything that is ready must reach them, and nothing may be left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from busway.broker.broker import Broker
from busway.model.entities import Queue
from busway.model.message import Message, MessageState
from busway.sim import habits
from busway.sim.checkers.at_rest import check_at_rest, rows_of
from busway.sim.checkers.dead_letters import DeadLetters
from busway.sim.checkers.delivery_counts import DeliveryCounts
from busway.sim.checkers.holders import Holders
from busway.sim.checkers.journal import check_journals
from busway.sim.checkers.order import Numbers, Order
from busway.sim.checkers.presence import Presence
from busway.sim.direct import DirectBrowser, DirectSender, Transactor
from busway.sim.direct_messages import Target, body_of
from busway.sim.direct_receiver import DirectReceiver
from busway.sim.history import History, QueueCreated, QueueDeleted, Violation
from busway.sim.mistakes import mistakes_are_fatal
from busway.sim.traits import Traits
from busway.sim.troubles import Troubles
from busway.sim.world import BrokerFactory, World, sub_queues_of
from busway.store.base import SubQueueKey, SubQueueKind

STEPS = 250
LOCK_DURATION_MAX_MS = 15_000
REST_MS = 60_000
"""Long enough for every lock to run out and every sweep to have come by."""
DRAIN_MS = 180_000
RECEIVERS_MAX = 6
KINDS = (SubQueueKind.MAIN, SubQueueKind.MAIN, SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER)


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    digest: str
    """Of the whole history: the same for the same seed."""
    events: int
    steps: int
    """Of the scheduler."""


class Client(Protocol):
    @property
    def idle(self) -> bool:
        """Nothing that it asked for is still to be answered."""


class Simulation:
    """`run` ends with a `Result` or a `Violation`."""

    def __init__(
        self,
        seed: int,
        *,
        steps: int = STEPS,
        make_broker: BrokerFactory = Broker,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self._steps = steps
        self._numbers = 0
        self._quiet = tell is None
        self.deferred: dict[SubQueueKey, dict[int, int]] = {}
        self._make_world(seed, make_broker)
        self._make_checkers(tell)
        self.random = self.world.random
        self._large = self.random.randrange(4) == 0
        self._queues: list[Queue] = []
        self._create_entities()
        self._make_clients()
        quiet = self.random.randrange(10) == 0
        pause_ms = (5_000, 60_000) if quiet else (50, self.random.choice((1_000, 4_000, 10_000)))
        self._troubles = self._make_troubles(pause_ms)
        self._deletes = self.random.randrange(2) == 0

    def _make_world(self, seed: int, make_broker: BrokerFactory) -> None:
        self.world = World(seed, stores=1 + seed % 3, make_broker=make_broker)

    def _make_checkers(self, tell: Callable[[str], None] | None) -> None:
        self.presence = Presence()
        self.counts = DeliveryCounts()
        self._numbering = Numbers()
        checkers = (
            self.presence,
            Holders(),
            Order(),
            self._numbering,
            self.counts,
            DeadLetters(),
        )
        self.history = History(self.world.now_ms, checkers, tell)

    def _create_entities(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self._create(f"queue-{len(self._queues)}")

    def _make_clients(self) -> None:
        self._sender = DirectSender(self)
        self._browser = DirectBrowser(self)
        self._receivers: list[DirectReceiver] = []
        self._closed_receivers: list[DirectReceiver] = []

    def _make_troubles(self, pause_ms: tuple[int, int]) -> Troubles:
        return Troubles(self.world, self.history, pause_ms=pause_ms)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # What clients ask.

    @property
    def transactor(self) -> Transactor | None:
        return None

    def body_of(self, key: SubQueueKey, message: Message) -> int:
        return body_of(message) + self.higher(key.incarnation)

    def copies_of(self, target: Target, traits: Traits) -> Sequence[tuple[int, int]]:
        return [(target.incarnation, 0)]

    def higher(self, incarnation: int) -> int:
        return 0

    def scheduled(self, key: SubQueueKey, number: int, bodies: Sequence[int]) -> None:
        raise AssertionError("nobody schedules here")

    # Act one: work and trouble.

    def run(self) -> Result:
        with mistakes_are_fatal(quiet=self._quiet):
            return self._run()

    def _run(self) -> Result:
        self._run_through()
        steps = self.world.scheduler.steps
        return Result(self.seed, self.history.digest, self.history.length, steps)

    def _run_through(self) -> None:
        self.world.settle_down()
        self._troubles.begin()
        for _ in range(self._steps):
            self._step()
            self.world.run_for(self.random.choice((0, 0, 1, 5, 50, 300)))
        self._troubles.end_all()
        self._rest()
        self._drain()
        self._numbering.check_increasing()

    def _step(self) -> None:
        choice = self.random.randrange(100)
        if choice < 45:
            parcel = habits.parcel(self.random, large=self._large)
            self._sender.send(self.random.choice(self._queues), parcel)
        elif choice < 65:
            self._give_credit()
        elif choice < 70 and self._receivers:
            self.random.choice(self._receivers).recall()
        elif choice < 75 and self._receivers:
            self._close(self.random.choice(self._receivers))
        elif choice < 85:
            self._ask_for_deferred()
        elif choice < 93:
            queue = self.random.choice(self._queues)
            kind = self.random.choice(KINDS)
            self._browser.walk(queue, self.random.choice(sub_queues_of(queue, kind)))
        elif choice < 95 and self._deletes:
            self._delete_and_create_again(self.random.choice(self._queues))

    def _give_credit(self) -> None:
        if len(self._receivers) < RECEIVERS_MAX and self.random.randrange(3) == 0:
            self._open(self.random.choice(self._queues), self.random.choice(KINDS))
        if self._receivers:
            receiver = self.random.choice(self._receivers)
            receiver.add_credit(self.random.choice((1, 2, 5, 20, 100)))

    def _open(self, queue: Queue, kind: SubQueueKind) -> None:
        name = f"receiver-{self.next_number()}"
        delete = self.random.randrange(4) == 0
        self._receivers.append(
            DirectReceiver(self, name, queue, kind, habits.Habits(), delete=delete)
        )

    def _close(self, receiver: DirectReceiver) -> None:
        receiver.close()
        self._receivers.remove(receiver)
        self._closed_receivers.append(receiver)

    def _ask_for_deferred(self) -> None:
        keys = [key for key, numbers in self.deferred.items() if numbers]
        if not keys:
            return
        key = self.random.choice(keys)
        numbers = self.random.sample(sorted(self.deferred[key]), 1)
        receivers = [
            each
            for each in self._receivers
            if (each.queue.incarnation, each.kind) == (key.incarnation, key.kind)
        ]
        if receivers:
            delete = self.random.randrange(3) == 0
            self.random.choice(receivers).receive_deferred(key, numbers, delete=delete)

    # Queues.

    def _create(self, path: str) -> None:
        random = self.random
        queue = self.world.create_queue(
            Queue(
                path=path,
                enable_partitioning=random.randrange(2) == 0,
                lock_duration_ms=random.choice((5_000, 8_000, LOCK_DURATION_MAX_MS)),
                max_delivery_count=random.choice((1, 2, 3, 10)),
                default_ttl_ms=random.choice((None, None, 10_000)),
                dead_lettering_on_expiration=random.randrange(2) == 0,
                capture=random.randrange(3) > 0,
            )
        )
        self._queues.append(queue)
        self.history.record(QueueCreated(queue))

    def _delete_and_create_again(self, queue: Queue) -> None:
        """D-16: a new incarnation, while clients still hold messages of the old one."""
        self._queues.remove(queue)
        self.history.record(QueueDeleted(queue.incarnation))
        self.world.delete_queue(queue)
        for receiver in [each for each in self._receivers if each.queue is queue]:
            self._close(receiver)
        self._create(queue.path)

    # Act two: rest.

    def _rest(self) -> None:
        self._stop_working()
        self._be_at_rest()
        found = self._look_into_the_stores()
        self.presence.check_found(found, self.world.now_ms())

    def _stop_working(self) -> None:
        for receiver in list(self._receivers):
            self._close(receiver)

    def _all_clients(self) -> list[Client]:
        return [self._sender, self._browser, *self._receivers, *self._closed_receivers]

    def _be_at_rest(self) -> None:
        stores = list(self.world.stores.values())
        try:
            self.world.run_until(lambda: all(each.serving and not each.stopping for each in stores))
        except TimeoutError:
            states = {store.store_id: store.broker.state for store in stores}
            raise Violation("recovery", f"not all brokers serve: {states}") from None
        self.world.run_for(REST_MS)
        waiting = [client for client in self._all_clients() if not client.idle]
        if waiting:
            raise Violation("answers", f"{waiting} still wait for an answer")
        if self.world.purges_under_way:
            raise Violation("purges", f"never done: {self.world.purges_under_way}")

    def _look_into_the_stores(self) -> dict[int, SubQueueKey]:
        found: dict[int, SubQueueKey] = {}
        now_ms = self.world.now_ms()
        for store in self.world.stores.values():
            for body, place in check_at_rest(store, self.body_of).items():
                if body in found:
                    raise Violation("presence", f"{body} is in {found[body]} and in {place}")
                found[body] = place
            for key, sub_queue in store.broker._sub_queues.items():
                if self.world.catalog.get(key.incarnation) is None:
                    raise Violation("purges", f"{key} is still there")
                for row in rows_of(store, sub_queue.slot):
                    self.counts.check(
                        now_ms, self.body_of(key, row), row.delivery_count, -1, key.incarnation
                    )
                    if row.expires_ms is not None and row.expires_ms < now_ms:
                        raise Violation("expiry", f"{row} was never swept")
        check_journals(self.world, self.presence, self.body_of)
        return found

    # Act three: everything reaches somebody.

    def _drain(self) -> None:
        self._open_all_drains()
        end_ms = self.world.now_ms() + DRAIN_MS
        while not self._is_empty():
            # Deferred messages reach nobody by themselves, and a commit that was to fail may have
            # been waiting for somebody to make it.
            self._drain_all_deferred()
            self.world.run_for(LOCK_DURATION_MAX_MS)
            if self.world.now_ms() > end_ms:
                left = self._look_into_the_stores()
                raise Violation("liveness", f"never delivered: {left}")
        self._stop_working()
        self._be_at_rest()
        found = self._look_into_the_stores()
        self.presence.check_found(found, self.world.now_ms())
        if found:
            raise Violation("liveness", f"left over: {found}")

    def _open_all_drains(self) -> None:
        for queue in self._queues:
            self._receivers += self._open_drains(queue)

    def _drain_all_deferred(self) -> None:
        for receiver in self._receivers:
            self._drain_deferred(receiver)

    def _open_drains(self, queue: Queue) -> list[DirectReceiver]:
        drains = []
        for kind in (SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER):
            name = f"drain-{queue.path}-{kind.name}"
            receiver = DirectReceiver(self, name, queue, kind, habits.DRAINING, delete=False)
            receiver.add_credit(1_000_000)
            drains.append(receiver)
        return drains

    def _drain_deferred(self, receiver: DirectReceiver) -> None:
        for key in sub_queues_of(receiver.queue, receiver.kind):
            store = self.world.stores[receiver.queue.placement[key.partition]]
            sub_queue = store.broker._sub_queues.get(key)
            rows = [] if sub_queue is None else rows_of(store, sub_queue.slot)
            for row in rows:
                if row.state is MessageState.DEFERRED:
                    self.deferred.setdefault(key, {})[row.number] = self.body_of(key, row)
                    receiver.receive_deferred(key, [row.number], delete=False)

    def _is_empty(self) -> bool:
        for queue in self._queues:
            for partition, store_id in enumerate(queue.placement):
                broker = self.world.stores[store_id].broker
                for counters in broker.counters(queue.incarnation, partition).values():
                    if counters.active or counters.deferred:
                        return False
        return True
