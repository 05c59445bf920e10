"""How much is in a partition, in the words of the service's message counts (P-43)."""

from __future__ import annotations

from typing import NamedTuple

from busway.broker.broker import Broker
from busway.broker.commits import WayState
from busway.model.entities import Entity
from busway.store.base import Counters, SubQueueKind

NOTHING = Counters()
FORGOTTEN = (WayState.OPENING, WayState.FENCED, WayState.STOPPED)
"""While a store is being opened, nobody knows what is in it."""


class Depth(NamedTuple):
    active: int = 0
    scheduled: int = 0
    deferred: int = 0
    dead_letter: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    bytes: int = 0

    @property
    def messages(self) -> int:
        return sum(self[:-1])

    def plus(self, other: Depth) -> Depth:
        return Depth(*map(sum, zip(self, other, strict=True)))


EMPTY = Depth()
STATES = Depth._fields[:-1]


def depth_of(broker: Broker, entity: Entity, partition: int) -> Depth | None:
    """None if it is not known now."""
    if broker.state in FORGOTTEN:
        return None
    kinds = broker.counters(entity.incarnation, partition)
    if not kinds:
        return EMPTY
    main = kinds.get(SubQueueKind.MAIN, NOTHING)
    return Depth(
        active=main.active,
        scheduled=main.scheduled,
        deferred=main.deferred,
        dead_letter=_all(kinds.get(SubQueueKind.DEAD_LETTER, NOTHING)),
        transfer=_all(kinds.get(SubQueueKind.TRANSFER, NOTHING)),
        transfer_dead_letter=_all(kinds.get(SubQueueKind.TRANSFER_DEAD_LETTER, NOTHING)),
        bytes=sum(each.bytes for each in kinds.values()),
    )


def _all(counters: Counters) -> int:
    return counters.active + counters.scheduled + counters.deferred
