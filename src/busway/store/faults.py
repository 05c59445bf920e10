"""A store that can be told to be slow, ill or gone (P-5, D-8), and how its next commits end (D-35).

It stands between an owner and a real store. `be` may be called from any thread, at any time, also
while a call is under way; everything else is the owner's, as with any store.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from busway.model.message import Message, MessageState
from busway.store.base import (
    READ_BYTES_MAX,
    READ_ROWS_MAX,
    Batch,
    CommitRefused,
    CommitUnknown,
    DuplicateMark,
    Expiring,
    ExpiryPage,
    MessagingStore,
    Opened,
    StoreUnavailable,
)
from busway.store.journal import JournalHandle, JournalSize


class Fault(Enum):
    NONE = "none"
    SLOW = "slow"
    """Every call first waits for the delay."""
    ILL = "ill"
    """Commits are refused and reads fail, as with a disk that is full or read-only and worse."""
    GONE = "gone"
    """Every call fails, also `open`; a commit under way is unknown, and the handle is lost."""


class CommitOutcome(Enum):
    """How a commit ends that was scripted with `script` (D-35)."""

    REFUSED = "refused"
    UNKNOWN_DONE = "unknown-done"
    UNKNOWN_NOT_DONE = "unknown-not-done"


class FaultyStore:
    """A `MessagingStore` that passes calls on to `inner` unless told otherwise.

    `pause` is how it waits (seconds) when it is slow: the runtime passes a real sleep, a simulation
    its own; without one it cannot be told to be slow.
    """

    def __init__(
        self, inner: MessagingStore, *, pause: Callable[[float], object] | None = None
    ) -> None:
        self.inner = inner
        self._pause = pause
        self._guard = threading.Lock()
        self._fault = Fault.NONE
        self._delay_s = 0.0
        self._scripted: deque[CommitOutcome] = deque()
        self._lost = False
        """The handle met a store that was gone: it answers no more until it is opened again."""

    # --- what it is told -------------------------------------------------------------------------

    @property
    def fault(self) -> Fault:
        with self._guard:
            return self._fault

    @property
    def told(self) -> tuple[Fault, float]:
        """What it was told to be, and the delay in seconds."""
        with self._guard:
            return self._fault, self._delay_s

    def be(self, fault: Fault, *, delay_s: float = 0.0) -> None:
        """From now on, and for calls under way once they come back, show this fault."""
        if fault is Fault.SLOW and self._pause is None:
            raise ValueError("a store without a pause cannot be slow")
        with self._guard:
            self._fault = fault
            self._delay_s = delay_s

    def script(self, *outcomes: CommitOutcome) -> None:
        """The next commits end like this, one each, in order."""
        with self._guard:
            self._scripted.extend(outcomes)

    # --- what it does ----------------------------------------------------------------------------

    def open(self) -> Opened:
        self._lost = False
        if self._arrive() is Fault.GONE:
            raise self._lose()
        opened = self.inner.open()
        if self.fault is Fault.GONE:
            raise self._lose()
        return opened

    def commit(self, batch: Batch) -> None:
        self._check_not_lost()
        fault = self._arrive()
        if fault is Fault.GONE:
            raise self._lose_in_commit()
        if fault is Fault.ILL:
            raise CommitRefused("the store is ill (a fault that was asked for)")
        with self._guard:
            outcome = self._scripted.popleft() if self._scripted else None
        if outcome is CommitOutcome.REFUSED:
            raise CommitRefused("the commit was refused (a fault that was asked for)")
        if outcome is CommitOutcome.UNKNOWN_NOT_DONE:
            raise self._lose_in_commit()
        self.inner.commit(batch)
        if outcome is CommitOutcome.UNKNOWN_DONE or self.fault is Fault.GONE:
            raise self._lose_in_commit()

    def read_page(
        self,
        slot: int,
        after_number: int,
        *,
        state: MessageState | None = MessageState.ACTIVE,
        session_id: str | None = None,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> list[Message]:
        self._before_read()
        return self.inner.read_page(
            slot, after_number, state=state, session_id=session_id, rows=rows, size=size
        )

    def read_numbers(self, slot: int, numbers: Sequence[int]) -> list[Message]:
        self._before_read()
        return self.inner.read_numbers(slot, numbers)

    def read_expiring(
        self, after: Expiring | None, until_ms: int, rows: int = READ_ROWS_MAX
    ) -> ExpiryPage:
        self._before_read()
        return self.inner.read_expiring(after, until_ms, rows)

    def read_session_state(self, slot: int, session_id: str) -> bytes | None:
        self._before_read()
        return self.inner.read_session_state(slot, session_id)

    def read_duplicates(
        self, slot: int, after_digest: bytes, now_ms: int, rows: int = READ_ROWS_MAX
    ) -> list[DuplicateMark]:
        self._before_read()
        return self.inner.read_duplicates(slot, after_digest, now_ms, rows)

    def read_journal_sizes(self, slot: int, first: int, rows: int) -> list[JournalSize]:
        self._before_read()
        return self.inner.read_journal_sizes(slot, first, rows)

    def journal_handle(self) -> JournalHandle:
        return self.inner.journal_handle()

    def find_duplicates(
        self, slot: int, digests: Sequence[bytes], now_ms: int
    ) -> list[DuplicateMark]:
        self._before_read()
        return self.inner.find_duplicates(slot, digests, now_ms)

    def recount(self, slot: int) -> None:
        self._before_read()
        self.inner.recount(slot)

    def free_bytes(self) -> int | None:
        self._before_read()
        return self.inner.free_bytes()

    def close(self) -> None:
        self.inner.close()

    # --- how faults show -------------------------------------------------------------------------

    def _arrive(self) -> Fault:
        """Wait if the store is slow, then say what it is by now."""
        with self._guard:
            delay_s = self._delay_s if self._fault is Fault.SLOW else 0.0
        if delay_s > 0 and self._pause is not None:
            self._pause(delay_s)
        return self.fault

    def _before_read(self) -> None:
        self._check_not_lost()
        fault = self._arrive()
        if fault is Fault.GONE:
            raise self._lose()
        if fault is Fault.ILL:
            raise StoreUnavailable("the store is ill (a fault that was asked for)")

    def _check_not_lost(self) -> None:
        if self._lost:
            raise StoreUnavailable("the store was lost, open it again")

    def _lose(self) -> StoreUnavailable:
        self._lost = True
        self.inner.close()
        return StoreUnavailable("the store is gone (a fault that was asked for)")

    def _lose_in_commit(self) -> CommitUnknown:
        self._lost = True
        self.inner.close()
        return CommitUnknown("the store was lost in a commit (a fault that was asked for)")
