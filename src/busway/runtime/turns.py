"""Turns of connections: how much of what one has sent is handled before the others are heard.

A connection that was read from gets a turn at once. What it has left when the turn is over waits in
a ring, and is not read from meanwhile; each iteration of the loop gives everybody in the ring one
turn, in order. Turns are short where many wait, so that a round takes about as long for a hundred
connections as for five.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

FRAMES_PER_TURN = 1_000
"""A read brings 64 KiB or, if more was waiting, 256: in messages of a few hundred bytes, a turn."""
FRAMES_PER_STEP = 16
"""The clock is looked at in between."""
TURN_US = 4_000
"""As long as the loop takes to commit and answer what came in such a turn."""
TURN_MIN_US = 200
ROUND_US = 8_000
"""A message waits for three or four rounds: to be read, committed, acknowledged, delivered. So
this is what all turns of one round take together, unless so many wait that each has the least."""


class Clock(Protocol):
    def now_us(self) -> int: ...

    def next_round(self, callback: Callable[[], None]) -> None:
        """Call once, after everybody else who is due now, sockets included."""


class Input(Protocol):
    """Bytes of one connection that are not handled yet."""

    @property
    def has_input(self) -> bool: ...

    def advance(self, frames_max: int) -> None:
        """Handle about so many frames of it."""


class Waiting(Protocol):
    """A connection in the ring."""

    def take_turn(self) -> bool:
        """Go on; False if it has nothing left, or must not go on now."""


class Turns:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: dict[Waiting, None] = {}
        self._round_is_due = False

    def __len__(self) -> int:
        """How many connections have something left."""
        return len(self._ring)

    def handle(self, source: Input) -> None:
        """One turn: frames and time are limited, whichever ends first."""
        frames = FRAMES_PER_TURN
        now_us = self._clock.now_us
        until_us = now_us() + max(TURN_MIN_US, min(TURN_US, ROUND_US // (len(self._ring) + 1)))
        while source.has_input and frames > 0:
            source.advance(FRAMES_PER_STEP)
            frames -= FRAMES_PER_STEP
            if now_us() >= until_us:
                return

    def wait(self, one: Waiting) -> None:
        """It has something left: others first."""
        self._ring[one] = None
        if not self._round_is_due:
            self._round_is_due = True
            self._clock.next_round(self._round)

    def forget(self, one: Waiting) -> None:
        self._ring.pop(one, None)

    def _round(self) -> None:
        self._round_is_due = False
        for one in list(self._ring):
            if one in self._ring and not one.take_turn():
                self._ring.pop(one, None)
        if self._ring and not self._round_is_due:
            self._round_is_due = True
            self._clock.next_round(self._round)
