"""Journals in the tables of a SQLite store: what a batch says of them, and reading them (D-31).

The statements are here and not in `sqlite_schema`, because nothing else uses them. What runs in the
owner's connection and what runs in a reader's share the reads below.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from busway.store import checksums
from busway.store import sqlite_schema as schema
from busway.store.ailments import Ailment
from busway.store.base import Batch, CommitRefused, StoreUnavailable
from busway.store.journal import (
    BARE,
    JOURNAL_ROW_BYTES,
    TRIM_ROWS,
    JournalContent,
    JournalDamaged,
    JournalHead,
    JournalHold,
    JournalPage,
    JournalRecord,
    JournalSize,
)

log = logging.getLogger("busway.store")

KIND_SHIFT: Final = 8
EVENT_MASK: Final = (1 << KIND_SHIFT) - 1
"""One integer for an event and for the sub-queue that it is about."""

# Binding None is dear: see `sqlite_schema`. Most rows are of the first kind.
INSERT_MOMENT: Final = (
    "INSERT INTO journal (id, time_ms, event, number, delivery_count, lock_token, checksum)"
    " VALUES (?, ?, ?, ?, ?, nullif(?, 0), ?)"
)
INSERT_REASONED: Final = (
    "INSERT INTO journal (id, time_ms, event, number, delivery_count, lock_token, related_number,"
    " reason, description, checksum)"
    " VALUES (?, ?, ?, ?, ?, nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, 0), ?)"
)
INSERT_CARRYING: Final = (
    "INSERT INTO journal VALUES (?, ?, ?, ?, ?, nullif(?, 0), nullif(?, 0), nullif(?, 0),"
    " nullif(?, 0), ?, ?, ?, nullif(?, -1), ?, nullif(?, 0), ?, nullif(?, -1), ?, nullif(?, 0),"
    " nullif(?, 0), nullif(?, 0), nullif(?, 0), ?)"
)
ADD_COPIES: Final = "UPDATE copies SET count = count + ? WHERE body_id = ?"
RELEASE_BODY: Final = "UPDATE copies SET count = count - 1 WHERE body_id = ?"
SET_HEAD: Final = (
    "INSERT INTO journal_heads VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (slot) DO UPDATE SET"
    " earliest = excluded.earliest, next_offset = excluded.next_offset, bytes = excluded.bytes,"
    " earliest_ms = excluded.earliest_ms, last_ms = excluded.last_ms, checksum = excluded.checksum"
)
SET_HOLD: Final = (
    "INSERT INTO journal_holds VALUES (?, ?, ?, ?, ?) ON CONFLICT (slot, name) DO UPDATE SET"
    " next_offset = excluded.next_offset, until_ms = excluded.until_ms,"
    " checksum = excluded.checksum"
)
END_HOLD: Final = "DELETE FROM journal_holds WHERE slot = ? AND name = ?"
_CHECKED: Final = (
    "id, time_ms, event, number, delivery_count, lock_token, related_number,"
    " CAST(reason AS BLOB), CAST(description AS BLOB), body_id, size, header, ttl_ms,"
    " annotation_items, CAST(session_id AS BLOB), enqueued_ms, expires_ms, enqueued_number,"
    " CAST(dead_letter_source AS BLOB), CAST(destination AS BLOB), changes, annotations, checksum"
)
# Texts are read as bytes: the driver gives up a whole page for one that is not UTF-8 any more.
READ_CHECKED: Final = f"SELECT {_CHECKED} FROM journal WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
READ_IS_CHECKED: Final = "SELECT journal_checked, all_checked FROM store"
DELETE_OLDEST: Final = "DELETE FROM journal WHERE id >= ? AND id <= ?"
DELETE_HEAD: Final = "DELETE FROM journal_heads WHERE slot = ?"
DELETE_HOLDS: Final = "DELETE FROM journal_holds WHERE slot = ?"

_HEADS: Final = (
    "SELECT slot, earliest, next_offset, bytes, earliest_ms, last_ms, checksum FROM journal_heads"
)
READ_HEADS: Final = f"{_HEADS} ORDER BY slot"
READ_HEAD: Final = f"{_HEADS} WHERE slot = ?"
READ_EXTENT: Final = (
    f"SELECT min(id), max(id), sum({JOURNAL_ROW_BYTES} + ifnull(size, 0)), min(time_ms),"
    " max(time_ms) FROM journal WHERE id >= ? AND id < ?"
)
READ_ALL_HOLDS: Final = "SELECT * FROM journal_holds ORDER BY slot, name"
READ_HOLDS: Final = "SELECT * FROM journal_holds WHERE slot = ? ORDER BY name"
READ_SLOT: Final = (
    "SELECT slot FROM sub_queues WHERE incarnation = ? AND partition = ? AND kind = ?"
)
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
            sealed(
                slot, head.earliest, head.next_offset, head.bytes, head.earliest_ms, head.last_ms
            )
            for slot, head in batch.journal_heads.items()
        ]
        connection.executemany(SET_HEAD, heads)
    for slot, name, offset, until_ms in batch.holds:
        if offset is None:
            connection.execute(END_HOLD, (slot, name))
        else:
            connection.execute(SET_HOLD, sealed(slot, name, offset, until_ms))


def sealed(*values: Any) -> tuple[Any, ...]:
    """A row of heads or holds with its checksum."""
    return (*values, checksums.of_values(*values))


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
            moments.append((*row, _checksum_of(row, record, None)))
            continue
        row = (
            *row,
            record.related_number,
            schema.present_text(record.reason),
            schema.present_text(record.description),
        )
        checksum = _checksum_of(row, record, content or NO_CONTENT)
        if content is None:
            reasoned.append((*row, checksum))
        else:
            carrying.append((*row, *_row_of(content), checksum))
    for statement, rows in (
        (INSERT_CARRYING, carrying),
        (INSERT_MOMENT, moments),
        (INSERT_REASONED, reasoned),
    ):
        if rows:
            connection.executemany(statement, rows)


NO_CONTENT: Final = JournalContent(*(None,) * len(JournalContent._fields))  # type: ignore[arg-type]


def _checksum_of(
    row: tuple[schema.Bound, ...], record: JournalRecord, content: JournalContent | None
) -> int:
    """As `_is_sound` finds it: texts as bytes, and None for what is NULL in the table."""
    rest = None
    if content is not None:
        rest = (
            record.related_number or None,
            _bytes_of(record.reason),
            _bytes_of(record.description),
            content.body_id,
            content.size,
            content.header,
            content.ttl_ms,
            content.annotation_items,
            _bytes_of(content.session_id),
            content.enqueued_ms,
            content.expires_ms,
            content.enqueued_number,
            _bytes_of(content.dead_letter_source),
            _bytes_of(content.destination),
            content.changes,
            content.annotations or None,
        )
    return checksums.of_journal_row(row[:5], record.lock_token or None, rest)  # type: ignore[arg-type]


def _bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


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
    found = connection.execute(READ_CHECKED, (first, stop, rows)).fetchall()
    if found:
        # A damaged row may name a body that is another's: better one body too many than too few.
        bodies = [(row[9],) for row in found if row[9] is not None and is_sound(row, row[0], False)]
        connection.executemany(RELEASE_BODY, bodies)
        connection.execute(DELETE_OLDEST, (first, found[-1][0]))
    return len(found)


# --- reading -------------------------------------------------------------------------------------


def load(
    connection: sqlite3.Connection, store: str
) -> tuple[list[tuple[int, JournalHead]], list[JournalHold]]:
    """For the owner, who may write: damaged heads are made from the rows, damaged holds go."""
    for row in connection.execute(READ_HEADS).fetchall():
        if not agrees(row):
            log.error("store %s: the head of journal %s is damaged, and made anew", store, row[0])
            connection.execute(SET_HEAD, sealed(row[0], *_extent(connection, row)))
    for row in connection.execute(READ_ALL_HOLDS).fetchall():
        if not agrees(row):
            log.error(
                "store %s: what a reader of journal %s asked to keep is damaged, and dropped. Its"
                " next position makes it anew.",
                store,
                row[0],
            )
            connection.execute(END_HOLD, row[:2])
    heads = [(slot, JournalHead(*head)) for slot, *head, _ in connection.execute(READ_HEADS)]
    return heads, [JournalHold(*row[:-1]) for row in connection.execute(READ_ALL_HOLDS)]


def _extent(connection: sqlite3.Connection, head: Sequence[Any]) -> tuple[int, ...]:
    """What a head says, from the rows. They are committed together, so the last row tells the next
    offset; where no row is left, only the head itself can."""
    slot, _, said, *_ = head
    first, last, size, earliest_ms, last_ms = connection.execute(
        READ_EXTENT, (schema.place_of(slot, 0), schema.place_of(slot + 1, 0))
    ).fetchone()
    if first is None:
        next_offset = said if isinstance(said, int) and said >= 0 else 0
        return next_offset, next_offset, 0, 0, 0
    earliest = first & schema.ROW_COUNTER_MASK
    return earliest, (last & schema.ROW_COUNTER_MASK) + 1, size, earliest_ms, last_ms


def agrees(row: Sequence[Any]) -> bool:
    """Of heads and holds."""
    *values, checksum = row
    return bool(checksum == checksums.of_values(*values))


def give_checksums(connection: sqlite3.Connection) -> None:
    """To the heads and holds of an older file; its rows get none."""
    for row in connection.execute(READ_HEADS).fetchall():
        connection.execute(SET_HEAD, sealed(*row[:-1]))
    for row in connection.execute(READ_ALL_HOLDS).fetchall():
        connection.execute(SET_HOLD, sealed(*row[:-1]))


def read_head(connection: sqlite3.Connection, slot: int) -> JournalHead | None:
    found = connection.execute(READ_HEAD, (slot,)).fetchone()
    if found is None:
        return None
    if not agrees(found):
        raise StoreUnavailable(
            f"the head of journal {slot} is damaged; it is made anew when the store is opened next",
            Ailment.MALFORMED,
        )
    return JournalHead(*found[1:-1])


def read_holds(connection: sqlite3.Connection, slot: int) -> list[JournalHold]:
    rows = connection.execute(READ_HOLDS, (slot,)).fetchall()
    return [JournalHold(*row[:-1]) for row in rows if agrees(row)]


# --- checking ------------------------------------------------------------------------------------

_FIRST_OF_REST: Final = 6
_NO_REST: Final = (None,) * 16


def is_sound(row: Sequence[Any], id_: int, journal_checked: bool) -> bool:
    """Of a row of `READ_CHECKED` that must have this id. Rows of older versions have no checksum,
    and are taken as they are."""
    checksum = row[-1]
    if row[0] != id_ or (checksum is None and journal_checked):
        return False
    if checksum is None:
        return True
    rest: object = tuple(row[_FIRST_OF_REST:-1])
    if rest == _NO_REST:
        rest = None
    return checksums.agrees(checksum, checksums.of_journal_row, row[:5], row[5], rest)


class CheckedRow(NamedTuple):
    offset: int
    is_sound: bool


def checked_rows(connection: sqlite3.Connection, slot: int) -> Iterator[CheckedRow]:
    """Every row of a journal."""
    (journal_checked, _) = connection.execute(READ_IS_CHECKED).fetchone()
    span = (schema.place_of(slot, 0), schema.place_of(slot + 1, 0), -1)
    for row in connection.execute(READ_CHECKED, span):
        sound = is_sound(row, row[0], bool(journal_checked))
        yield CheckedRow(row[0] & schema.ROW_COUNTER_MASK, sound)


def _sound_rows(connection: sqlite3.Connection, slot: int, first: int, stop: int) -> int:
    """How many rows from `first` on are what was written. Raises `JournalDamaged` where that is
    none, with the offset at which the next sound one may be."""
    (journal_checked, _) = connection.execute(READ_IS_CHECKED).fetchone()
    place = schema.place_of(slot, first)
    rows = connection.execute(READ_CHECKED, (place, place + stop - first, stop - first)).fetchall()
    checked = bool(journal_checked)
    if not rows or rows[0][0] != place:
        return 0  # it is forgotten, or not there yet
    for index, row in enumerate(rows):
        if is_sound(row, place + index, checked):
            continue
        if index:
            return index
        sound = (row[0] - place for row in rows[1:] if is_sound(row, row[0], checked))
        raise JournalDamaged(first, first + next(sound, stop - first))
    return len(rows)


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
    stop = first + _sound_rows(connection, slot, first, stop)
    if first == stop:
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
    if BARE in there:
        found = _with_sound_bodies(connection, found, there.index(BARE), first)
    columns = dict(zip(there, zip(*found, strict=True), strict=False))
    return JournalPage(slot, first, len(found), {field: columns.get(field) for field in fields})


def _with_sound_bodies(
    connection: sqlite3.Connection, found: list[tuple[Any, ...]], bare: int, first: int
) -> list[tuple[Any, ...]]:
    """The rows in front of the first whose body is not what was written."""
    (_, all_checked) = connection.execute(READ_IS_CHECKED).fetchone()
    for index, row in enumerate(found):
        body_id, checksum = row[-3], row[-2]
        if body_id is None:
            continue
        if row[bare] is None or not (
            (checksum is None and not all_checked)
            or checksums.agrees(checksum, checksums.of_body, body_id, row[bare])
        ):
            if index:
                return found[:index]
            raise JournalDamaged(first, first + 1)
    return found


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
    bodies = ["journal.body_id", "bodies.checksum"] if BARE in fields else []
    columns = ", ".join([*map(_expression, fields), *bodies, row_bytes])
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
        there, found_ms = _time_from(connection, slot, middle, high)
        if found_ms is None or found_ms >= time_ms:
            high = middle
        else:
            low = there + 1
    return low


def _time_from(
    connection: sqlite3.Connection, slot: int, first: int, stop: int
) -> tuple[int, int | None]:
    """The first sound row of a range and its time; None if the range has none."""
    (journal_checked, _) = connection.execute(READ_IS_CHECKED).fetchone()
    span = (schema.place_of(slot, first), schema.place_of(slot, stop), stop - first)
    cursor = connection.execute(READ_CHECKED, span)
    try:
        for row in cursor:
            if is_sound(row, row[0], bool(journal_checked)):
                return row[0] & schema.ROW_COUNTER_MASK, row[1]
    finally:
        cursor.close()
    return first, None
