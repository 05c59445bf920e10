"""Journals in the tables of a SQLite store: what a batch says of them, and reading them (D-31).

The statements are here and not in `sqlite_schema`, because nothing else uses them. What runs in the
owner's connection and what runs in a reader's share the reads below.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from functools import lru_cache
from typing import Any, Final

from busway.store import sqlite_schema as schema
from busway.store.base import Batch, CommitRefused
from busway.store.journal import (
    BARE,
    JOURNAL_ROW_BYTES,
    TRIM_ROWS,
    JournalContent,
    JournalHead,
    JournalHold,
    JournalPage,
    JournalRecord,
    JournalSize,
)

KIND_SHIFT: Final = 8
EVENT_MASK: Final = (1 << KIND_SHIFT) - 1
"""One integer for an event and for the sub-queue that it is about."""

# Binding None is dear: see `sqlite_schema`. Most rows are of the first kind.
INSERT_MOMENT: Final = (
    "INSERT INTO journal (id, time_ms, event, number, delivery_count, lock_token)"
    " VALUES (?, ?, ?, ?, ?, nullif(?, 0))"
)
INSERT_REASONED: Final = (
    "INSERT INTO journal (id, time_ms, event, number, delivery_count, lock_token, related_number,"
    " reason, description)"
    " VALUES (?, ?, ?, ?, ?, nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, 0))"
)
INSERT_CARRYING: Final = (
    "INSERT INTO journal VALUES (?, ?, ?, ?, ?, nullif(?, 0), nullif(?, 0), nullif(?, 0),"
    " nullif(?, 0), ?, ?, ?, nullif(?, -1), ?, nullif(?, 0), ?, nullif(?, -1), ?, nullif(?, 0),"
    " nullif(?, 0), nullif(?, 0), nullif(?, 0))"
)
ADD_COPIES: Final = "UPDATE copies SET count = count + ? WHERE body_id = ?"
RELEASE_BODY: Final = "UPDATE copies SET count = count - 1 WHERE body_id = ?"
SET_HEAD: Final = (
    "INSERT INTO journal_heads VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (slot) DO UPDATE SET"
    " earliest = excluded.earliest, next_offset = excluded.next_offset, bytes = excluded.bytes,"
    " earliest_ms = excluded.earliest_ms, last_ms = excluded.last_ms"
)
SET_HOLD: Final = (
    "INSERT INTO journal_holds VALUES (?, ?, ?, ?) ON CONFLICT (slot, name) DO UPDATE SET"
    " next_offset = excluded.next_offset, until_ms = excluded.until_ms"
)
END_HOLD: Final = "DELETE FROM journal_holds WHERE slot = ? AND name = ?"
READ_OLDEST: Final = "SELECT id, body_id FROM journal WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
DELETE_OLDEST: Final = "DELETE FROM journal WHERE id >= ? AND id <= ?"
DELETE_HEAD: Final = "DELETE FROM journal_heads WHERE slot = ?"
DELETE_HOLDS: Final = "DELETE FROM journal_holds WHERE slot = ?"

READ_HEADS: Final = (
    "SELECT slot, earliest, next_offset, bytes, earliest_ms, last_ms FROM journal_heads"
    " ORDER BY slot"
)
READ_HEAD: Final = (
    "SELECT earliest, next_offset, bytes, earliest_ms, last_ms FROM journal_heads WHERE slot = ?"
)
READ_ALL_HOLDS: Final = "SELECT * FROM journal_holds ORDER BY slot, name"
READ_HOLDS: Final = "SELECT * FROM journal_holds WHERE slot = ? ORDER BY name"
READ_SLOT: Final = (
    "SELECT slot FROM sub_queues WHERE incarnation = ? AND partition = ? AND kind = ?"
)
READ_TIME: Final = "SELECT time_ms FROM journal WHERE id = ?"
READ_SIZES: Final = (
    f"SELECT id, time_ms, {JOURNAL_ROW_BYTES} + ifnull(size, 0) FROM journal"
    " WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?"
)


# --- writing -------------------------------------------------------------------------------------


def write(connection: sqlite3.Connection, batch: Batch) -> None:
    """Rows, heads and holds of a batch. Bodies that it brings are there already, with a count of
    the messages that have them; trims come first, so that a journal at its limit needs no more."""
    for trim in batch.trims:
        first, stop = schema.place_of(trim.slot, 0), schema.place_of(trim.slot, trim.before)
        _forget(connection, first, stop, TRIM_ROWS)
    if batch.journal:
        _insert(connection, batch.journal)
        _count_copies(connection, batch)
    if batch.journal_heads:
        heads = [
            (slot, head.earliest, head.next_offset, head.bytes, head.earliest_ms, head.last_ms)
            for slot, head in batch.journal_heads.items()
        ]
        connection.executemany(SET_HEAD, heads)
    for slot, name, offset, until_ms in batch.holds:
        if offset is None:
            connection.execute(END_HOLD, (slot, name))
        else:
            connection.execute(SET_HOLD, (slot, name, offset, until_ms))


def _insert(connection: sqlite3.Connection, records: list[JournalRecord]) -> None:
    moments: list[tuple[schema.Bound, ...]] = []
    reasoned: list[tuple[schema.Bound, ...]] = []
    carrying: list[tuple[schema.Bound, ...]] = []
    for record in records:
        row: tuple[schema.Bound, ...] = (
            record.slot << schema.COUNTER_BITS | record.offset,
            record.time_ms,
            int(record.event) | int(record.kind) << KIND_SHIFT,
            record.number,
            record.delivery_count,
            record.lock_token or schema.ABSENT_DATA,
        )
        content = record.content
        told = record.reason is not None or record.description is not None
        if content is None and not told and not record.related_number:
            moments.append(row)
            continue
        row = (
            *row,
            record.related_number,
            schema.present_text(record.reason),
            schema.present_text(record.description),
        )
        if content is None:
            reasoned.append(row)
        else:
            carrying.append(row + _row_of(content))
    for statement, rows in (
        (INSERT_CARRYING, carrying),
        (INSERT_MOMENT, moments),
        (INSERT_REASONED, reasoned),
    ):
        if rows:
            connection.executemany(statement, rows)


def _row_of(content: JournalContent) -> tuple[schema.Bound, ...]:
    return (
        content.body_id,
        content.size,
        content.header,
        schema.present_time(content.ttl_ms),
        content.annotation_items,
        schema.present_text(content.session_id),
        content.enqueued_ms,
        schema.present_time(content.expires_ms),
        content.enqueued_number,
        schema.present_text(content.dead_letter_source),
        schema.present_text(content.destination),
        schema.present_bytes(content.changes),
        content.annotations or schema.ABSENT_DATA,
    )


def _count_copies(connection: sqlite3.Connection, batch: Batch) -> None:
    """Rows that carry a body of an earlier commit are one more reason to keep it."""
    brought = {body_id for body_id, _ in batch.bodies}
    copies = Counter(
        record.content.body_id
        for record in batch.journal
        if record.content is not None and record.content.body_id not in brought
    )
    if copies:
        rows = [(count, body_id) for body_id, count in copies.items()]
        if connection.executemany(ADD_COPIES, rows).rowcount != len(rows):
            raise CommitRefused("a journal row's body is neither in the batch nor in the store")


def copies_in(batch: Batch) -> Counter[int]:
    """How often each body is carried by the rows of a batch."""
    return Counter(each.content.body_id for each in batch.journal if each.content is not None)


def purge(connection: sqlite3.Connection, slot: int, rows: int) -> int:
    """Forget up to so many rows of a deleted incarnation; how many that were (D-16)."""
    span = schema.place_of(slot, 0), schema.place_of(slot + 1, 0)
    gone = _forget(connection, *span, rows)
    if gone < rows:
        connection.execute(DELETE_HEAD, (slot,))
        connection.execute(DELETE_HOLDS, (slot,))
    return gone


def _forget(connection: sqlite3.Connection, first: int, stop: int, rows: int) -> int:
    found = connection.execute(READ_OLDEST, (first, stop, rows)).fetchall()
    if found:
        bodies = [(body_id,) for _, body_id in found if body_id is not None]
        connection.executemany(RELEASE_BODY, bodies)
        connection.execute(DELETE_OLDEST, (first, found[-1][0]))
    return len(found)


# --- reading -------------------------------------------------------------------------------------


def load(
    connection: sqlite3.Connection,
) -> tuple[list[tuple[int, JournalHead]], list[JournalHold]]:
    heads = [(slot, JournalHead(*head)) for slot, *head in connection.execute(READ_HEADS)]
    return heads, [JournalHold(*row) for row in connection.execute(READ_ALL_HOLDS)]


def read_head(connection: sqlite3.Connection, slot: int) -> JournalHead | None:
    found = connection.execute(READ_HEAD, (slot,)).fetchone()
    return None if found is None else JournalHead(*found)


def read_holds(connection: sqlite3.Connection, slot: int) -> list[JournalHold]:
    return [JournalHold(*row) for row in connection.execute(READ_HOLDS, (slot,))]


def read_sizes(
    connection: sqlite3.Connection, slot: int, first: int, rows: int
) -> list[JournalSize]:
    span = (schema.place_of(slot, first), schema.place_of(slot, -1), min(rows, TRIM_ROWS))
    found = [
        JournalSize(id_ & schema.ROW_COUNTER_MASK, time_ms, size)
        for id_, time_ms, size in connection.execute(READ_SIZES, span)
    ]
    return found if found and found[0].offset == first else []


def read_page(
    connection: sqlite3.Connection,
    slot: int,
    first: int,
    stop: int,
    fields: tuple[str, ...],
    size: int,
) -> JournalPage:
    """Two passes over the range: which of the fields it has at all, and then only those. Most rows
    leave most fields empty, and to look costs a quarter of what it costs to hand out nothing."""
    if first >= stop:
        return JournalPage()
    span = (schema.place_of(slot, first), schema.place_of(slot, stop))
    least, *counts = connection.execute(_look_statement(fields), span).fetchone()
    if least != span[0]:
        return JournalPage()
    empty = {field for field, count in zip(_sparse(fields), counts, strict=True) if not count}
    there = tuple(field for field in fields if field not in empty)
    cursor = connection.execute(_read_statement(there), span)
    try:
        cannot_reach = BARE not in there and size >= (stop - first) * JOURNAL_ROW_BYTES
        found = cursor.fetchall() if cannot_reach else _within(cursor, size)
    finally:
        cursor.close()  # ends the read: an open one keeps the log from being reused
    columns = dict(zip(there, zip(*found, strict=True), strict=False))
    return JournalPage(slot, first, len(found), {field: columns.get(field) for field in fields})


def _within(cursor: sqlite3.Cursor, size: int) -> list[tuple[Any, ...]]:
    """Its rows until they have so many bytes, which is what the last column says."""
    found = []
    for row in cursor:
        found.append(row)
        size -= row[-1]
        if size <= 0:
            break
    return found


_EXPRESSIONS: Final = {
    "event": f"journal.event & {EVENT_MASK}",
    "kind": f"journal.event >> {KIND_SHIFT}",
    "enqueued_number": "nullif(journal.enqueued_number, 0)",
    BARE: "bodies.bare",
}
_DENSE: Final = frozenset({"time_ms", "event", "kind", "number", "delivery_count"})
"""Every row has them."""
_ROW_BYTES: Final = f"{JOURNAL_ROW_BYTES} + ifnull(journal.size, 0)"
_RANGE: Final = "WHERE journal.id >= ? AND journal.id < ?"


def _expression(field: str) -> str:
    return _EXPRESSIONS.get(field, f"journal.{field}")


def _sparse(fields: tuple[str, ...]) -> list[str]:
    return [field for field in fields if field not in _DENSE]


@lru_cache(maxsize=64)
def _look_statement(fields: tuple[str, ...]) -> str:
    """The first id, and how many rows have each of the fields that a row may lack."""
    looked = ["journal.body_id" if each == BARE else _expression(each) for each in _sparse(fields)]
    counts = ", ".join(["min(journal.id)", *(f"count({each})" for each in looked)])
    return f"SELECT {counts} FROM journal {_RANGE}"


@lru_cache(maxsize=256)
def _read_statement(fields: tuple[str, ...]) -> str:
    # A join keeps its place in the bodies, which mostly follow one another; a subquery in the list
    # of columns would look for each of them from the root.
    row_bytes = _ROW_BYTES if BARE in fields else str(JOURNAL_ROW_BYTES)
    columns = ", ".join([*map(_expression, fields), row_bytes])
    join = "LEFT JOIN bodies ON bodies.id = journal.body_id" if BARE in fields else ""
    return f"SELECT {columns} FROM journal {join} {_RANGE} ORDER BY journal.id"


def offset_at(connection: sqlite3.Connection, slot: int, time_ms: int) -> int:
    """Times never fall along a journal, and its offsets have no gaps: halve until it is found."""
    head = read_head(connection, slot)
    if head is None:
        return 0
    low, high = head.earliest, head.next_offset
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(READ_TIME, (schema.place_of(slot, middle),)).fetchone()
        if row[0] < time_ms:
            low = middle + 1
        else:
            high = middle
    return low
