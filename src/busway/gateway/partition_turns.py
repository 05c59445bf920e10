"""Whose turn it is among the partitions of an entity, for as long as the entity is there (P-26).

A link that takes one message and leaves is followed by another. If each began at the same
partition, that one would be served and the others would starve. So the order in which partitions
were asked last outlives the links: the one that has waited longest comes first.

It begins anywhere, so that several gateways do not all begin at the same partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from busway.model.entities import Entity
from busway.store.base import SubQueueKind


class OtherTurns(Enum):
    """Those that are not about the messages of a sub-queue."""

    SESSIONS = "next session"
    DELETIONS = "batch delete"


TurnsOf = SubQueueKind | OtherTurns


class PartitionTurns:
    """Of all entities of one gateway."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._orders: dict[int, dict[TurnsOf, tuple[int, ...]]] = {}
        """By incarnation, of those with several partitions: who was asked longest ago is first."""

    def order(self, entity: Entity, of: TurnsOf) -> tuple[int, ...]:
        """The partitions of the entity, whose turn it is first."""
        count = len(entity.placement)
        if count == 1:
            return (0,)
        orders = self._orders.setdefault(entity.incarnation, {})
        found = orders.get(of)
        if found is None:
            start = self._random_bytes(1)[0] % count
            found = orders[of] = (*range(start, count), *range(start))
        return found

    def keep(self, incarnation: int, of: TurnsOf, order: Sequence[int]) -> None:
        """Who was asked meanwhile stands at the end."""
        if incarnation in self._orders:
            self._orders[incarnation][of] = tuple(order)

    def asked(self, entity: Entity, of: TurnsOf, partition: int) -> None:
        """The others come before it, the next time."""
        others = [each for each in self.order(entity, of) if each != partition]
        self.keep(entity.incarnation, of, [*others, partition])

    def forget(self, incarnation: int) -> None:
        self._orders.pop(incarnation, None)
