"""What a broker counts for those who look after it, from the start of the process on.

Plain numbers, raised when a commit is durable and not before: so they are exact, and cost an
addition per message and a look into a short table per commit. They outlive the memory that is
dropped when a store is lost; nothing of them is stored.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum

COMMIT_BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)
WAIT_STEPS = 22
"""Waits are counted in steps that double: below 1 ms, 1 ms, 2 and 3 ms, ... above 17 minutes."""


class Event(Enum):
    """What may happen to a message besides being sent and received; the value names its count."""

    DEAD_LETTERED = "dead_lettered"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    LOCK_EXPIRED = "locks_expired"
    ACTIVATED = "activated"
    DISCARDED = "discarded"
    DUPLICATE = "duplicates"


class Waits:
    """How long messages were in a sub-queue, from enqueued until received for good: what a sender
    calls the latency of the queue. Finding the step is one operation on the number."""

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * WAIT_STEPS
        """The wait that is counted at `i` is below `2 ** i` ms, and not below half of that."""
        self.total_ms = 0

    def took(self, wait_ms: int, times: int = 1) -> None:
        wait_ms = max(0, wait_ms)  # a clock may have been set back
        self.counts[min(wait_ms.bit_length(), WAIT_STEPS - 1)] += times
        self.total_ms += wait_ms * times

    def add(self, other: Waits) -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total_ms += other.total_ms


class Movements:
    """Of one sub-queue."""

    __slots__ = (
        "abandoned",
        "activated",
        "dead_lettered",
        "discarded",
        "duplicates",
        "expired",
        "locks_expired",
        "received",
        "sent",
        "waits",
    )

    def __init__(self) -> None:
        self.sent = 0
        """Taken in: sent, forwarded to it, or copied for a subscription."""
        self.received = 0
        """Completed, or received and deleted; of a transfer queue: handed over."""
        self.dead_lettered = 0
        self.expired = 0
        """Their time to live was over, whether that removed or dead-lettered them (TTL-4)."""
        self.abandoned = 0
        self.locks_expired = 0
        self.activated = 0
        """Scheduled ones whose time had come (SCH-3)."""
        self.discarded = 0
        """Cancelled, or deleted in bulk, without anybody receiving them."""
        self.duplicates = 0
        """Accepted and dropped (DUP-3)."""
        self.waits: Waits | None = None
        """Of those that were received; None while there are none."""

    def received_after(self, wait_ms: int, times: int = 1) -> None:
        self.received += times
        if self.waits is None:
            self.waits = Waits()
        self.waits.took(wait_ms, times)

    def count(self, event: Event, times: int = 1) -> None:
        setattr(self, event.value, getattr(self, event.value) + times)


class CommitTimes:
    """How long commits took, from handing a batch over until its outcome was here."""

    __slots__ = ("counts", "failed", "free_bytes", "sends_refused", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(COMMIT_BOUNDS_MS) + 1)
        """By `COMMIT_BOUNDS_MS`; the last are those that took longer than all of them."""
        self.total_ms = 0
        self.failed = 0
        self.free_bytes: int | None = None
        """On the store's disk after the last commit; None if nobody can tell."""
        self.sends_refused = 0
        """Because the disk was full."""

    @property
    def done(self) -> int:
        return sum(self.counts)

    def took(self, duration_ms: int) -> None:
        self.counts[bisect_left(COMMIT_BOUNDS_MS, duration_ms)] += 1
        self.total_ms += duration_ms
