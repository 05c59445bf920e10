"""What the catalog does for a migration: a twin is made, the source stops, the twin takes over.

A queue and its twin keep the same `Migration`, so after a crash the catalog alone says how far it
was. A twin that no source knows was made, and nothing more; while a source stands still, messages
are being moved; one commit ends it, by which the twin has the path and the source a tombstone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from busway.cluster.catalog import Catalog, Change
from busway.model.entities import EntityStatus, Migration, Queue
from busway.model.errors import INVALID_OPERATION, BusError
from busway.model.limits import TIERS

TWIN_SUFFIX = ".migration-"
PATH_CHARS_KEPT = 240


def check(catalog: Catalog, source: Queue, *, partitioned: bool) -> None:
    """Raise if the namespace cannot have such a queue (P-13, P-14)."""
    namespace = catalog.namespace
    if namespace.partitions > 1 or not TIERS[namespace.tier].entity_partitioning:
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{source.path}' cannot be migrated: in the namespace '{namespace.name}' (tier "
            f"{namespace.tier.value}) it is not for each queue to say whether it is partitioned.",
        )
    twin = twin_of(catalog, source)
    if twin is not None and bool(twin.enable_partitioning) is not partitioned:
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{source.path}' is being migrated the other way. Let that end, or call it off "
            "with DELETE /$busway/migrations/{queue}, first.",
        )


def twin_of(catalog: Catalog, source: Queue) -> Queue | None:
    """The twin, also one whose source does not know it yet."""
    migration = source.migration
    if migration is not None and migration.twin:
        twin = catalog.get(migration.twin)
        return twin if isinstance(twin, Queue) else None
    for queue in catalog.queues():
        if queue.migration is not None and queue.migration.source == source.incarnation:
            return queue
    return None


def start(
    catalog: Catalog, source: Queue, *, partitioned: bool, capture: bool, now_ms: int
) -> Queue:
    """Make the twin, and let the source stand still; from then on its brokers empty it.

    With `capture` the journals of both are kept until it is over. Asked for again, it goes on where
    it was.
    """
    check(catalog, source, partitioned=partitioned)
    twin = twin_of(catalog, source)
    if source.migration is not None and twin is not None:
        return source
    captured = source.capture or capture
    migration = Migration(source.incarnation, 0, source.status, source.capture)
    if twin is None:
        twin = catalog.create_queue(
            replace(
                source,
                path=_free_path(catalog, source.path),
                incarnation=0,
                enable_partitioning=partitioned,
                status=EntityStatus.DISABLED,
                capture=captured,
                migration=migration,
            ),
            now_ms,
        )
    migration = replace(migration, twin=twin.incarnation)
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
    catalog.change(Change(twin, filling), Change(source, stopped), now_ms=now_ms)
    return stopped


def switch(catalog: Catalog, source: Queue, twin: Queue, now_ms: int) -> Queue:
    """The twin is the queue from now on; the caller knows that the source is empty."""
    migration = source.migration
    assert migration is not None
    final = replace(
        twin,
        path=source.path,
        version=max(source.version, twin.version) + 1,
        created_ms=source.created_ms,
        updated_ms=now_ms,
        status=migration.status,
        capture=migration.captured,
        captured_ms=twin.captured_ms if migration.captured else 0,
        migration=None,
    )
    catalog.change(Change(source, None), Change(twin, final), now_ms=now_ms)
    return final


def call_off(catalog: Catalog, source: Queue, twin: Queue, now_ms: int) -> Queue:
    """The source goes on as it was; the caller knows that the twin is empty."""
    migration = source.migration
    going_on = source
    changes = [Change(twin, None)]
    if migration is not None:
        going_on = replace(
            source,
            version=source.version + 1,
            updated_ms=now_ms,
            status=migration.status,
            capture=migration.captured,
            captured_ms=source.captured_ms if migration.captured else 0,
            migration=None,
        )
        changes.insert(0, Change(source, going_on))
    catalog.change(*changes, now_ms=now_ms)
    return going_on


def _free_path(catalog: Catalog, path: str) -> str:
    named = (f"{path[:PATH_CHARS_KEPT]}{TWIN_SUFFIX}{number}" for number in count(1))
    return next(name for name in named if catalog.find(name) is None)
