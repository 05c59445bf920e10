"""Pages out of a SQLite store. Each function is one short read that ends before it returns (D-11).

`partitions` gives the partition of each slot: it is what a row's id does not say of a number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from busway.model.message import PARTITION_SHIFT, Message, MessageState
from busway.store import sqlite_schema as schema
from busway.store.base import READ_ROWS_MAX, Expiring, ExpiryPage


def read_page(
    connection: sqlite3.Connection,
    slot: int,
    partition: int,
    after_number: int,
    state: MessageState | None,
    rows: int,
    size: int,
) -> list[Message]:
    first_counter = max(0, after_number + 1 - (partition << PARTITION_SHIFT))
    if first_counter >= schema.COUNTER_LIMIT:
        return []
    span = (schema.first_id(slot) + first_counter, schema.last_id(slot))
    limit = min(rows, READ_ROWS_MAX)
    if state is None:
        cursor = connection.execute(schema.READ_ALL_STATES, (*span, limit))
    elif state is MessageState.ACTIVE:
        cursor = connection.execute(schema.READ_ACTIVE, (*span, limit))
    else:
        cursor = connection.execute(schema.READ_WAITING, (int(state), *span, limit))
    messages: list[Message] = []
    try:
        for row in cursor:
            message = schema.message_of(row, partition)
            messages.append(message)
            size -= message.size
            if size <= 0:
                break
    finally:
        cursor.close()  # ends the read: an open one keeps the log from being reused
    return messages


def read_numbers(
    connection: sqlite3.Connection, slot: int, partition: int, numbers: Sequence[int]
) -> list[Message]:
    first_number = partition << PARTITION_SHIFT
    ids = [
        schema.row_id(slot, number)
        for number in numbers
        if 0 <= number - first_number < schema.COUNTER_LIMIT
    ]
    found = connection.execute(schema.READ_NUMBERS, (json.dumps(ids),)).fetchall()
    by_id = {row[0]: row for row in found}
    return [schema.message_of(by_id[id_], partition) for id_ in ids if id_ in by_id]


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
        same_time = (after.expires_ms, schema.row_id(after.slot, after.number), limit)
        found = connection.execute(schema.READ_EXPIRING_WITH, same_time).fetchall()
        if len(found) < limit:
            later = (after.expires_ms, limit - len(found))
            found += connection.execute(schema.READ_EXPIRING_AFTER, later).fetchall()
    due: list[Expiring] = []
    for expires_ms, id_ in found:
        if expires_ms > until_ms or len(due) == limit - 1:
            return ExpiryPage(due, expires_ms)
        slot, counter = id_ >> schema.COUNTER_BITS, id_ & schema.ROW_COUNTER_MASK
        due.append(Expiring(expires_ms, slot, partitions[slot] << PARTITION_SHIFT | counter))
    return ExpiryPage(due, None)
