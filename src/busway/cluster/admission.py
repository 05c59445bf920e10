"""Whether an entity may come into a namespace, beyond what it says of itself: names, quotas and
destinations (NAM-2, P-16, LIM-6, FWD-1).

Each check raises `BusError`, and then nothing has changed.
"""

from __future__ import annotations

from busway.cluster.entity_index import EntityIndex
from busway.model.entities import Entity, Namespace, Queue, Subscription, Topic
from busway.model.errors import (
    ENTITY_ALREADY_EXISTS,
    ENTITY_COUNT_EXCEEDED,
    INVALID_OPERATION,
    TOPIC_COUNT_EXCEEDED,
    BusError,
)
from busway.model.limits import SUBSCRIPTIONS_PER_TOPIC_MAX, TIERS
from busway.model.properties import FORWARDS, refused


def check_topics(namespace: Namespace, description: Topic | Subscription) -> None:
    if not TIERS[namespace.tier].topics:
        raise BusError(
            INVALID_OPERATION,
            detail=f"The {description.entity_type.lower()} '{description.path}' cannot be created: "
            f"the tier {namespace.tier.value} has no topics.",
        )


def check_name_is_free(index: EntityIndex, description: Entity) -> None:
    """NAM-2. No queue or topic can have the path of a subscription (NAM-1)."""
    match description:
        case Subscription(topic=topic, name=name):
            taken = index.find_subscription(topic, name) is not None
        case _:
            taken = index.find(description.path) is not None
    if taken:
        raise BusError(ENTITY_ALREADY_EXISTS, uri=description.path)


def check_forwards(index: EntityIndex, entity: Entity, old: Entity | None = None) -> None:
    """FWD-1: a destination must be there when it is named, and may go later (FWD-4)."""
    for row in FORWARDS:
        destination = getattr(entity, row.field, None)
        if destination is None or destination == getattr(old, row.field, None):
            continue
        if index.find(destination) is None:
            raise refused(entity, row, "there is no queue or topic of that name")


def check_quota(index: EntityIndex, namespace: Namespace, description: Queue | Topic) -> None:
    """P-16. Subscriptions are counted by topic (LIM-6)."""
    tier = TIERS[namespace.tier]
    there = list(index.queues_and_topics())
    counts = [("entities", tier.entities_max, len(there))]
    if description.enable_partitioning:
        partitioned = sum(each.enable_partitioning for each in there)
        counts.append(("partitioned queues and topics", tier.partitioned_entities_max, partitioned))
    for counted, limit, count in counts:
        if limit is not None and count >= limit:
            raise BusError(
                ENTITY_COUNT_EXCEEDED,
                what=description.entity_type.lower(),
                path=description.path,
                namespace=namespace.name,
                limit=limit,
                counted=counted,
            )


def check_subscription_quota(index: EntityIndex, topic: Topic, subscription: Subscription) -> None:
    """LIM-6."""
    if index.subscription_count(topic) >= SUBSCRIPTIONS_PER_TOPIC_MAX:
        raise BusError(
            TOPIC_COUNT_EXCEEDED,
            what="subscription",
            path=subscription.path,
            topic=topic.path,
            limit=SUBSCRIPTIONS_PER_TOPIC_MAX,
            counted="subscriptions",
        )
