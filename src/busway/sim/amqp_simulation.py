"""The same simulation over the full path: AMQP clients, a network, a gateway, brokers, stores."""

from __future__ import annotations

from collections.abc import Callable

from busway.model.entities import Queue
from busway.sim import habits
from busway.sim.amqp_clients import AmqpClient
from busway.sim.amqp_receiver import AmqpReceiver
from busway.sim.checkers.dead_letters import DeadLetters
from busway.sim.checkers.delivery_counts import DeliveryCounts
from busway.sim.checkers.holders import Holders
from busway.sim.checkers.order import Numbers, Order
from busway.sim.checkers.presence import Presence
from busway.sim.direct_receiver import DirectReceiver
from busway.sim.history import History
from busway.sim.node import Node
from busway.sim.simulation import KINDS, Client, Simulation
from busway.sim.troubles import NodeTroubles, Troubles
from busway.store.base import SubQueueKind

CLIENTS = 3
RECEIVERS_MAX = 6
DELIVERY_SLACK_MS = 1_000
CREDIT_OF_DRAINS = 100


class AmqpSimulation(Simulation):
    """Its receivers and senders are links of a few connections that break."""

    def _make_checkers(self, tell: Callable[[str], None] | None) -> None:
        self.presence = Presence()
        self.counts = DeliveryCounts(unseen_deliveries=True)
        self._numbering = Numbers()
        checkers = (
            self.presence,
            Holders(DELIVERY_SLACK_MS),
            Order(per_receiver=True),
            self._numbering,
            self.counts,
            DeadLetters(DELIVERY_SLACK_MS),
        )
        self.history = History(self.world.now_ms, checkers, tell)

    def _make_clients(self) -> None:
        super()._make_clients()
        self._node = Node(self.world)
        self._clients = [AmqpClient(self, self._node, f"client-{n}") for n in range(CLIENTS)]
        self._links: list[AmqpReceiver] = []

    def _make_troubles(self, pause_ms: tuple[int, int]) -> Troubles:
        return NodeTroubles(self.world, self.history, self._node, pause_ms=pause_ms)

    def _step(self) -> None:
        random = self.random
        choice = random.randrange(100)
        if choice < 50:
            parcel = habits.parcel(random, large=False)
            random.choice(self._clients).send(random.choice(self._queues), parcel)
        elif choice < 80:
            self._give_credit()
        elif choice < 86 and self._links:
            random.choice(self._links).set_credit(random.choice((0, 5, 20)), drain=True)
        elif choice < 90 and self._links:
            random.choice(self._links).set_credit(0)
        elif choice < 94 and self._links:
            link = random.choice(self._links)
            self._links.remove(link)
            link.detach()
        elif choice < 96:
            random.choice(self._clients).disconnect()
        elif choice < 98:
            queue, kind = random.choice(self._queues), random.choice(KINDS)
            random.choice(self._clients).peek(queue, kind)
        else:
            self._ask_for_deferred()

    def _ask_for_deferred(self) -> None:
        keys = [key for key, numbers in self.deferred.items() if numbers]
        links = [
            (link, key)
            for key in keys
            for link in self._links
            if (link.queue.incarnation, link.kind) == (key.incarnation, key.kind)
        ]
        if links:
            link, key = self.random.choice(links)
            number = self.random.choice(sorted(self.deferred[key]))
            link.fetch_deferred(key, number, delete=self.random.randrange(3) == 0)

    def _give_credit(self) -> None:
        random = self.random
        if len(self._links) < RECEIVERS_MAX and random.randrange(2):
            queue, kind = random.choice(self._queues), random.choice(KINDS)
            delete = random.randrange(4) == 0
            client = random.choice(self._clients)
            self._links.append(client.receive(queue, kind, habits.Habits(), delete=delete))
        if self._links:
            random.choice(self._links).set_credit(random.choice((1, 2, 5, 20, 100)))

    def _stop_working(self) -> None:
        super()._stop_working()
        for client in self._clients:
            client.close()

    def _all_clients(self) -> list[Client]:
        return [*super()._all_clients(), *self._clients]

    def _open_drains(self, queue: Queue) -> list[DirectReceiver]:
        """Links with credit for what is ready; the deferred is fetched without them."""
        client = AmqpClient(self, self._node, f"drain-{queue.path}")
        self._clients.append(client)
        drains = []
        for kind in (SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER):
            link = client.receive(queue, kind, habits.DRAINING, delete=False)
            link.keeps_credit = CREDIT_OF_DRAINS
            name = f"fetch-{queue.path}-{kind.name}"
            drains.append(DirectReceiver(self, name, queue, kind, habits.DRAINING, delete=False))
        return drains
