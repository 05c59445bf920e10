"""What goes wrong in a simulated world, and when (D-35): one trouble after the other, by the seed.

A trouble that lasts ends by itself; `end_all` ends those that are left, so that the world can show
that it recovers.
"""

from __future__ import annotations

from collections.abc import Callable

from busway.sim.history import FaultHappened, History
from busway.sim.node import Node
from busway.sim.world import StoreAndBroker, World
from busway.store.faults import CommitOutcome, Fault

OUTCOMES = tuple(CommitOutcome)

Kinds = list[tuple[Callable[[StoreAndBroker], str], int]]


class Troubles:
    """Of stores and of brokers one by one, and of the clock."""

    def __init__(self, world: World, history: History, *, pause_ms: tuple[int, int]) -> None:
        self._world = world
        self._history = history
        self._random = world.random
        self._pause_ms = pause_ms
        self._over = False
        self._kinds = self._choose_kinds()

    def _choose_kinds(self) -> Kinds:
        """With their weights."""
        return [*self._of_stores(), (self._crash, 4), (self._stop, 2), (self._jump, 1)]

    def _of_stores(self) -> Kinds:
        return [
            (self._bad_commits, 6),
            (self._hang, 3),
            (self._slow, 2),
            (self._ill, 2),
            (self._gone, 2),
            (self._full, 1),
        ]

    def begin(self) -> None:
        self._next()

    def end_all(self) -> None:
        self._over = True
        for store in self._world.stores.values():
            store.recover()
        self._keep_running()

    def _keep_running(self) -> None:
        """A supervisor's work; some are still on their way to a stop that was asked for."""
        for store in self._world.stores.values():
            if not store.running:
                store.restart()
        if any(store.stopping for store in self._world.stores.values()):
            self._world.scheduler.after(500, self._keep_running)

    def _next(self) -> None:
        self._world.scheduler.after(self._random.randint(*self._pause_ms), self._happen)

    def _happen(self) -> None:
        if self._over:
            return
        store = self._random.choice(list(self._world.stores.values()))
        kinds = [kind for kind, _ in self._kinds]
        kind = self._random.choices(kinds, [weight for _, weight in self._kinds])[0]
        if store.running:
            self._history.record(FaultHappened(f"{store.store_id}: {kind(store)}"))
        self._next()

    def _later(self, longest_ms: int, callback: Callable[[], None]) -> int:
        """At most so much later, unless the troubles are over by then."""
        delay_ms = self._random.randint(1, longest_ms)
        self._world.scheduler.after(delay_ms, lambda: None if self._over else callback())
        return delay_ms

    def crash(self, store: StoreAndBroker) -> None:
        """At a moment that somebody chose."""
        if store.running:
            self._history.record(FaultHappened(f"{store.store_id}: {self._crash(store)}"))

    # The kinds.

    def _bad_commits(self, store: StoreAndBroker) -> str:
        outcomes = [self._random.choice(OUTCOMES) for _ in range(self._random.choice((1, 1, 3)))]
        store.next_commits_end(*outcomes)
        return f"next commits {[outcome.value for outcome in outcomes]}"

    def _hang(self, store: StoreAndBroker) -> str:
        """Sometimes for longer than a broker is patient (D-8)."""
        store.hang()
        return f"hangs for {self._later(12_000, store.recover)} ms"

    def _slow(self, store: StoreAndBroker) -> str:
        store.port.latency_ms = (5, 300)
        return f"slow for {self._later(5_000, store.recover)} ms"

    def _ill(self, store: StoreAndBroker) -> str:
        store.faults.be(Fault.ILL)
        return f"ill for {self._later(4_000, store.recover)} ms"

    def _gone(self, store: StoreAndBroker) -> str:
        store.faults.be(Fault.GONE)
        return f"gone for {self._later(4_000, store.recover)} ms"

    def _full(self, store: StoreAndBroker) -> str:
        store.free_bytes = 1_000
        return f"full for {self._later(5_000, store.recover)} ms"

    def _crash(self, store: StoreAndBroker) -> str:
        finish_commit = bool(self._random.randrange(2))
        store.crash(finish_commit=finish_commit)
        delay_ms = self._later(3_000, lambda: None if store.running else store.restart())
        return f"crashed for {delay_ms} ms, {finish_commit=}"

    def _stop(self, store: StoreAndBroker) -> str:
        if not store.stopping:
            store.stop()
        return f"stopped for {self._later(3_000, lambda: self._start_again(store))} ms"

    def _start_again(self, store: StoreAndBroker) -> None:
        if store.running and store.stopping:
            # It has not come to an end yet (a disk that hangs): as a supervisor does, kill it.
            store.crash(finish_commit=False)
        if not store.running:
            store.restart()

    def _jump(self, store: StoreAndBroker) -> str:
        """Of the clock, for all at once: locks run out, messages expire."""
        forward_ms = self._random.randint(1_000, 30_000)
        self._world.scheduler.jump(forward_ms)
        return f"the clock jumps {forward_ms} ms"


class NodeTroubles(Troubles):
    """Of stores, of a whole node, and of its connections.

    The clock does not jump: what is on the wire would arrive after its lock has run out, and who
    holds a message could not be judged by what clients received.
    """

    def __init__(
        self, world: World, history: History, node: Node, *, pause_ms: tuple[int, int]
    ) -> None:
        self._node = node
        super().__init__(world, history, pause_ms=pause_ms)

    def _choose_kinds(self) -> Kinds:
        return [*self._of_stores(), (self._crash_node, 2), (self._cut_connection, 8)]

    def end_all(self) -> None:
        super().end_all()
        if not self._node.running:
            self._node.restart()

    def _keep_running(self) -> None:
        """Brokers live and die with their node."""

    def _crash_node(self, store: StoreAndBroker) -> str:
        finish_commit = bool(self._random.randrange(2))
        self._node.crash(finish_commit=finish_commit)
        delay_ms = self._later(3_000, lambda: None if self._node.running else self._node.restart())
        return f"the node crashed for {delay_ms} ms, {finish_commit=}"

    def _cut_connection(self, store: StoreAndBroker) -> str:
        self._node.cut_some_connection()
        return "a connection is cut"
