"""What the consumers of sessions saw, held against what sessions promise (SES-3, SES-4).

A session's messages are numbered from 0 by who sends them. Whoever accepts a session must get the
first that is not completed, and then one after the other: so anything that is lost, out of order or
there twice is seen when it is delivered. A message may come again only if who had it let it go.
"""

from __future__ import annotations

from collections import Counter, defaultdict


class Holding:
    """One consumer that has one session, from accepting it until it lets go."""

    def __init__(self, ledger: SessionLedger, session_id: str) -> None:
        self.session_id = session_id
        self._ledger = ledger
        self._next = ledger.completed[session_id]
        self._in_hand: set[int] = set()

    def deliver(self, number: int) -> None:
        if number != self._next:
            self._ledger.complain(f"{self.session_id}: {number} came, and {self._next} was due")
        self._next = number + 1
        self._in_hand.add(number)
        self._ledger.count_delivery(self.session_id, number)

    def complete(self, number: int) -> None:
        """Once the broker has said so."""
        self._in_hand.discard(number)
        if number != self._ledger.completed[self.session_id]:
            self._ledger.complain(f"{self.session_id}: {number} was completed out of turn")
        self._ledger.completed[self.session_id] = number + 1

    def let_go(self) -> None:
        """Before the broker can know of it: by leaving, or because the lock has expired."""
        self._ledger.let_go(self.session_id, self, self._in_hand)
        self._in_hand = set()


class SessionLedger:
    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        """How many messages of each session were sent and acknowledged."""
        self.completed: Counter[str] = Counter()
        self.problems: list[str] = []
        self.repeats = 0
        self.holdings = 0
        self._holders: dict[str, Holding] = {}
        self._deliveries: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._let_go: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def accept(self, session_id: str) -> Holding:
        if session_id in self._holders:
            self.complain(f"{session_id} was given to two at once")
        holding = self._holders[session_id] = Holding(self, session_id)
        self.holdings += 1
        return holding

    def let_go(self, session_id: str, holding: Holding, numbers: set[int]) -> None:
        if self._holders.get(session_id) is holding:
            del self._holders[session_id]
        self._let_go[session_id].update(numbers)

    def count_delivery(self, session_id: str, number: int) -> None:
        times = self._deliveries[session_id]
        times[number] += 1
        if times[number] > 1:
            self.repeats += 1
        if times[number] > 1 + self._let_go[session_id][number]:
            self.complain(f"{session_id}: {number} came twice")

    def complain(self, problem: str) -> None:
        self.problems.append(problem)

    def judge(self) -> None:
        assert self.problems == []
        assert self.completed == self.accepted
