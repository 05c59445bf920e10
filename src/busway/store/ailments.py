"""Why a store cannot be opened or read: the table of kinds, and what strangers may be told of each.

Every `StoreUnavailable` may name its kind. Whoever sees the error's own text (the log, `busway
map`, `busway verify`) learns the file and what to do; `/health` is open to everybody and tells
the sentence of the kind only, which names nothing.
"""

from __future__ import annotations

import errno
import sqlite3
from enum import Enum

PRIMARY_CODE_MASK = 0xFF
"""The low byte of SQLite's extended error codes is the primary one."""


class Ailment(Enum):
    """The value is a word for machines (`/health`, `busway verify --json`)."""

    MISSING = "missing"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    FOREIGN = "foreign"
    NEWER = "newer"
    LOG_DAMAGED = "log-damaged"
    LOG_LOST = "log-lost"
    LOCKED = "locked"
    FULL = "full"
    FORBIDDEN = "forbidden"
    READ_ONLY = "read-only"
    UNREADABLE = "unreadable"

    @property
    def sentence(self) -> str:
        return SENTENCES[self]


SENTENCES = {
    Ailment.MISSING: "Its file is missing. It is not made anew: bring the file or its disk back.",
    Ailment.TRUNCATED: "Its file is shorter than it was. Run 'busway verify' on the data folder.",
    Ailment.MALFORMED: "Its file is damaged. Run 'busway verify' on the data folder.",
    Ailment.FOREIGN: "It is not the store that belongs here. Run 'busway verify' on the data"
    " folder.",
    Ailment.NEWER: "Its format is not one that this version of Busway reads.",
    Ailment.LOG_DAMAGED: "Its log is damaged, and holds commits that were acknowledged. Run"
    " 'busway verify' on the data folder.",
    Ailment.LOG_LOST: "It lacks commits that were acknowledged: its log is missing or shorter than"
    " it was, or the file is an older copy. Run 'busway verify' on the data folder.",
    Ailment.LOCKED: "Another process has it open.",
    Ailment.FULL: "It cannot be opened because its disk is full.",
    Ailment.FORBIDDEN: "The broker has no permission for its file. Give the user that it runs as"
    " the right to read and write it.",
    Ailment.READ_ONLY: "Its file or its disk can only be read. Mount the disk for writing: a"
    " failing disk is often set to read-only by the system.",
    Ailment.UNREADABLE: "Its file cannot be read or written.",
}

_BY_SQLITE_CODE = {
    sqlite3.SQLITE_CORRUPT: Ailment.MALFORMED,
    sqlite3.SQLITE_NOTADB: Ailment.MALFORMED,
    sqlite3.SQLITE_FULL: Ailment.FULL,
    sqlite3.SQLITE_BUSY: Ailment.LOCKED,
    sqlite3.SQLITE_LOCKED: Ailment.LOCKED,
    sqlite3.SQLITE_IOERR: Ailment.UNREADABLE,
    sqlite3.SQLITE_READONLY: Ailment.READ_ONLY,
    sqlite3.SQLITE_PERM: Ailment.FORBIDDEN,
    sqlite3.SQLITE_AUTH: Ailment.FORBIDDEN,
    sqlite3.SQLITE_CANTOPEN: Ailment.UNREADABLE,
}
_BY_ERRNO = {
    errno.ENOSPC: Ailment.FULL,
    errno.EDQUOT: Ailment.FULL,
    errno.ENOENT: Ailment.MISSING,
    errno.EACCES: Ailment.FORBIDDEN,
    errno.EPERM: Ailment.FORBIDDEN,
    errno.EROFS: Ailment.READ_ONLY,
}


def ailment_of(error: BaseException) -> Ailment | None:
    """The kind that an error of SQLite or of the system is; None if it says nothing of the file."""
    if isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, Ailment.UNREADABLE)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return None
    return _BY_SQLITE_CODE.get(code & PRIMARY_CODE_MASK)
