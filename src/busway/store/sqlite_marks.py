"""Sessions and marks in the tables of a SQLite store: what a batch says of them, what is forgotten.

A mark is what outlives its message for a while or for good: an id that was accepted (DUP-1), a
transfer that was taken (D-27), a transaction that was carried out (D-28).
"""

from __future__ import annotations

import sqlite3

from busway.store import sqlite_schema as schema
from busway.store.base import FORGET_ROWS, Batch

FORGET_PAUSE_MS = 1_000
"""Once all that is over is forgotten, that long until somebody looks again."""


def write_sessions(connection: sqlite3.Connection, batch: Batch) -> None:
    """A session is there while it has active messages or a state (SES-10); of several records of
    one session the last counts."""
    ended: dict[tuple[int, str], None] = {}
    if batch.session_counts:
        counts = {(slot, session_id): active for slot, session_id, active in batch.session_counts}
        connection.executemany(
            schema.COUNT_SESSION, [(*session, active) for session, active in counts.items()]
        )
        ended.update(dict.fromkeys(session for session, active in counts.items() if not active))
    if batch.session_states:
        states = {(each.slot, each.session_id): each for each in batch.session_states}
        for session, (_, _, state, updated_ms) in states.items():
            if state is None:
                connection.execute(schema.CLEAR_SESSION_UPDATED, session)
                connection.execute(schema.CLEAR_SESSION_STATE, session)
                ended[session] = None
            else:
                connection.execute(schema.SET_SESSION_UPDATED, (*session, updated_ms, len(state)))
                connection.execute(schema.SET_SESSION_STATE, (*session, state))
    if ended:
        connection.executemany(schema.DELETE_SESSION_IF_EMPTY, list(ended))


def write_marks(connection: sqlite3.Connection, batch: Batch) -> None:
    if batch.duplicates:
        connection.executemany(schema.MARK_DUPLICATE, batch.duplicates)
    if batch.transfers:
        connection.executemany(schema.MARK_TRANSFER, batch.transfers)
    if batch.transactions:
        connection.executemany(schema.MARK_TRANSACTION, batch.transactions)


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
