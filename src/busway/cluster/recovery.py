"""A data folder whose catalog does not know what the stores hold: bringing both together again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from busway.cluster.catalog_damage import UNMARKED, identity_of
from busway.cluster.catalog_file import CatalogError
from busway.cluster.catalogs import Catalogs
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.store import sqlite_recovery
from busway.store import sqlite_schema as schema
from busway.store.base import SubQueueRecord
from busway.store.commit_mark import CommitMark, mark_of, read_mark
from busway.store.sqlite_guard import read_only
from busway.store.sqlite_log import log_of, scan_log
from busway.store.sqlite_recovery import RecoveryError
from busway.store.sqlite_verify import records_in


def stores_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("store-*.db"), key=lambda each: int(each.stem.split("-")[1]))


def accept_loss(folder: Path) -> dict[str, int]:
    """By file: how many changes or commits that were acknowledged are given up."""
    catalog = folder / "catalog.db"
    given_up = {catalog.name: accept_catalog_loss(catalog)}
    return given_up | {each.name: sqlite_recovery.accept_loss(each) for each in stores_of(folder)}


def accept_catalog_loss(path: Path) -> int:
    """Go on with the catalog that is there, or with a new one if none is; how many changes are lost
    that way, as far as can be told. A log that cannot be read to its end is kept beside itself.

    The mark is set last: until then the catalog does not open, and the same call does the rest.
    """
    mark, scan = read_mark(path), scan_log(log_of(path))
    if scan is not None and (scan.is_damaged or scan.has_torn_end):
        sqlite_recovery.cut_log(log_of(path), scan)
    by_log = scan.lost_commits if scan is not None and scan.is_damaged else 0
    if not path.exists() or not path.stat().st_size:
        mark_of(path).unlink(missing_ok=True)
        return max(by_log, 0 if mark is None else mark.commit_number)
    identity = identity_of(path)
    if identity is None:
        return by_log
    if mark is None:
        by_mark = 0
    elif mark.store_id != identity.store_id:
        by_mark = mark.commit_number  # all of the one that was here
    else:
        by_mark = mark.commit_number - identity.commit_number
    if identity is UNMARKED:
        mark_of(path).unlink(missing_ok=True)
        return max(by_log, by_mark)
    mark_now = CommitMark(path)
    mark_now.open(*identity)
    mark_now.close()
    return max(by_log, by_mark)


def exported(folder: Path, incarnations: set[int] | None) -> Iterator[dict[str, Any]]:
    for each in stores_of(folder):
        yield from sqlite_recovery.exported(each, incarnations)


def attach(folder: Path, incarnation: int, queue: str, random_bytes: Callable[[int], bytes]) -> int:
    """Give what the stores hold of an incarnation to a queue; how many messages that were.

    The catalog is written first: should the machine stop in between, the same call does the rest.
    """
    ids, partitions, has_sessions = _found(folder, incarnation)
    if not partitions:
        raise RecoveryError(f"no store in {folder} holds anything of incarnation {incarnation}")
    try:
        catalogs = Catalogs.open(folder / "catalog.db", new_id=lambda: UUID(bytes=random_bytes(16)))
    except CatalogError as error:
        raise RecoveryError(str(error)) from error
    try:
        if incarnation in catalogs.incarnations():
            raise RecoveryError(f"the catalog knows incarnation {incarnation}: nothing is lost")
        catalogs.stores.register(list(ids.values()))
        entity = _queue(catalogs, queue, partitions, has_sessions)
        given = sum(sqlite_recovery.attach(path, incarnation, entity.incarnation) for path in ids)
    except (CatalogError, BusError) as error:
        raise RecoveryError(str(error)) from error
    finally:
        catalogs.close()
    return given


def _found(folder: Path, incarnation: int) -> tuple[dict[Path, str], dict[int, str], bool]:
    """The stores' ids; in which of them each partition lies; whether it has sessions."""
    ids: dict[Path, str] = {}
    partitions: dict[int, str] = {}
    has_sessions = False
    for path in stores_of(folder):
        try:
            with read_only(path) as connection:
                store_id, _ = connection.execute(schema.IDENTIFY).fetchone()
                ids[path] = store_id
                records = [r for r in records_in(connection) if r.key.incarnation == incarnation]
                partitions |= {record.key.partition: store_id for record in records}
                has_sessions = has_sessions or _has_sessions(connection, records)
        except sqlite3.Error as error:
            raise RecoveryError(f"{path} cannot be read: {error}") from error
    return ids, partitions, has_sessions


def _has_sessions(connection: sqlite3.Connection, records: list[SubQueueRecord]) -> bool:
    return any(
        connection.execute("SELECT 1 FROM sessions WHERE slot = ?", (each.slot,)).fetchone()
        for each in records
    )


def _queue(catalogs: Catalogs, path: str, partitions: dict[int, str], has_sessions: bool) -> Queue:
    """The queue of this name, placed where its messages lie."""
    catalog = catalogs.default
    entity = catalog.find(path)
    if entity is None:
        entity = catalog.create_queue(
            Queue(
                path=path,
                requires_session=has_sessions,
                enable_partitioning=max(partitions) > 0 or None,
            )
        )
    if not isinstance(entity, Queue):
        raise RecoveryError(f"'{path}' is a {entity.entity_type.lower()}, not a queue")
    if entity.requires_session != has_sessions:
        raise RecoveryError(
            f"the messages {'have' if has_sessions else 'do not have'} sessions, and the queue"
            f" '{path}' {'has' if entity.requires_session else 'has not'}: attach to another one"
        )
    if max(partitions) >= len(entity.placement):
        raise RecoveryError(
            f"the messages lie in {max(partitions) + 1} partitions at least, and the queue '{path}'"
            f" has {len(entity.placement)}: attach to a partitioned one"
        )
    placement = tuple(
        partitions.get(index, store_id) for index, store_id in enumerate(entity.placement)
    )
    catalogs.replace_placement(replace(entity, placement=placement))
    return entity
