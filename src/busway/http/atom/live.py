"""What an entity holds just now: counted over all partitions, from memory, exactly (P-43, PRT-10).

A partition whose store is ill keeps nobody from being told about the others: the entity is then
*Limited*, and what was last known of that partition is part of the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from busway.gateway.gateway import Gateway
from busway.model.entities import Entity, Subscription, Topic
from busway.store.base import SubQueueKind


@dataclass(frozen=True, slots=True)
class Live:
    active: int = 0
    """With deferred ones, which stay in the main queue (http.md 6: the five counts are all)."""
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    size_bytes: int = 0
    is_available: bool = True
    """Whether all of its partitions are."""
    accessed_ms: int | None = None
    """None: not since this node was started, as far as anybody knows."""
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0

    @property
    def messages(self) -> int:
        return (
            self.active
            + self.dead_letter
            + self.scheduled
            + self.transfer
            + self.transfer_dead_letter
        )


def look_at(gateway: Gateway, entity: Entity) -> Live:
    counts = dict.fromkeys(SubQueueKind, 0)
    scheduled = size_bytes = 0
    is_available = True
    for partition in range(len(entity.placement)):
        owner = gateway.router.owner(entity, partition)
        is_available = is_available and owner is not None and owner.available
        if owner is None:
            continue
        for kind, counters in owner.counters(entity.incarnation, partition).items():
            counts[kind] += counters.active + counters.deferred
            scheduled += counters.scheduled
        if not isinstance(entity, Subscription):
            size_bytes += owner.size_bytes(entity.incarnation, partition)
    subscriptions = sql_filters = correlation_filters = 0
    if isinstance(entity, Topic):
        rules = gateway.catalog.topic_rules(entity.incarnation)
        subscriptions = gateway.catalog.subscription_count(entity)
        sql_filters, correlation_filters = rules.sql_filters, rules.correlation_filters
    return Live(
        active=counts[SubQueueKind.MAIN],
        dead_letter=counts[SubQueueKind.DEAD_LETTER],
        scheduled=scheduled,
        transfer=counts[SubQueueKind.TRANSFER],
        transfer_dead_letter=counts[SubQueueKind.TRANSFER_DEAD_LETTER],
        size_bytes=size_bytes,
        is_available=is_available,
        accessed_ms=gateway.idle.last_used_ms(entity),
        subscriptions=subscriptions,
        sql_filters=sql_filters,
        correlation_filters=correlation_filters,
    )
