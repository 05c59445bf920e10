"""Pages out of a SQLite store. Each function is one short read that ends before it returns (D-11).

`partitions` gives the partition of each slot: it is what a row's id does not say of a number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from heapq import merge
from typing import Any

from busway.model.message import PARTITION_SHIFT, Message, MessageState
from busway.store import sqlite_schema as schema
from busway.store.base import READ_ROWS_MAX, DuplicateMark, Expiring, ExpiryPage

_ACTIVE = MessageState.ACTIVE


def read_page(
    connection: sqlite3.Connection,
    slot: int,
    partition: int,
    after_number: int,
    state: MessageState | None,
    session_id: str | None,
    rows: int,
    size: int,
) -> list[Message]:
    first_counter = max(0, after_number + 1 - (partition << PARTITION_SHIFT))
    if first_counter >= schema.COUNTER_LIMIT:
        return []
    limit = min(rows, READ_ROWS_MAX)
    span = (schema.place_of(slot, first_counter), schema.place_of(slot, -1), limit)
    waiting_span = (span[0] + schema.WAITING, span[1] + schema.WAITING, limit)
    reads: list[tuple[str, tuple[Any, ...]]] = []
    if session_id is None:
        if state is None:
            reads = [(schema.READ_RANGE, waiting_span), (schema.READ_RANGE, span)]
        elif state is _ACTIVE:
            reads = [(schema.READ_RANGE, span)]
        else:
            reads = [(schema.READ_WAITING, (int(state), *waiting_span))]
    else:
        if state is None or state is _ACTIVE:
            reads = [(schema.READ_SESSION_RANGE, (session_id, *span))]
        if state is None:
            reads.append((schema.READ_SESSION_RANGE, (session_id, *waiting_span)))
        elif state is not _ACTIVE:
            reads = [(schema.READ_SESSION_WAITING, (session_id, int(state), *waiting_span))]
    with ExitStack() as stack:  # ends the reads: an open one keeps the log from being reused
        cursors = [stack.enter_context(closing(connection.execute(*read))) for read in reads]
        found = cursors[0] if len(cursors) == 1 else merge(*cursors, key=_place)
        messages: list[Message] = []
        for row in found:
            message = schema.message_of(row, partition)
            messages.append(message)
            size -= message.size
            if size <= 0 or len(messages) == limit:
                break
    return messages


def _place(row: tuple[int, ...]) -> int:
    return row[0] & schema.PLACE_MASK


def read_numbers(
    connection: sqlite3.Connection, slot: int, partition: int, numbers: Sequence[int]
) -> list[Message]:
    first_number = partition << PARTITION_SHIFT
    places = [
        schema.place_of(slot, number)
        for number in numbers
        if 0 <= number - first_number < schema.COUNTER_LIMIT
    ]
    ids = places + [place + schema.WAITING for place in places]
    found = connection.execute(schema.READ_NUMBERS, (json.dumps(ids),)).fetchall()
    by_place = {_place(row): row for row in found}
    return [schema.message_of(by_place[each], partition) for each in places if each in by_place]


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
        due.append(Expiring(expires_ms, slot, partitions[slot] << PARTITION_SHIFT | counter))
    return ExpiryPage(due, None)


def read_session_state(connection: sqlite3.Connection, slot: int, session_id: str) -> bytes | None:
    found = connection.execute(schema.READ_SESSION_STATE, (slot, session_id)).fetchone()
    return None if found is None else found[0]


def read_duplicates(
    connection: sqlite3.Connection, slot: int, after_digest: bytes, now_ms: int, rows: int
) -> list[DuplicateMark]:
    asked = (slot, after_digest, now_ms, min(rows, READ_ROWS_MAX))
    return [DuplicateMark(*row) for row in connection.execute(schema.READ_DUPLICATES, asked)]
