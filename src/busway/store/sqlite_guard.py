"""Looks at a database file and its log before SQLite may change either of them.

Whoever opens a database for writing lets SQLite take its log as far as it can be read, and copy
it; what lay behind is gone then. So a file that was cut, a log with a hole and a log that lacks its
end are found here first, with a connection that can only read, and nothing is changed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from busway.store.ailments import Ailment, ailment_of
from busway.store.base import StoreUnavailable
from busway.store.commit_mark import read_mark
from busway.store.sqlite_log import LogScan, frames_taken, log_of, scan_log

DATABASE_HEADER: Final = struct.Struct(">16sH10xI")
"""The first bytes of a database: magic text, page size, and, behind others, its size in pages."""
SMALLEST_PAGE: Final = 512
DATABASE_MAGIC: Final = b"SQLite format 3\0"

WHAT_TO_DO: Final = (
    "Nothing was changed. 'busway verify' on the data folder says what can be read; bring the"
    " missing file back from where it is or from a backup, or give up what is lost with 'busway"
    " recover --accept-loss'."
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a database says of itself."""

    name: str
    """Its id; empty if it has none yet."""
    commit_number: int


@dataclass(frozen=True, slots=True)
class Inspection:
    identity: Identity
    scan: LogScan | None
    """Of its log; None if it has none."""
    marked: int | None
    """The last commit that the mark names, if there is one to believe."""

    @property
    def lost_commits(self) -> int:
        """Commits that were acknowledged and are not there, as far as can be told."""
        by_mark = 0 if self.marked is None else self.marked - self.identity.commit_number
        by_log = self.scan.lost_commits if self.scan is not None and self.scan.is_damaged else 0
        return max(0, by_mark, by_log)


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes neither the file nor its log."""
    log = log_of(path)
    # Without a log nothing else may be made beside the file: then it is read as it lies there.
    how = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        yield connection
    finally:
        connection.close()


def inspect(path: Path, identify: str, application_id: int, what: str) -> Inspection:
    """What can be said of a database that nobody has open; raises `StoreUnavailable` where it is
    not one of ours, or cannot be read at all.

    `identify` is the statement that reads its id and commit number.
    """
    with path.open("rb") as file:
        size = len(file.read(SMALLEST_PAGE))
    if size < SMALLEST_PAGE:
        raise StoreUnavailable(
            f"{what} {path} was cut to {size} bytes. {WHAT_TO_DO}", Ailment.TRUNCATED
        )
    mark = read_mark(path)  # first: an owner that is fenced soon may still be committing
    try:
        with read_only(path) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application != application_id:
                raise StoreUnavailable(f"{path} is not a Busway {what}", Ailment.FOREIGN)
            found = connection.execute(identify).fetchone()
            if found is None:
                raise StoreUnavailable(f"{what} {path} has lost its first row", Ailment.MALFORMED)
            name, commit_number = found
            scan = scan_log(log_of(path), frames_taken(path))
    except sqlite3.Error as error:
        check_length(path, None, what)
        raise StoreUnavailable(f"cannot open {what} {path}: {error}", ailment_of(error)) from error
    check_length(path, scan, what)
    marked = mark.commit_number if mark is not None and mark.store_id == name else None
    return Inspection(Identity(name, commit_number), scan, marked)


def check_whole(path: Path, found: Inspection, what: str) -> None:
    """Raises `StoreUnavailable` if commits are missing that somebody was told of."""
    scan, marked, there = found.scan, found.marked, found.identity.commit_number
    lost = found.lost_commits
    if scan is not None and scan.is_damaged:
        where = "its first bytes" if not scan.header_is_valid else f"frame {scan.valid_frames + 1}"
        behind = f", and about {lost} commits behind it cannot be reached" if lost else ""
        raise StoreUnavailable(
            f"the log of {what} {path} is damaged: it cannot be read from {where} on{behind}. The"
            f" last commit that can be read is number {there}. {WHAT_TO_DO}",
            Ailment.LOG_DAMAGED,
        )
    if marked is not None and marked > there:
        cut = scan is not None and scan.has_torn_end
        why = "the end of its log cannot be read" if cut else "its log is missing or was cut"
        raise StoreUnavailable(
            f"{what} {path} ends at commit {there}, and commits up to {marked} were acknowledged:"
            f" {why}, or the file is an older copy. {WHAT_TO_DO}",
            Ailment.LOG_DAMAGED if cut else Ailment.LOG_LOST,
        )


def check_length(
    path: Path, scan: LogScan | None, what: str, *, what_to_do: str = WHAT_TO_DO
) -> None:
    """A database may be shorter than it says only by pages that its log still has."""
    with path.open("rb") as file:
        header = file.read(DATABASE_HEADER.size)
        size = file.seek(0, 2)
    magic, page_size, pages = DATABASE_HEADER.unpack(header)
    if magic != DATABASE_MAGIC or page_size < SMALLEST_PAGE:
        return
    in_log: set[int] = set()
    if scan is not None and scan.database_pages is not None:
        pages, in_log = scan.database_pages, scan.pages
    there = size // page_size
    missing = [page for page in range(there + 1, pages + 1) if page not in in_log]
    if missing:
        raise StoreUnavailable(
            f"{what} {path} was cut: it has {there} pages of {pages}, and {len(missing)} of those"
            f" that are missing are not in its log either. {what_to_do}",
            Ailment.TRUNCATED,
        )
