"""A virtual way to a store: calls take virtual time, run in order, and answer in order (D-11)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from busway.sim.scheduler import Scheduler
from busway.store.base import MessagingStore, StoreError

T = TypeVar("T")

LATENCY_MS = (0, 4)
"""How long a call takes, drawn evenly."""
RETURN_MS = (0, 2)
"""How much later its answer is seen; the next call may have run meanwhile, as with a thread."""


class SimulatedDisk:
    """The `StorePort` of a simulation, in front of any store."""

    def __init__(
        self, scheduler: Scheduler, store: MessagingStore, latency_ms: tuple[int, int] = LATENCY_MS
    ) -> None:
        self.store = store
        self.latency_ms = latency_ms
        self.paused = False
        """A store that hangs: nothing runs until `resume` (D-8)."""
        self._scheduler = scheduler
        self._calls: deque[tuple[Callable[[MessagingStore], Any], Callable[[Any], None]]] = deque()
        self._running = False
        self._since_ms = 0
        self._dead = False
        self._answer_ms = 0

    def call(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | StoreError], None]
    ) -> None:
        if not self._calls:
            self._since_ms = self._scheduler.now_ms()
        self._calls.append((operation, done))
        self._next()

    def busy_ms(self) -> int:
        return self._scheduler.now_ms() - self._since_ms if self._calls else 0

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._next()

    def kill(self, *, finish_commit: bool) -> None:
        """The process is gone: nobody hears an answer any more. What it had asked for last may
        still have reached the disk, or not (D-35)."""
        self._dead = True
        if finish_commit and self._calls and not self.paused:
            with suppress(StoreError):
                self._calls[0][0](self.store)
        self._calls.clear()

    def _next(self) -> None:
        if not self._running and self._calls and not self.paused:
            self._running = True
            self._scheduler.after(self._scheduler.random.randint(*self.latency_ms), self._run)

    def _run(self) -> None:
        if self.paused or self._dead:
            self._running = False
            return
        operation, done = self._calls.popleft()
        self._since_ms = self._scheduler.now_ms()
        try:
            outcome = operation(self.store)
        except StoreError as error:
            outcome = error
        delay_ms = self._scheduler.random.randint(*RETURN_MS)
        self._answer_ms = max(self._answer_ms, self._scheduler.now_ms() + delay_ms)
        self._scheduler.at(self._answer_ms, lambda: None if self._dead else done(outcome))
        self._running = False
        self._next()
