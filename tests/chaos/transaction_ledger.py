"""What became of transactions, told by what was seen of their parts (TXN-2, P-35, D-28).

A transaction takes some messages out of a queue and puts others in; what it put in may be taken
out by the next. It was carried out if it was acknowledged, or if anything that it put in was ever
seen; it was not if anything that it took out was seen again. Both, or neither, is half of one.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    NOT_ASKED = "its discharge was never sent"
    UNKNOWN = "its discharge was sent, and nobody answered"
    DONE = "acknowledged"
    REFUSED = "refused"


@dataclass(slots=True)
class Record:
    number: int
    takes: tuple[str, ...]
    puts: tuple[str, ...]
    asked_at: int = 0
    """The moment at which its discharge was sent."""
    outcome: Outcome = Outcome.NOT_ASKED


class TransactionLedger:
    """Kept by the threads of clients; moments are counted, not measured."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments = itertools.count(1)
        self._numbers = itertools.count()
        self.seeds: set[str] = set()
        """Sent without a transaction, and acknowledged."""
        self.records: list[Record] = []
        self._delivered: dict[str, int] = {}
        """When each was delivered last."""

    def count(self, outcome: Outcome) -> int:
        with self._lock:
            return sum(record.outcome is outcome for record in self.records)

    @property
    def asked(self) -> int:
        with self._lock:
            return sum(record.asked_at > 0 for record in self.records)

    # What clients tell.

    def new_ids(self, count: int) -> tuple[str, ...]:
        with self._lock:
            return tuple(f"message-{next(self._numbers)}" for _ in range(count))

    def deliver(self, message_id: str) -> None:
        with self._lock:
            self._delivered[message_id] = next(self._moments)

    def begin(self, takes: Sequence[str], puts: Sequence[str]) -> Record:
        with self._lock:
            record = Record(len(self.records), tuple(takes), tuple(puts))
            self.records.append(record)
            return record

    def ask(self, record: Record) -> None:
        with self._lock:
            record.asked_at = next(self._moments)
            record.outcome = Outcome.UNKNOWN

    # What must be so.

    def _carried_out(self, record: Record, found: set[str]) -> bool:
        came = [each for each in record.puts if each in found or each in self._delivered]
        back = [
            each
            for each in record.takes
            if each in found or self._delivered[each] > record.asked_at > 0
        ]
        if record.outcome in (Outcome.NOT_ASKED, Outcome.REFUSED):
            assert came == [], f"{record} was not carried out, and {came} came of it"
            return False
        assert not (came and back), f"half of {record}: {came} came, and {back} are not gone"
        if record.outcome is Outcome.DONE:
            assert back == [], f"{record} was acknowledged, and {back} are not gone"
            return True
        return not back

    def owed(self, found: Iterable[str]) -> list[str]:
        """What must be in the queues, and was not found there."""
        there = set(found)
        expected = set(self.seeds)
        gone: set[str] = set()
        for record in self.records:
            if self._carried_out(record, there):
                expected.update(record.puts)
                gone.update(record.takes)
        return sorted(expected - gone - there)

    def judge(self, found: list[str]) -> None:
        """`found` is all that is in the queues at the end."""
        assert self.owed(found) == [], "lost"
        known = self.seeds.union(*(record.puts for record in self.records))
        assert sorted(set(found) - known) == [], "never sent"
        assert [each for each, times in Counter(found).items() if times > 1] == [], "there twice"
