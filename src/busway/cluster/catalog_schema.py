"""The tables of the catalog, format by format.

A file is brought from any older format to the newest one, step by step. Steps that were in a
release are never changed.
"""

from __future__ import annotations

from typing import Final

FIRST_SCHEMA: Final = """
CREATE TABLE namespaces (name TEXT PRIMARY KEY, description TEXT NOT NULL);
CREATE TABLE stores (position INTEGER PRIMARY KEY, store_id TEXT NOT NULL UNIQUE);
-- AUTOINCREMENT: an incarnation is never given twice, not even after its entity is gone (D-16).
CREATE TABLE entities (
    incarnation INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    path_key TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (namespace, path_key)
);
-- One row for each store that may still hold rows of a deleted entity.
CREATE TABLE tombstones (
    incarnation INTEGER NOT NULL,
    store_id TEXT NOT NULL,
    path TEXT NOT NULL,
    deleted_ms INTEGER NOT NULL,
    PRIMARY KEY (incarnation, store_id)
) WITHOUT ROWID;
"""
RULES_SCHEMA: Final = """
-- In the order in which they were made.
CREATE TABLE rules (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL,
    name_key TEXT NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (subscription, name_key)
);
"""
ORDERS_SCHEMA: Final = """
-- Transactions whose rule changes are in here, until their store has forgotten them (D-28).
CREATE TABLE carried_out (
    store_id TEXT NOT NULL,
    transaction_id BLOB NOT NULL,
    PRIMARY KEY (store_id, transaction_id)
) WITHOUT ROWID;
"""
DECLARED_SCHEMA: Final = """
-- What a configuration said of access rules when it was last read, as digests (`declare`).
CREATE TABLE declared_access (
    namespace TEXT NOT NULL,
    name_key TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (namespace, name_key)
) WITHOUT ROWID;
"""
SESSION_IDS: Final = """
-- Descriptions say whether session ids fold case. Those that do not say it are older: they do not.
"""
CHECKSUMS: Final = """
ALTER TABLE entities ADD COLUMN checksum INTEGER;
ALTER TABLE rules ADD COLUMN checksum INTEGER;
"""
MARKED: Final = """
-- Which catalog this is, and how many changes it has seen: the mark beside the file knows both.
CREATE TABLE catalog (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    catalog_id TEXT NOT NULL,
    commit_number INTEGER NOT NULL,
    checksum INTEGER
);
INSERT INTO catalog VALUES (1, lower(hex(randomblob(16))), 0, NULL);
ALTER TABLE namespaces ADD COLUMN checksum INTEGER;
ALTER TABLE stores ADD COLUMN checksum INTEGER;
ALTER TABLE tombstones ADD COLUMN checksum INTEGER;
ALTER TABLE carried_out ADD COLUMN checksum INTEGER;
ALTER TABLE declared_access ADD COLUMN checksum INTEGER;
"""
STEPS: Final = (
    FIRST_SCHEMA,
    RULES_SCHEMA,
    ORDERS_SCHEMA,
    DECLARED_SCHEMA,
    SESSION_IDS,
    CHECKSUMS,
    MARKED,
)
"""What makes a file of each format from one of the format before."""
FORMAT: Final = len(STEPS)
FIRST_CHECKED_FORMAT: Final = 6
"""Since then entities and rules have checksums."""
FIRST_MARKED_FORMAT: Final = 7
"""Since then every row has one, and the file has an id and a mark."""
