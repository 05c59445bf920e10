"""Sessions and marks in the tables of a SQLite store: what a batch says of them, what is forgotten.

A mark is what outlives its message for a while or for good: an id that was accepted (DUP-1), a
transfer that was taken (D-27), a transaction that was carried out (D-28).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from busway.store import checksums
from busway.store import sqlite_schema as schema
from busway.store.base import FORGET_ROWS, Batch

FORGET_PAUSE_MS = 1_000
"""Once all that is over is forgotten, that long until somebody looks again."""


def write_sessions(connection: sqlite3.Connection, batch: Batch) -> None:
    """A session is there while it has active messages or a state (SES-10); of several records of
    one session the last counts."""
    ended: dict[tuple[int, str], None] = {}
    if batch.session_counts:
        counts = {(each.slot, each.session_id): each for each in batch.session_counts}
        connection.executemany(
            schema.COUNT_SESSION,
            [
                (*session, each.active, each.name, of_session(*session, each.active, None, 0))
                for session, each in counts.items()
            ],
        )
        ended.update(dict.fromkeys(session for session, each in counts.items() if not each.active))
    if batch.session_states:
        states = {(each.slot, each.session_id): each for each in batch.session_states}
        for session, (_, _, state, updated_ms, name) in states.items():
            if state is None:
                high = of_session(*session, 0, None, 0) & ~checksums.LOW_MASK
                connection.execute(schema.CLEAR_SESSION_UPDATED, (high, *session))
                connection.execute(schema.CLEAR_SESSION_STATE, session)
                ended[session] = None
            else:
                size = len(state)
                whole = of_session(*session, 0, updated_ms, size)
                values = (*session, updated_ms, size, name, whole)
                connection.execute(schema.SET_SESSION_UPDATED, values)
                checksum = of_session_state(*session, state)
                connection.execute(schema.SET_SESSION_STATE, (*session, state, checksum))
    if ended:
        connection.executemany(schema.DELETE_SESSION_IF_EMPTY, list(ended))


def write_marks(connection: sqlite3.Connection, batch: Batch) -> None:
    if batch.duplicates:
        connection.executemany(schema.MARK_DUPLICATE, _checked(batch.duplicates))
    if batch.transfers:
        connection.executemany(schema.MARK_TRANSFER, _checked(batch.transfers))
    if batch.transactions:
        connection.executemany(schema.MARK_TRANSACTION, _checked(batch.transactions))


def _checked(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row, checksums.of_values(*row)) for row in rows]


def of_session(
    slot: int, session_id: str, active: int, updated_ms: int | None, state_bytes: int
) -> int:
    """The low half is that of the count, which commits change by itself."""
    return checksums.of_halves(
        (slot, session_id, updated_ms, state_bytes), (slot, session_id, active)
    )


def of_session_state(slot: int, session_id: str, state: bytes) -> int:
    return crc32(state, checksums.of_values(slot, session_id))


def forget(connection: sqlite3.Connection, time_ms: int) -> bool:
    """A step of what is over; True if nothing of it is left."""
    steps = [
        connection.execute(statement, (time_ms, FORGET_ROWS)).rowcount
        for statement in (schema.FORGET_DUPLICATES, schema.FORGET_TRANSACTIONS)
    ]
    return max(steps) < FORGET_ROWS


def purge(connection: sqlite3.Connection, slot: int, rows: int) -> bool:
    """Forget up to so many rows of a slot; True if certainly none is left (D-16)."""
    for statement in schema.PURGE_MARKS:
        rows -= connection.execute(statement, (slot, rows)).rowcount
    return rows > 0
