"""Virtual time and turns: the `Host` of a simulation. The same seed gives the same history."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from random import Random

START_MS = 1_800_000_000_000
"""When simulated time begins; any time would do."""

STUCK_STEPS = 20_000
"""So much in one instant is no work any more."""


class SimulatedTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Scheduler:
    """Runs callbacks in the order of virtual time; what is due at once, in the order of arrival."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steps = 0
        self.clock_error_ms = 0
        """How far the machine's clock is from broker time; a test sets it."""
        self._now_ms = START_MS
        self._turn: deque[Callable[[], None]] = deque()
        self._events: list[tuple[int, int, SimulatedTimer]] = []
        self._order = 0
        self._stuck_since_ms = 0
        self._stuck_steps = 0

    # The seam.

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._now_ms

    def clock_ms(self) -> int:
        return self._now_ms + self.clock_error_ms

    def soon(self, callback: Callable[[], None]) -> None:
        self._turn.append(callback)

    def next_round(self, callback: Callable[[], None]) -> None:
        """What others do between two rounds takes some time, or none."""
        self.at(self._now_ms + self.random.choice((0, 0, 0, 1, 2)), callback)

    def at(self, due_ms: int, callback: Callable[[], None]) -> SimulatedTimer:
        timer = SimulatedTimer(callback)
        self._order += 1
        heappush(self._events, (max(due_ms, self._now_ms), self._order, timer))
        return timer

    def random_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    # Driving it.

    def after(self, delay_ms: int, callback: Callable[[], None]) -> SimulatedTimer:
        return self.at(self._now_ms + delay_ms, callback)

    def step(self) -> bool:
        """Finish this turn, or take the next event; False if there is nothing at all to do."""
        self.steps += 1
        if self._now_ms != self._stuck_since_ms:
            self._stuck_since_ms, self._stuck_steps = self._now_ms, 0
        self._stuck_steps += 1
        if self._stuck_steps > STUCK_STEPS:
            raise RuntimeError(f"{STUCK_STEPS} steps and no time has passed: it goes in circles")
        if self._turn:
            self._turn.popleft()()
            return True
        while self._events:
            due_ms, _, timer = heappop(self._events)
            callback = timer.callback
            if callback is not None:
                self._now_ms = max(self._now_ms, due_ms)  # after a jump, what was due is late
                callback()
                return True
        return False

    def run_for(self, duration_ms: int) -> None:
        """Everything that is due within this time."""
        end_ms = self._now_ms + duration_ms
        while self._turn or self._next_due_ms() <= end_ms:
            self.step()
        self._now_ms = max(self._now_ms, end_ms)

    def _next_due_ms(self) -> float:
        """Of the first event that was not cancelled: a step passes those over, and would go on to
        whatever comes next, however late."""
        while self._events and self._events[0][2].callback is None:
            heappop(self._events)
        return self._events[0][0] if self._events else inf

    def jump(self, forward_ms: int) -> None:
        """The clock moves and nothing ran meanwhile: a laptop that slept, a process that was
        stopped. Broker time never goes back (D-25), so there is no jump the other way."""
        assert forward_ms >= 0
        self._now_ms += forward_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 600_000) -> None:
        """Step until the condition holds; fail if it does not within so much virtual time."""
        end_ms = self._now_ms + limit_ms
        while not condition():
            if self._now_ms > end_ms or not self.step():
                raise TimeoutError(f"still not so after {limit_ms} ms of virtual time")
