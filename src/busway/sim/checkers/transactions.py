"""A transaction is carried out whole or not at all (TXN-2, D-28).

Where it was answered, its parts were answered alike, and `presence` judges each. Where nobody knows
how it ended, what is seen of one part says how all the others have ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from busway.broker.seams import SettlementKind
from busway.sim.checkers.presence import Presence
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    SendStarted,
    SettleStarted,
    TransactionEnded,
    TransactionStarted,
    Violation,
)
from busway.store.base import SubQueueKey

NAME = "transactions"


@dataclass(slots=True)
class Doubt:
    """A transaction that may have been carried out, and what speaks for either."""

    number: int
    sent: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    done_because: int | None = None
    """A message of it that came."""
    not_done_because: int | None = None
    """One that it would have removed, and that came again."""

    def check(self) -> None:
        if self.done_because is not None and self.not_done_because is not None:
            raise Violation(
                NAME,
                f"of transaction {self.number}, {self.done_because} was sent, and "
                f"{self.not_done_because} was not removed",
            )


class Transactions:
    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._sends: dict[int, SendStarted] = {}
        self._settlements: dict[int, SettleStarted] = {}
        self._started: dict[int, TransactionStarted] = {}
        self._by_sent: dict[int, Doubt] = {}
        self._by_completed: dict[int, list[Doubt]] = {}
        self._seen: set[int] = set()

    def see(self, now_ms: int, event: Event) -> None:
        match event:
            case SendStarted():
                self._sends[event.send] = event
            case SettleStarted():
                self._settlements[event.settlement] = event
            case TransactionStarted():
                self._started[event.transaction] = event
            case TransactionEnded(transaction, answer):
                started = self._started.pop(transaction)
                if answer is Answer.UNKNOWN:
                    self._doubt(started)
            case Delivered():
                self._there(event.body)

    def _doubt(self, started: TransactionStarted) -> None:
        doubt = Doubt(started.transaction)
        for send in started.sends:
            for body in self._sends[send].bodies:
                if self._sends[send].has_ids:
                    continue  # it may be there from another time
                doubt.sent.add(body)
                self._by_sent[body] = doubt
        for settlement in started.settlements:
            settled = self._settlements[settlement]
            if settled.kind is SettlementKind.COMPLETE:
                doubt.completed.add(settled.body)
                self._by_completed.setdefault(settled.body, []).append(doubt)
        for body in doubt.sent & self._seen:
            self._there(body)  # it came before its sender lost hope

    def _there(self, body: int) -> None:
        self._seen.add(body)
        doubt = self._by_sent.get(body)
        if doubt is not None and doubt.done_because is None:
            doubt.done_because = body
            doubt.check()
            for other in doubt.sent:
                self._presence.was_carried_out(other)
        for doubt in self._by_completed.get(body, []):
            doubt.not_done_because = body
            doubt.check()

    def check_found(self, found: dict[int, SubQueueKey]) -> None:
        for body in found:
            self._there(body)
