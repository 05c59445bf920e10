"""Forgetting a deleted entity's messages, in small steps (D-16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from busway.broker.seams import Host
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.model.errors import BusError
from busway.store.base import PURGE_ROWS, Counters

RETRY_MS = 1_000


class PurgeOwner(Protocol):
    @property
    def available(self) -> bool: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def sub_queues_of(self, incarnation: int) -> list[SubQueue]: ...

    def forget(self, sub_queue: SubQueue) -> None: ...


class Purge:
    """One incarnation on its way out. It waits through a store's absence, and then goes on."""

    def __init__(
        self, owner: PurgeOwner, host: Host, incarnation: int, done: Callable[[], None]
    ) -> None:
        self._owner = owner
        self._host = host
        self._incarnation = incarnation
        self._done = done

    def start(self) -> None:
        """Behind everything that was staged while the entity was still there."""
        if self._owner.available:
            self._owner.stage(0).after.append(self._next)
        else:
            self._host.at(self._host.now_ms() + RETRY_MS, self.start)

    def _next(self, error: BusError | None) -> None:
        if error is not None:
            self._host.soon(self.start)
            return
        for sub_queue in self._owner.sub_queues_of(self._incarnation):
            if sub_queue.stored:
                self._step(sub_queue)
                return
            self._owner.forget(sub_queue)
        self._done()

    def _step(self, sub_queue: SubQueue) -> None:
        """One commit that forgets some rows; the counters say how many are left."""
        counters = sub_queue.committed
        left = counters.active + counters.deferred + counters.scheduled - PURGE_ROWS
        stage = self._owner.stage(1)
        stage.purge(sub_queue.slot)

        def stepped(error: BusError | None) -> None:
            if error is None:
                if left > 0:
                    sub_queue.committed = Counters(counters.next_counter, active=left)
                else:
                    self._owner.forget(sub_queue)
            self._next(error)

        stage.after.append(stepped)
