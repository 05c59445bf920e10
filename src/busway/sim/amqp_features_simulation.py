"""Everything that entities can do, over the full path: AMQP clients, a network, a gateway (D-35).

The entities of the features simulation, and a queue that is soon full. Sessions are accepted on
links, schedules made and cancelled by requests, transactions declared and discharged on control
links; connections break, the node dies, stores fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from busway.model.entities import Queue, Subscription
from busway.sim import habits
from busway.sim.amqp_clients import AmqpClient
from busway.sim.amqp_receiver import AmqpReceiver
from busway.sim.amqp_session import AmqpSessionReceiver
from busway.sim.amqp_simulation import CLIENTS, CREDIT_OF_DRAINS, DELIVERY_SLACK_MS
from busway.sim.amqp_transactions import Wish
from busway.sim.checkers.dead_letters import DeadLetters
from busway.sim.checkers.delivery_counts import DeliveryCounts
from busway.sim.checkers.holders import Holders
from busway.sim.checkers.journeys import Journeys
from busway.sim.checkers.order import Numbers, Order
from busway.sim.checkers.presence import Presence
from busway.sim.checkers.quotas import Quotas
from busway.sim.checkers.session_states import SessionStates
from busway.sim.checkers.sessions import Sessions
from busway.sim.checkers.transactions import Transactions
from busway.sim.direct_messages import Target
from busway.sim.direct_receiver import DirectReceiver
from busway.sim.feature_entities import KEYS, SESSION_IDS, needs_session, short_queue
from busway.sim.features_simulation import SESSION_RECEIVERS_MAX, WORKING, FeaturesSimulation
from busway.sim.habits import Parcel
from busway.sim.history import History, Holder, QueueCreated
from busway.sim.node import Node
from busway.sim.simulation import RECEIVERS_MAX, Client
from busway.sim.troubles import NodeTroubles, Troubles
from busway.store.base import SubQueueKey, SubQueueKind

SMALL = "small"
SMALL_KEYS = KEYS[:2]
"""So few that the partitions that they go to fill up."""


class AmqpFeaturesSimulation(FeaturesSimulation):
    def _make_checkers(self, tell: Callable[[str], None] | None) -> None:
        self.presence = Presence()
        self.counts = DeliveryCounts(unseen_deliveries=True)
        self._numbering = Numbers()
        self._states = SessionStates()
        self._transactions = Transactions(self.presence)
        self.quotas = Quotas(SMALL)
        checkers = (
            self.presence,
            Holders(DELIVERY_SLACK_MS),
            Order(per_receiver=True),
            self._numbering,
            self.counts,
            DeadLetters(DELIVERY_SLACK_MS),
            Sessions(DELIVERY_SLACK_MS),
            self._states,
            Journeys(),
            self._transactions,
            self.quotas,
        )
        self.history = History(self.world.now_ms, checkers, tell)

    def _create_entities(self) -> None:
        super()._create_entities()
        self._small: Queue | None = None
        if self.random.randrange(2) == 0:
            self._small = self.world.create_small_queue(short_queue(self.random, SMALL))
            self._queues.append(self._small)
            self.history.record(QueueCreated(self._small))

    def _make_clients(self) -> None:
        super()._make_clients()
        self._node = Node(self.world)
        self._clients = [
            AmqpClient(self, self._node, f"client-{n}", self._compose_wishes)
            for n in range(CLIENTS)
        ]
        self._links: list[AmqpReceiver] = []
        self._session_links: list[AmqpSessionReceiver] = []

    def _make_troubles(self, pause_ms: tuple[int, int]) -> Troubles:
        return NodeTroubles(self.world, self.history, self._node, pause_ms=pause_ms)

    # Act one.

    def _step(self) -> None:
        random = self.random
        choice = random.randrange(100)
        client = random.choice(self._clients)
        if choice < 40:
            target = random.choice(self._targets)
            client.send(target, self._parcel(target, None))
        elif choice < 58:
            self._give_credit()
        elif choice < 68:
            self._see_to_sessions()
        elif choice < 72 and self._links:
            random.choice(self._links).set_credit(random.choice((0, 5, 20)), drain=True)
        elif choice < 74 and self._links:
            random.choice(self._links).set_credit(0)
        elif choice < 77 and self._links:
            self._links.pop(random.randrange(len(self._links))).detach()
        elif choice < 79:
            client.disconnect()
        elif choice < 83:
            client.peek(random.choice(self._holders), self._some_kind())
        elif choice < 88:
            self._fetch_deferred()
        elif choice < 92:
            self._schedule(client)
        elif choice < 95 and self._waiting:
            key, number, bodies = self._waiting.pop(random.randrange(len(self._waiting)))
            (target,) = [each for each in self._targets if each.incarnation == key.incarnation]
            client.cancel(target, number, bodies)
        elif client.transactor is not None:
            client.transactor.begin(None, [])

    def _parcel(self, target: Target, partition: int | None) -> Parcel:
        if target is not self._small:
            return super()._parcel(target, partition)
        count = self.random.choice((1, 2, 3))
        sizes = tuple(self.random.randint(1_000, 16_000) for _ in range(count))
        return Parcel(count, sizes, None, self.random.choice(SMALL_KEYS))

    def _schedule(self, client: AmqpClient) -> None:
        target = self.random.choice([each for each in self._targets if each is not self._small])
        parcel = self._parcel(target, None)
        if parcel.due_in_ms is None:
            parcel = replace(parcel, due_in_ms=self.random.randint(1, 30_000))
        client.schedule(target, parcel)

    def _give_credit(self) -> None:
        random = self.random
        if len(self._links) < RECEIVERS_MAX and random.randrange(2):
            holder, kind = random.choice(self._holders), self._some_kind()
            if takes_links(holder, kind):
                # What is removed for a link is gone before its client knows: not to be judged.
                delete = holder is not self._small and random.randrange(4) == 0
                client = random.choice(self._clients)
                self._links.append(client.receive(holder, kind, WORKING, delete=delete))
        if self._links:
            random.choice(self._links).set_credit(random.choice((1, 2, 5, 20, 100)))

    def _see_to_sessions(self) -> None:
        random = self.random
        holders = [
            holder
            for holder in self._holders
            if holder.requires_session and holder.forward_to is None
        ]
        if len(self._session_links) < SESSION_RECEIVERS_MAX and holders:
            client = random.choice(self._clients)
            delete = random.randrange(4) == 0
            self._session_links.append(
                client.receive_session(random.choice(holders), WORKING, SESSION_IDS, delete=delete)
            )
        elif self._session_links and random.randrange(3) == 0:
            self._session_links.pop(random.randrange(len(self._session_links))).detach()

    def _fetch_deferred(self) -> None:
        random = self.random
        found = [
            (link, key)
            for key, numbers in self.deferred.items()
            for link in (*self._links, *self._session_links)
            if numbers and _may_fetch(link, key)
        ]
        if found:
            link, key = random.choice(found)
            delete = link.queue is not self._small and random.randrange(3) == 0
            link.fetch_deferred(key, random.choice(sorted(self.deferred[key])), delete=delete)

    def _compose_wishes(
        self, settled: Holder | None, partition: int | None, session_id: str | None
    ) -> list[Wish]:
        """To the entity that the settled messages are of, all with one key (PRT-6), and one to
        another by way of it."""
        random = self.random
        targets = [each for each in self._targets if each is not self._small]
        home: Target
        if isinstance(settled, Subscription):
            (home,) = [each for each in self._topics if each.path == settled.topic]
        else:
            home = random.choice(targets) if settled is None else settled
        if home is self._small:
            return []
        wishes: list[Wish] = []
        parcel = self._parcel(home, partition)
        if session_id is not None:
            parcel = replace(parcel, key=None, session_id=session_id)
        fits = len(home.placement) == 1 or (parcel.session_id or parcel.key) is not None
        if fits and (parcel.session_id is not None or not needs_session(home)):
            wishes.append((home, parcel, None))
        others = [each for each in self._queues if each.path in self._base and each is not home]
        if isinstance(home, Queue) and others and random.randrange(2) and (wishes or settled):
            other = random.choice(others)
            wishes.append((other, replace(self._parcel(other, None), due_in_ms=None), home))
        return wishes[: random.randint(1, 2)] if settled is None else wishes

    # Act two.

    def _stop_working(self) -> None:
        super()._stop_working()
        for client in self._clients:
            client.close()

    def _all_clients(self) -> list[Client]:
        return [*super()._all_clients(), *self._clients]

    # Act three.

    def _drain(self) -> None:
        client = AmqpClient(self, self._node, "drain-sessions")
        self._clients.append(client)
        for holder in self._holders:
            if holder.requires_session and holder.forward_to is None:
                for _ in range(2):
                    client.receive_session(holder, habits.DRAINING, (), delete=False, drains=True)
        # Not its parent's, which drains sessions without a gateway.
        super(FeaturesSimulation, self)._drain()

    def _open_all_drains(self) -> None:
        client = AmqpClient(self, self._node, "drain")
        self._clients.append(client)
        kinds = (SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER, SubQueueKind.TRANSFER_DEAD_LETTER)
        for holder in self._holders:
            for kind in kinds:
                name = f"drain-{holder.path}-{kind.name}"
                if kind is SubQueueKind.MAIN and holder.requires_session:
                    continue
                # What is deferred is fetched without links, and so is what no link may have.
                direct = DirectReceiver(self, name, holder, kind, habits.DRAINING, delete=False)
                self._receivers.append(direct)
                if kind is not SubQueueKind.TRANSFER_DEAD_LETTER and takes_links(holder, kind):
                    link = client.receive(holder, kind, habits.DRAINING, delete=False)
                    link.keeps_credit = CREDIT_OF_DRAINS
                else:
                    direct.add_credit(1_000_000)


def takes_links(holder: Holder, kind: SubQueueKind) -> bool:
    """FWD-1, DLQ-4: where messages are forwarded from, nobody receives; and SES-2."""
    if kind is SubQueueKind.MAIN:
        return holder.forward_to is None and not holder.requires_session
    return holder.forward_dead_letters_to is None


def _may_fetch(link: AmqpReceiver, key: SubQueueKey) -> bool:
    if isinstance(link, AmqpSessionReceiver):
        return link.held_key == key
    return (link.queue.incarnation, link.kind) == (key.incarnation, key.kind)
