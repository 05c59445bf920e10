"""Pages out of a SQLite store. Each function is one short read that ends before it returns (D-11).

`partitions` gives the partition of each slot: it is what a row's id does not say of a number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from heapq import merge
from typing import Any

from busway.model.message import PARTITION_SHIFT, Message, MessageState
from busway.store import sqlite_schema as schema
from busway.store.base import (
    READ_ROWS_MAX,
    DataDamaged,
    DuplicateMark,
    Expiring,
    ExpiryPage,
    SessionRecord,
)
from busway.store.checksums import agrees
from busway.store.sqlite_damage import DamagedMarks, DamagedRows, RowsDisagree, mark_agrees
from busway.store.sqlite_marks import of_session_state


def read_page(
    connection: sqlite3.Connection,
    slot: int,
    partition: int,
    after_number: int,
    state: MessageState | None,
    session_id: str | None,
    rows: int,
    size: int,
    all_checked: bool,
) -> list[Message]:
    """Raises `DamagedRows` if the page has any, `RowsDisagree` if an index led to other rows."""
    first_counter = max(0, after_number + 1 - (partition << PARTITION_SHIFT))
    if first_counter >= schema.COUNTER_LIMIT:
        return []
    limit = min(rows, READ_ROWS_MAX)
    span = (schema.place_of(slot, first_counter), schema.place_of(slot, -1), limit)
    statements = _statements(state, session_id, span)
    cursors = [connection.execute(*each) for each in statements]
    found = cursors[0] if len(cursors) == 1 else merge(*cursors, key=_place)
    messages: list[Message] = []
    damaged: list[int] = []
    try:
        for row in found:
            message = schema.sound_message(row, partition, all_checked)
            if message is None:
                damaged.append(row[0])
                continue
            if (session_id is not None and message.session_id != session_id) or (
                state is not None and message.state is not state
            ):
                raise RowsDisagree(f"message {message.number} is not what its index says")
            messages.append(message)
            size -= message.size
            if size <= 0 or len(messages) == limit:
                break
    finally:
        for cursor in cursors:
            cursor.close()  # ends the read: an open one keeps the log from being reused
    if damaged:
        raise DamagedRows(slot, damaged)
    return messages


def _statements(
    state: MessageState | None, session_id: str | None, span: tuple[int, int, int]
) -> list[tuple[str, tuple[schema.Bound, ...]]]:
    """What to read: active messages and those that wait lie in two ranges, each in order."""
    first, last, limit = span
    waiting = (first + schema.WAITING, last + schema.WAITING, limit)
    statement, of_session = schema.READ_RANGE, list[schema.Bound]()
    if session_id is not None:
        statement, of_session = schema.READ_SESSION_RANGE, [session_id]
    if state is None:
        return [(statement, (*of_session, *each)) for each in (waiting, span)]
    if state is MessageState.ACTIVE:
        return [(statement, (*of_session, *span))]
    if session_id is None:
        return [(schema.READ_WAITING, (int(state), *waiting))]
    return [(schema.READ_SESSION_WAITING, (session_id, int(state), *waiting))]


def _place(row: tuple[int, ...]) -> int:
    return row[0] & schema.PLACE_MASK


def read_numbers(
    connection: sqlite3.Connection,
    slot: int,
    partition: int,
    numbers: Sequence[int],
    all_checked: bool,
) -> list[Message]:
    first_number = partition << PARTITION_SHIFT
    places = [
        schema.place_of(slot, number)
        for number in numbers
        if 0 <= number - first_number < schema.COUNTER_LIMIT
    ]
    ids = places + [place + schema.WAITING for place in places]
    found = connection.execute(schema.READ_NUMBERS, (json.dumps(ids),)).fetchall()
    by_place = {_place(row): schema.sound_message(row, partition, all_checked) for row in found}
    damaged = [row[0] for row in found if by_place[_place(row)] is None]
    if damaged:
        raise DamagedRows(slot, damaged)
    return [message for place in places if (message := by_place.get(place)) is not None]


def read_expiring(
    connection: sqlite3.Connection,
    partitions: Mapping[int, int],
    after: Expiring | None,
    until_ms: int,
    rows: int,
) -> ExpiryPage:
    limit = min(rows, READ_ROWS_MAX) + 1  # one more, to tell when the next is due
    found: list[tuple[int, int]] = []
    if after is None:
        found = connection.execute(schema.READ_EXPIRING, (limit,)).fetchall()
    else:
        same_time = (after.expires_ms, schema.place_of(after.slot, after.number), limit)
        found = connection.execute(schema.READ_EXPIRING_WITH, same_time).fetchall()
        if len(found) < limit:
            later = (after.expires_ms, limit - len(found))
            found += connection.execute(schema.READ_EXPIRING_AFTER, later).fetchall()
    due: list[Expiring] = []
    for expires_ms, place in found:
        if expires_ms > until_ms or len(due) == limit - 1:
            return ExpiryPage(due, expires_ms)
        slot, counter = place >> schema.COUNTER_BITS, place & schema.ROW_COUNTER_MASK
        if slot not in partitions:
            raise RowsDisagree(f"the index of due times names slot {slot}, which is not there")
        due.append(Expiring(expires_ms, slot, partitions[slot] << PARTITION_SHIFT | counter))
    return ExpiryPage(due, None)


def read_sessions(connection: sqlite3.Connection) -> list[SessionRecord]:
    """A sub-queue's in the order of their first messages, then those that have none."""
    rows = connection.execute(schema.READ_SESSIONS).fetchall()
    rows.sort(key=lambda row: (row[0], row[-1] is None, row[-1] or 0))
    return [SessionRecord(*row[:-2]) for row in rows]


def read_session_state(connection: sqlite3.Connection, slot: int, session_id: str) -> bytes | None:
    """Raises `DataDamaged` rather than give out another state."""
    found = connection.execute(schema.READ_SESSION_STATE, (slot, session_id)).fetchone()
    if found is None:
        return None
    state, checksum = found
    if checksum is not None and not agrees(checksum, of_session_state, slot, session_id, state):
        raise DataDamaged(
            f"the stored state of session '{session_id}' is damaged; set it anew, or clear it"
        )
    return bytes(state)


def read_duplicates(
    connection: sqlite3.Connection, slot: int, after_digest: bytes, now_ms: int, rows: int
) -> list[DuplicateMark]:
    """Raises `DamagedMarks` if the page has any."""
    asked = (slot, after_digest, now_ms, min(rows, READ_ROWS_MAX))
    return _sound_duplicates(connection.execute(schema.READ_DUPLICATES, asked).fetchall())


def find_duplicates(
    connection: sqlite3.Connection, slot: int, digests: Sequence[bytes], now_ms: int
) -> list[DuplicateMark]:
    """One look into the tree for each: that is what the mark's own insert costs as well. Raises
    `DamagedMarks` if any is."""
    found: list[tuple[Any, ...]] = []
    for digest in digests:
        row = connection.execute(schema.FIND_DUPLICATE, (slot, digest, now_ms)).fetchone()
        if row is not None:
            found.append((slot, digest, *row))
    return _sound_duplicates(found)


def _sound_duplicates(rows: Sequence[tuple[Any, ...]]) -> list[DuplicateMark]:
    damaged = [(row[0], row[1]) for row in rows if not mark_agrees(row)]
    if damaged:
        raise DamagedMarks(damaged)
    return [DuplicateMark(*row[:-1]) for row in rows]
