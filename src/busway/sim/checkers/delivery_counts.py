"""The delivery count that clients see is exact (DLV-1, LOCK-4, D-5).

For each message the checker keeps the set of counts that it may have: abandon adds one, an expired
lock adds one, release and defer none. Where nobody knows whether a change was durable when memory
was lost, the set has two members, until the next delivery shows which.
"""

from __future__ import annotations

from dataclasses import dataclass

from busway.broker.seams import SettlementKind
from busway.sim.history import (
    Answer,
    Delivered,
    Event,
    Renewed,
    SettleEnded,
    SettleStarted,
    Violation,
)

NAME = "delivery counts"


@dataclass(slots=True)
class LastDelivery:
    count: int
    token: bytes | None
    until_ms: int
    epoch: int
    settled: SettlementKind | None = None
    """How it certainly ended."""
    perhaps: SettlementKind | None = None
    """How it may have ended; nobody knows."""


class DeliveryCounts:
    def __init__(self, *, unseen_deliveries: bool = False) -> None:
        self._unseen_deliveries = unseen_deliveries
        """Over a network a delivery may be lost with its connection, and count all the same."""
        self._last: dict[int, LastDelivery] = {}
        self._settlements: dict[int, SettleStarted] = {}

    def see(self, now_ms: int, event: Event) -> None:
        match event:
            case Delivered() if event.epoch < self._epoch_of(event.body):
                pass  # overtaken on the network by what a later owner delivered
            case Delivered():
                self.check(now_ms, event.body, event.delivery_count, event.epoch)
                self._last[event.body] = LastDelivery(
                    event.delivery_count, event.token, event.locked_until_ms, event.epoch
                )
            case Renewed(body, token, until_ms):
                last = self._last[body]
                if last.token == token:
                    last.until_ms = until_ms
            case SettleStarted():
                self._settlements[event.settlement] = event
            case SettleEnded(settlement, answer):
                started = self._settlements.pop(settlement)
                last = self._last[started.body]
                if last.token == started.token:
                    if answer is Answer.DONE:
                        last.settled = started.kind
                    elif answer is Answer.UNKNOWN:
                        last.perhaps = started.kind

    def _epoch_of(self, body: int) -> int:
        last = self._last.get(body)
        return 0 if last is None else last.epoch

    def check(self, now_ms: int, body: int, count: int, epoch: int) -> None:
        possible = self._possible(now_ms, body, epoch)
        if count in possible or (self._unseen_deliveries and count > min(possible)):
            return
        raise Violation(NAME, f"{body} has the count {count}, not one of {sorted(possible)}")

    def _possible(self, now_ms: int, body: int, epoch: int) -> set[int]:
        last = self._last.get(body)
        if last is None:
            return {0}
        count = last.count
        if last.settled is not None:
            return {count + 1} if last.settled is SettlementKind.ABANDON else {count}
        possible = set()
        if last.perhaps is not None:
            possible = {count, count + 1} if last.perhaps is SettlementKind.ABANDON else {count}
        if epoch != last.epoch:
            possible.add(count)  # the lock is void and was not counted (D-5)
        if now_ms >= last.until_ms:
            possible.add(count + 1)  # LOCK-4
        return possible or {count}
