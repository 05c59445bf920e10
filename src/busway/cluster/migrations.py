"""What the catalog does for a migration: a twin is made, the source stops, the twin takes over.

A queue or topic and its twin keep the same `Migration`, and so do each subscription and its twin:
after a crash the catalog alone says how far it was. Each step is one commit (D-16): the twin is
there and the source stands still; it is called off; the messages come back; it is over, by which
one of the two has the path and the other a tombstone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import NamedTuple, TypeVar

from busway.cluster.catalog import Catalog, Change
from busway.model.entities import (
    Course,
    Entity,
    EntityStatus,
    Migration,
    Queue,
    Subscription,
    Topic,
)
from busway.model.errors import INVALID_OPERATION, BusError
from busway.model.limits import TIERS
from busway.model.names import name_key
from busway.model.properties import FORWARDS

AnyEntity = TypeVar("AnyEntity", Queue, Topic, Subscription)

TWIN_SUFFIX = ".migration-"
PATH_CHARS_KEPT = 240


class Pair(NamedTuple):
    """An entity that is migrated, and its twin."""

    source: Entity
    twin: Entity


def check(catalog: Catalog, source: Queue | Topic, *, partitioned: bool) -> None:
    """Raise if the namespace cannot have such an entity (P-13, P-14), or it could not be moved."""
    namespace = catalog.namespace
    if namespace.partitions > 1 or not TIERS[namespace.tier].entity_partitioning:
        raise _refused(
            f"'{source.path}' cannot be migrated: in the namespace '{namespace.name}' (tier "
            f"{namespace.tier.value}) it is not for each queue and topic to say whether it is "
            "partitioned."
        )
    twin = twin_of(catalog, source)
    if twin is not None and bool(twin.enable_partitioning) is not partitioned:
        raise _refused(
            f"'{source.path}' is being migrated the other way. Let that end, or call it off with "
            "DELETE /$busway/migrations/{name}, first."
        )
    if source.migration is not None and source.migration.course is not Course.THERE:
        raise _refused(
            f"The migration of '{source.path}' has been called off, and its messages come back. "
            "Let that end with DELETE /$busway/migrations/{name}, and start again."
        )
    for each in (source, *_subscriptions(catalog, source)):
        for row in FORWARDS:
            if name_key(getattr(each, row.field, None) or "") == source.key:
                raise _refused(
                    f"'{each.path}' forwards to '{source.path}' itself ({row.wire}), which cannot "
                    "take anything while it is migrated: it would never be empty. Let it forward "
                    "to nothing until that is over."
                )


def twin_of(catalog: Catalog, source: Queue | Topic) -> Queue | Topic | None:
    migration = source.migration
    twin = None if migration is None else catalog.get(migration.twin)
    return None if isinstance(twin, Subscription) else twin


def pairs_of(catalog: Catalog, source: Queue | Topic) -> list[Pair]:
    """The entity with its twin, then each of its subscriptions with its own."""
    found = []
    for each in (source, *_subscriptions(catalog, source)):
        twin = catalog.get(each.migration.twin) if each.migration is not None else None
        if twin is not None:
            found.append(Pair(each, twin))
    return found


def start(
    catalog: Catalog, source: Queue | Topic, *, partitioned: bool, capture: bool, now_ms: int
) -> Queue | Topic:
    """Make the twin, and let the source stand still; from then on its brokers empty it.

    With `capture` the journals of both are kept until it is over. Asked for again, it goes on where
    it was.
    """
    check(catalog, source, partitioned=partitioned)
    if source.migration is not None:
        return source
    with catalog.together():
        pairs = _made(catalog, source, partitioned=partitioned, capture=capture, now_ms=now_ms)
        changes = [
            change for pair in pairs for change in _begun(pair, capture=capture, now_ms=now_ms)
        ]
        catalog.change(*changes, now_ms=now_ms)
    stopped = catalog.get(source.incarnation)
    assert isinstance(stopped, Queue | Topic)
    return stopped


def _made(
    catalog: Catalog, source: Queue | Topic, *, partitioned: bool, capture: bool, now_ms: int
) -> list[Pair]:
    """The twins: a topic's has the same subscriptions, and these the same rules."""
    path = _free_path(catalog, source)
    folds = source.folds_session_ids  # or two sessions might become one, with one state
    match source:
        case Queue():
            queue = replace(_like(source, capture), path=path, enable_partitioning=partitioned)
            return [Pair(source, catalog.create_queue(queue, now_ms, folds_session_ids=folds))]
        case Topic():
            topic = replace(_like(source, capture), path=path, enable_partitioning=partitioned)
            pairs = [Pair(source, catalog.create_topic(topic, now_ms, folds_session_ids=folds))]
            for each in catalog.subscriptions(source):
                wanted = replace(_like(each, capture), topic=path)
                made = catalog.create_subscription(wanted, now_ms, catalog.rules(each))
                pairs.append(Pair(each, made))
            return pairs


def _like(source: AnyEntity, capture: bool) -> AnyEntity:
    return replace(
        source,
        incarnation=0,
        status=EntityStatus.DISABLED,
        capture=source.capture or capture,
        migration=Migration(source.incarnation, 0, source.status, source.capture),
    )


def _begun(pair: Pair, *, capture: bool, now_ms: int) -> list[Change]:
    source, twin = pair
    migration = Migration(source.incarnation, twin.incarnation, source.status, source.capture)
    captured = source.capture or capture
    stopped = replace(
        source,
        version=source.version + 1,
        updated_ms=now_ms,
        status=EntityStatus.DISABLED,
        capture=captured,
        captured_ms=source.captured_ms if source.capture else now_ms * captured,
        migration=migration,
    )
    filling = replace(twin, version=twin.version + 1, migration=migration)
    return [Change(twin, filling), Change(source, stopped)]


def switch(catalog: Catalog, source: Queue | Topic, now_ms: int) -> Queue | Topic:
    """The twin has the path from now on; the caller knows that the source is empty."""
    pairs = pairs_of(catalog, source)
    gone = [Change(pair.source, None) for pair in reversed(pairs)]
    final = [Change(pair.twin, _taken_over(pair, source.path, now_ms)) for pair in pairs]
    catalog.change(*gone, *final, now_ms=now_ms)
    served = catalog.find(source.path)
    assert served is not None
    return served


def _taken_over(pair: Pair, path: str, now_ms: int) -> Entity:
    source, twin = pair
    migration = source.migration
    assert migration is not None
    final = replace(
        twin,
        version=max(source.version, twin.version) + 1,
        created_ms=source.created_ms,
        updated_ms=now_ms,
        status=migration.status,
        capture=migration.captured,
        captured_ms=twin.captured_ms if migration.captured else 0,
        migration=None,
    )
    if isinstance(final, Subscription):
        return replace(final, topic=path)
    return replace(final, path=path)


def set_course(
    catalog: Catalog, source: Queue | Topic, course: Course, now_ms: int
) -> Queue | Topic:
    """Called off: what goes there goes on to its end. Or back: the caller knows that the source is
    empty, and from then on the brokers of the twin empty that."""

    def on_course(entity: Entity) -> Change:
        assert entity.migration is not None
        migration = replace(entity.migration, course=course)
        return Change(entity, replace(entity, version=entity.version + 1, migration=migration))

    changes = [on_course(each) for pair in pairs_of(catalog, source) for each in pair]
    catalog.change(*changes, now_ms=now_ms)
    changed = catalog.get(source.incarnation)
    assert isinstance(changed, Queue | Topic)
    return changed


def call_off(catalog: Catalog, source: Queue | Topic, now_ms: int) -> Queue | Topic:
    """The source goes on as it was; the caller knows that the twin is empty."""
    pairs = pairs_of(catalog, source)
    going_on = [Change(pair.source, _gone_on(pair.source, now_ms)) for pair in pairs]
    gone = [Change(pair.twin, None) for pair in reversed(pairs)]
    catalog.change(*going_on, *gone, now_ms=now_ms)
    served = catalog.get(source.incarnation)
    assert isinstance(served, Queue | Topic)
    return served


def _gone_on(source: Entity, now_ms: int) -> Entity:
    migration = source.migration
    assert migration is not None
    return replace(
        source,
        version=source.version + 1,
        updated_ms=now_ms,
        status=migration.status,
        capture=migration.captured,
        captured_ms=source.captured_ms if migration.captured else 0,
        migration=None,
    )


def _subscriptions(catalog: Catalog, source: Queue | Topic) -> list[Subscription]:
    return catalog.subscriptions(source) if isinstance(source, Topic) else []


def _free_path(catalog: Catalog, source: Queue | Topic) -> str:
    """Never one that an earlier twin of this incarnation had: journals tell them by it apart."""
    stem = f"{source.path[:PATH_CHARS_KEPT]}{TWIN_SUFFIX}"
    named = (f"{stem}{number}" for number in count(source.version))
    return next(name for name in named if catalog.find(name) is None)


def _refused(detail: str) -> BusError:
    return BusError(INVALID_OPERATION, detail=detail)
