"""A messaging store in one SQLite file: the embedded default.

The file is in WAL mode with `synchronous=FULL`: COMMIT appends the batch's pages to the log, syncs
it and returns. From time to time the log is copied into the database (`_checkpoint`). One
connection, used by one thread at a time; the lock file keeps other processes out (D-19), the epoch
other handles of this one (D-18).

This file owns the handle: when it opens, what it does after an error, when it may not be used any
more. Tables and statements are in `sqlite_schema`, what they do in `sqlite_writes`, `sqlite_marks`
and `sqlite_reads`, what errors mean in `sqlite_errors`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import struct
import uuid
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from urllib.parse import quote

from busway.model.message import Message, MessageState
from busway.store import sqlite_damage as damage
from busway.store import sqlite_errors as errors
from busway.store import sqlite_formats as formats
from busway.store import sqlite_guard as guard
from busway.store import sqlite_journal as journal
from busway.store import sqlite_reads as reads
from busway.store import sqlite_schema as schema
from busway.store.ailments import Ailment, ailment_of
from busway.store.base import (
    READ_BYTES_MAX,
    READ_ROWS_MAX,
    Batch,
    CommitRefused,
    CommitUnknown,
    Counters,
    DiskRoom,
    DuplicateMark,
    Expiring,
    ExpiryPage,
    Opened,
    StoreError,
    StoreFenced,
    StoreUnavailable,
    SubQueueKey,
    SubQueueKind,
    SubQueueRecord,
    TransactionMark,
    TransferMark,
)
from busway.store.commit_mark import CommitMark
from busway.store.journal import JournalHandle, JournalSize
from busway.store.lockfile import ProcessLock
from busway.store.sqlite_damage import DamagedMarks, DamagedRows, RowsDisagree
from busway.store.sqlite_journal_handle import SqliteJournalHandle
from busway.store.sqlite_marks import FORGET_PAUSE_MS
from busway.store.sqlite_writes import check_batch, log_pages, roll_back, write_batch

log = logging.getLogger("busway.store")

BUSY_TIMEOUT_S = 5.0
"""How long to wait for another handle of this process; a commit has no longer either (D-8)."""

_ENGINE_ERRORS = (sqlite3.Error, MemoryError)


def _new_uuid() -> str:
    return str(uuid.uuid4())


def _upgrade(connection: sqlite3.Connection, older: int) -> None:
    """Make the next format of a file, whole or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in formats.UPGRADES[older].split(";"):
            connection.execute(statement)
        if older == formats.FIRST_CHECKED_FORMAT - 1:
            damage.give_checksums(connection)
        if older == formats.JOURNAL_CHECKED_FORMAT - 1:
            journal.give_checksums(connection)
        connection.execute(schema.SET_FORMAT, (older + 1,))
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


class SqliteStore:
    """A `MessagingStore` in the file at `path`.

    `create` allows to make it if it is not there. A file that was there once is never made again:
    a missing disk must not look like an empty one (D-14).
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool,
        checkpoint_pages: int = schema.WAL_CHECKPOINT_PAGES,
        new_id: Callable[[], str] = _new_uuid,
        connection_class: type[sqlite3.Connection] = sqlite3.Connection,
        room: DiskRoom | None = None,
    ) -> None:
        self._room = room
        self.path = path
        self._may_create = create
        self._checkpoint_pages = checkpoint_pages
        self._new_id = new_id
        self._connection_class = connection_class
        self._mark = CommitMark(path)
        self._lock = ProcessLock(path.with_name(path.name + ".lock"))
        self._connection: sqlite3.Connection | None = None
        self._closed_because: StoreError = StoreUnavailable(f"store {path} is not open")
        self._epoch = 0
        self._owner = ""
        self._commit_number = 0
        self._keys: dict[int, SubQueueKey] = {}
        self._all_checked = False
        """Every row was written by a version that gives them checksums."""
        self._time_ms = 0
        self._suspicion: str | None = None
        """What an error said of damage; the next `open` looks into it."""
        self._partitions: dict[int, int] = {}
        """By slot: what a row's id does not say of a message's number."""
        self._log_pages = 0
        """Pages written to the log since the last checkpoint, estimated from above."""
        self._sharing: set[int] = set()
        """Slots that have, or had, messages with shared bodies (D-30)."""
        self._purging: set[int] = set()
        """Slots without messages, of which commits go on to forget the rest (D-16)."""
        self._forget_at_ms = 0
        """When a commit next looks for marks whose time is over."""

    # --- opening and closing ---------------------------------------------------------------------

    def open(self) -> Opened:
        self.close()
        try:
            self._check_creation()
            self._lock.acquire()
            if not self.path.exists():
                self._make_file()
            self._inspect()
            self._connection = self._connect()
            opened = self._take_over(self._connection)
            self._mark.open(opened.store_id, opened.commit_number)
        except StoreError as error:
            self._give_up(error)
            raise
        except (*_ENGINE_ERRORS, OSError) as error:
            if ailment_of(error) is Ailment.MALFORMED:
                self._suspicion = errors.describe(error)
            if ailment_of(error) is Ailment.FULL and self._room is not None:
                self._room.release()  # its owner tries again, and then there is room
            failure = StoreUnavailable(
                f"cannot open store {self.path}: {errors.describe(error)}", ailment_of(error)
            )
            self._give_up(failure)
            raise failure from error
        self._may_create = False
        self._epoch = opened.epoch
        self._commit_number = opened.commit_number
        self._partitions = {record.slot: record.key.partition for record in opened.sub_queues}
        self._log_pages = 0
        self._forget_at_ms = 0
        return opened

    def _inspect(self) -> None:
        """Nothing is opened for writing that lacks what was acknowledged."""
        found = guard.inspect(self.path, schema.IDENTIFY, schema.APPLICATION_ID, "store")
        guard.check_whole(self.path, found, "store")
        if found.scan is not None and found.scan.has_torn_end:
            log.warning(
                "the log of store %s has an end that cannot be read, behind commit %d. A machine"
                " that stops in the middle of a commit leaves that; no commit is known to be lost.",
                self.path,
                found.identity.commit_number,
            )

    def _check_creation(self) -> None:
        """A missing file is made only by who is allowed to; its directory is then for us alone."""
        if self._may_create:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not self.path.exists():
            raise StoreUnavailable(
                f"store {self.path} is missing. It is not made anew, because then its messages"
                " would be lost without a word: bring the file or its disk back.",
                Ailment.MISSING,
            )

    def _make_file(self) -> None:
        """Make the store under another name and rename it: a file that is there is whole."""
        log = self.path.with_name(self.path.name + "-wal")
        if log.exists():  # SQLite would play it into the new, empty database
            raise StoreUnavailable(
                f"store {self.path} is missing, but its log {log} is there", Ailment.MISSING
            )
        draft = self.path.with_name(self.path.name + ".new")
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.executescript(schema.TABLES)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(schema.INSERT_STORE, (self._new_id(),))
        finally:
            connection.close()  # copies the log into the file, syncs it, removes the log
        os.rename(draft, self.path)
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            factory=self._connection_class,
        )
        self._connection = connection  # from here on `_give_up` closes it
        (found,) = connection.execute("SELECT format FROM store").fetchone()
        if not formats.OLDEST_FORMAT <= found <= formats.FORMAT_VERSION:
            raise StoreUnavailable(
                f"store {self.path} has format {found}, and this version of Busway reads formats"
                f" {formats.OLDEST_FORMAT} to {formats.FORMAT_VERSION} only. Nothing was changed:"
                " open it with the version that made it, or start with another data folder.",
                Ailment.NEWER,
            )
        for setting in schema.SETTINGS:
            connection.execute(setting).fetchall()
        for older in range(found, formats.FORMAT_VERSION):
            _upgrade(connection, older)
        return connection

    def _take_over(self, connection: sqlite3.Connection) -> Opened:
        # What recovery found in the log may be in the page cache only: the sync of the commit that
        # we are about to settle may be the one that failed. Copied and synced anew, it is durable
        # before anybody is told that it is there (D-3).
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreUnavailable(f"another handle is busy with store {self.path}", Ailment.LOCKED)
        self._examine_if_suspect(connection)
        self._owner = self._new_id()
        connection.execute("BEGIN IMMEDIATE")
        try:
            opened = self._load(connection)
            connection.execute("COMMIT")
        except RowsDisagree as error:
            raise StoreUnavailable(
                f"store {self.path} is damaged: {error}. {guard.WHAT_TO_DO}", Ailment.MALFORMED
            ) from error
        finally:
            roll_back(connection)
        return opened

    def _load(self, connection: sqlite3.Connection) -> Opened:
        connection.execute(schema.RAISE_EPOCH, (self._owner,))
        store_id, epoch, commit_number, time_ms, all_checked = connection.execute(
            schema.READ_STORE
        ).fetchone()
        self._all_checked = bool(all_checked)
        self._time_ms = time_ms
        damage.mend_counters(connection, str(self.path))
        rows = connection.execute(schema.READ_SUB_QUEUES).fetchall()
        records = [
            SubQueueRecord(
                slot,
                SubQueueKey(incarnation, partition, SubQueueKind(kind)),
                Counters(*counters),
            )
            for slot, incarnation, partition, kind, _, _, *counters, _ in rows
        ]
        self._keys = {record.slot: record.key for record in records}
        self._sharing = {row[0] for row in rows if row[4]}
        self._purging = {row[0] for row in rows if row[5]}
        transfers = damage.sound_marks(connection, schema.READ_TRANSFERS, "forwarding")
        transactions = damage.sound_marks(connection, schema.READ_TRANSACTIONS, "a transaction")
        heads, holds = journal.load(connection, str(self.path))
        (quarantined,) = connection.execute(damage.COUNT_QUARANTINE).fetchone()
        return Opened(
            store_id,
            epoch,
            commit_number,
            time_ms,
            records,
            reads.read_sessions(connection),
            [TransferMark(*row) for row in transfers],
            [TransactionMark(*row) for row in transactions],
            heads,
            holds,
            quarantined,
        )

    def _examine_if_suspect(self, connection: sqlite3.Connection) -> None:
        """After an error that speaks of damage: indexes are made anew from their rows, and what is
        left is looked through. A store that is still damaged then is not served from."""
        if self._suspicion is None:
            return
        log.error("store %s is examined: %s", self.path, self._suspicion)
        connection.execute("BEGIN IMMEDIATE")
        try:
            damage.reindex(connection)
            for (slot,) in connection.execute("SELECT slot FROM sub_queues").fetchall():
                damage.recount(connection, slot)
            connection.execute("COMMIT")
            findings = damage.structure_findings(connection)
        except sqlite3.Error as error:
            findings = [errors.describe(error)]
        finally:
            roll_back(connection)
        if findings:
            raise StoreUnavailable(
                f"store {self.path} is damaged: {'; '.join(findings)}. {guard.WHAT_TO_DO}",
                Ailment.MALFORMED,
            )
        log.error("store %s: indexes and counters were made anew from the messages", self.path)
        self._suspicion = None

    def close(self) -> None:
        self._give_up(StoreUnavailable(f"store {self.path} is not open"))

    def _give_up(self, reason: StoreError) -> None:
        """Close the connection for good; every call until the next `open` raises `reason`."""
        self._closed_because = reason
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*_ENGINE_ERRORS):
                connection.close()
        self._mark.close()
        self._lock.release()

    def _fail(self, error: Exception) -> None:
        """An error after which this connection is not trusted with anything (D-3)."""
        if ailment_of(error) is Ailment.MALFORMED:
            self._suspicion = errors.describe(error)
        text = f"store {self.path} failed, open it again: {errors.describe(error)}"
        self._give_up(StoreUnavailable(text, ailment_of(error)))

    def _handle(self) -> sqlite3.Connection:
        if self._connection is None:
            raise copy(self._closed_because)
        return self._connection

    # --- committing ------------------------------------------------------------------------------

    def commit(self, batch: Batch) -> None:
        connection = self._handle()
        assert batch.number == self._commit_number + 1, "batches are numbered without gaps"
        check_batch(batch, self._partitions)
        forget = batch.time_ms >= self._forget_at_ms
        try:
            written = write_batch(
                connection,
                batch,
                self._epoch,
                self._owner,
                sharing=self._sharing,
                purging=self._purging,
                forget=forget,
            )
        except (StoreError, *_ENGINE_ERRORS, ValueError, OverflowError, struct.error) as error:
            raise self._refused(connection, error) from error
        try:
            connection.execute("COMMIT")
        except _ENGINE_ERRORS as error:
            raise self._not_committed(connection, error) from error
        self._commit_number = batch.number
        self._mark.set(batch.number)
        for slot, key in batch.sub_queues:
            self._partitions[slot] = key.partition
            self._keys[slot] = key
        self._sharing |= written.sharing
        for slot in written.emptied:
            del self._partitions[slot]
            self._sharing.discard(slot)
        self._purging = set(written.purging)
        if forget:
            pause_ms = FORGET_PAUSE_MS if written.forgot_all else 0
            self._forget_at_ms = batch.time_ms + pause_ms
        self._log_pages += log_pages(batch)
        if self._log_pages >= self._checkpoint_pages:
            self._checkpoint(connection)

    def _refused(self, connection: sqlite3.Connection, error: Exception) -> StoreError:
        """Before COMMIT: the batch is certainly not there. Decides if the handle goes on."""
        rolled_back = roll_back(connection)
        if isinstance(error, StoreFenced):
            self._give_up(error)
            return error
        text = errors.describe(error)
        if not rolled_back or not errors.is_harmless(error):
            self._fail(error)
        elif errors.is_disk_full(error):
            self._make_room(connection)
        return CommitRefused(f"store {self.path} refused a batch: {text}")

    def _not_committed(self, connection: sqlite3.Connection, error: Exception) -> StoreError:
        """At COMMIT: refused only where SQLite has certainly not written the mark."""
        text = errors.describe(error)
        if errors.is_refusal_at_commit(error) and roll_back(connection):
            if errors.is_disk_full(error):
                self._make_room(connection)
            return CommitRefused(f"store {self.path} refused a batch: {text}")
        self._fail(error)
        return CommitUnknown(f"store {self.path} failed in the middle of a commit: {text}")

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy the log into the database, so that the next commit writes it from its start again.

        On a full disk this is what lets a broker go on deleting: the log's room is reused (D-9).
        What is in the log is durable already, so nothing here fails a batch.
        """
        self._log_pages = 0
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except _ENGINE_ERRORS as error:
            if not errors.is_refusal_at_commit(error):
                self._fail(error)

    # --- reading ---------------------------------------------------------------------------------

    def read_page(
        self,
        slot: int,
        after_number: int,
        *,
        state: MessageState | None = MessageState.ACTIVE,
        session_id: str | None = None,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> list[Message]:
        connection = self._owned_handle()
        partition = self._partitions.get(slot)
        if partition is None:
            return []
        try:
            return reads.read_page(
                connection,
                slot,
                partition,
                after_number,
                state,
                session_id,
                rows,
                size,
                self._all_checked,
            )
        except (*_ENGINE_ERRORS, DamagedRows, RowsDisagree) as error:
            raise self._unreadable(error) from error

    def read_numbers(self, slot: int, numbers: Sequence[int]) -> list[Message]:
        connection = self._owned_handle()
        partition = self._partitions.get(slot)
        if partition is None:
            return []
        try:
            return reads.read_numbers(connection, slot, partition, numbers, self._all_checked)
        except (*_ENGINE_ERRORS, DamagedRows) as error:
            raise self._unreadable(error) from error

    def read_expiring(
        self, after: Expiring | None, until_ms: int, rows: int = READ_ROWS_MAX
    ) -> ExpiryPage:
        connection = self._owned_handle()
        try:
            return reads.read_expiring(connection, self._partitions, after, until_ms, rows)
        except (*_ENGINE_ERRORS, RowsDisagree) as error:
            raise self._unreadable(error) from error

    def read_session_state(self, slot: int, session_id: str) -> bytes | None:
        connection = self._owned_handle()
        try:
            return reads.read_session_state(connection, slot, session_id)
        except _ENGINE_ERRORS as error:
            raise self._unreadable(error) from error

    def read_duplicates(
        self, slot: int, after_digest: bytes, now_ms: int, rows: int = READ_ROWS_MAX
    ) -> list[DuplicateMark]:
        return self._duplicates(
            lambda connection: reads.read_duplicates(connection, slot, after_digest, now_ms, rows)
        )

    def read_journal_sizes(self, slot: int, first: int, rows: int) -> list[JournalSize]:
        connection = self._owned_handle()
        try:
            return journal.read_sizes(connection, slot, first, rows)
        except _ENGINE_ERRORS as error:
            raise self._unreadable(error) from error

    def journal_handle(self) -> JournalHandle:
        return SqliteJournalHandle(self.path)

    def find_duplicates(
        self, slot: int, digests: Sequence[bytes], now_ms: int
    ) -> list[DuplicateMark]:
        return self._duplicates(
            lambda connection: reads.find_duplicates(connection, slot, digests, now_ms)
        )

    def _duplicates(
        self, read: Callable[[sqlite3.Connection], list[DuplicateMark]]
    ) -> list[DuplicateMark]:
        """Marks that are damaged are removed, and what is left is read again: a mark decides about
        one message id only, and the store goes on."""
        connection = self._owned_handle()
        try:
            try:
                return read(connection)
            except DamagedMarks as found:
                connection.execute("BEGIN IMMEDIATE")
                damage.drop_duplicates(connection, found.keys, str(self.path))
                connection.execute("COMMIT")
            return read(connection)
        except (*_ENGINE_ERRORS, RowsDisagree) as error:
            roll_back(connection)
            raise self._unreadable(error) from error

    def free_bytes(self) -> int | None:
        """Room on the disk, without what the log will still need when it is copied, and with the
        file's own free pages: it never shrinks, so a broker that was full and then drained would
        look full for ever (D-9)."""
        connection = self._owned_handle()
        try:
            disk = os.statvfs(self.path.parent)
            (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
        except (*_ENGINE_ERRORS, OSError) as error:
            raise self._unreadable(error) from error
        own_pages = int(free_pages) - self._log_pages
        free_bytes = max(0, disk.f_bavail * disk.f_frsize + own_pages * schema.PAGE_SIZE)
        if self._room is not None:
            self._room.refill(min(free_bytes, disk.f_bavail * disk.f_frsize))
        return free_bytes

    def _make_room(self, connection: sqlite3.Connection) -> None:
        """The disk is full: what lets the next commit fit (D-9)."""
        if self._room is not None:
            self._room.release()
        self._checkpoint(connection)

    def _owned_handle(self) -> sqlite3.Connection:
        """The connection, if no other owner has come: a fenced handle answers nobody (D-18)."""
        connection = self._handle()
        try:
            epoch_and_owner = connection.execute(schema.READ_FENCE).fetchone()
        except _ENGINE_ERRORS as error:
            raise self._unreadable(error) from error
        if epoch_and_owner != (self._epoch, self._owner):
            fenced = StoreFenced(f"another owner has opened this store since epoch {self._epoch}")
            self._give_up(fenced)
            raise fenced
        return connection

    def _unreadable(self, error: Exception) -> StoreUnavailable:
        if isinstance(error, DamagedRows):
            return self._set_aside(error)
        if isinstance(error, RowsDisagree):
            self._suspicion = str(error)
            self.close()
            return StoreUnavailable(f"store {self.path} is damaged: {error}", Ailment.MALFORMED)
        text = errors.describe(error)
        if not errors.is_harmless(error):
            self._fail(error)
        return StoreUnavailable(f"store {self.path} cannot be read: {text}", ailment_of(error))

    def _set_aside(self, found: DamagedRows) -> StoreUnavailable:
        """The damaged rows go into quarantine; the owner opens the store again and serves the rest,
        with counters that are those of the rows."""
        connection = self._handle()
        text = f"store {self.path} has set aside {len(found.ids)} damaged messages; open it again"
        try:
            connection.execute("BEGIN IMMEDIATE")
            damage.set_aside(
                connection, found.slot, self._keys[found.slot], found.ids, self._time_ms
            )
            connection.execute("COMMIT")
        except _ENGINE_ERRORS as error:
            roll_back(connection)
            text = f"store {self.path} is damaged: {errors.describe(error)}"
            self._suspicion = errors.describe(error)
        self._give_up(StoreUnavailable(text))
        return StoreUnavailable(text)

    def recount(self, slot: int) -> None:
        self._owned_handle()
        self._suspicion = (
            f"sub-queue {tuple(map(int, self._keys[slot]))} does not hold the messages that its"
            " counters say: some may be lost"
        )
        raise self._unreadable(RowsDisagree(self._suspicion))
