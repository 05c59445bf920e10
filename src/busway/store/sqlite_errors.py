"""What an error of SQLite says about the batch, and about the handle (D-3).

Two questions, answered for each error by the moment it came:

| moment        | error                            | the batch            | the handle        |
|---------------|----------------------------------|----------------------|-------------------|
| before COMMIT | any of `HARMLESS`                | refused: rolled back | goes on           |
| before COMMIT | any other, or a failed rollback  | refused              | closed            |
| at COMMIT     | FULL, BUSY, and it rolled back   | refused              | goes on           |
| at COMMIT     | any other                        | unknown              | closed            |
| at checkpoint | FULL, BUSY                       | durable already      | goes on, later    |
| at checkpoint | any other                        | durable already      | closed            |

Before COMMIT nothing is in the log that recovery would take for a batch: the mark is in the last
page that COMMIT writes. FULL at COMMIT is a write that did not fit, and the mark is behind it or is
itself what did not fit (its checksum then fails), so it is as good as FULL before: a full disk
refuses, it does not confuse (D-9). A sync that fails for want of room is an I/O error to SQLite,
and unknown here, as is everything else that happens once the mark may have been written.
"""

from __future__ import annotations

import sqlite3
import struct

from busway.store.ailments import PRIMARY_CODE_MASK
from busway.store.base import CommitRefused

HARMLESS = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
    }
)
"""The transaction is lost, the connection and the file are as sound as before."""


def is_harmless(error: Exception) -> bool:
    """Whether the handle may go on after this error, once the transaction is rolled back."""
    if isinstance(error, CommitRefused | ValueError | OverflowError | struct.error):
        return True  # ours, or the driver's about a value that it could not bind
    return _primary_code(error) in HARMLESS


def is_refusal_at_commit(error: Exception) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)


def is_disk_full(error: Exception) -> bool:
    return _primary_code(error) == sqlite3.SQLITE_FULL


def _primary_code(error: Exception) -> int:
    if isinstance(error, MemoryError):  # how the driver says SQLITE_NOMEM
        return sqlite3.SQLITE_NOMEM
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)
    return code & PRIMARY_CODE_MASK


def describe(error: Exception) -> str:
    """For a person: the error's sentence, and the name of SQLite's code."""
    name = getattr(error, "sqlite_errorname", "")
    return f"{error} ({name})" if name else str(error) or type(error).__name__
