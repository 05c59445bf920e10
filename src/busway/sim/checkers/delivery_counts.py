"""The delivery count that clients see is exact (DLV-1, LOCK-4, D-5).

For each message the checker keeps the set of counts that it may have: abandon and defer add one,
an expired lock adds one, release and leaving a session none. Where it was forwarded to it begins
with none. Where nobody knows whether a change was durable when memory was lost, the set has two
members, until the next delivery shows which.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from busway.broker.seams import SettlementKind
from busway.sim.history import (
    Answer,
    Delivered,
    DeliveriesUnseen,
    Event,
    Renewed,
    SessionLeft,
    SessionRenewed,
    SettleEnded,
    SettleStarted,
    Violation,
)

NAME = "delivery counts"

COUNTED = {SettlementKind.ABANDON, SettlementKind.DEFER}
"""After these the count is one higher."""


@dataclass(slots=True)
class LastDelivery:
    count: int
    token: bytes | None
    until_ms: int
    epoch: int
    incarnation: int
    left_ms: int | None = None
    """When its session was left."""
    pending: set[SettlementKind] = field(default_factory=set)
    settled: SettlementKind | None = None
    """How it certainly ended."""
    perhaps: set[SettlementKind] = field(default_factory=set)
    """How it may have ended; nobody knows."""


class DeliveryCounts:
    def __init__(self, *, unseen_deliveries: bool = False, limited: bool = False) -> None:
        self._unseen_deliveries = unseen_deliveries
        """Over a network a delivery may be lost with its connection, and count all the same."""
        self._limited = limited
        """Whether that is reckoned up: no more than may have been under way (D-22)."""
        self._unseen: dict[int, int] = {}
        """By incarnation: how many deliveries may still turn out to have been counted."""
        self._reckoned: dict[int, int] = {}
        """By body: how many turned out to have been, since it was delivered last."""
        self._last: dict[int, LastDelivery] = {}
        self._settlements: dict[int, SettleStarted] = {}
        self._of_holding: dict[int, list[LastDelivery]] = {}

    def see(self, now_ms: int, event: Event) -> None:
        match event:
            case DeliveriesUnseen(incarnation, count):
                self._unseen[incarnation] = self._unseen.get(incarnation, 0) + count
            case Delivered() if event.epoch < self._epoch_of(event.body, event.key.incarnation):
                pass  # overtaken on the network by what a later owner delivered
            case Delivered():
                incarnation = event.key.incarnation
                self.check(now_ms, event.body, event.delivery_count, event.epoch, incarnation)
                self._reckoned.pop(event.body, None)
                last = self._last[event.body] = LastDelivery(
                    event.delivery_count,
                    event.token,
                    event.locked_until_ms,
                    event.epoch,
                    incarnation,
                )
                if event.holding is not None:
                    self._of_holding.setdefault(event.holding, []).append(last)
            case SessionRenewed(holding, until_ms):
                for last in self._of_holding.get(holding, []):
                    last.until_ms = until_ms
            case SessionLeft(holding):
                for last in self._of_holding.pop(holding, []):
                    last.left_ms = now_ms
            case Renewed(body, token, until_ms):
                last = self._last[body]
                if last.token == token:
                    last.until_ms = until_ms
            case SettleStarted():
                self._settlements[event.settlement] = event
                last = self._last[event.body]
                if last.token == event.token:
                    last.pending.add(event.kind)
            case SettleEnded(settlement, answer):
                started = self._settlements.pop(settlement)
                last = self._last[started.body]
                if last.token == started.token:
                    last.pending.discard(started.kind)
                    if answer is Answer.DONE:
                        last.settled = started.kind
                    elif answer is Answer.UNKNOWN:
                        last.perhaps.add(started.kind)

    def _epoch_of(self, body: int, incarnation: int) -> int:
        last = self._last.get(body)
        return 0 if last is None or last.incarnation != incarnation else last.epoch

    def check(self, now_ms: int, body: int, count: int, epoch: int, incarnation: int) -> None:
        possible = self._possible(now_ms, body, epoch, incarnation)
        if count in possible:
            return
        if self._unseen_deliveries and count > min(possible):
            unseen = count - max(each for each in possible if each < count)
            left = self._unseen.get(incarnation, 0) - unseen + self._reckoned.get(body, 0)
            if not self._limited or left >= 0:
                self._unseen[incarnation], self._reckoned[body] = left, unseen
                return
            text = f"{body} has the count {count}, but none of its deliveries can have got lost"
            raise Violation(NAME, f"{text}: one of {sorted(possible)}")
        raise Violation(NAME, f"{body} has the count {count}, not one of {sorted(possible)}")

    def _possible(self, now_ms: int, body: int, epoch: int, incarnation: int) -> set[int]:
        last = self._last.get(body)
        if last is None or last.incarnation != incarnation:
            return {0}
        count = last.count
        if last.settled is not None:
            return {count + 1} if last.settled in COUNTED else {count}
        possible = set()
        unknown = set(last.perhaps)
        if epoch != last.epoch:
            possible.add(count)  # the lock is void and was not counted (D-5)
            unknown |= last.pending  # a transaction that is still being asked about
        if self._unseen_deliveries:
            unknown |= last.pending  # done, and its answer is on the way to another client
        if unknown:
            possible |= {count, count + 1} if unknown & COUNTED else {count}
        if last.left_ms is not None:
            possible.add(count)  # SES-9
        if (now_ms if last.left_ms is None else last.left_ms) >= last.until_ms:
            possible.add(count + 1)  # LOCK-4, SES-8; left when it was over, it may be seen so, too
        return possible or {count}
