"""What counts against an entity's size in one partition (D-17)."""

from __future__ import annotations


class Tally:
    """Shared by all sub-queues of a partition; for a topic, by those of its subscriptions, too."""

    __slots__ = ("bytes", "staged_bytes")

    def __init__(self) -> None:
        self.bytes = 0
        """Committed: messages, dead letters, session states."""
        self.staged_bytes = 0
        """On the way: it may not be exceeded by what is not committed yet either."""

    @property
    def total(self) -> int:
        return self.bytes + self.staged_bytes
