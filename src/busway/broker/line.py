"""A line: ready messages in the order of their numbers, and the grants that wait for them.

A plain sub-queue has one line; one with sessions has a line for each. A line knows which of its
messages are in memory and which only the store holds (D-11, D-12); what delivering one means is
its sub-queue's business.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from busway.broker.seams import Grant
from busway.broker.window import LOW_MESSAGES, ReadyWindow, WindowBudget
from busway.model.message import Message


class Shelf(Protocol):
    """What a line asks of the sub-queue that it belongs to."""

    known: dict[int, Message]

    def serve(self, line: Line, grant: Grant) -> None:
        """Hand out from the line's window, up to what the grant has left."""

    def fetch(self, line: Line) -> None:
        """Read the page behind the line's cursor; `paged` takes it."""

    @property
    def somebody_receives(self) -> bool: ...


class Line:
    __slots__ = (
        "_barren",
        "_grants",
        "_is_serving",
        "_shelf",
        "held_back",
        "in_store",
        "paging",
        "session_id",
        "window",
    )

    def __init__(
        self, shelf: Shelf, budget: WindowBudget, in_store: int, session_id: str | None = None
    ) -> None:
        self.session_id = session_id
        self.window = ReadyWindow(budget)
        self.in_store = in_store
        """Active messages that are not in memory."""
        self.paging = False
        self._barren = False
        """Nothing was found since the last page from the beginning, and nothing has arrived."""
        self.held_back = 0
        """Messages of a holder that is gone, whose outcome is not known yet: until it is, nothing
        is delivered, or later ones would overtake them (SES-4)."""
        self._shelf = shelf
        self._grants: deque[Grant] = deque()
        """Grants that wait for a page of the store."""
        self._is_serving = False

    @property
    def may_have_more(self) -> bool:
        return bool(self.in_store or self.window.has_ready)

    # Grants (D-22).

    def grant(self, grant: Grant) -> None:
        """Deliver what there is; wait only for what the store still has; then say *finished*."""
        if self.held_back:
            self._grants.append(grant)
            return
        self._shelf.serve(self, grant)
        if grant.left == 0:
            if grant.reserved == 0:
                grant.receiver.finished(grant)
        elif self.in_store or self.paging:
            self._grants.append(grant)
        else:
            _finish(grant)
        self._read_ahead()

    def recall(self, grant: Grant) -> None:
        """The credit is wanted back. What is reserved already still comes (D-6)."""
        if grant in self._grants:
            self._grants.remove(grant)
            _finish(grant)
        else:
            grant.left = 0

    def finish_all(self) -> None:
        """The store is not to be had, or the line is not: nobody should wait here."""
        grants = list(self._grants)
        self._grants.clear()
        for grant in grants:
            _finish(grant)

    def serve_waiting(self) -> None:
        """Something may have become ready.

        A receiver whose credit is gone hands back what it is given, and that wakes the line again:
        from inside this loop, which then sees it. A call inside the call would have no end.
        """
        if self.held_back or self._is_serving:
            return
        self._is_serving = True
        try:
            self._serve_waiting()
        finally:
            self._is_serving = False
        if self._grants and not self.in_store and not self.paging and not self.held_back:
            self.finish_all()
        self._read_ahead()

    def _serve_waiting(self) -> None:
        grants = self._grants
        while grants and len(self.window) and not self.held_back:
            grant = grants[0]
            self._shelf.serve(self, grant)
            if grants and grants[0] is grant:
                if grant.left:
                    break  # the window is used up, or the session's time is
                grants.popleft()
                if grant.reserved == 0:
                    grant.receiver.finished(grant)

    # Paging.

    def _read_ahead(self) -> None:
        """Page only for somebody: a grant that waits, or a receiver that is emptying the window."""
        wanted = self._grants or (self._shelf.somebody_receives and len(self.window) < LOW_MESSAGES)
        if self.in_store and not self.paging and wanted:
            self.paging = True
            self._shelf.fetch(self)

    def paged(self, messages: Iterable[Message], asked_after: int) -> bool:
        """A page has come. What memory already holds is newer than the page (D-11).

        False if the store does not hold what its counters say: one pass over all of it has brought
        nothing although something should be there, or more than should be.
        """
        self.paging = False
        if not asked_after:
            self._barren = True
        known = self._shelf.known
        last = None
        for message in messages:
            last = message.number
            if last not in known:
                if not self.in_store:
                    return False
                self.adopt(message)
                self.window.offer(message)
        if last is None:
            # Nothing above the cursor although something is stored: it lies below (D-12).
            self.window.cursor = 0
            return not (self._barren and self.in_store)
        if self.window.cursor == asked_after:
            self.window.cursor = last
        return True

    def adopt(self, message: Message) -> None:
        """An active message that was in the store only is now in memory, too."""
        self._shelf.known[message.number] = message
        self.in_store -= 1
        self._barren = False
        assert self.in_store >= 0

    def arrived(self, message: Message) -> None:
        """Committed: keep it in memory if everything before it is there, too."""
        wanted = bool(self._grants) or self._shelf.somebody_receives
        if self.in_store == 0 and self.window.has_room(wanted=wanted) and not self.paging:
            self._shelf.known[message.number] = message
            self.window.offer(message)
            self.window.cursor = max(self.window.cursor, message.number)
        else:
            self.in_store += 1
            self._barren = False
            if message.number <= self.window.cursor:
                self.window.cursor = message.number - 1  # D-12


def _finish(grant: Grant) -> None:
    grant.left = 0
    if grant.reserved == 0:
        grant.receiver.finished(grant)
