"""What a batch does to the tables of a SQLite store, between BEGIN and COMMIT.

The order matters in one place only: the fence comes first, so that a fenced owner's batch ends
before it has touched anything (D-18), and purges last, because they remove what counters name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from busway.model.message import PARTITION_SHIFT
from busway.store import sqlite_schema as schema
from busway.store.base import PURGE_ROWS, Batch, CommitRefused, Move, StoreFenced


def check_numbers(batch: Batch, partitions: Mapping[int, int]) -> None:
    """State what an owner must not get wrong, before anything is done.

    A number outside its sub-queue's partition would come back from the store as another one.
    """
    if batch.sub_queues:
        partitions = {**partitions, **{slot: key.partition for slot, key in batch.sub_queues}}
        assert all(0 <= slot < schema.SLOT_LIMIT for slot, _ in batch.sub_queues)
    for slot, message in batch.puts:
        _check_number(slot, message.number, partitions)
    for move in batch.moves:
        _check_number(move.to_slot, move.to_number, partitions)


def _check_number(slot: int, number: int, partitions: Mapping[int, int]) -> None:
    partition = partitions.get(slot)
    if partition is None:
        raise CommitRefused(f"there is no sub-queue in slot {slot}")
    counter = number - (partition << PARTITION_SHIFT)
    assert 0 <= counter < schema.COUNTER_LIMIT, (slot, number)


def write_batch(connection: sqlite3.Connection, batch: Batch, epoch: int, owner: str) -> list[int]:
    """All of a commit but COMMIT. A message that is named and not there refuses the whole batch.

    Returns the slots that purges have emptied: their sub-queues are gone.
    """
    rows = [schema.row_of(slot, message) for slot, message in batch.puts]
    connection.execute("BEGIN IMMEDIATE")
    fence = (batch.number, batch.time_ms, epoch, owner, batch.number - 1)
    if connection.execute(schema.FENCE, fence).rowcount != 1:
        raise StoreFenced(f"another owner has opened this store since epoch {epoch}")
    if batch.sub_queues:
        connection.executemany(
            schema.INSERT_SUB_QUEUE,
            [
                (slot, key.incarnation, key.partition, int(key.kind))
                for slot, key in batch.sub_queues
            ],
        )
    if batch.deletes:
        _change_each(
            connection,
            schema.DELETE_MESSAGE,
            [(schema.row_id(slot, number),) for slot, number in batch.deletes],
        )
    if batch.moves:
        _change_each(connection, schema.MOVE_MESSAGE, [_row_of_move(move) for move in batch.moves])
    if batch.updates:
        _change_each(
            connection,
            schema.UPDATE_MESSAGE,
            [
                (
                    int(update.state),
                    update.delivery_count,
                    schema.present_time(update.expires_ms),
                    schema.present_bytes(update.changes),
                    schema.row_id(update.slot, update.number),
                )
                for update in batch.updates
            ],
        )
    if rows:
        connection.executemany(schema.INSERT_MESSAGE, rows)
    if batch.counters:
        _change_each(
            connection,
            schema.UPDATE_COUNTERS,
            [
                (c.next_counter, c.active, c.deferred, c.scheduled, c.bytes, slot)
                for slot, c in batch.counters.items()
            ],
        )
    return [slot for slot in batch.purges if _purge(connection, slot)]


def _purge(connection: sqlite3.Connection, slot: int) -> bool:
    """Forget some rows of a slot, and the slot with the last of them (D-16)."""
    first, last = schema.first_id(slot), schema.last_id(slot)
    connection.execute(schema.PURGE_MESSAGES, (first, last, PURGE_ROWS))
    gone = connection.execute(schema.DELETE_SUB_QUEUE_IF_EMPTY, (slot, first, last)).rowcount
    return gone == 1


def _row_of_move(move: Move) -> tuple[schema.Bound, ...]:
    return (
        schema.row_id(move.to_slot, move.to_number),
        int(move.state),
        move.delivery_count,
        move.enqueued_ms,
        schema.present_time(move.expires_ms),
        schema.present_bytes(move.changes),
        schema.row_id(move.slot, move.number),
    )


def _change_each(
    connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[schema.Bound, ...]]
) -> None:
    """Run a statement of which each execution must change one row: counts stay exact (D-13)."""
    changed = connection.executemany(statement, rows).rowcount
    if changed != len(rows):
        raise CommitRefused(f"only {changed} of {len(rows)} rows are there: {statement}")


def roll_back(connection: sqlite3.Connection) -> bool:
    """End the transaction without a trace; True if the connection is free of it."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except (sqlite3.Error, MemoryError):
        return False
    return True


def log_pages(batch: Batch) -> int:
    """About how many pages a batch adds to the log.

    Neighbours share pages, so a row in place counts as a quarter of one. Messages that lie far
    apart write up to a page each: the log is then longer by that factor, and still bounded.
    """
    rows = len(batch.puts) + len(batch.deletes) + len(batch.updates) + 2 * len(batch.moves)
    put_bytes = sum(len(message.bare) for _, message in batch.puts)
    purged = len(batch.purges) * PURGE_ROWS
    return 4 + len(batch.counters) + (rows + purged) // 4 + put_bytes // schema.PAGE_SIZE
