"""What the formats of SQLite stores have added, one after the other, and how a file is upgraded.

A new file is made with the tables of the first format that is still read (`sqlite_schema`) and all
that came since. Upgrades that were in a release are never changed.
"""

from __future__ import annotations

from typing import Final

FORMAT_VERSION: Final = 6
FIRST_CHECKED_FORMAT: Final = 5
"""Since then rows have checksums, but for those of journals."""
JOURNAL_CHECKED_FORMAT: Final = 6

JOURNAL_TABLES: Final = """
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    event INTEGER NOT NULL,
    number INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    lock_token BLOB,
    related_number INTEGER,
    reason TEXT,
    description TEXT,
    body_id INTEGER,
    size INTEGER,
    header INTEGER,
    ttl_ms INTEGER,
    annotation_items INTEGER,
    session_id TEXT,
    enqueued_ms INTEGER,
    expires_ms INTEGER,
    enqueued_number INTEGER,
    dead_letter_source TEXT,
    destination TEXT,
    changes BLOB,
    annotations BLOB
);
CREATE TABLE journal_heads (
    slot INTEGER PRIMARY KEY,
    earliest INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    earliest_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL
);
CREATE TABLE journal_holds (
    slot INTEGER NOT NULL,
    name TEXT NOT NULL,
    next_offset INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (slot, name)
) WITHOUT ROWID;
"""
# A row's id is the slot of its partition's main sub-queue and its offset, as a message's is its
# slot and its number: a journal is one range of the key, written at its end, forgotten at its
# beginning, and searched by time without an index, because its times never fall.

ORDERS_OF_TRANSACTIONS: Final = """
ALTER TABLE transactions ADD COLUMN orders BLOB;
DROP INDEX transactions_over;
CREATE INDEX transactions_over ON transactions (until_ms) WHERE orders IS NULL;
"""
NAMES_OF_SESSIONS: Final = """
ALTER TABLE sessions ADD COLUMN name TEXT;
"""
CHECKED_TABLES: Final = (
    "messages",
    "bodies",
    "sub_queues",
    "sessions",
    "session_states",
    "duplicates",
    "transfers",
    "transactions",
)
"""Those whose rows have a checksum (`checksums.py`), in their last column."""
CHECKSUMS: Final = "".join(
    f"ALTER TABLE {table} ADD COLUMN checksum INTEGER;" for table in CHECKED_TABLES
)
DAMAGE_TABLES: Final = """
ALTER TABLE store ADD COLUMN all_checked INTEGER NOT NULL DEFAULT 0;
CREATE TABLE quarantine (
    number INTEGER PRIMARY KEY,
    found_ms INTEGER NOT NULL,
    reason TEXT NOT NULL,
    incarnation INTEGER,
    partition INTEGER,
    kind INTEGER,
    id INTEGER,
    raw BLOB
);
"""
JOURNAL_CHECKSUMS: Final = """
ALTER TABLE journal ADD COLUMN checksum INTEGER;
ALTER TABLE journal_heads ADD COLUMN checksum INTEGER;
ALTER TABLE journal_holds ADD COLUMN checksum INTEGER;
ALTER TABLE store ADD COLUMN journal_checked INTEGER NOT NULL DEFAULT 0;
"""
# `quarantine` has what was found damaged, for the operator: what can be told of where it belongs,
# and the row as JSON, its bytes as hexadecimal digits.
UPGRADES: Final = {
    2: JOURNAL_TABLES + ORDERS_OF_TRANSACTIONS,
    3: NAMES_OF_SESSIONS,
    4: CHECKSUMS + DAMAGE_TABLES,
    5: JOURNAL_CHECKSUMS,
}
"""By format: what makes the next one of it."""
OLDEST_FORMAT: Final = min(UPGRADES)
