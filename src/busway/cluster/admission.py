"""Whether and as what an entity may come into a namespace, beyond what it says of itself: names,
quotas, destinations, partitions (NAM-2, P-13, P-14, P-16, LIM-6, FWD-1).

Each check raises `BusError`, and then nothing has changed.
"""

from __future__ import annotations

from dataclasses import replace

from busway.cluster.entity_index import EntityIndex
from busway.model.entities import (
    Entity,
    Namespace,
    Queue,
    Subscription,
    Topic,
    partitions_of,
    stands_still,
)
from busway.model.errors import (
    ENTITY_ALREADY_EXISTS,
    ENTITY_COUNT_EXCEEDED,
    INVALID_OPERATION,
    TOPIC_COUNT_EXCEEDED,
    BusError,
)
from busway.model.limits import KIB, SUBSCRIPTIONS_PER_TOPIC_MAX, TIERS
from busway.model.properties import FORWARDS, PARTITIONING, AnyEntity, refused


def completed(
    namespace: Namespace, description: AnyEntity, old: AnyEntity | None = None
) -> AnyEntity:
    """The description with what it leaves to the namespace, or to the entity that it changes."""
    if isinstance(description, Subscription):
        return description
    assert not isinstance(old, Subscription)
    partitioning, size_kb = description.enable_partitioning, description.max_message_size_kb
    if old is not None:
        partitioning = old.enable_partitioning if partitioning is None else partitioning
        if size_kb is None and old.max_message_size_kb is not None:
            # One that came to Premium later may have less than there is (P-13).
            least_kb, _ = TIERS[namespace.tier].message_max_kb_choice
            size_kb = max(old.max_message_size_kb, least_kb)
    else:
        partitioning = _partitioning(namespace, description)
        if size_kb is None:
            size_kb = TIERS[namespace.tier].message_max_bytes // KIB
    return replace(description, enable_partitioning=partitioning, max_message_size_kb=size_kb)


def _partitioning(namespace: Namespace, description: Queue | Topic) -> bool:
    stated = description.enable_partitioning
    if namespace.partitions > 1:  # P-14
        if stated is False:
            raise refused(
                description,
                PARTITIONING,
                # The service's own words, which people search for.
                "Non-partitioned entities are not allowed in partitioned namespace. The property "
                "EnablePartitioning must be set to true. All queues and topics of the namespace "
                f"'{namespace.name}' are partitioned; it may also be left out",
            )
        return True
    if not TIERS[namespace.tier].entity_partitioning:  # P-13
        if stated and namespace.partitions_stated:  # P-14, with one partition
            raise refused(
                description,
                PARTITIONING,
                "Partitioned entities are not allowed in a namespace that is not partitioned. The "
                "property EnablePartitioning must be set to false, or left out. The namespace "
                f"'{namespace.name}' of the tier {namespace.tier.value} was made with one "
                "partition; one that is made with two or four has all of its entities partitioned",
            )
        return False
    return bool(stated)


def partitions_in(namespace: Namespace, enable_partitioning: bool | None) -> int:
    """Of a new entity (P-2, P-12, P-14)."""
    return namespace.partitions if namespace.partitions > 1 else partitions_of(enable_partitioning)


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


def check_goes_on(entity: Entity) -> None:
    """What stands still is changed by its migration only."""
    if stands_still(entity):
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{entity.path}' is being migrated: it cannot be changed or deleted until that "
            "is over. GET /$busway/migrations/{name} tells how far it is.",
        )


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
    counts = [("entities", tier.entities_max, index.queue_count + index.topic_count)]
    if description.enable_partitioning:
        counts.append(
            (
                "partitioned queues and topics",
                tier.partitioned_entities_max,
                index.partitioned_count,
            )
        )
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
