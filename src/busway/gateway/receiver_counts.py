"""How many receivers each queue or topic has, of every kind: plain ones and session ones, those of
dead-letter queues, and those of all subscriptions of a topic together (LIM-10)."""

from __future__ import annotations

from busway.model.entities import Entity, Subscription
from busway.model.errors import RECEIVERS_EXCEEDED, BusError
from busway.model.limits import RECEIVES_PER_ENTITY_MAX


class ReceiverCounts:
    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        """By incarnation of the queue or topic."""

    def check(self, entity: Entity, uri: str) -> None:
        """Raises if there may not be one more."""
        if self._counts.get(_counted(entity), 0) >= RECEIVES_PER_ENTITY_MAX:
            raise BusError(RECEIVERS_EXCEEDED, uri=uri, limit=RECEIVES_PER_ENTITY_MAX)

    def joined(self, entity: Entity) -> None:
        key = _counted(entity)
        self._counts[key] = self._counts.get(key, 0) + 1

    def left(self, entity: Entity) -> None:
        key = _counted(entity)
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]


def _counted(entity: Entity) -> int:
    return entity.topic_incarnation if isinstance(entity, Subscription) else entity.incarnation
