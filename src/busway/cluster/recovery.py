"""A data folder that lost something: going on without it, and writing out what there is.

Giving what the stores hold to entities again is `attaching.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from busway.cluster.catalog_damage import UNMARKED, identity_of
from busway.store import sqlite_recovery
from busway.store.commit_mark import CommitMark, mark_of, read_mark
from busway.store.sqlite_log import log_of, scan_log


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
