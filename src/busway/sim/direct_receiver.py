"""A receiving link without a gateway: credit lent in grants (D-22).

It does what a gateway's fan-in and link do, for one client, and holds the broker to the rules of
grants: never more than was lent, finished once, and nothing after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from busway.broker.seams import Grant
from busway.model.message import Message
from busway.sim.direct import Setting
from busway.sim.direct_holder import DirectHolder
from busway.sim.habits import Habits
from busway.sim.history import Holder, RemovalUnknown, Violation
from busway.sim.world import StoreAndBroker, sub_queues_of
from busway.store.base import SubQueueKey, SubQueueKind


@dataclass(slots=True)
class LentOut:
    """A grant that is out, and how much of it has not been delivered."""

    store: StoreAndBroker
    left: int
    recalled: bool = False


class DirectReceiver(DirectHolder):
    """A receiving link: a `Receiver` and a `Watcher`, too."""

    def __init__(
        self,
        setting: Setting,
        name: str,
        queue: Holder,
        kind: SubQueueKind,
        habits: Habits,
        *,
        delete: bool,
    ) -> None:
        super().__init__(setting, name, queue, kind, habits)
        self.delete = delete
        self.credit = 0
        self._keys = sub_queues_of(queue, kind)
        self._ready: dict[SubQueueKey, None] = {}
        self._grants: dict[Grant, LentOut] = {}
        self._watched_in_life: dict[str, int] = {}
        self._pumping = False
        self._world.availability_listeners.append(self._availability_changed)
        for store in dict.fromkeys(self._store_of(key) for key in self._keys):
            self._watch(store)

    @property
    def idle(self) -> bool:
        return super().idle and not self._grants

    # Credit.

    def add_credit(self, credit: int) -> None:
        self.credit += credit
        self._pump_soon()

    def recall(self) -> None:
        """The credit is wanted back: a drain, or credit 0."""
        for grant, lent in list(self._grants.items()):
            lent.recalled = True
            lent.store.broker.recall(grant)
        self.credit = sum(lent.left for lent in self._grants.values())

    def close(self) -> None:
        self.closed = True
        for key in self._keys:
            store = self._store_of(key)
            if store.running:
                store.broker.unwatch(key, self)
        self.recall()

    # Being told.

    def _watch(self, store: StoreAndBroker) -> None:
        watched = self._watched_in_life.get(store.store_id) == store.lives
        if not self.closed and store.running and not watched:
            self._watched_in_life[store.store_id] = store.lives
            for key in self._keys:
                if self._store_of(key) is store:
                    store.broker.watch(key, self)
                    self._ready[key] = None
            self._pump_soon()

    def _availability_changed(self, store: StoreAndBroker) -> None:
        self._watch(store)

    def _crashed(self, store: StoreAndBroker) -> None:
        cut_off = 0
        for grant, lent in list(self._grants.items()):
            if lent.store is store:
                del self._grants[grant]
                cut_off += grant.reserved
                self.credit -= lent.left if lent.recalled else 0
        if cut_off:
            self._setting.history.record(RemovalUnknown(self.queue.incarnation, (), cut_off))
        super()._crashed(store)

    def ready(self, key: SubQueueKey) -> None:
        self._ready[key] = None
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pumping:
            self._pumping = True
            self._world.scheduler.soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        for key in list(self._ready):
            free = self.credit - sum(lent.left for lent in self._grants.values())
            if free <= 0 or self.closed:
                return
            store = self._store_of(key)
            del self._ready[key]
            if not store.serving:
                continue  # it says ready when it is back
            limit = self._random.randint(1, min(free, 20))
            grant = Grant(self, key, limit, delete=self.delete)
            self._grants[grant] = LentOut(store, limit)
            self._ready[key] = None  # until it says that it is empty
            store.broker.grant(grant)

    def finished(self, grant: Grant) -> None:
        lent = self._grants.pop(grant, None)
        if lent is None:
            raise Violation("grants", f"{self.name}: a grant was finished twice")
        if grant.reserved:
            raise Violation("grants", f"{self.name}: finished with {grant.reserved} to come")
        if lent.recalled:
            self.credit -= lent.left
        elif lent.left > 0:
            self._ready.pop(grant.key, None)  # it is empty, until it says otherwise
        self._pump_soon()

    # Messages.

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        lent = self._grants.get(grant)
        if lent is None:
            raise Violation("grants", f"{self.name}: delivered on a grant that is finished")
        lent.left -= len(messages)
        self.credit -= len(messages)
        if lent.left < 0:
            raise Violation("grants", f"{self.name}: more was delivered than was granted")
        for message in messages:
            self._received(grant.key, message, lent.store)
