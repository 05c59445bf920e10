"""The file format of SQLite stores: tables, statements, settings, and how a row's id is made.

A message's primary key is `slot << 44 | counter`: 19 bits name the sub-queue, 44 bits are the low
part of the sequence number (half a million messages a second for a year). So every sub-queue is one
range of the primary key, and a page of it is one range scan. The number's high 16 bits are the
partition in the sub-queue's key (P-31) and are not stored again.
"""

from __future__ import annotations

from typing import Any, Final

from busway.model.message import PARTITION_SHIFT, Message, MessageState

APPLICATION_ID: Final = 0x42757377
"""'Busw': tells a file of ours from any other SQLite database."""

FORMAT_VERSION: Final = 1

COUNTER_BITS: Final = 44
SLOT_BITS: Final = 19
COUNTER_LIMIT: Final = 1 << COUNTER_BITS
SLOT_LIMIT: Final = 1 << SLOT_BITS
ROW_COUNTER_MASK: Final = COUNTER_LIMIT - 1

PAGE_SIZE: Final = 8192
CACHE_KIB: Final = 8 * 1024
"""Holds the pages of the largest batch (D-7), so that none is written twice in one commit."""
WAL_CHECKPOINT_PAGES: Final = 1024
"""About this many pages may be in the log before they are copied into the database. The commit that
copies waits for it; 512, 1024 and 2048 could not be told apart, 8192 had longer waits."""
WAL_SIZE_LIMIT: Final = 32 * 1024 * 1024
"""A log that one huge batch made longer than this is cut back."""

SETTINGS: Final = (
    "PRAGMA synchronous = FULL",  # each commit syncs the log before it returns (D-5)
    "PRAGMA fullfsync = ON",  # macOS: fsync alone does not reach the disk there
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA wal_autocheckpoint = 0",  # the store does it itself and sees what goes wrong (D-3)
    f"PRAGMA journal_size_limit = {WAL_SIZE_LIMIT}",
    f"PRAGMA cache_size = -{CACHE_KIB}",
    "PRAGMA mmap_size = 0",  # a bad sector is an error to handle, not a SIGBUS
    "PRAGMA secure_delete = OFF",  # some builds zero what is deleted, and write it all once more
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)

TABLES: Final = f"""
PRAGMA page_size = {PAGE_SIZE};
PRAGMA auto_vacuum = NONE;
PRAGMA journal_mode = WAL;
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    format INTEGER NOT NULL,
    store_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    commit_number INTEGER NOT NULL,
    time_ms INTEGER NOT NULL
);
CREATE TABLE sub_queues (
    slot INTEGER PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    next_counter INTEGER NOT NULL,
    active INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    scheduled INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    UNIQUE (incarnation, partition, kind)
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    expires_ms INTEGER,
    delivery_count INTEGER NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    ttl_ms INTEGER,
    header INTEGER NOT NULL,
    annotation_items INTEGER NOT NULL,
    size INTEGER NOT NULL,
    session_id TEXT,
    changes BLOB,
    annotations BLOB,
    bare BLOB NOT NULL
);
CREATE INDEX expiring ON messages (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX waiting ON messages (state) WHERE state <> 0;
COMMIT;
"""
# Both indexes end in the row's id, as every index of SQLite does: their order is
# (expires_ms, id) and (state, id). An active message without expiry is in neither.

# --- the row of the store ------------------------------------------------------------------------

INSERT_STORE: Final = f"INSERT INTO store VALUES (1, {FORMAT_VERSION}, ?, 0, '', 0, 0)"
RAISE_EPOCH: Final = "UPDATE store SET epoch = epoch + 1, owner = ?"
READ_STORE: Final = "SELECT store_id, epoch, commit_number, time_ms FROM store"
READ_FENCE: Final = "SELECT epoch, owner FROM store"
FENCE: Final = (
    "UPDATE store SET commit_number = ?, time_ms = max(time_ms, ?)"
    " WHERE epoch = ? AND owner = ? AND commit_number = ?"
)

# --- sub-queues ----------------------------------------------------------------------------------

READ_SUB_QUEUES: Final = (
    "SELECT slot, incarnation, partition, kind, next_counter, active, deferred, scheduled, bytes"
    " FROM sub_queues ORDER BY slot"
)
INSERT_SUB_QUEUE: Final = "INSERT INTO sub_queues VALUES (?, ?, ?, ?, 1, 0, 0, 0, 0)"
UPDATE_COUNTERS: Final = (
    "UPDATE sub_queues SET next_counter = ?, active = ?, deferred = ?, scheduled = ?, bytes = ?"
    " WHERE slot = ?"
)
DELETE_SUB_QUEUE_IF_EMPTY: Final = (
    "DELETE FROM sub_queues WHERE slot = ?"
    " AND NOT EXISTS (SELECT 1 FROM messages WHERE id >= ? AND id <= ?)"
)

# --- messages ------------------------------------------------------------------------------------

_COLUMNS = (
    "id, state, expires_ms, delivery_count, enqueued_ms, ttl_ms, header, annotation_items, size,"
    " session_id, changes, annotations, bare"
)
# Binding None costs the driver about 0.5 us, an integer 0.1: what is absent is bound as a value
# that the column never has, and becomes NULL in here. In a database in memory, where nothing is
# synced, that takes inserting a row without any of them from 5.6 to about 3.5 us.
ABSENT_TIME: Final = -1
ABSENT_DATA: Final = 0

INSERT_MESSAGE: Final = (
    "INSERT INTO messages VALUES (?, ?, nullif(?, -1), ?, ?, nullif(?, -1), ?, ?, ?,"
    " nullif(?, 0), nullif(?, 0), nullif(?, 0), ?)"
)
DELETE_MESSAGE: Final = "DELETE FROM messages WHERE id = ?"
UPDATE_MESSAGE: Final = (
    "UPDATE messages SET state = ?, delivery_count = ?, expires_ms = nullif(?, -1),"
    " changes = nullif(?, 0) WHERE id = ?"
)
MOVE_MESSAGE: Final = (
    "UPDATE messages SET id = ?, state = ?, delivery_count = ?, enqueued_ms = ?,"
    " expires_ms = nullif(?, -1), changes = nullif(?, 0) WHERE id = ?"
)
PURGE_MESSAGES: Final = (
    "DELETE FROM messages WHERE id IN"
    " (SELECT id FROM messages WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?)"
)
READ_ALL_STATES: Final = (
    f"SELECT {_COLUMNS} FROM messages WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?"
)
READ_ACTIVE: Final = (
    f"SELECT {_COLUMNS} FROM messages WHERE id >= ? AND id <= ? AND state = 0 ORDER BY id LIMIT ?"
)
READ_WAITING: Final = (
    f"SELECT {_COLUMNS} FROM messages INDEXED BY waiting"
    " WHERE state = ? AND state <> 0 AND id >= ? AND id <= ? ORDER BY id LIMIT ?"
)
READ_NUMBERS: Final = (
    f"SELECT {_COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?))"
)
READ_EXPIRING: Final = (
    "SELECT expires_ms, id FROM messages WHERE expires_ms IS NOT NULL"
    " ORDER BY expires_ms, id LIMIT ?"
)
READ_EXPIRING_WITH: Final = (
    "SELECT expires_ms, id FROM messages WHERE expires_ms = ? AND id > ? ORDER BY id LIMIT ?"
)
READ_EXPIRING_AFTER: Final = (
    "SELECT expires_ms, id FROM messages WHERE expires_ms > ? ORDER BY expires_ms, id LIMIT ?"
)

Bound = int | str | bytes
"""What statements are given: never None."""
MessageRow = tuple[Bound, ...]

_STATES = tuple(MessageState)


def first_id(slot: int) -> int:
    return slot << COUNTER_BITS


def last_id(slot: int) -> int:
    return slot << COUNTER_BITS | ROW_COUNTER_MASK


def row_id(slot: int, number: int) -> int:
    return slot << COUNTER_BITS | number & ROW_COUNTER_MASK


def row_of(slot: int, message: Message) -> MessageRow:
    """A row to insert. Called for every message, so it calls nothing that it can do itself."""
    expires_ms, ttl_ms = message.expires_ms, message.ttl_ms
    session_id, changes = message.session_id, message.changes
    return (
        slot << COUNTER_BITS | message.number & ROW_COUNTER_MASK,
        int(message.state),  # an IntEnum would be adapted by the driver, which is slow
        ABSENT_TIME if expires_ms is None else expires_ms,
        message.delivery_count,
        message.enqueued_ms,
        ABSENT_TIME if ttl_ms is None else ttl_ms,
        message.header,
        message.annotation_items,
        message.size,
        ABSENT_DATA if session_id is None else session_id,
        ABSENT_DATA if changes is None else changes,
        message.annotations or ABSENT_DATA,
        message.bare,
    )


def present_time(time_ms: int | None) -> int:
    return ABSENT_TIME if time_ms is None else time_ms


def present_bytes(data: bytes | None) -> bytes | int:
    return ABSENT_DATA if data is None else data


def message_of(row: tuple[Any, ...], partition: int) -> Message:
    return Message(
        number=partition << PARTITION_SHIFT | row[0] & ROW_COUNTER_MASK,
        state=_STATES[row[1]],
        expires_ms=row[2],
        delivery_count=row[3],
        enqueued_ms=row[4],
        ttl_ms=row[5],
        header=row[6],
        annotation_items=row[7],
        size=row[8],
        session_id=row[9],
        changes=row[10],
        annotations=row[11] or b"",
        bare=row[12],
    )
