"""The background sweep of what falls due: messages expire, scheduled ones become active.

Delivery already passes expired messages by (TTL-4); the sweep is for those that nobody asks for,
and for those whose time has come (SCH-1). It walks the store's index of due times with a cursor: a
row that is behind it was dealt with, or belongs to a locked message, which is looked at when it
comes back (TTL-5).
"""

from __future__ import annotations

from typing import Protocol

from busway.broker.sub_queue import SubQueue
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.store.base import Expiring, ExpiryPage

SWEEP_ROWS = 200
"""A page is small: the bodies of those that only the store holds are read with it."""
SWEEP_REST_MS = 25
"""Between two pages, so that a mass expiry does not keep the store from its commits."""


class SweepOwner(Protocol):
    def sub_queue_in(self, slot: int) -> SubQueue | None: ...

    def due(self, sub_queue: SubQueue, message: Message) -> None: ...

    def read_expiring(self, sub_queue_rows: dict[int, list[int]]) -> None: ...

    def read_expiry_page(self, after: Expiring | None, until_ms: int, rows: int) -> None: ...


class ExpirySweep:
    """Knows when the next message falls due, and what to do then."""

    def __init__(self, owner: SweepOwner) -> None:
        self._owner = owner
        self._after: Expiring | None = None
        self._reading = False
        self._due_ms: int | None = None
        self._resting = False

    @property
    def due_ms(self) -> int | None:
        """When to run next; None while nothing is known to expire, and while a page is read: a
        timer for what cannot run would be due again and again."""
        return None if self._reading else self._due_ms

    @property
    def is_behind(self) -> bool:
        """Whether it rests between two pages of what has fallen due already."""
        return self._resting and self._due_ms is not None

    def restart(self) -> None:
        """After opening, or a failed commit: from the beginning of the index."""
        self._after = None
        self._reading = False
        self._due_ms = 0

    def expects(self, due_ms: int) -> None:
        """A message that expires then is now in the store."""
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
        if self._after is not None and due_ms <= self._after.expires_ms:
            self._after = None  # its commit took longer than it lives: it lies behind the cursor

    def run(self, now_ms: int) -> None:
        if self._due_ms is not None and self._due_ms <= now_ms and not self._reading:
            self._reading = True
            self._due_ms = None
            self._owner.read_expiry_page(self._after, now_ms, SWEEP_ROWS)

    def paged(self, page: ExpiryPage | BusError, after: Expiring | None, now_ms: int) -> None:
        self._reading = False
        if isinstance(page, BusError):
            self._due_ms = now_ms + SWEEP_REST_MS
            return
        self._resting = len(page.rows) == SWEEP_ROWS
        elsewhere: dict[int, list[int]] = {}
        for row in page.rows:
            sub_queue = self._owner.sub_queue_in(row.slot)
            if sub_queue is None:
                continue
            message = sub_queue.known.get(row.number)
            if message is None:
                elsewhere.setdefault(row.slot, []).append(row.number)
            elif due_now(message):
                self._owner.due(sub_queue, message)
        if elsewhere:
            self._owner.read_expiring(elsewhere)
        if page.rows and self._after is after:  # else: set back meanwhile, and that holds
            self._after = page.rows[-1]
        if page.next_expires_ms is not None:
            rest_ms = SWEEP_REST_MS if self._resting else 0
            self.expects(max(page.next_expires_ms, now_ms + rest_ms))


def due_now(message: Message) -> bool:
    """Locked messages do not expire (TTL-5); marked ones are left alone (D-1)."""
    return (
        message.lock_token is None
        and message.staged is None
        and message.state is not MessageState.DEFERRED
    )
