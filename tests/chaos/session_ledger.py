"""What the consumers of sessions saw, held against what sessions promise (SES-3, SES-4).

A session's messages are numbered from 0 by who sends them. Whoever accepts a session must get the
first that is not completed, and then one after the other: so anything that is lost, out of order or
there twice is seen when it is delivered. A message may come again only if who had it let it go.

Whoever loses a session while it completes a message is not told how that ended: a *doubt*. What
comes next in the session resolves it; if nothing can come, because it was the last one, the broker
must be asked whether the session still has anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any


class Holding:
    """One consumer that has one session, until it lets go or its lock has expired."""

    def __init__(self, ledger: SessionLedger, session: Any) -> None:
        self.session_id = str(session.session_id)
        self._ledger = ledger
        self._session = session
        self._next = ledger.completed[self.session_id]
        self.completing: int | None = None
        self.in_hand: set[int] = set()
        self.is_over = False

    @property
    def is_locked(self) -> bool:
        """As far as the client was told."""
        return datetime.now(UTC) < self._session.locked_until_utc

    def deliver(self, number: int) -> None:
        doubt = self._ledger.doubts.pop(self.session_id, None)
        if number == self._next + 1 and self._next == doubt:
            self._ledger.completed[self.session_id] = number  # it was completed after all
        elif number != self._next:
            self._ledger.complain(f"{self.session_id}: {number} came, and {self._next} was due")
        self._next = number + 1
        self.in_hand.add(number)
        self._ledger.count_delivery(self.session_id, number)

    def complete(self, number: int) -> None:
        """Once the broker has said so."""
        self.completing = None
        self.in_hand.discard(number)
        completed = self._ledger.completed
        if self._ledger.doubts.get(self.session_id) == number:
            del self._ledger.doubts[self.session_id]
        if not self.is_over and number != completed[self.session_id]:
            self._ledger.complain(f"{self.session_id}: {number} was completed out of turn")
        completed[self.session_id] = max(completed[self.session_id], number + 1)

    def let_go(self) -> None:
        """Before the broker can know of it."""
        if not self.is_over:
            self.is_over = True
            self._ledger.let_go(self)


class SessionLedger:
    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        """How many messages of each session were sent and acknowledged."""
        self.completed: Counter[str] = Counter()
        self.doubts: dict[str, int] = {}
        """By session: what somebody was completing when it lost the session."""
        self.problems: list[str] = []
        self.repeats = 0
        self.holdings = 0
        self._holders: dict[str, Holding] = {}
        self._deliveries: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._let_go: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def accept(self, session: Any) -> Holding:
        before = self._holders.get(session.session_id)
        if before is not None:
            if before.is_locked:
                self.complain(f"{session.session_id} was given to two at once")
            before.let_go()
        holding = self._holders[session.session_id] = Holding(self, session)
        self.holdings += 1
        return holding

    def let_go(self, holding: Holding) -> None:
        del self._holders[holding.session_id]
        if holding.completing is not None:
            self.doubts[holding.session_id] = holding.completing
        self._let_go[holding.session_id].update(holding.in_hand)

    def count_delivery(self, session_id: str, number: int) -> None:
        times = self._deliveries[session_id]
        times[number] += 1
        if times[number] > 1:
            self.repeats += 1
        if times[number] > 1 + self._let_go[session_id][number]:
            self.complain(f"{session_id}: {number} came twice")

    def last_doubts(self, per_session: int) -> list[str]:
        """Sessions in which nothing can come any more that would resolve a doubt."""
        return [
            session_id
            for session_id, number in self.doubts.items()
            if number + 1 == per_session and session_id not in self._holders
        ]

    def is_empty(self, session_id: str) -> None:
        """The broker says so: then what was in doubt was completed."""
        number = self.doubts.pop(session_id)
        self.completed[session_id] = max(self.completed[session_id], number + 1)

    def complain(self, problem: str) -> None:
        self.problems.append(problem)

    def judge(self) -> None:
        assert not self.problems, "\n".join(self.problems)
        assert self.completed == self.accepted, "acknowledged and lost"
