"""When the locks of which sub-queue may run out: one heap for a whole broker (D-10)."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from busway.broker.sub_queue import SubQueue


class Dues:
    """The earliest due time of each sub-queue. A later one is learnt when the earlier is over."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, SubQueue]] = []
        self._newest: dict[SubQueue, int] = {}
        """An entry of the heap counts only if it is its sub-queue's newest."""
        self._entries = 0

    def expect(self, sub_queue: SubQueue, due_ms: int) -> bool:
        """Whether this is earlier than what was known of the sub-queue."""
        known_ms = self._newest.get(sub_queue)
        if known_ms is not None and known_ms <= due_ms:
            return False
        self._newest[sub_queue] = due_ms
        self._entries += 1
        heappush(self._heap, (due_ms, self._entries, sub_queue))
        return True

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def over(self, now_ms: int) -> Iterator[SubQueue]:
        """Take out each sub-queue that is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, sub_queue = heappop(self._heap)
            if self._newest.get(sub_queue) == due_ms:
                del self._newest[sub_queue]
                yield sub_queue
