"""Bugs on purpose: what checkers are worth is shown by what they catch.

Each is a broker that breaks one promise. They live here and nowhere near the product; `--bug`
puts one into a simulation, and a test holds the checkers to finding it.
"""

from __future__ import annotations

from collections.abc import Sequence

from busway.broker.broker import Broker
from busway.broker.seams import Replies, Settlement, SettlementKind
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.base import SubQueueKey


class _FirstAnswerOnly:
    """Tells the sender at once, and whatever the commit says later, no more."""

    def __init__(self, replies: Replies, tag: int) -> None:
        self._replies = replies
        self._tag = tag
        self._answered = False

    def acknowledge(self) -> None:
        if not self._answered:
            self._answered = True
            self._replies.committed([self._tag])

    def committed(self, tags: list[int]) -> None:
        self.acknowledge()

    def failed(self, tag: int, error: BusError) -> None:
        if not self._answered:
            self._answered = True
            self._replies.failed(tag, error)


class AcknowledgeBeforeCommit(Broker):
    """Answers a send when it is staged (against D-5)."""

    def send(
        self, key: SubQueueKey, messages: Sequence[Message], replies: Replies, tag: int
    ) -> None:
        first = _FirstAnswerOnly(replies, tag)
        super().send(key, messages, first, tag)
        first.acknowledge()


class ReturnWithoutCounting(Broker):
    """Gives an abandoned message out again without counting the delivery (against DLV-1)."""

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        if settlement.kind is SettlementKind.ABANDON:
            settlement = Settlement(SettlementKind.RELEASE)
        super().settle(key, token, settlement, replies, tag)


class CompleteInMemoryOnly(Broker):
    """Acknowledges a completion without removing anything: it comes back (against MSG-3)."""

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        if settlement.kind is SettlementKind.COMPLETE and token[-1] % 16 == 0:
            settlement = Settlement(SettlementKind.RELEASE)
        super().settle(key, token, settlement, replies, tag)


BUGS: dict[str, type[Broker]] = {
    "acknowledge-before-commit": AcknowledgeBeforeCommit,
    "return-without-counting": ReturnWithoutCounting,
    "complete-in-memory-only": CompleteInMemoryOnly,
}
