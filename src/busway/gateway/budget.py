"""The node's budget of uncommitted bytes: backpressure by bytes, not by messages (D-8).

What clients have sent and no store has committed yet is held in memory. As the budget fills, sender
links get less credit, down to none; beyond its limit nothing more is read from any socket.
"""

from __future__ import annotations

from typing import Protocol


class Starved(Protocol):
    """A sender link whose credit was cut short."""

    def replenish(self) -> None: ...


class Budget:
    __slots__ = ("_starved", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._starved: dict[Starved, None] = {}

    @property
    def exceeded(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def take(self, size: int) -> None:
        self.used_bytes += size

    def give(self, size: int) -> None:
        self.used_bytes -= size
        assert self.used_bytes >= 0
        if self._starved and self.used_bytes * 2 <= self.limit_bytes:
            starved, self._starved = self._starved, {}
            for link in starved:
                link.replenish()

    def share(self, credit: int) -> int:
        """How much of its full credit a link gets now: all of it up to half of the budget."""
        free = self.limit_bytes - self.used_bytes
        if free * 2 >= self.limit_bytes:
            return credit
        return max(0, credit * 2 * free // self.limit_bytes)

    def starve(self, link: Starved) -> None:
        """Call `replenish` of this link when there is room again."""
        self._starved[link] = None

    def forget(self, link: Starved) -> None:
        self._starved.pop(link, None)
