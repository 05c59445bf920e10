"""What a SQLite store does about damaged rows: sets them aside, and counts again what is left.

A damaged message is never handed out. It goes to the table `quarantine`, as it was found, for the
operator (`busway recover`); its sub-queue's counters and sessions are counted anew from the rows
that are there, because what the damaged row says of itself cannot be believed. Then the store is
opened again, so that its owner's memory is what the store holds.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from busway.model.message import MessageState
from busway.store import checksums
from busway.store import sqlite_marks as marks
from busway.store import sqlite_schema as schema
from busway.store.base import Counters, StoreError
from busway.store.sqlite_writes import row_of_counters

log = logging.getLogger("busway.store")

NUMBERS_LEFT_OUT: Final = 1_000_000
"""Where the next number is not known any more, so many are left out: none is given twice (D-2)."""
INDEXES: Final = ("expiring", "waiting", "in_session", "duplicates_over", "transactions_over")
FINDINGS_MAX: Final = 10

QUARANTINE: Final = (
    "INSERT INTO quarantine (found_ms, reason, incarnation, partition, kind, id, raw)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
COUNT_QUARANTINE: Final = "SELECT count(*) FROM quarantine"
READ_RAW: Final = (
    "SELECT id, state, expires_ms, CAST(session_id AS BLOB), delivery_count, enqueued_ms, ttl_ms,"
    " header, annotation_items, size, enqueued_number, hops, body_id, changes,"
    " CAST(dead_letter_source AS BLOB), CAST(destination AS BLOB), annotations,"
    " CASE WHEN body_id IS NULL THEN bare"
    " ELSE (SELECT bodies.bare FROM bodies WHERE bodies.id = body_id) END, checksum"
    " FROM messages NOT INDEXED WHERE id = ?"
)
COLUMNS: Final = (
    *("id", "state", "expires_ms", "session_id", "delivery_count", "enqueued_ms", "ttl_ms"),
    *("header", "annotation_items", "size", "enqueued_number", "hops", "body_id", "changes"),
    *("dead_letter_source", "destination", "annotations", "bare", "checksum"),
)
COUNT_ROWS: Final = (
    "SELECT state, count(*), sum(size), max(id) FROM messages NOT INDEXED"
    " WHERE id >= ? AND id <= ? GROUP BY state"
)
COUNT_SESSIONS: Final = (
    "SELECT CAST(session_id AS BLOB), count(*) FROM messages NOT INDEXED"
    " WHERE id >= ? AND id <= ? AND session_id IS NOT NULL GROUP BY session_id"
)


SIZES_OF_STATES: Final = "SELECT slot, sum(length(state)) FROM session_states GROUP BY slot"
"""A session's state counts against the size of its entity (SES-10)."""
READ_SESSIONS: Final = (
    "SELECT slot, session_id, active, updated_ms, state_bytes, checksum FROM sessions"
)


class DamagedRows(StoreError):  # noqa: N818
    """Messages of one sub-queue whose rows are not what was written."""

    def __init__(self, slot: int, ids: Sequence[int]) -> None:
        super().__init__(f"{len(ids)} damaged rows in slot {slot}")
        self.slot = slot
        self.ids = ids


class RowsDisagree(StoreError):  # noqa: N818
    """An index or a counter says something else than the rows."""


class DamagedMarks(RowsDisagree):
    """Marks of duplicate detection that are not what was written, by slot and digest."""

    def __init__(self, keys: Sequence[tuple[int, bytes]]) -> None:
        super().__init__(f"{len(keys)} marks of duplicate detection are damaged")
        self.keys = keys


def set_aside(
    connection: sqlite3.Connection,
    slot: int,
    key: Sequence[int],
    ids: Sequence[int],
    time_ms: int,
) -> None:
    """Within a transaction: the rows are quarantined, and their sub-queue is counted again."""
    for id_ in ids:
        row = connection.execute(READ_RAW, (id_,)).fetchone()
        if row is None:
            continue
        raw = json.dumps(dict(zip(COLUMNS, map(_as_json, row), strict=True)))
        reason = "its checksum is wrong" if row[-1] is not None else "it has lost its checksum"
        connection.execute(QUARANTINE, (time_ms, reason, *map(int, key), id_, raw))
        _delete(connection, schema.DELETE_MESSAGE, (id_,))
        number = id_ & schema.ROW_COUNTER_MASK
        log.error(
            "a damaged message was set aside: sub-queue %s, number %d (%s). It is not delivered;"
            " 'busway recover' shows it.",
            tuple(map(int, key)),
            number,
            reason,
        )
    recount(connection, slot)


def _as_json(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _delete(connection: sqlite3.Connection, statement: str, key: tuple[Any, ...]) -> None:
    """Indexes are found by the row's values: where those are damaged, the indexes are made anew.

    SQLite deletes a row whose index entries it does not find only while the schema is writable.
    """
    connection.execute("SAVEPOINT setting_aside")
    try:
        connection.execute(statement, key)
    except sqlite3.DatabaseError:
        connection.execute("ROLLBACK TO setting_aside")
        connection.execute("PRAGMA writable_schema = ON")
        try:
            connection.execute(statement, key)
        finally:
            connection.execute("PRAGMA writable_schema = OFF")
        reindex(connection)
    connection.execute("RELEASE setting_aside")


def drop_duplicates(
    connection: sqlite3.Connection, keys: Sequence[tuple[int, bytes]], store: str
) -> None:
    """Within a transaction. Nobody knows any more until when such a mark counts, and it decides
    about one message id only."""
    for slot, digest in keys:
        _delete(connection, schema.DELETE_DUPLICATE, (slot, digest))
        log.error(
            "store %s: a damaged mark of duplicate detection in slot %d was removed. A message with"
            " the same id may be accepted once more.",
            store,
            slot,
        )


def reindex(connection: sqlite3.Connection) -> None:
    for index in INDEXES:
        connection.execute(f"REINDEX {index}")


def recount(connection: sqlite3.Connection, slot: int) -> None:
    """Counters and sessions of a sub-queue from its rows."""
    counters, numbers = Counters(), [0]
    for state in (MessageState.ACTIVE, MessageState.DEFERRED):
        span = (schema.row_id(slot, 0, state), schema.row_id(slot, -1, state))
        for stored, count, size, last in connection.execute(COUNT_ROWS, span).fetchall():
            counters.bytes += size
            numbers.append(last & schema.ROW_COUNTER_MASK)
            if state is MessageState.ACTIVE:
                counters.active += count
            elif stored == MessageState.DEFERRED:
                counters.deferred += count
            else:
                counters.scheduled += count
    states = dict(connection.execute(SIZES_OF_STATES).fetchall())
    counters.bytes += states.get(slot, 0)
    row = connection.execute(schema.READ_SUB_QUEUES_OF, (slot,)).fetchone()
    said, last_number = row[6], max(numbers)
    is_believed = counters_agree(row) and said > last_number
    counters.next_counter = said if is_believed else last_number + 1 + NUMBERS_LEFT_OUT
    connection.execute(schema.UPDATE_COUNTERS, row_of_counters(slot, counters))
    recount_sessions(connection, slot)


def recount_sessions(connection: sqlite3.Connection, slot: int) -> None:
    """Sessions from the messages and states that there are; a state's time may be lost."""
    span = (
        schema.row_id(slot, 0, MessageState.ACTIVE),
        schema.row_id(slot, -1, MessageState.ACTIVE),
    )
    active: Counter[str] = Counter()
    for session_id, count in connection.execute(COUNT_SESSIONS, span):
        active[session_id.decode("utf-8", "replace")] += count
    (time_ms,) = connection.execute("SELECT time_ms FROM store").fetchone()
    updated = {
        session_id: updated_ms
        for _, session_id, *rest in connection.execute(f"{READ_SESSIONS} WHERE slot = ?", (slot,))
        if session_agrees((slot, session_id, *rest))
        for updated_ms in (rest[1],)
    }
    names = dict(
        connection.execute(
            "SELECT session_id, name FROM sessions WHERE slot = ?", (slot,)
        ).fetchall()
    )
    states = dict(
        connection.execute(
            "SELECT session_id, length(state) FROM session_states WHERE slot = ?", (slot,)
        ).fetchall()
    )
    had_any = connection.execute("DELETE FROM sessions WHERE slot = ?", (slot,)).rowcount
    if not had_any and not states:
        return  # an entity without sessions, whose messages may have session ids all the same
    for session_id in {*active, *states}:
        size = states.get(session_id)
        updated_ms = None if size is None else updated.get(session_id) or time_ms
        values = (slot, session_id, active[session_id], updated_ms, size or 0)
        connection.execute(
            "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*values, names.get(session_id), marks.of_session(*values)),
        )


def mend_counters(connection: sqlite3.Connection, store: str) -> None:
    """Counters and sessions follow from messages: damaged ones are counted again. Raises
    `RowsDisagree` where it is not known any more whose a sub-queue is."""
    wrong: set[int] = set()
    for row in connection.execute(schema.READ_SUB_QUEUES).fetchall():
        if not key_agrees(row):
            raise RowsDisagree(f"the row of sub-queue {row[0]} is not what was written")
        if not counters_agree(row):
            wrong.add(row[0])
    sessions = connection.execute(READ_SESSIONS).fetchall()
    wrong |= {row[0] for row in sessions if not session_agrees(row)}
    slots = {slot for (slot,) in connection.execute("SELECT slot FROM sub_queues")}
    for slot in wrong & slots:
        log.error("store %s: the counters of slot %d are damaged and are counted anew", store, slot)
        recount(connection, slot)
    for slot in wrong - slots:
        raise RowsDisagree(f"a session belongs to slot {slot}, which is not there")


def sound_marks(connection: sqlite3.Connection, statement: str, what: str) -> list[tuple[Any, ...]]:
    """Marks without their checksums. One that is damaged could make a message come twice, or not
    at all, so nothing is served until somebody has looked (`busway recover`)."""
    rows = connection.execute(statement).fetchall()
    damaged = [row for row in rows if not mark_agrees(row)]
    if damaged:
        raise RowsDisagree(f"{len(damaged)} marks of {what} are not what was written")
    return [row[:-1] for row in rows]


def give_checksums(connection: sqlite3.Connection) -> None:
    """To the few rows of an older file that `open` reads; all others get theirs when written."""
    for row in connection.execute(schema.READ_SUB_QUEUES).fetchall():
        slot, incarnation, partition, kind, shares, purging, *counters, _ = row
        checksum = checksums.of_sub_queue(
            slot, (incarnation, partition, kind), shares, purging, counters
        )
        connection.execute("UPDATE sub_queues SET checksum = ? WHERE slot = ?", (checksum, slot))


# --- what rows say against their checksums -------------------------------------------------------


def key_agrees(row: Sequence[Any]) -> bool:
    """Of a row of `READ_SUB_QUEUES`: whose it is, and its flags."""
    slot, incarnation, partition, kind, shares, purging, *_, checksum = row
    wanted = checksums.high_half(
        checksums.of_values(slot, incarnation, partition, kind, shares, purging)
    )
    return checksum is None or _is_half(checksum, wanted, ~checksums.LOW_MASK)


def counters_agree(row: Sequence[Any]) -> bool:
    slot, _, _, _, _, _, *counters, checksum = row
    return checksum is None or _is_half(
        checksum, checksums.of_values(slot, *counters), checksums.LOW_MASK
    )


def _is_half(checksum: object, wanted: int, mask: int) -> bool:
    return isinstance(checksum, int) and checksum & mask == wanted


def session_agrees(row: Sequence[Any]) -> bool:
    *values, checksum = row
    return checksum is None or checksums.agrees(checksum, marks.of_session, *values)


def mark_agrees(row: Sequence[Any]) -> bool:
    """Of duplicates, transfers and transactions."""
    *values, checksum = row
    return checksum is None or checksum == checksums.of_values(*values)


def structure_findings(connection: sqlite3.Connection, *, thorough: bool = False) -> list[str]:
    """What SQLite has against the file; `thorough` also compares indexes with rows."""
    check = "integrity_check" if thorough else "quick_check"
    try:
        found = [text for (text,) in connection.execute(f"PRAGMA {check}({FINDINGS_MAX})")]
    except sqlite3.Error as error:
        return [str(error)]
    return [] if found == ["ok"] else found
