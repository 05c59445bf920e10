"""The way between entities in a simulated world: the gateway's own, on a road that can fail (D-27).

A destination may die with what it was handed, and then nobody answers; an answer may be late, or
lost, and then the source hands over again what is already there. A source that is dead itself
hears nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from busway.broker.seams import SessionStateMove, TransferSource
from busway.gateway.exchange import Exchange
from busway.gateway.router import Owner
from busway.model.errors import SERVER_BUSY, BusError
from busway.model.message import Message
from busway.store.base import SubQueueKey, SubQueueKind

if TYPE_CHECKING:
    from busway.sim.world import StoreAndBroker, World

ANSWER_MS = (0, 20)
LOST_PERCENT = 10
"""Answers that never arrive, while the road is bad."""

Done = Callable[[BusError | None], None]


class SimulatedExchange:
    """Of one store, for all of its brokers."""

    def __init__(self, world: World, store: StoreAndBroker) -> None:
        self._world = world
        self._store = store
        self._owners: dict[str, Owner] = {}
        self._exchange = Exchange(world.scheduler, world.catalog, self._owners)
        self._under_way: dict[int, tuple[StoreAndBroker | None, Done]] = {}
        self._calls = 0
        world.crash_listeners.append(self._crashed)

    def destination(self, source: TransferSource, message: Message) -> SubQueueKey:
        return self._exchange.destination(source, message)

    def transfer(
        self, key: SubQueueKey, source: TransferSource, messages: list[Message], done: Done
    ) -> None:
        answered = self._on_the_road(key, done)
        self._exchange.transfer(key, source, messages, answered)

    def twin_path(self, source: TransferSource) -> str:
        return self._exchange.twin_path(source)

    def in_twin(self, source: TransferSource, kind: SubQueueKind, message: Message) -> SubQueueKey:
        return self._exchange.in_twin(source, kind, message)

    def session_in_twin(self, source: TransferSource, session_id: str) -> SubQueueKey:
        return self._exchange.session_in_twin(source, session_id)

    def move(
        self, key: SubQueueKey, source: TransferSource, messages: list[Message], done: Done
    ) -> None:
        answered = self._on_the_road(key, done)
        self._exchange.move(key, source, messages, answered)

    def move_states(
        self, key: SubQueueKey, source: TransferSource, states: list[SessionStateMove], done: Done
    ) -> None:
        answered = self._on_the_road(key, done)
        self._exchange.move_states(key, source, states, answered)

    def _on_the_road(self, key: SubQueueKey, done: Done) -> Done:
        """What to call with the answer, so that it may be late, or lost."""
        stores = self._world.stores
        self._owners.update((store_id, store.broker) for store_id, store in stores.items())
        for store_id in [store_id for store_id, store in stores.items() if not store.running]:
            del self._owners[store_id]
        self._calls += 1
        call, random = self._calls, self._world.random
        self._under_way[call] = (self._world.owner(key), done)

        def answered(error: BusError | None) -> None:
            lost = self._world.roads_are_bad and random.randrange(100) < LOST_PERCENT
            outcome = BusError(SERVER_BUSY) if lost else error
            delay_ms = random.randint(*ANSWER_MS)
            self._world.scheduler.after(delay_ms, lambda: self._answer(call, outcome))

        return answered

    def _answer(self, call: int, error: BusError | None) -> None:
        under_way = self._under_way.pop(call, None)
        if under_way is not None:
            under_way[1](error)

    def _crashed(self, store: StoreAndBroker) -> None:
        if store is self._store:
            self._under_way.clear()
        for call, (owner, _) in list(self._under_way.items()):
            if owner is store:
                self._answer(call, BusError(SERVER_BUSY))
