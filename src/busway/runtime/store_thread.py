"""The thread of a store: `broker.seams.StorePort` for stores whose calls block.

Jobs run in the order in which they were called (D-11). What they gave is collected and handed to
the event loop with one wake-up, however many jobs were done meanwhile (D-10). Whether a job takes
too long is not judged here: that is the broker's watch (D-8).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from busway.store.base import (
    CommitUnknown,
    MessagingStore,
    Opened,
    StoreError,
    StoreUnavailable,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
Job = tuple[Callable[[MessagingStore], Any], Callable[[Any], None]]


class StoreThread:
    """Owns the thread; the store is only ever called from it.

    `on_opened` is told whenever the store was opened, before whoever asked for it: broker time must
    not be below what the store has committed (D-25).
    """

    def __init__(
        self,
        store: MessagingStore,
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_opened: Callable[[Opened], None] = lambda opened: None,
    ) -> None:
        self._store = store
        self._loop = loop
        self._name = name
        self._on_opened = on_opened
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._outcomes: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._began_ns = 0
        """When the call began that the thread is at; 0 if it is at none."""
        self._wake_up_sent = False
        self._stopping = False
        self._stopped: asyncio.Future[None] = loop.create_future()
        # A store that hangs in the kernel must not keep the process alive: hence a daemon.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | StoreError], None]
    ) -> None:
        if self._stopping:
            self._loop.call_soon(done, StoreUnavailable(f"{self._name} has been stopped"))
            return
        self._jobs.put((operation, done))

    def busy_ms(self) -> int:
        began_ns = self._began_ns
        return (time.monotonic_ns() - began_ns) // 1_000_000 if began_ns else 0

    async def stop(self) -> None:
        """Finish what was called for, close the store, end the thread."""
        if not self._stopping:
            self._stopping = True
            self._jobs.put(None)
        await asyncio.shield(self._stopped)
        self._thread.join()

    # --- in the thread -----------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            operation, done = job
            self._began_ns = time.monotonic_ns()
            self._outcomes.append((done, self._outcome_of(operation)))
            self._began_ns = 0
            # Appended first, looked at second; `_hand_over` clears first and takes second. So no
            # outcome is left behind, and needless wake-ups are rare.
            if not self._wake_up_sent:
                self._wake_up_sent = True
                self._loop.call_soon_threadsafe(self._hand_over)
        self._store.close()
        self._loop.call_soon_threadsafe(self._finish)

    def _outcome_of(self, operation: Callable[[MessagingStore], Any]) -> Any:
        try:
            return operation(self._store)
        except StoreError as error:
            return error
        except Exception as error:
            # No store should raise anything else. If it does, nobody knows what was done (D-3).
            log.exception("%s failed in an unforeseen way", self._name)
            return CommitUnknown(f"{type(error).__name__}: {error}")

    # --- in the loop -------------------------------------------------------------------------

    def _hand_over(self) -> None:
        self._wake_up_sent = False
        outcomes = self._outcomes
        while outcomes:
            done, outcome = outcomes.popleft()
            try:
                if isinstance(outcome, Opened):
                    self._on_opened(outcome)
                done(outcome)
            except Exception:
                log.exception("%s: taking an outcome failed", self._name)

    def _finish(self) -> None:
        self._hand_over()
        self._stopped.set_result(None)
