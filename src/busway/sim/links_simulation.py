"""Links that come and go (D-22): credit that is given and taken back, drains, windows that are
shut, sockets that are full, stores that are slow, and the end of a link, a session or a connection
at any moment, often in the same write as what was said last.

All that entities can do goes on beside it: sessions, transactions, deferred messages, renewals. The
checkers are those of the other simulations, two of them sharper: a delivery that nobody saw counts
only if it can have been under way, and a link with credit must be served while its queue has
something ready, however many turns its life has had.
"""

from __future__ import annotations

from collections.abc import Callable

from busway.model.entities import Queue
from busway.sim.amqp_features_simulation import SMALL, AmqpFeaturesSimulation, takes_links
from busway.sim.amqp_simulation import CLIENTS, DELIVERY_SLACK_MS
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
from busway.sim.feature_entities import KEYS
from busway.sim.features_simulation import WORKING
from busway.sim.habits import Habits, Parcel
from busway.sim.history import History, Violation
from busway.sim.restless_client import RestlessClient
from busway.sim.restless_receiver import (
    SHUT,
    WIDE,
    WINDOWS,
    RestlessReceiver,
    RestlessSessionReceiver,
)
from busway.sim.simulation import LOCK_DURATION_MAX_MS
from busway.sim.world import BrokerFactory, World
from busway.store.base import SubQueueKey, SubQueueKind

LINKS_MAX = 8
LAST_WORDS = ("no credit", "drain", "detach", "end")
MUCH_CREDIT = 500
SLOW_MS = (100, 300)
PATIENT = Habits(transacts_percent=10, slow_percent=70)
"""It holds its messages for a while."""
LATENCIES_MS = ((0, 4), (0, 4), (5, 80), (20, 300))
QUIET_MS = 2_000
PROBE_MS = 20_000
"""Longer than a lock lasts: what somebody else holds comes back meanwhile."""


class LinksSimulation(AmqpFeaturesSimulation):
    def _make_world(self, seed: int, make_broker: BrokerFactory) -> None:
        assert isinstance(make_broker, type)
        # Nothing fits beside a message that is in memory, so that grants wait for pages (D-11).
        small = type(make_broker.__name__, (make_broker,), {"windows_bytes_max": 1})
        self.world = World(seed, stores=1 + seed % 3, make_broker=small)
        latency_ms = self.world.random.choice(LATENCIES_MS)
        self.world.latency_ms = latency_ms
        for store in self.world.stores.values():
            store.port.latency_ms = latency_ms

    def _make_checkers(self, tell: Callable[[str], None] | None) -> None:
        self.presence = Presence()
        self.counts = DeliveryCounts(unseen_deliveries=True, limited=True)
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

    def _make_clients(self) -> None:
        super()._make_clients()
        for client in self._clients:
            client.close()
        self._restless = [
            RestlessClient(self, self._node, f"restless-{n}", self._compose_wishes)
            for n in range(CLIENTS)
        ]
        self._clients = list(self._restless)
        self._visits: list[RestlessReceiver] = []
        self._staying: list[RestlessReceiver] = []
        """Until the end: then it is seen whether they are still served."""

    def _create_entities(self) -> None:
        super()._create_entities()
        random = self.random
        self._visited = Queue(
            path="visited",
            enable_partitioning=random.randrange(2) == 0,
            lock_duration_ms=random.choice((5_000, LOCK_DURATION_MAX_MS)),
        )
        self._create_queue(self._visited)
        self._visited = self._queues[-1]

    # Act one.

    def _step(self) -> None:
        random = self.random
        choice = random.randrange(100)
        if choice < 45:
            super()._step()
        elif choice < 48:
            self._release_while_a_grant_waits()
        elif choice < 50:
            self._take_back_a_drain()
        elif choice < 52:
            self._leave_behind_a_shut_window()
        elif choice < 60:
            self._come()
        elif choice < 72:
            self._ask_for_more()
        elif choice < 80:
            self._with_some_link(lambda link: link.release_and(random.choice(LAST_WORDS)))
        elif choice < 88:
            self._set_some_window()
        elif choice < 91:
            random.choice(self._restless).stall()
        elif choice < 95:
            self._with_some_link(RestlessReceiver.detach)
        else:
            self._with_some_link(RestlessReceiver.end_session)
        self._visits = [each for each in self._visits if not each.closed]

    # What happens too rarely by itself.

    def _release_while_a_grant_waits(self) -> None:
        """A link holds some messages, wants more, and the store is slow: then it releases what it
        has and goes, in one write."""
        random, after = self.random, self.world.scheduler.after
        link = self._visit(delete=False, window=WIDE)
        key = random.choice(KEYS)
        self._send_some(key)
        after(500, lambda: link.set_credit(3))
        after(900, lambda: self._send_some(key))
        after(1_200, lambda: self._be_slow(link))
        after(1_201, lambda: link.set_credit(MUCH_CREDIT))
        last_word = random.choice(LAST_WORDS)
        after(random.randint(1_240, 1_400), lambda: link.release_and(last_word))
        after(3_000, link.detach)

    def _take_back_a_drain(self) -> None:
        """A drain is taken back while a commit that it waits for takes longer than it may."""
        random, after = self.random, self.world.scheduler.after
        link = self._visit(delete=True, window=WIDE)
        if len(self._staying) < LINKS_MAX:
            self._staying.append(link)
        self._send_some(random.choice(KEYS))
        after(500, lambda: self._be_slow(link))
        after(501, lambda: link.set_credit(5))
        after(550, lambda: link.set_credit(5, drain=True))
        after(random.randint(600, 800), lambda: link.set_credit(10))
        after(3_000, lambda: link.set_credit(0))

    def _leave_behind_a_shut_window(self) -> None:
        """A link with credit whose session takes nothing: nothing is taken for it (D-22)."""
        random, after = self.random, self.world.scheduler.after
        link = self._visit(delete=random.randrange(2) == 0, window=random.choice((SHUT, SHUT, 1)))
        self._send_some(random.choice(KEYS))
        after(500, lambda: link.set_credit(50))
        after(random.randint(600, 2_000), random.choice((link.detach, link.end_session)))

    def _visit(self, *, delete: bool, window: int) -> RestlessReceiver:
        client = self.random.choice(self._restless)
        main = SubQueueKind.MAIN
        return client.visit(self._visited, main, PATIENT, delete=delete, window=window)

    def _send_some(self, key: str) -> None:
        parcel = Parcel(8, (100,) * 8, None, key)
        self.random.choice(self._restless).send(self._visited, parcel)

    def _be_slow(self, link: RestlessReceiver) -> None:
        for store_id in link.queue.placement:
            self.world.stores[store_id].port.latency_ms = SLOW_MS
        self.world.scheduler.after(1_000, self._be_quick)

    def _be_quick(self) -> None:
        for store in self.world.stores.values():
            store.port.latency_ms = self.world.latency_ms

    def _come(self) -> None:
        random = self.random
        holder, kind = random.choice(self._holders), self._some_kind()
        if len(self._visits) < LINKS_MAX and takes_links(holder, kind):
            delete = holder is not self._small and random.randrange(3) == 0
            client = random.choice(self._restless)
            self._visits.append(client.receive(holder, kind, WORKING, delete=delete))

    def _ask_for_more(self) -> None:
        random = self.random
        credit = random.choice((0, 1, 5, 5, 20, 50, 50))
        drain = random.randrange(4) == 0
        self._with_some_link(lambda link: link.set_credit(credit, drain=drain))

    def _set_some_window(self) -> None:
        random = self.random
        sessions = [each for each in self._session_links if not each.closed]
        links = [*self._visits, *(each for each in sessions if _is_restless(each))]
        if links:
            link = random.choice(links)
            assert isinstance(link, RestlessReceiver | RestlessSessionReceiver)
            link.set_window(random.choice(WINDOWS))

    def _with_some_link(self, do: Callable[[RestlessReceiver], None]) -> None:
        links = [each for each in self._visits if each.is_attached]
        if links:
            do(self.random.choice(links))

    # Act two: whoever is still there is served.

    def _rest(self) -> None:
        stores = list(self.world.stores.values())
        self.world.run_until(lambda: all(each.serving and not each.stopping for each in stores))
        self.world.run_for(QUIET_MS)
        links = [each for each in (*self._visits, *self._staying) if each.is_attached]
        for link in self._all_receivers():
            link.set_window(WIDE)
        for link in [*links, *(each for each in self._links if isinstance(each, RestlessReceiver))]:
            link.set_credit(0)
        self.world.run_for(QUIET_MS)
        for link in links:
            self._probe(link)
        super()._rest()

    def _all_receivers(self) -> list[RestlessReceiver | RestlessSessionReceiver]:
        found = [each for client in self._restless for each in client.receivers]
        return [
            each for each in found if isinstance(each, RestlessReceiver | RestlessSessionReceiver)
        ]

    def _probe(self, link: RestlessReceiver) -> None:
        """A link with credit gets what is ready, as long as there is something."""
        before = link.received
        if not link.is_attached:
            return
        if link.queue is self._visited and not self._is_ready(link):
            self._send_some(self.random.choice(KEYS))
            self.world.run_for(QUIET_MS)
        link.set_credit(1)
        waited_ms = 0
        while link.received == before and link.is_attached and waited_ms < PROBE_MS:
            # Only the time counts in which something was ready all along.
            waited_ms = waited_ms + 100 if self._is_ready(link) else 0
            if not self._is_ready(link):
                break
            self.world.run_for(100)
        if link.received == before and waited_ms >= PROBE_MS:
            raise Violation("liveness", f"{link.name} has credit, and gets nothing that is ready")
        link.set_credit(0)
        self.world.run_for(500)

    def _is_ready(self, link: RestlessReceiver) -> bool:
        queue = link.queue
        for partition, store_id in enumerate(queue.placement):
            key = SubQueueKey(queue.incarnation, partition, link.kind)
            sub_queue = self.world.stores[store_id].broker.find_sub_queue(key)
            if sub_queue is not None and any(line.may_have_more for line in sub_queue.lines):
                return True
        return False


def _is_restless(link: object) -> bool:
    return isinstance(link, RestlessSessionReceiver)
