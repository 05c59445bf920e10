"""A second, read-only connection to a SQLite store, for whoever reads its journals.

WAL lets it read while the owner commits: neither waits for the other. Each call is one transaction
that ends before it returns, so the log can be reused (D-11). It takes no lock on the store and no
part in its epochs: what it sees is committed, and what is committed is true whoever owns the store.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from busway.store import sqlite_errors as errors
from busway.store import sqlite_journal as journal
from busway.store.ailments import ailment_of
from busway.store.base import READ_BYTES_MAX, READ_ROWS_MAX, StoreUnavailable, SubQueueKey
from busway.store.journal import (
    FIELDS,
    TRIM_ROWS,
    JournalDamaged,
    JournalHead,
    JournalHold,
    JournalPage,
    JournalSize,
)

CACHE_KIB = 2 * 1024
"""A scan reads every page once: there is nothing to gain from keeping them."""


class SqliteJournalHandle:
    """A `JournalHandle`. The file is opened at the first call, and again after an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def head(self, key: SubQueueKey) -> JournalHead | None:
        with self._reading(key) as (connection, slot):
            return None if slot is None else journal.read_head(connection, slot)

    def read(
        self,
        key: SubQueueKey,
        first: int,
        stop: int,
        fields: Sequence[str] = FIELDS,
        *,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> JournalPage:
        with self._reading(key) as (connection, slot):
            if slot is None:
                return JournalPage()
            stop = min(stop, first + min(rows, READ_ROWS_MAX))
            return journal.read_page(connection, slot, first, stop, tuple(fields), size)

    def sizes(self, key: SubQueueKey, first: int, rows: int = TRIM_ROWS) -> list[JournalSize]:
        with self._reading(key) as (connection, slot):
            return [] if slot is None else journal.read_sizes(connection, slot, first, rows)

    def offset_at(self, key: SubQueueKey, time_ms: int) -> int:
        with self._reading(key) as (connection, slot):
            return 0 if slot is None else journal.offset_at(connection, slot, time_ms)

    def holds(self, key: SubQueueKey) -> list[JournalHold]:
        with self._reading(key) as (connection, slot):
            return [] if slot is None else journal.read_holds(connection, slot)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    @contextlib.contextmanager
    def _reading(self, key: SubQueueKey) -> Iterator[tuple[sqlite3.Connection, int | None]]:
        """One transaction, and the slot of the partition's main sub-queue in it."""
        try:
            connection = self._connection or self._connect()
            connection.execute("BEGIN")
            named = (key.incarnation, key.partition, int(key.kind))
            found = connection.execute(journal.READ_SLOT, named).fetchone()
            yield connection, None if found is None else found[0]
            connection.execute("COMMIT")
        except (sqlite3.Error, MemoryError) as error:
            self.close()
            text = errors.describe(error)
            raise StoreUnavailable(
                f"the journals of store {self._path} cannot be read: {text}", ailment_of(error)
            ) from error
        except JournalDamaged:
            connection.execute("ROLLBACK")
            raise
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection = connection
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection
