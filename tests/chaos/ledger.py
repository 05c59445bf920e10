"""What clients did and were told, and what must therefore be there.

A send *must* be there once it was acknowledged, unless somebody began to take it; it *may* be there
if its outcome is unknown; it *must not* be there again once its completion was acknowledged.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable


class Ledger:
    """Kept by the threads of clients; message ids are texts that it hands out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self.sending: set[str] = set()
        self.accepted: set[str] = set()
        self.refused: set[str] = set()
        """Sends that were refused for certain: nothing of them may ever be seen."""
        self.completing: set[str] = set()
        self.completed: set[str] = set()
        self.deliveries: Counter[str] = Counter()
        self.problems: list[str] = []
        self._latest: dict[str, int] = {}
        """The newest message that was seen of each session."""

    def new_ids(self, count: int = 1) -> list[str]:
        with self._lock:
            ids = [f"message-{next(self._numbers)}" for _ in range(count)]
            self.sending.update(ids)
            return ids

    def accept(self, ids: Iterable[str]) -> None:
        with self._lock:
            self.accepted.update(ids)

    def refuse(self, ids: Iterable[str]) -> None:
        with self._lock:
            self.refused.update(ids)

    def deliver(self, message_id: str) -> None:
        with self._lock:
            if message_id in self.completed:
                self.problems.append(f"{message_id} was delivered after it was completed")
        self.see(message_id)

    def see(self, message_id: str) -> None:
        """A delivery that may have waited in its client, with a lock that is not valid any more,
        while another one of the same message was completed."""
        with self._lock:
            self.deliveries[message_id] += 1
            if message_id not in self.sending:
                self.problems.append(f"{message_id} was never sent")

    def deliver_in_order(self, session_id: str, message_id: str) -> None:
        """In a session with one sender: what is completed was sent before what comes (SES-4)."""
        number = int(message_id.rpartition("-")[2])
        with self._lock:
            latest = self._latest.setdefault(session_id, number)
            if number < latest:
                self.problems.append(f"{message_id} came after a later one of {session_id}")
            self._latest[session_id] = number

    def begin_completing(self, message_id: str) -> None:
        with self._lock:
            self.completing.add(message_id)

    def complete(self, message_id: str) -> None:
        with self._lock:
            if message_id in self.completed:
                self.problems.append(f"{message_id} was completed twice")
            self.completed.add(message_id)

    def judge(self, left: list[str]) -> None:
        """`left` is all that is in the queues at the end."""
        found = set(left)
        assert self.problems == []
        assert sorted(self.accepted - self.completing - found) == [], "acknowledged and lost"
        assert sorted(self.completed & found) == [], "completed and back again"
        assert sorted(self.refused & found) == [], "refused and stored"
        assert sorted(found - self.sending) == [], "never sent"
        assert [each for each, times in Counter(left).items() if times > 1] == [], "there twice"
