"""The part of a sub-queue's ready messages that is in memory, and what lies beyond it.

Ten million queued messages are not ten million objects: memory holds a window in the order of
sequence numbers, and `cursor` is the number up to which every ready message is in it. What is
beyond stays in the store and is paged in when somebody wants it (D-11, D-12).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from busway.model.message import Message

WINDOW_MESSAGES = 1_000
WINDOW_BYTES = 4 * 1024 * 1024
"""A sub-queue keeps no more than this ready in memory."""
LOW_MESSAGES = 250
"""Below this, while somebody receives, the next page is read ahead."""


ENTRY_BYTES = 512
"""What a message in memory takes beside its own bytes, which may be very few."""
UNWANTED_SHARE = 8
"""Of the budget, the part that messages may take which nobody is receiving yet."""


class WindowBudget:
    """What all windows of one broker may hold together: many queues must not cost much memory."""

    __slots__ = ("bytes_max", "bytes_used", "unwanted_bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.unwanted_bytes_max = bytes_max // UNWANTED_SHARE
        self.bytes_used = 0


class ReadyWindow:
    """Messages that can be delivered now, lowest number first (MSG-6)."""

    def __init__(self, budget: WindowBudget) -> None:
        self._budget = budget
        self._tail: deque[Message] = deque()
        """Ascending: what arrived or was paged in."""
        self._early: list[tuple[int, int, Message]] = []
        """A heap of those that came back below the tail's end: abandoned ones, dead letters."""
        self._entries = 0
        self.bytes = 0
        self.cursor = 0

    def __len__(self) -> int:
        """How many entries; an upper bound, because marked ones are struck when they come up."""
        return len(self._tail) + len(self._early)

    def has_room(self, *, wanted: bool) -> bool:
        """For one more, which somebody is there to receive or not."""
        budget = self._budget
        bytes_max = budget.bytes_max if wanted else budget.unwanted_bytes_max
        return (
            len(self) < WINDOW_MESSAGES
            and self.bytes < WINDOW_BYTES
            and budget.bytes_used < bytes_max
        )

    def offer(self, message: Message) -> None:
        self.bytes += message.size + ENTRY_BYTES
        self._budget.bytes_used += message.size + ENTRY_BYTES
        tail = self._tail
        if not tail or message.number > tail[-1].number:
            tail.append(message)
        else:
            # The count breaks ties: a stale entry of the same number may still be in the heap.
            self._entries += 1
            heappush(self._early, (message.number, self._entries, message))

    @property
    def has_ready(self) -> bool:
        return self.first is not None

    @property
    def first(self) -> Message | None:
        """The next one that can be delivered. Marked ones in front of it are struck, so that nobody
        is called for what was removed or has expired (SES-7)."""
        tail, early = self._tail, self._early
        while tail or early:
            from_early = bool(early and (not tail or early[0][0] < tail[0].number))
            message = early[0][2] if from_early else tail[0]
            if message.staged is None and message.lock_token is None:
                return message
            if from_early:
                heappop(early)
            else:
                tail.popleft()
            self.bytes -= message.size + ENTRY_BYTES
            self._budget.bytes_used -= message.size + ENTRY_BYTES
        return None

    def pop(self) -> Message | None:
        """The next one that is neither locked nor marked."""
        tail, early = self._tail, self._early
        while tail or early:
            if early and (not tail or early[0][0] < tail[0].number):
                message = heappop(early)[2]
            else:
                message = tail.popleft()
            self.bytes -= message.size + ENTRY_BYTES
            self._budget.bytes_used -= message.size + ENTRY_BYTES
            if message.staged is None and message.lock_token is None:
                return message
        return None

    def clear(self) -> None:
        self._budget.bytes_used -= self.bytes
        self.bytes = 0
        self._tail.clear()
        self._early.clear()
