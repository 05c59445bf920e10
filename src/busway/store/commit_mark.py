"""The mark beside a store: which commit was the last that anybody was told of.

SQLite cannot tell a log that lost its end, or is missing, from one that never had more. The mark
can: it is written after each commit, into a small file of its own, and never synced for that. The
system keeps it when the process is killed, and writes it to the disk within seconds. A crash of
the machine may leave an older mark, which then proves less and never anything false.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

log = logging.getLogger("busway.store")

MARK: Final = struct.Struct("<8s40sqI")
"""A magic word, the id of the store, the number of the commit, a checksum of all before it."""
MAGIC: Final = b"BuswayMk"
_CHECKED: Final = MARK.size - 4


def mark_of(database: Path) -> Path:
    return database.with_name(database.name + "-mark")


class Marked(NamedTuple):
    store_id: str
    commit_number: int


def read_mark(database: Path) -> Marked | None:
    """None without a mark that can be believed."""
    try:
        data = mark_of(database).read_bytes()[: MARK.size]
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the mark %s cannot be read: %s", mark_of(database), error)
        return None
    if len(data) < MARK.size:
        return None
    magic, store_id, commit_number, checksum = MARK.unpack(data)
    if magic != MAGIC or crc32(data[:_CHECKED]) != checksum:
        log.warning("the mark %s is damaged and is not believed", mark_of(database))
        return None
    return Marked(store_id.rstrip(b"\0").decode("ascii", "replace"), commit_number)


class CommitMark:
    """Writes the mark of one store while it is open. A mark that cannot be written is left as it
    is: an older one is true as well."""

    def __init__(self, database: Path) -> None:
        self.path = mark_of(database)
        self._file: int | None = None
        self._store_id = b""

    def open(self, store_id: str, commit_number: int) -> None:
        self.close()
        self._store_id = store_id.encode("ascii")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("the mark %s cannot be made: %s", self.path, error)
            return
        self.set(commit_number)

    def set(self, commit_number: int) -> None:
        if self._file is None:
            return
        data = MARK.pack(MAGIC, self._store_id, commit_number, 0)[:_CHECKED]
        try:
            os.pwrite(self._file, data + crc32(data).to_bytes(4, "little"), 0)
        except OSError as error:
            log.warning("the mark %s cannot be written: %s", self.path, error)
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
