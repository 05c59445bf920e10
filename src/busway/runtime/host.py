"""Broker time, turns and randomness from the real machine: `broker.seams.Host` on an event loop.

Broker time (D-25) is a monotonic clock plus an offset taken once, so that setting the machine's
clock neither frees nor holds a lock. The offset only ever grows: `not_before` raises it when a
store remembers a later time than this machine shows.

On a server whose clock may be moved (`--allow-clock`), `move` adds to the offset as well; what
measures durations between connections and this process (`steady_ms`) does not notice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from weakref import WeakSet

log = logging.getLogger(__name__)

RANDOM_BLOCK_BYTES = 4096
"""Lock tokens take 10 bytes per message: one system call for some four hundred of them (D-10)."""

TURNS_MAX = 32
"""Turns taken in a row before sockets are looked at again, should each call for the next."""

LONGEST_WAIT_S = 60.0
"""A timer looks at the clock at least this often: the loop's own clock stands still while a laptop
sleeps, broker time does not."""

# Counts on while the machine sleeps, where the system has such a clock; scheduled messages of a
# laptop would otherwise come late by the length of every nap.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LoopTimer:
    """One call of `Host.at`; made anew by nobody, cancelled by its owner."""

    __slots__ = ("__weakref__", "_callback", "_due_ms", "_handle", "_host")

    def __init__(self, host: Host, due_ms: int, callback: Callable[[], None]) -> None:
        self._host = host
        self._due_ms = due_ms
        self._callback: Callable[[], None] | None = callback
        self._handle: asyncio.Handle | None = None
        self._wait()

    def cancel(self) -> None:
        self._callback = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def shift(self, by_ms: int) -> None:
        """The clock was moved by this much, and the wait is as long as it was."""
        self._due_ms += by_ms

    def _wait(self) -> None:
        wait_s = max(0.0, (self._due_ms - self._host.now_ms()) / 1000)
        self._handle = self._host.loop.call_later(min(wait_s, LONGEST_WAIT_S), self._look)

    def _look(self) -> None:
        """Loops wake up to a clock tick early, and from long waits on purpose."""
        callback = self._callback
        if callback is None:
            return
        if self._host.now_ms() < self._due_ms:
            self._wait()
            return
        self.cancel()
        callback()


class Host:
    """The host of everything that runs in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, movable: bool = False) -> None:
        self.loop = loop
        self.moved_ms = 0
        """How far broker time was moved ahead on purpose."""
        self._timers: WeakSet[LoopTimer] | None = WeakSet() if movable else None
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(_CLOCK)
        self._turns: list[Callable[[], None]] = []
        self._last: list[Callable[[], None]] = []
        self._turn_is_due = False
        self._rounds = 0
        """Callbacks that wait for the next iteration of the loop."""
        self._random = b""
        self._random_used = 0

    def now_ms(self) -> int:
        return (self._offset_ns + time.clock_gettime_ns(_CLOCK)) // 1_000_000

    def steady_ms(self) -> int:
        return self.now_ms() - self.moved_ms

    def clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_us(self) -> int:
        """For measuring how long something takes; its beginning means nothing."""
        return time.perf_counter_ns() // 1_000

    def next_round(self, callback: Callable[[], None]) -> None:
        """Call once, in the next iteration of the loop: after sockets were looked at again."""
        self._rounds += 1
        self.loop.call_soon(self._begin_round, callback)

    def _begin_round(self, callback: Callable[[], None]) -> None:
        self._rounds -= 1
        callback()

    def not_before(self, time_ms: int) -> None:
        """Never show a time below `time_ms`, which a store has committed (D-25)."""
        behind_ms = time_ms - self.now_ms()
        if behind_ms > 0:
            log.warning(
                "the machine's clock is %d ms behind what is stored; going on from there", behind_ms
            )
            self._offset_ns += behind_ms * 1_000_000

    def move(self, by_ms: int) -> None:
        """Make it so much later; whoever calls sees to what has fallen due."""
        assert self._timers is not None, "the clock of this host cannot be moved"
        assert by_ms >= 0
        self._offset_ns += by_ms * 1_000_000
        self.moved_ms += by_ms

    def move_back(self) -> None:
        """Undo all moves. Only when nothing is left that has got a time since."""
        assert self._timers is not None, "the clock of this host cannot be moved"
        for timer in list(self._timers):
            timer.shift(-self.moved_ms)
        self._offset_ns -= self.moved_ms * 1_000_000
        self.moved_ms = 0

    @property
    def at_rest(self) -> bool:
        """Whether nobody waits for a turn."""
        return not self._turns and not self._last and not self._rounds

    def soon(self, callback: Callable[[], None]) -> None:
        self._turns.append(callback)
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._take_turns)

    def last(self, callback: Callable[[], None]) -> None:
        """Call once, when no turn is left: for writing what all of them have answered."""
        self._last.append(callback)
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._take_turns)

    def at(self, due_ms: int, callback: Callable[[], None]) -> LoopTimer:
        timer = LoopTimer(self, due_ms, callback)
        if self._timers is not None:
            self._timers.add(timer)
        return timer

    def random_bytes(self, count: int) -> bytes:
        start = self._random_used
        end = start + count
        if end > len(self._random):
            self._random = os.urandom(max(RANDOM_BLOCK_BYTES, count))
            start, end = 0, count
        self._random_used = end
        return self._random[start:end]

    def _take_turns(self) -> None:
        """Everything called for, and what that calls for, before the loop waits again.

        So what one turn commits or answers is written in the same iteration of the loop.
        """
        for _ in range(TURNS_MAX):
            if self._turns:
                turns, self._turns = self._turns, []
            elif self._last:
                turns, self._last = self._last, []
            else:
                self._turn_is_due = False
                return
            for callback in turns:
                try:
                    callback()
                except Exception:
                    # One connection's or broker's mistake must not take the others' turns.
                    log.exception("a turn failed")
        self.loop.call_soon(self._take_turns)
