"""The file format of SQLite stores: tables, statements, settings, and how a row's id is made.

A message's *place* is `slot << 44 | counter`: 19 bits name the sub-queue, 44 bits are the low part
of the sequence number (half a million messages a second for a year). The number's high 16 bits are
the partition in the sub-queue's key (P-31) and are not stored again.

An active message has its place as primary key; one that waits (deferred or scheduled) has it with
the sign bit set. So the active messages of a sub-queue are one range of the key and a page of them
is one range scan, however many wait in front of them.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from busway.model.message import PARTITION_SHIFT, Message, MessageState
from busway.store.checksums import LOW_MASK, of_message
from busway.store.sqlite_formats import (
    CHECKSUMS,
    DAMAGE_TABLES,
    FORMAT_VERSION,
    JOURNAL_CHECKSUMS,
    JOURNAL_TABLES,
)

APPLICATION_ID: Final = 0x42757377
"""'Busw': tells a file of ours from any other SQLite database."""

COUNTER_BITS: Final = 44
SLOT_BITS: Final = 19
COUNTER_LIMIT: Final = 1 << COUNTER_BITS
SLOT_LIMIT: Final = 1 << SLOT_BITS
ROW_COUNTER_MASK: Final = COUNTER_LIMIT - 1
PLACE_MASK: Final = (1 << SLOT_BITS + COUNTER_BITS) - 1
WAITING: Final = -(1 << SLOT_BITS + COUNTER_BITS)
"""The sign bit of an id: added to the place of a message that is not active."""

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
    "PRAGMA cell_size_check = ON",  # a damaged page is an error, not other rows
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
    shares_bodies INTEGER NOT NULL,
    purging INTEGER NOT NULL,
    UNIQUE (incarnation, partition, kind)
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    state INTEGER NOT NULL,
    expires_ms INTEGER,
    session_id TEXT,
    delivery_count INTEGER NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    ttl_ms INTEGER,
    header INTEGER NOT NULL,
    annotation_items INTEGER NOT NULL,
    size INTEGER NOT NULL,
    enqueued_number INTEGER NOT NULL DEFAULT 0,
    hops INTEGER NOT NULL DEFAULT 0,
    body_id INTEGER,
    changes BLOB,
    dead_letter_source TEXT,
    destination TEXT,
    annotations BLOB,
    bare BLOB
);
CREATE INDEX expiring ON messages (expires_ms, (id & {PLACE_MASK})) WHERE expires_ms IS NOT NULL;
CREATE INDEX waiting ON messages (state) WHERE state <> 0;
CREATE INDEX in_session ON messages (session_id) WHERE session_id IS NOT NULL;
CREATE TABLE bodies (id INTEGER PRIMARY KEY, bare BLOB NOT NULL);
CREATE TABLE copies (body_id INTEGER PRIMARY KEY, count INTEGER NOT NULL);
CREATE TRIGGER last_copy_deleted AFTER UPDATE ON copies WHEN new.count = 0 BEGIN
    DELETE FROM bodies WHERE id = new.body_id;
    DELETE FROM copies WHERE body_id = new.body_id;
END;
CREATE TABLE sessions (
    slot INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    active INTEGER NOT NULL,
    updated_ms INTEGER,
    state_bytes INTEGER NOT NULL,
    name TEXT,
    PRIMARY KEY (slot, session_id)
) WITHOUT ROWID;
CREATE TABLE session_states (
    slot INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    state BLOB NOT NULL,
    UNIQUE (slot, session_id)
);
CREATE TABLE duplicates (
    slot INTEGER NOT NULL,
    digest BLOB NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (slot, digest)
) WITHOUT ROWID;
CREATE INDEX duplicates_over ON duplicates (until_ms);
CREATE TABLE transfers (
    slot INTEGER NOT NULL,
    source_incarnation INTEGER NOT NULL,
    source_partition INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (slot, source_incarnation, source_partition)
) WITHOUT ROWID;
CREATE TABLE transactions (
    id BLOB PRIMARY KEY,
    until_ms INTEGER NOT NULL,
    orders BLOB
) WITHOUT ROWID;
CREATE INDEX transactions_over ON transactions (until_ms) WHERE orders IS NULL;
{JOURNAL_TABLES}
{CHECKSUMS}
{DAMAGE_TABLES}
{JOURNAL_CHECKSUMS}
COMMIT;
"""
# What indexes look at comes first in a row, and what is large last: SQLite finds a column by
# reading the lengths of those before it, at every insert and delete.
#
# The indexes `waiting` and `in_session` end in the row's id, as every index of SQLite does: their
# order is (state, id) and (session_id, id). An active message without expiry and session is in no
# index. What changes often and is small (`copies`, `sessions`) lies apart from what is large and
# does not (`bodies`, `session_states`): SQLite writes a whole row again, however little changes.

# --- the row of the store ------------------------------------------------------------------------

INSERT_STORE: Final = f"INSERT INTO store VALUES (1, {FORMAT_VERSION}, ?, 0, '', 0, 0, 1, 1)"
RAISE_EPOCH: Final = "UPDATE store SET epoch = epoch + 1, owner = ?"
READ_STORE: Final = "SELECT store_id, epoch, commit_number, time_ms, all_checked FROM store"
"""The last says that no row is from before there were checksums."""
IDENTIFY: Final = "SELECT store_id, commit_number FROM store"
READ_FENCE: Final = "SELECT epoch, owner FROM store"
SET_FORMAT: Final = "UPDATE store SET format = ?"
FENCE: Final = (
    "UPDATE store SET commit_number = ?, time_ms = max(time_ms, ?)"
    " WHERE epoch = ? AND owner = ? AND commit_number = ?"
)

# --- sub-queues ----------------------------------------------------------------------------------

_SUB_QUEUES = (
    "SELECT slot, incarnation, partition, kind, shares_bodies, purging, next_counter, active,"
    " deferred, scheduled, bytes, checksum FROM sub_queues"
)
READ_SUB_QUEUES: Final = f"{_SUB_QUEUES} ORDER BY slot"
READ_SUB_QUEUES_OF: Final = f"{_SUB_QUEUES} WHERE slot = ?"
INSERT_SUB_QUEUE: Final = "INSERT INTO sub_queues VALUES (?, ?, ?, ?, 1, 0, 0, 0, 0, 0, 0, ?)"
UPDATE_COUNTERS: Final = (
    "UPDATE sub_queues SET next_counter = ?, active = ?, deferred = ?, scheduled = ?, bytes = ?,"
    f" checksum = (checksum & ~{LOW_MASK}) | ? WHERE slot = ?"
)
READ_SUB_QUEUE: Final = (
    "SELECT incarnation, partition, kind, shares_bodies, purging FROM sub_queues WHERE slot = ?"
)
SET_FLAGS: Final = (
    "UPDATE sub_queues SET shares_bodies = ?, purging = ?,"
    f" checksum = (checksum & {LOW_MASK}) | ? WHERE slot = ?"
)
DELETE_SUB_QUEUE: Final = "DELETE FROM sub_queues WHERE slot = ?"

# --- messages ------------------------------------------------------------------------------------

MESSAGE_COLUMNS: Final = (
    "id, state, expires_ms, CAST(session_id AS BLOB), delivery_count, enqueued_ms, ttl_ms, header,"
    " annotation_items, size, enqueued_number, hops, body_id, changes,"
    " CAST(dead_letter_source AS BLOB), CAST(destination AS BLOB), annotations,"
    " CASE WHEN body_id IS NULL THEN bare"
    " ELSE (SELECT bodies.bare FROM bodies WHERE bodies.id = body_id) END, checksum"
)
# Texts are read as bytes: the driver gives up a whole page for one that is not UTF-8 any more.
# Binding None costs the driver about 0.5 us, an integer 0.1: what is absent is bound as a value
# that the column never has, and becomes NULL in here. In a database in memory, where nothing is
# synced, that takes inserting a row without any of them from 5.6 to about 3.5 us.
ABSENT_TIME: Final = -1
ABSENT_BODY: Final = -1
ABSENT_DATA: Final = 0

INSERT_PLAIN_MESSAGE: Final = (
    "INSERT INTO messages (id, state, expires_ms, delivery_count, enqueued_ms, ttl_ms, header,"
    " annotation_items, size, annotations, bare, checksum)"
    " VALUES (?, ?, nullif(?, -1), ?, ?, nullif(?, -1), ?, ?, ?, nullif(?, 0), ?, ?)"
)
"""What most messages are when they come: nothing in it but what every message has."""
INSERT_MESSAGE: Final = (
    "INSERT INTO messages VALUES (?, ?, nullif(?, -1), nullif(?, 0), ?, ?, nullif(?, -1), ?, ?, ?,"
    " ?, ?, nullif(?, -1), nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, 0),"
    " ?)"
)
DELETE_MESSAGE: Final = "DELETE FROM messages WHERE id = ?"
UPDATE_MESSAGE: Final = (
    "UPDATE messages SET state = ?, delivery_count = ?, expires_ms = nullif(?, -1),"
    f" changes = nullif(?, 0), checksum = (checksum & ~{LOW_MASK}) | ? WHERE id = ?"
)
UPDATE_AND_SHIFT_MESSAGE: Final = (
    "UPDATE messages SET id = ?, state = ?, delivery_count = ?, expires_ms = nullif(?, -1),"
    f" changes = nullif(?, 0), checksum = (checksum & ~{LOW_MASK}) | ? WHERE id = ?"
)
MOVE_MESSAGE: Final = (
    "UPDATE messages SET id = ?, state = ?, expires_ms = nullif(?, -1), delivery_count = ?,"
    " enqueued_ms = ?, ttl_ms = nullif(?, -1), enqueued_number = ?, hops = ?,"
    " changes = nullif(?, 0), dead_letter_source = nullif(?, 0), destination = nullif(?, 0),"
    " checksum = ? WHERE id = ?"
)
READ_RANGE: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?"
)
READ_WAITING: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages INDEXED BY waiting"
    " WHERE state = ? AND state <> 0 AND id >= ? AND id <= ? ORDER BY id LIMIT ?"
)
READ_SESSION_RANGE: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages INDEXED BY in_session"
    " WHERE session_id = ? AND id >= ? AND id <= ? ORDER BY id LIMIT ?"
)
READ_SESSION_WAITING: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages INDEXED BY in_session"
    " WHERE session_id = ? AND state = ? AND id >= ? AND id <= ? ORDER BY id LIMIT ?"
)
READ_NUMBERS: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id IN (SELECT value FROM json_each(?))"
)
_EXPIRING = f"SELECT expires_ms, id & {PLACE_MASK} FROM messages INDEXED BY expiring"
_IN_ORDER = f"ORDER BY expires_ms, id & {PLACE_MASK} LIMIT ?"
READ_EXPIRING: Final = f"{_EXPIRING} WHERE expires_ms IS NOT NULL {_IN_ORDER}"
READ_EXPIRING_WITH: Final = (
    f"{_EXPIRING} WHERE expires_ms = ? AND id & {PLACE_MASK} > ? {_IN_ORDER}"
)
READ_EXPIRING_AFTER: Final = f"{_EXPIRING} WHERE expires_ms > ? {_IN_ORDER}"

# --- shared bodies (D-30) ------------------------------------------------------------------------

INSERT_BODY: Final = "INSERT INTO bodies VALUES (?, ?, ?)"
INSERT_COPIES: Final = "INSERT INTO copies VALUES (?, ?)"
# Said before the message is deleted. A trigger on `messages` would do the same for every row, and
# made deleting twice as dear (4.8 us instead of 2.4 in memory) for queues, which share nothing.
RELEASE_BODY: Final = (
    "UPDATE copies SET count = count - 1"
    " WHERE body_id = (SELECT messages.body_id FROM messages WHERE messages.id = ?)"
)

# --- sessions ------------------------------------------------------------------------------------

READ_SESSIONS: Final = (
    "SELECT slot, session_id, active, updated_ms, state_bytes, name, checksum,"
    " (SELECT id FROM messages INDEXED BY in_session"
    " WHERE messages.session_id = sessions.session_id"
    f" AND id BETWEEN (slot << {COUNTER_BITS}) AND ((slot << {COUNTER_BITS}) | {ROW_COUNTER_MASK})"
    " ORDER BY id LIMIT 1)"
    " FROM sessions ORDER BY slot, session_id"
)
"""The last column is where its first active message lies: one look into an index for each."""
READ_SESSION_STATE: Final = (
    "SELECT state, checksum FROM session_states WHERE slot = ? AND session_id = ?"
)
COUNT_SESSION: Final = (
    "INSERT INTO sessions VALUES (?, ?, ?, NULL, 0, ?, ?)"
    " ON CONFLICT (slot, session_id) DO UPDATE SET active = excluded.active,"
    f" checksum = (checksum & ~{LOW_MASK}) | (excluded.checksum & {LOW_MASK})"
)
SET_SESSION_UPDATED: Final = (
    "INSERT INTO sessions VALUES (?, ?, 0, ?, ?, ?, ?) ON CONFLICT (slot, session_id)"
    " DO UPDATE SET updated_ms = excluded.updated_ms, state_bytes = excluded.state_bytes,"
    f" checksum = (checksum & {LOW_MASK}) | (excluded.checksum & ~{LOW_MASK})"
)
SET_SESSION_STATE: Final = (
    "INSERT INTO session_states VALUES (?, ?, ?, ?) ON CONFLICT (slot, session_id)"
    " DO UPDATE SET state = excluded.state, checksum = excluded.checksum"
)
CLEAR_SESSION_UPDATED: Final = (
    "UPDATE sessions SET updated_ms = NULL, state_bytes = 0,"
    f" checksum = (checksum & {LOW_MASK}) | ? WHERE slot = ? AND session_id = ?"
)
CLEAR_SESSION_STATE: Final = "DELETE FROM session_states WHERE slot = ? AND session_id = ?"
DELETE_SESSION_IF_EMPTY: Final = (
    "DELETE FROM sessions WHERE slot = ? AND session_id = ? AND active = 0 AND updated_ms IS NULL"
)

# --- marks ---------------------------------------------------------------------------------------

MARK_DUPLICATE: Final = (
    "INSERT INTO duplicates VALUES (?, ?, ?, ?) ON CONFLICT (slot, digest)"
    " DO UPDATE SET until_ms = excluded.until_ms, checksum = excluded.checksum"
)
DELETE_DUPLICATE: Final = "DELETE FROM duplicates WHERE slot = ? AND digest = ?"
FORGET_DUPLICATES: Final = (
    "DELETE FROM duplicates WHERE (slot, digest) IN"
    " (SELECT slot, digest FROM duplicates WHERE until_ms <= ? ORDER BY until_ms LIMIT ?)"
)
READ_DUPLICATES: Final = (
    "SELECT slot, digest, until_ms, checksum FROM duplicates"
    " WHERE slot = ? AND digest > ? AND until_ms > ? ORDER BY digest LIMIT ?"
)
FIND_DUPLICATE: Final = (
    "SELECT until_ms, checksum FROM duplicates WHERE slot = ? AND digest = ? AND until_ms > ?"
)
READ_TRANSFERS: Final = (
    "SELECT slot, source_incarnation, source_partition, number, checksum FROM transfers"
    " ORDER BY slot, source_incarnation, source_partition"
)
MARK_TRANSFER: Final = (
    "INSERT INTO transfers VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (slot, source_incarnation, source_partition)"
    " DO UPDATE SET number = excluded.number, checksum = excluded.checksum"
)
READ_TRANSACTIONS: Final = (
    "SELECT id, until_ms, orders, checksum FROM transactions"
    " WHERE until_ms > (SELECT time_ms FROM store) OR orders IS NOT NULL ORDER BY id"
)
MARK_TRANSACTION: Final = (
    "INSERT INTO transactions VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " until_ms = excluded.until_ms, orders = excluded.orders, checksum = excluded.checksum"
)
FORGET_TRANSACTIONS: Final = (
    "DELETE FROM transactions WHERE id IN"
    " (SELECT id FROM transactions WHERE until_ms <= ? AND orders IS NULL"
    " ORDER BY until_ms LIMIT ?)"
)

# --- purging (D-16) ------------------------------------------------------------------------------

READ_IDS: Final = "SELECT id FROM messages WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?"
PURGE_MARKS: Final = tuple(
    f"DELETE FROM {table} WHERE (slot, {key}) IN"
    f" (SELECT slot, {key} FROM {table} WHERE slot = ? LIMIT ?)"
    for table, key in (
        ("duplicates", "digest"),
        ("session_states", "session_id"),
        ("sessions", "session_id"),
        ("transfers", "source_incarnation, source_partition"),
    )
)

Bound = int | str | bytes
"""What statements are given: never None."""
MessageRow = tuple[Bound, ...]

_STATES = tuple(MessageState)
_ACTIVE = MessageState.ACTIVE


def place_of(slot: int, number: int) -> int:
    return slot << COUNTER_BITS | number & ROW_COUNTER_MASK


def row_id(slot: int, number: int, state: MessageState) -> int:
    place = slot << COUNTER_BITS | number & ROW_COUNTER_MASK
    return place if state is _ACTIVE else place + WAITING


def plain_row_of(slot: int, message: Message) -> MessageRow | None:
    """A row for `INSERT_PLAIN_MESSAGE`; None if it would not say all of the message.

    Called for every message, so it calls nothing that it can do itself.
    """
    if (
        message.session_id is not None
        or message.body_id is not None
        or message.changes is not None
        or message.enqueued_number
        or message.hops
        or message.destination is not None
        or message.dead_letter_source is not None
        or message.state is not _ACTIVE
    ):
        return None
    expires_ms, ttl_ms = message.expires_ms, message.ttl_ms
    place = slot << COUNTER_BITS | message.number & ROW_COUNTER_MASK
    return (
        place,
        0,
        ABSENT_TIME if expires_ms is None else expires_ms,
        message.delivery_count,
        message.enqueued_ms,
        ABSENT_TIME if ttl_ms is None else ttl_ms,
        message.header,
        message.annotation_items,
        message.size,
        message.annotations or ABSENT_DATA,
        message.bare,
        of_message(place, message),
    )


def row_of(slot: int, message: Message, body: int | None) -> MessageRow:
    """`body` is the checksum of its shared body, if it has one."""
    body_id = message.body_id
    return (
        row_id(slot, message.number, message.state),
        int(message.state),  # an IntEnum would be adapted by the driver, which is slow
        present_time(message.expires_ms),
        present_text(message.session_id),
        message.delivery_count,
        message.enqueued_ms,
        present_time(message.ttl_ms),
        message.header,
        message.annotation_items,
        message.size,
        message.enqueued_number,
        message.hops,
        ABSENT_BODY if body_id is None else body_id,
        present_bytes(message.changes),
        present_text(message.dead_letter_source),
        present_text(message.destination),
        message.annotations or ABSENT_DATA,
        message.bare if body_id is None else ABSENT_DATA,
        of_message(place_of(slot, message.number), message, body),
    )


def present_time(time_ms: int | None) -> int:
    return ABSENT_TIME if time_ms is None else time_ms


def present_bytes(data: bytes | None) -> bytes | int:
    return ABSENT_DATA if data is None else data


def present_text(text: str | None) -> str | int:
    return ABSENT_DATA if text is None else text


def message_of(row: tuple[Any, ...], partition: int) -> Message:
    session_id, source, destination = row[3], row[14], row[15]
    return Message(
        number=partition << PARTITION_SHIFT | row[0] & ROW_COUNTER_MASK,
        state=_STATES[row[1]],
        expires_ms=row[2],
        session_id=None if session_id is None else session_id.decode(),
        delivery_count=row[4],
        enqueued_ms=row[5],
        ttl_ms=row[6],
        header=row[7],
        annotation_items=row[8],
        size=row[9],
        enqueued_number=row[10],
        hops=row[11],
        body_id=row[12],
        changes=row[13],
        dead_letter_source=None if source is None else source.decode(),
        destination=None if destination is None else destination.decode(),
        annotations=row[16] or b"",
        bare=row[17],
    )


def sound_message(row: tuple[Any, ...], partition: int, all_checked: bool) -> Message | None:
    """The message of a row; None if the row is damaged.

    A row of an older version has no checksum, and is taken as it is if it can be.
    """
    try:
        message = message_of(row, partition)
        place, checksum = row[0] & PLACE_MASK, row[18]
        if checksum is None and not all_checked:
            of_message(place, message)  # fails where a value is not of its type
            return message
        waits = message.state is not _ACTIVE
        if checksum == of_message(place, message) and (row[0] < 0) == waits:
            return message
    except (TypeError, ValueError, OverflowError, AttributeError, IndexError, struct.error):
        pass  # a value of another type or out of its range: damaged, as is what differs
    return None
