"""Duplicate detection: which message ids a partition has accepted lately (DUP, P-21).

The history is durable and grows with the window, so it is kept as digests, read page by page when
a partition gets its first send after opening (D-13), and forgotten in the order of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from busway.broker.staging import Stage
from busway.model.message import Message
from busway.store.base import DuplicateMark

if TYPE_CHECKING:
    from busway.broker.sub_queue import SubQueue


class DuplicateHistory:
    """The digests of one partition. 16 bytes each: two different ids never meet by chance."""

    __slots__ = ("_order", "_seen", "_staged", "_sub_queue", "loaded", "waiting")

    def __init__(self, sub_queue: SubQueue) -> None:
        self._sub_queue = sub_queue
        self._seen: dict[bytes, int] = {}
        """Until when each counts."""
        self._order: deque[tuple[int, bytes]] = deque()
        self._staged: dict[bytes, Stage] = {}
        self.loaded = not sub_queue.stored
        self.waiting: list[Callable[[], None]] = []
        """Sends that wait until the history is read."""

    def __len__(self) -> int:
        return len(self._seen)

    def load(self, marks: Sequence[DuplicateMark]) -> None:
        """A page of what the store remembers."""
        for mark in marks:
            self._seen[mark.digest] = mark.until_ms
            self._order.append((mark.until_ms, mark.digest))

    def load_done(self) -> None:
        self.loaded = True
        self._order = deque(sorted(self._order))
        waiting, self.waiting = self.waiting, []
        for command in waiting:
            command()

    def give_up(self) -> None:
        """The store could not be read: whoever waits tries again, and reads it anew."""
        waiting, self.waiting = self.waiting, []
        for command in waiting:
            command()

    def uncertain(self, messages: Sequence[Message]) -> Stage | None:
        """The stage whose outcome decides whether one of these is a duplicate (D-1)."""
        for message in messages:
            stage = self._staged.get(message.digest) if message.digest else None
            if stage is not None:
                return stage
        return None

    def fresh(self, messages: Sequence[Message], now_ms: int) -> list[Message]:
        """Without those that were here before, or twice among themselves (DUP-3, DUP-4)."""
        self._forget(now_ms)
        first: dict[bytes, None] = {}
        kept = []
        for message in messages:
            digest = message.digest
            if digest is not None:
                # What is staged here is in the same transaction: `uncertain` was asked before.
                staged = digest in first or digest in self._staged
                if staged or self._seen.get(digest, 0) > now_ms:
                    continue
                first[digest] = None
            kept.append(message)
        return kept

    def stage(self, stage: Stage, messages: Sequence[Message], until_ms: int) -> None:
        for message in messages:
            if message.digest is not None:
                self._staged[message.digest] = stage
                mark = DuplicateMark(self._sub_queue.slot, message.digest, until_ms)
                stage.duplicates.append((self, mark))

    def committed(self, mark: DuplicateMark) -> None:
        self._staged.pop(mark.digest, None)
        self._seen[mark.digest] = mark.until_ms
        self._order.append((mark.until_ms, mark.digest))

    def undone(self, mark: DuplicateMark) -> None:
        self._staged.pop(mark.digest, None)

    def _forget(self, now_ms: int) -> None:
        order, seen = self._order, self._seen
        while order and order[0][0] <= now_ms:
            until_ms, digest = order.popleft()
            if seen.get(digest) == until_ms:
                del seen[digest]
