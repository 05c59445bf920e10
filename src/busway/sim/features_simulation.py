"""The simulation of everything that entities can do beyond plain queues, with direct clients.

Sessions, schedules, duplicate detection, forwarding, transactions and topics, on one to three
stores, with the same troubles and the same three acts. What each seed has of it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from busway.model.entities import EntityStatus, Queue, Rule, Subscription, Topic
from busway.model.message import MessageState
from busway.sim import habits
from busway.sim.checkers.at_rest import carried_bodies, rows_of
from busway.sim.checkers.dead_letters import DeadLetters
from busway.sim.checkers.delivery_counts import DeliveryCounts
from busway.sim.checkers.holders import Holders
from busway.sim.checkers.journeys import Journeys
from busway.sim.checkers.order import Numbers, Order
from busway.sim.checkers.presence import Presence
from busway.sim.checkers.session_states import SessionStates
from busway.sim.checkers.sessions import Sessions
from busway.sim.checkers.transactions import Transactions
from busway.sim.direct import Outgoing, Transactor
from busway.sim.direct_messages import Target
from busway.sim.direct_receiver import DirectReceiver
from busway.sim.direct_session import DirectSessionReceiver
from busway.sim.direct_transactions import DirectTransactor, Part
from busway.sim.feature_entities import (
    SESSION_IDS,
    feature_parcel,
    needs_session,
    some_queue,
    some_subscription,
    some_topic,
)
from busway.sim.habits import Habits, Parcel
from busway.sim.history import History, Holder, QueueCreated, QueueDeleted, QueueDisabled, Violation
from busway.sim.simulation import RECEIVERS_MAX, Client, Simulation
from busway.sim.traits import Traits, Wants, some_rules
from busway.sim.world import StoreAndBroker, sub_queues_of
from busway.store.base import SubQueueKey, SubQueueKind

SESSION_RECEIVERS_MAX = 4
COPY_SHIFT = 40
"""A copy of a message in a subscription has a body of its own: its subscription's, above these
bits, and the message's."""
WORKING = Habits(transacts_percent=15)


class FeaturesSimulation(Simulation):
    """Queues in layers, each forwarding to lower ones, and sometimes a topic."""

    def _make_checkers(self, tell: Callable[[str], None] | None) -> None:
        self.presence = Presence()
        self.counts = DeliveryCounts()
        self._numbering = Numbers()
        self._states = SessionStates()
        self._transactions = Transactions(self.presence)
        checkers = (
            self.presence,
            Holders(),
            Order(),
            self._numbering,
            self.counts,
            DeadLetters(),
            Sessions(),
            self._states,
            Journeys(),
            self._transactions,
        )
        self.history = History(self.world.now_ms, checkers, tell)

    def _create_entities(self) -> None:
        random = self.random
        self._topics: list[Topic] = []
        self._subscriptions: dict[int, list[Subscription]] = {}
        self._higher: dict[int, int] = {}
        self._wants: dict[int, list[Wants]] = {}
        """By subscription: what its rules let in."""
        self._base: list[str] = []
        for layer, count in enumerate((2, random.randint(1, 2), random.randint(0, 1))):
            below = [queue.path for queue in self._queues]
            for place in range(count):
                self._create_queue(some_queue(random, f"queue-{layer}-{place}", below))
        self._base = [queue.path for queue in self._queues[:2]]
        if random.randrange(5) < 2:
            self._create_topic()

    def _make_clients(self) -> None:
        super()._make_clients()
        self._transactor = DirectTransactor(self, self._compose)
        self._session_receivers: list[DirectSessionReceiver] = []
        self._closed_session_receivers: list[DirectSessionReceiver] = []
        self._waiting: list[tuple[SubQueueKey, int, Sequence[int]]] = []
        """Scheduled messages that may be cancelled."""

    # Entities.

    def _create_queue(self, description: Queue) -> None:
        queue = self.world.create_queue(description)
        self._queues.append(queue)
        self.history.record(QueueCreated(queue))

    def _create_topic(self) -> None:
        topic = self.world.create_topic(some_topic(self.random))
        self._topics.append(topic)
        subscriptions = self._subscriptions[topic.incarnation] = []
        for place in range(self.random.randint(2, 3)):
            described = some_subscription(self.random, topic, place)
            chosen = some_rules(self.random)
            rules = [
                Rule(name=f"rule-{number}", filter=filter_)
                for number, (filter_, _) in enumerate(chosen)
            ]
            subscription = self.world.create_subscription(described, rules)
            subscriptions.append(subscription)
            self._wants[subscription.incarnation] = [wants for _, wants in chosen]
            self._higher[subscription.incarnation] = (place + 1) << COPY_SHIFT
            self.history.record(QueueCreated(subscription))

    def _delete_and_create_again(self, queue: Queue) -> None:
        self._queues.remove(queue)
        self.history.record(QueueDeleted(queue.incarnation))
        self.world.delete_queue(queue)
        for receiver in [each for each in self._receivers if each.queue is queue]:
            self._close(receiver)
        for session in [each for each in self._session_receivers if each.queue is queue]:
            self._close_session(session)
        self._create_queue(replace(queue, placement=(), incarnation=0))

    def _disable(self, queue: Queue) -> None:
        """For what is forwarded; clients of a broker's own seam are not asked (FWD-4)."""
        self.history.record(QueueDisabled(queue.path))
        self._set_status(queue, EntityStatus.SEND_DISABLED)
        delay_ms = self.random.randint(1, 4_000)
        self.world.scheduler.after(delay_ms, lambda: self._set_status(queue, EntityStatus.ACTIVE))

    def _set_status(self, queue: Queue, status: EntityStatus) -> None:
        newest = self.world.catalog.get(queue.incarnation)
        if isinstance(newest, Queue):
            self.world.catalog.update(replace(newest, status=status), self.world.now_ms())

    @property
    def _targets(self) -> list[Target]:
        return [*self._queues, *self._topics]

    @property
    def _holders(self) -> list[Holder]:
        subscriptions = [each for all_ in self._subscriptions.values() for each in all_]
        return [*self._queues, *subscriptions]

    # What clients ask.

    @property
    def transactor(self) -> Transactor | None:
        return self._transactor

    def higher(self, incarnation: int) -> int:
        return self._higher.get(incarnation, 0)

    def copies_of(self, target: Target, traits: Traits) -> Sequence[tuple[int, int]]:
        if isinstance(target, Queue):
            return [(target.incarnation, 0)]
        return [
            (each.incarnation, self._higher[each.incarnation])
            for each in self._subscriptions[target.incarnation]
            if any(wants(traits) for wants in self._wants[each.incarnation])
        ]

    def scheduled(self, key: SubQueueKey, number: int, bodies: Sequence[int]) -> None:
        self._waiting.append((key, number, bodies))

    # Act one.

    def _step(self) -> None:
        random = self.random
        choice = random.randrange(100)
        if choice < 40:
            target = random.choice(self._targets)
            self._sender.send(target, self._parcel(target, None))
        elif choice < 55:
            self._give_credit()
        elif choice < 67:
            self._see_to_sessions()
        elif choice < 72 and self._receivers:
            receiver = random.choice(self._receivers)
            receiver.recall() if random.randrange(2) else self._close(receiver)
        elif choice < 80:
            self._fetch_deferred()
        elif choice < 84:
            holder = random.choice(self._holders)
            self._browser.walk(holder, random.choice(sub_queues_of(holder, self._some_kind())))
        elif choice < 90 and self._waiting:
            self._transactor.cancel(*self._waiting.pop(random.randrange(len(self._waiting))))
        elif choice < 94:
            queue = random.choice(self._queues)
            store = self.world.stores[random.choice(queue.placement)]
            self._transactor.send(store, queue)
            if random.randrange(5) == 0:  # at some step of its commit
                self.world.run_for(random.randint(0, 6))
                self._troubles.crash(store)
        elif choice < 96:
            self._disable(random.choice(self._queues))
        elif choice < 98 and self._deletes:
            self._delete_and_create_again(random.choice(self._queues))

    def _some_kind(self) -> SubQueueKind:
        kinds = (SubQueueKind.MAIN, SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER)
        return self.random.choice(kinds)

    def _parcel(self, target: Target, partition: int | None) -> Parcel:
        return feature_parcel(self.random, target, partition, large=self._large)

    def _give_credit(self) -> None:
        random = self.random
        if len(self._receivers) < RECEIVERS_MAX and random.randrange(3) == 0:
            holder, kind = random.choice(self._holders), self._some_kind()
            if not (holder.requires_session and kind is SubQueueKind.MAIN):
                name = f"receiver-{self.next_number()}"
                delete = random.randrange(4) == 0
                self._receivers.append(
                    DirectReceiver(self, name, holder, kind, WORKING, delete=delete)
                )
        if self._receivers:
            random.choice(self._receivers).add_credit(random.choice((1, 2, 5, 20, 100)))

    def _see_to_sessions(self) -> None:
        random = self.random
        holders = [holder for holder in self._holders if holder.requires_session]
        if len(self._session_receivers) < SESSION_RECEIVERS_MAX and holders:
            name = f"session-receiver-{self.next_number()}"
            self._session_receivers.append(
                DirectSessionReceiver(
                    self,
                    name,
                    random.choice(holders),
                    WORKING,
                    SESSION_IDS,
                    delete=random.randrange(4) == 0,
                )
            )
        elif self._session_receivers and random.randrange(3) == 0:
            self._close_session(random.choice(self._session_receivers))

    def _close_session(self, receiver: DirectSessionReceiver) -> None:
        receiver.close()
        self._session_receivers.remove(receiver)
        self._closed_session_receivers.append(receiver)

    def _fetch_deferred(self) -> None:
        self._ask_for_deferred()
        for receiver in self._session_receivers:
            key = receiver.held_key
            numbers = [] if key is None else sorted(self.deferred.get(key, {}))
            if numbers and self.random.randrange(2):
                receiver.fetch_deferred(self.random.choice(numbers))

    def _compose(self, store: StoreAndBroker, via: Target | None) -> list[Part]:
        """Sends to partitions of this store, and one by way of an entity that has one here."""
        random = self.random
        here = [
            (target, partition)
            for target in self._targets
            for partition, store_id in enumerate(target.placement)
            if store_id == store.store_id
        ]
        parts = []
        for _ in range(random.randrange(3) if here else 0):
            target, partition = random.choice(here)
            parcel = self._parcel(target, partition)
            fits = (parcel.session_id or parcel.key) is not None or len(target.placement) == 1
            if fits and (parcel.session_id is not None or not needs_session(target)):
                key = SubQueueKey(target.incarnation, partition, SubQueueKind.MAIN)
                parts.append(Part(key, Outgoing.pack(self, target, parcel)))
        if isinstance(via, Queue) and random.randrange(2):
            parts += self._by_way_of(store, via)
        return parts

    def _by_way_of(self, store: StoreAndBroker, via: Queue) -> list[Part]:
        destinations = [
            queue
            for queue in self._queues
            if queue.path in self._base and queue.path != via.path and via in self._queues
        ]
        if not destinations:
            return []
        destination = self.random.choice(destinations)
        parcel = replace(self._parcel(destination, None), due_in_ms=None)
        partitions = [
            partition
            for partition, store_id in enumerate(via.placement)
            if store_id == store.store_id
        ]
        key = SubQueueKey(via.incarnation, self.random.choice(partitions), SubQueueKind.MAIN)
        return [Part(key, Outgoing.pack(self, destination, parcel), via)]

    # Act two.

    def _stop_working(self) -> None:
        super()._stop_working()
        self.world.roads_are_bad = False
        self._sender.closed = True
        for receiver in list(self._session_receivers):
            self._close_session(receiver)

    def _all_clients(self) -> list[Client]:
        return [
            *super()._all_clients(),
            *self._session_receivers,
            *self._closed_session_receivers,
            self._transactor,
        ]

    def _look_into_the_stores(self) -> dict[int, SubQueueKey]:
        found = super()._look_into_the_stores()
        self._states.check_found(
            {
                (sub_queue.key, session_id): session.state
                for store in self.world.stores.values()
                for sub_queue in store.medium._sub_queues.values()
                for session_id, session in sub_queue.sessions.items()
            }
        )
        self._transactions.check_found(found)
        return found

    # Act three.

    def _drain(self) -> None:
        for holder in self._holders:
            if holder.requires_session:
                for place in range(2):
                    name = f"drain-{holder.path}-sessions-{place}"
                    self._session_receivers.append(self._drain_session(holder, name))
        super()._drain()

    def _drain_session(
        self, holder: Holder, name: str, session_id: str | None = None
    ) -> DirectSessionReceiver:
        return DirectSessionReceiver(
            self,
            name,
            holder,
            habits.DRAINING,
            () if session_id is None else (session_id,),
            delete=False,
            drains=True,
        )

    def _open_all_drains(self) -> None:
        for holder in self._holders:
            kinds = [SubQueueKind.DEAD_LETTER, SubQueueKind.TRANSFER_DEAD_LETTER]
            if not holder.requires_session:
                kinds.append(SubQueueKind.MAIN)
            for kind in kinds:
                name = f"drain-{holder.path}-{kind.name}"
                receiver = DirectReceiver(self, name, holder, kind, habits.DRAINING, delete=False)
                receiver.add_credit(1_000_000)
                self._receivers.append(receiver)

    def _drain_all_deferred(self) -> None:
        super()._drain_all_deferred()
        for holder in self._holders:
            if not holder.requires_session:
                continue
            for key in sub_queues_of(holder):
                for session_id in sorted(self._sessions_with_deferred(holder, key)):
                    name = f"fetch-{holder.path}-{session_id}-{self.next_number()}"
                    self._session_receivers.append(self._drain_session(holder, name, session_id))

    def _sessions_with_deferred(self, holder: Holder, key: SubQueueKey) -> set[str]:
        store = self.world.stores[holder.placement[key.partition]]
        sub_queue = store.broker._sub_queues.get(key)
        sessions = set()
        for row in [] if sub_queue is None else rows_of(store, sub_queue.slot):
            if row.state is MessageState.DEFERRED:
                assert row.session_id is not None
                sessions.add(row.session_id)
                self.deferred.setdefault(key, {})[row.number] = self.body_of(key, row)
        return sessions

    def _is_empty(self) -> bool:
        for holder in [*self._holders, *self._topics]:
            for partition, store_id in enumerate(holder.placement):
                broker = self.world.stores[store_id].broker
                for counters in broker.counters(holder.incarnation, partition).values():
                    if counters.active or counters.deferred or counters.scheduled:
                        return False
        return True

    def _run_through(self) -> None:
        self.world.roads_are_bad = self.random.randrange(2) == 0
        super()._run_through()
        left = {
            store.store_id: dict(store.medium._copies)
            for store in self.world.stores.values()
            if store.medium._copies != carried_bodies(store)
        }
        if left:
            raise Violation("shared bodies", f"nobody has them any more: {left}")
