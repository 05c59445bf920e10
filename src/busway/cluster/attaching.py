"""Gives what the stores hold, and the catalog does not know, to entities again (`busway recover`).

Messages stay where they are. What changes is whose they are: the sub-queues of the unknown
incarnation become those of the entity, and the entity is placed where they lie. A subscription lies
where its topic does, so the topic and all of its subscriptions are placed together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from busway.cluster.catalog import Catalog
from busway.cluster.catalog_file import CatalogError
from busway.cluster.catalogs import Catalogs
from busway.cluster.recovery import stores_of
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import BusError
from busway.model.names import SUBSCRIPTIONS_NODE
from busway.model.session_ids import fold
from busway.store import sqlite_guard, sqlite_recovery
from busway.store import sqlite_schema as schema
from busway.store.base import SubQueueRecord
from busway.store.sqlite_recovery import RecoveryError
from busway.store.sqlite_verify import records_in


@dataclass(slots=True)
class Found:
    """What the stores hold of one incarnation."""

    stores: dict[Path, str] = field(default_factory=dict)
    """All stores, with their ids."""
    partitions: dict[int, str] = field(default_factory=dict)
    """In which store each partition lies."""
    has_sessions: bool = False
    has_unfolded_sessions: bool = False
    """Session ids were kept as they were written: the entity is from before they folded case."""
    held: set[tuple[int, int, str]] = field(default_factory=set)
    """Incarnation, partition and store of every other sub-queue that has messages."""


def attach(
    folder: Path,
    incarnation: int,
    target: str,
    random_bytes: Callable[[int], bytes],
    namespace: str | None = None,
) -> int:
    """Give what the stores hold of an incarnation to the queue, topic or subscription of this path;
    how many messages that were. What is not there is made.

    The catalog is written first: should the machine stop in between, the same call does the rest.
    """
    found = look(folder, incarnation)
    if not found.partitions:
        raise RecoveryError(f"no store in {folder} holds anything of incarnation {incarnation}")
    try:
        catalogs = Catalogs.open(folder / "catalog.db", new_id=lambda: UUID(bytes=random_bytes(16)))
    except CatalogError as error:
        raise RecoveryError(str(error)) from error
    try:
        if incarnation in catalogs.incarnations():
            raise RecoveryError(f"the catalog knows incarnation {incarnation}: nothing is lost")
        catalogs.stores.register(list(found.stores.values()))
        catalog = catalogs.default if namespace is None else _namespace(catalogs, namespace)
        entity = _entity(catalog, target, found)
        _check(entity, found)
        _place(catalogs, catalog, entity, found)
        return sum(
            sqlite_recovery.attach(path, incarnation, entity.incarnation) for path in found.stores
        )
    except (CatalogError, BusError) as error:
        raise RecoveryError(str(error)) from error
    finally:
        catalogs.close()


def _namespace(catalogs: Catalogs, name: str) -> Catalog:
    for catalog in catalogs:
        if catalog.namespace.name.lower() == name.lower():
            return catalog
    raise RecoveryError(
        f"there is no namespace '{name}': start the broker once with a configuration that has it"
    )


def look(folder: Path, incarnation: int) -> Found:
    """Raises `RecoveryError` or `StoreUnavailable` for a store that may not be written to."""
    found = Found()
    for path in stores_of(folder):
        inspection = sqlite_guard.inspect(path, schema.IDENTIFY, schema.APPLICATION_ID, "store")
        sqlite_guard.check_whole(path, inspection, "store")
        store_id = found.stores[path] = inspection.identity.name
        try:
            with sqlite_guard.read_only(path) as connection:
                for record in records_in(connection):
                    if record.key.incarnation == incarnation:
                        found.partitions[record.key.partition] = store_id
                        _look_at_sessions(connection, record, found)
                    elif (
                        record.counters.active
                        + record.counters.deferred
                        + (record.counters.scheduled)
                    ):
                        key = record.key
                        found.held.add((key.incarnation, key.partition, store_id))
        except sqlite3.Error as error:
            raise RecoveryError(f"{path} cannot be read: {error}") from error
    return found


def _look_at_sessions(connection: sqlite3.Connection, record: SubQueueRecord, found: Found) -> None:
    rows = connection.execute("SELECT session_id FROM sessions WHERE slot = ?", (record.slot,))
    for (session_id,) in rows:
        found.has_sessions = True
        if fold(session_id) != session_id:
            found.has_unfolded_sessions = True


# --- the entity ----------------------------------------------------------------------------------


def _entity(catalog: Catalog, target: str, found: Found) -> Entity:
    """The entity of this path, made if it is not there."""
    topic, node, name = target.partition(f"/{SUBSCRIPTIONS_NODE}/")
    if not node:
        topic, node, name = target.partition(f"/{SUBSCRIPTIONS_NODE.lower()}/")
    is_partitioned = max(found.partitions) > 0 or None
    if not node:
        there = catalog.find(target)
        return there or catalog.create_queue(
            Queue(
                path=target,
                requires_session=found.has_sessions,
                enable_partitioning=is_partitioned,
            )
        )
    parent = catalog.find(topic)
    if parent is None:
        parent = catalog.create_topic(Topic(path=topic, enable_partitioning=is_partitioned))
    if not isinstance(parent, Topic):
        raise RecoveryError(f"'{topic}' is a {parent.entity_type.lower()}, not a topic")
    return catalog.find_subscription(topic, name) or catalog.create_subscription(
        Subscription(topic=topic, name=name, requires_session=found.has_sessions)
    )


def _check(entity: Entity, found: Found) -> None:
    kind = entity.entity_type.lower()
    requires_session = not isinstance(entity, Topic) and entity.requires_session
    if not isinstance(entity, Topic) and requires_session != found.has_sessions:
        raise RecoveryError(
            f"the messages {'have' if found.has_sessions else 'do not have'} sessions, and the"
            f" {kind} '{entity.path}' {'has' if requires_session else 'has not'}: attach to"
            " another one"
        )
    if max(found.partitions) >= len(entity.placement):
        raise RecoveryError(
            f"the messages lie in {max(found.partitions) + 1} partitions at least, and the {kind}"
            f" '{entity.path}' has {len(entity.placement)}: attach to a partitioned one"
        )


def _place(catalogs: Catalogs, catalog: Catalog, entity: Entity, found: Found) -> None:
    """Where its messages lie; of a topic or subscription, the whole topic with it."""
    family: list[Entity] = [entity]
    topic = catalog.find(entity.topic) if isinstance(entity, Subscription) else entity
    if isinstance(topic, Topic):
        family = [topic, *catalog.subscriptions(topic)]
    placement = tuple(
        found.partitions.get(index, store_id) for index, store_id in enumerate(entity.placement)
    )
    for each in family:
        for index, (before, after) in enumerate(zip(each.placement, placement, strict=True)):
            if before != after and (each.incarnation, index, before) in found.held:
                raise RecoveryError(
                    f"partition {index} of '{each.path}' has messages in store {before}, and those"
                    f" to attach lie in store {after}: attach to another entity, or export"
                )
    folds = entity.folds_session_ids and not found.has_unfolded_sessions
    for each in family:
        catalogs.replace_placement(replace(each, placement=placement, folds_session_ids=folds))
