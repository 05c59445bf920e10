"""What tells a damaged catalog: checksums of its rows, and a look at its files before SQLite's own.

SQLite notices damage to its own structure, not to what it keeps: a changed letter in a description
would be another entity. It takes a log as far as it can be read, and what lies behind a bad place
would be gone without a word. And it cannot tell a log that is missing, or an older copy of the
file, from one that never had more: the mark beside the file can (`store/commit_mark.py`).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from busway.cluster.catalog_schema import FIRST_MARKED_FORMAT
from busway.store.base import StoreUnavailable
from busway.store.checksums import of_values
from busway.store.commit_mark import Marked, mark_of, read_mark
from busway.store.sqlite_guard import SMALLEST_PAGE, check_length, read_only
from busway.store.sqlite_log import LogScan, log_of, scan_log

log = logging.getLogger("busway.cluster")

WHAT_TO_DO: Final = (
    "Put back a backup of the data folder with 'busway restore'. Without one, move the catalog with"
    " its log and its mark away (catalog.db*), start with a configuration that declares the"
    " entities, and attach the messages with 'busway recover'."
)
BRING_BACK: Final = (
    "Bring the missing file back from where it is, or put back a backup of the data folder with"
    " 'busway restore'. To go on with what there is, give up the rest with 'busway recover"
    " --accept-loss'."
)
LOG_IS_CUT: Final = (
    "Put back a backup of the data folder with 'busway restore', or give up what lies behind the"
    " bad place with 'busway recover --accept-loss'."
)


UNMARKED: Final = Marked("", 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with the files of a catalog, and what its operator can do."""

    text: str
    way_out: str = WHAT_TO_DO

    def __str__(self) -> str:
        return f"{self.text} {self.way_out}"


@dataclass(frozen=True, slots=True)
class CheckedTable:
    columns: str
    """What the checksum is over, in this order."""
    key: str
    named: str
    """How a row is called; in braces the place of a column."""


CHECKED_TABLES: Final = {
    "entities": CheckedTable(
        "kind, path, incarnation, version, description, namespace, path_key",
        "incarnation",
        "of the {0} '{1}'",
    ),
    "rules": CheckedTable(
        "number, subscription, name_key, description", "number", "of the rule '{2}'"
    ),
    "namespaces": CheckedTable("name, description", "name", "of the namespace '{0}'"),
    "stores": CheckedTable("position, store_id", "position", "of store {0}"),
    "tombstones": CheckedTable(
        "incarnation, store_id, path, deleted_ms",
        "incarnation, store_id",
        "of the deleted entity '{2}'",
    ),
    "carried_out": CheckedTable(
        "store_id, transaction_id", "store_id, transaction_id", "of a transaction in store {0}"
    ),
    "declared_access": CheckedTable(
        "namespace, name_key, digest", "namespace, name_key", "of the declared access rule '{1}'"
    ),
    "catalog": CheckedTable("one, catalog_id, commit_number", "one", "of the catalog itself"),
}
ENTITY_COLUMNS: Final = f"{CHECKED_TABLES['entities'].columns}, checksum"
RULE_COLUMNS: Final = "number, subscription, name_key, rules.description, rules.checksum"


def is_sound(row: tuple[Any, ...]) -> bool:
    """Its last value is the checksum of those before."""
    *values, checksum = row
    return bool(checksum == of_values(*values))


def rows_of(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    columns = CHECKED_TABLES[table].columns
    return connection.execute(f"SELECT {columns}, checksum FROM {table}").fetchall()


def damaged_rows(connection: sqlite3.Connection, *tables: str) -> Iterator[str]:
    """What is said of each row that is not what was written."""
    for table in tables:
        for row in rows_of(connection, table):
            if not is_sound(row):
                yield f"the row {CHECKED_TABLES[table].named.format(*row)} is not what was written"


def seal(connection: sqlite3.Connection, *tables: str, again: bool = False) -> None:
    """Give the rows that have none their checksum; all rows, if `again`."""
    for table in tables:
        columns = CHECKED_TABLES[table].columns.split(", ")
        keys = CHECKED_TABLES[table].key.split(", ")
        where = " AND ".join(f"{key} = ?" for key in keys)
        for *values, checksum in rows_of(connection, table):
            if checksum is None or again:
                named = [values[columns.index(key)] for key in keys]
                connection.execute(
                    f"UPDATE {table} SET checksum = ? WHERE {where}", (of_values(*values), *named)
                )


# --- the files -----------------------------------------------------------------------------------


def file_finding(path: Path) -> Finding | None:
    """What is wrong with a catalog that nobody has open, or None. Nothing is changed."""
    mark = read_mark(path)
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return _missing(path, mark)
    if size < SMALLEST_PAGE:
        return Finding(f"The catalog {path} was cut to {size} bytes.")
    scan = scan_log(log_of(path))
    if scan is not None and scan.is_damaged:
        where = "its first bytes" if not scan.header_is_valid else f"frame {scan.valid_frames + 1}"
        return Finding(
            f"The log of the catalog {path} is damaged: it cannot be read from {where} on, and"
            f" about {scan.lost_commits} changes behind it cannot be reached.",
            LOG_IS_CUT,
        )
    try:
        check_length(path, scan, "catalog", what_to_do="")
    except StoreUnavailable as error:
        return Finding(f"The {str(error).strip()}")
    identity = identity_of(path)
    if mark is not None and identity is not None:
        finding = _against_mark(path, mark, identity, scan)
        if finding is not None:
            return finding
    if scan is not None and scan.has_torn_end:
        log.warning(
            "the log of the catalog %s has an end that cannot be read. A machine that stops in the"
            " middle of a change leaves that; %s.",
            path,
            "if it did not, the last change may be lost"
            if mark is None
            else "no change is known to be lost",
        )
    return None


def _missing(path: Path, mark: Marked | None) -> Finding | None:
    """A catalog that was never there is made; one that was there is not made again."""
    if mark is not None:
        return Finding(
            f"The catalog {path} is {'empty' if path.exists() else 'missing'}. It has had"
            f" {mark.commit_number} changes, as {mark_of(path).name} beside it says.",
            BRING_BACK,
        )
    if scan_log(log_of(path)) is not None:
        return Finding(
            f"The catalog {path} is {'empty' if path.exists() else 'missing'}, but its log"
            f" {log_of(path).name} is there.",
        )
    return None


def identity_of(path: Path) -> Marked | None:
    """Its id and the number of its last change; None if it cannot be read, which whoever opens it
    is told with the reason. One of an older format, or an empty one, has no id."""
    try:
        with read_only(path) as connection:
            (format_,) = connection.execute("PRAGMA user_version").fetchone()
            if format_ < FIRST_MARKED_FORMAT:
                return UNMARKED
            found = connection.execute("SELECT catalog_id, commit_number FROM catalog").fetchone()
    except sqlite3.Error:
        return None
    return None if found is None else Marked(*found)


def _against_mark(
    path: Path, mark: Marked, identity: Marked, scan: LogScan | None
) -> Finding | None:
    if identity is not UNMARKED and mark.store_id != identity.store_id:
        return Finding(
            f"The catalog {path} is another one: {identity.store_id}, and the one that was used"
            f" here is {mark.store_id}, with {mark.commit_number} changes.",
            BRING_BACK,
        )
    lost = mark.commit_number - identity.commit_number
    if lost <= 0:
        return None
    cut = scan is not None and scan.has_torn_end
    why = "the end of its log cannot be read" if cut else "its log is missing or was cut"
    return Finding(
        f"The catalog {path} ends at change {identity.commit_number}, and changes up to"
        f" {mark.commit_number} were acknowledged: {why}, or the file is an older copy."
        f" {lost} changes of entities, rules or keys are missing.",
        BRING_BACK,
    )
