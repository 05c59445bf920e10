"""What a batch does to the tables of a SQLite store, between BEGIN and COMMIT.

The order matters in two places only: the fence comes first, so that a fenced owner's batch ends
before it has touched anything (D-18), and purges last, because they remove what counters name.
Sessions and marks are in `sqlite_marks`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from busway.model.message import PARTITION_SHIFT, Message, MessageState
from busway.store import checksums
from busway.store import sqlite_journal as journal
from busway.store import sqlite_marks as marks
from busway.store import sqlite_schema as schema
from busway.store.base import (
    PURGE_ROWS,
    Batch,
    CommitRefused,
    Counters,
    Move,
    StoreFenced,
    Update,
)
from busway.store.journal import TRIM_ROWS

NO_COUNTERS = (1, 0, 0, 0, 0)
"""Those of a new sub-queue, as `INSERT_SUB_QUEUE` writes them."""


@dataclass(slots=True)
class Written:
    """What a batch did beyond what it says."""

    emptied: list[int] = field(default_factory=list)
    """Slots that purges have emptied: their sub-queues are gone."""
    purging: list[int] = field(default_factory=list)
    """Slots without messages that have other rows left: later commits go on with them (D-16)."""
    sharing: set[int] = field(default_factory=set)
    """Slots that have messages with shared bodies, and had none before."""
    forgot_all: bool = True
    """No mark whose time is over is left; False if there may be some."""


def check_batch(batch: Batch, partitions: Mapping[int, int]) -> None:
    """State what an owner must not get wrong, before anything is done.

    A number outside its sub-queue's partition would come back from the store as another one.
    """
    if batch.sub_queues:
        partitions = {**partitions, **{slot: key.partition for slot, key in batch.sub_queues}}
        assert all(0 <= slot < schema.SLOT_LIMIT for slot, _ in batch.sub_queues)
    for slot, message in batch.puts:
        _check_number(slot, message.number, partitions)
    for move in batch.moves:
        _check_number(move.to_slot, move.moved.number, partitions)
    for rows in (
        batch.session_counts,
        batch.session_states,
        batch.duplicates,
        batch.transfers,
        batch.journal,
        batch.holds,
    ):
        for row in rows:
            if row[0] not in partitions:
                raise CommitRefused(f"there is no sub-queue in slot {row[0]}")


def _check_number(slot: int, number: int, partitions: Mapping[int, int]) -> None:
    partition = partitions.get(slot)
    if partition is None:
        raise CommitRefused(f"there is no sub-queue in slot {slot}")
    counter = number - (partition << PARTITION_SHIFT)
    assert 0 <= counter < schema.COUNTER_LIMIT, (slot, number)


def write_batch(
    connection: sqlite3.Connection,
    batch: Batch,
    epoch: int,
    owner: str,
    *,
    sharing: Collection[int] = (),
    purging: Collection[int] = (),
    forget: bool = False,
) -> Written:
    """All of a commit but COMMIT. A message that is named and not there refuses the whole batch.

    `sharing` are the slots that have messages with shared bodies, `purging` those that earlier
    purges left to go on with; `forget` asks for a step of forgetting marks whose time is over.
    """
    connection.execute("BEGIN IMMEDIATE")
    fence = (batch.number, batch.time_ms, epoch, owner, batch.number - 1)
    if connection.execute(schema.FENCE, fence).rowcount != 1:
        raise StoreFenced(f"another owner has opened this store since epoch {epoch}")
    if batch.sub_queues:
        connection.executemany(
            schema.INSERT_SUB_QUEUE,
            [
                (slot, *named, checksums.of_sub_queue(slot, named, 0, 0, NO_COUNTERS))
                for slot, key in batch.sub_queues
                for named in ((key.incarnation, key.partition, int(key.kind)),)
            ],
        )
    if batch.deletes:
        _delete_messages(connection, batch, sharing)
    if batch.moves:
        _move_messages(connection, batch.moves)
    if batch.updates:
        _update_messages(connection, batch.updates)
    if batch.puts or batch.bodies:
        _put_messages(connection, batch)
    if batch.counters:
        rows = [row_of_counters(slot, counters) for slot, counters in batch.counters.items()]
        _all_there(connection.executemany(schema.UPDATE_COUNTERS, rows).rowcount, len(rows))
    marks.write_sessions(connection, batch)
    marks.write_marks(connection, batch)
    if batch.journal or batch.journal_heads or batch.holds:
        journal.write(connection, batch)
    written = Written(sharing=_new_sharing(connection, batch, sharing))
    if forget:
        written.forgot_all = marks.forget(connection, batch.time_ms)
    for slot in {**dict.fromkeys(purging), **dict.fromkeys(batch.purges)}:
        _purge(connection, slot, slot in sharing or slot in written.sharing, written)
    return written


def row_of_counters(slot: int, counters: Counters) -> tuple[int, ...]:
    values = (
        counters.next_counter,
        counters.active,
        counters.deferred,
        counters.scheduled,
        counters.bytes,
    )
    return (*values, checksums.of_values(slot, *values), slot)


def set_flags(
    connection: sqlite3.Connection, slot: int, *, shares: bool = False, purging: bool = False
) -> None:
    """Seldom, so the rest of the row is read for its checksum."""
    found = connection.execute(schema.READ_SUB_QUEUE, (slot,)).fetchone()
    if found is None:
        return
    *key, shared, purged = found
    flags = (int(shares or shared), int(purging or purged))
    high = checksums.high_half(checksums.of_values(slot, *key, *flags))
    connection.execute(schema.SET_FLAGS, (*flags, high, slot))


# A batch names messages by number. Where a message lies depends on its state as well, which the
# batch does not say: what is not found in one of the two places must be in the other.


def _delete_messages(
    connection: sqlite3.Connection, batch: Batch, sharing: Collection[int]
) -> None:
    places = [(schema.place_of(slot, number),) for slot, number in batch.deletes]
    shared: list[tuple[int]] = []
    if sharing:
        named = zip(batch.deletes, places, strict=True)
        shared = [place for delete, place in named if delete.slot in sharing]
    if shared:
        connection.executemany(schema.RELEASE_BODY, shared)
    deleted = connection.executemany(schema.DELETE_MESSAGE, places).rowcount
    if deleted != len(places):
        if shared:
            connection.executemany(schema.RELEASE_BODY, _waiting(shared))
        deleted += connection.executemany(schema.DELETE_MESSAGE, _waiting(places)).rowcount
        _all_there(deleted, len(places))


def _waiting(places: Iterable[tuple[int]]) -> list[tuple[int]]:
    return [(place + schema.WAITING,) for (place,) in places]


def _move_messages(connection: sqlite3.Connection, moves: Sequence[Move]) -> None:
    rows = [_row_of_move(move) for move in moves]
    places = [schema.place_of(move.slot, move.number) for move in moves]
    active = [(*row, place) for row, place in zip(rows, places, strict=True)]
    moved = connection.executemany(schema.MOVE_MESSAGE, active).rowcount
    if moved != len(moves):
        waiting = [(*row, place + schema.WAITING) for row, place in zip(rows, places, strict=True)]
        moved += connection.executemany(schema.MOVE_MESSAGE, waiting).rowcount
        _all_there(moved, len(moves))


def _row_of_move(move: Move) -> tuple[schema.Bound, ...]:
    moved = move.moved
    return (
        schema.row_id(move.to_slot, moved.number, moved.state),
        int(moved.state),
        schema.present_time(moved.expires_ms),
        moved.delivery_count,
        moved.enqueued_ms,
        schema.present_time(moved.ttl_ms),
        moved.enqueued_number,
        moved.hops,
        schema.present_bytes(moved.changes),
        schema.present_text(moved.dead_letter_source),
        schema.present_text(moved.destination),
        checksums.of_message(schema.place_of(move.to_slot, moved.number), moved),
    )


def _update_messages(connection: sqlite3.Connection, updates: Sequence[Update]) -> None:
    rows = [
        (
            int(update.state),
            update.delivery_count,
            schema.present_time(update.expires_ms),
            schema.present_bytes(update.changes),
            checksums.of_standing(schema.place_of(update.slot, update.number), *update[2:]),
        )
        for update in updates
    ]
    ids = [schema.row_id(update.slot, update.number, update.state) for update in updates]
    in_place = [(*row, id_) for row, id_ in zip(rows, ids, strict=True)]
    updated = connection.executemany(schema.UPDATE_MESSAGE, in_place).rowcount
    if updated != len(updates):
        shifted = [(id_, *row, id_ ^ schema.WAITING) for row, id_ in zip(rows, ids, strict=True)]
        updated += connection.executemany(schema.UPDATE_AND_SHIFT_MESSAGE, shifted).rowcount
        _all_there(updated, len(updates))


def _put_messages(connection: sqlite3.Connection, batch: Batch) -> None:
    plain: list[schema.MessageRow] = []
    others: list[tuple[int, Message]] = []
    for slot, message in batch.puts:
        row = schema.plain_row_of(slot, message)
        if row is not None:
            plain.append(row)
        else:
            others.append((slot, message))
    if plain:
        connection.executemany(schema.INSERT_PLAIN_MESSAGE, plain)
    bodies: dict[int | None, int] = {}
    if others or batch.bodies:
        bodies.update({id_: checksums.of_body(id_, bare) for id_, bare in batch.bodies})
        _put_bodies(connection, batch, [message for _, message in others], bodies)
    if others:
        rows = [schema.row_of(slot, each, bodies.get(each.body_id)) for slot, each in others]
        connection.executemany(schema.INSERT_MESSAGE, rows)


def _put_bodies(
    connection: sqlite3.Connection,
    batch: Batch,
    messages: Iterable[Message],
    checksum_of: Mapping[int | None, int],
) -> None:
    """The bodies that messages and journal rows share, with the number of those. `RELEASE_BODY`
    counts down, and a trigger forgets a body that nobody has any more (D-30, D-31)."""
    copies = Counter(each.body_id for each in messages if each.body_id is not None)
    brought = {body_id for body_id, _ in batch.bodies}
    if not brought.issuperset(copies):
        raise CommitRefused("a message's shared body is not in the batch")
    if batch.journal:
        carried = journal.copies_in(batch)
        copies.update({id_: count for id_, count in carried.items() if id_ in brought})
    shared = [body for body in batch.bodies if body[0] in copies]
    if shared:
        rows = [(id_, bare, checksum_of[id_]) for id_, bare in shared]
        connection.executemany(schema.INSERT_BODY, rows)
        connection.executemany(schema.INSERT_COPIES, list(copies.items()))


def _new_sharing(
    connection: sqlite3.Connection, batch: Batch, sharing: Collection[int]
) -> set[int]:
    """Remember which slots have messages with shared bodies: the others' deletes need not look."""
    if not batch.bodies and not (sharing and batch.moves):
        return set()
    slots = {slot for slot, message in batch.puts if message.body_id is not None}
    slots |= {move.to_slot for move in batch.moves if move.moved.body_id is not None}
    new = slots.difference(sharing)
    for slot in new:
        set_flags(connection, slot, shares=True)
    return new


def _purge(connection: sqlite3.Connection, slot: int, shares: bool, written: Written) -> None:
    """Forget some rows of a slot, and the slot with the last of them (D-16)."""
    left = PURGE_ROWS
    for state in (MessageState.ACTIVE, MessageState.DEFERRED):
        span = (schema.row_id(slot, 0, state), schema.row_id(slot, -1, state))
        ids = connection.execute(schema.READ_IDS, (*span, left + 1)).fetchall()
        if shares:
            connection.executemany(schema.RELEASE_BODY, ids[:left])
        connection.executemany(schema.DELETE_MESSAGE, ids[:left])
        if len(ids) > left:
            return  # there are more: their owner counts them, and will ask again
        left -= len(ids)
    if left > 0:
        left -= journal.purge(connection, slot, left)
    if not marks.purge(connection, slot, left):
        set_flags(connection, slot, purging=True)
        written.purging.append(slot)
    elif connection.execute(schema.DELETE_SUB_QUEUE, (slot,)).rowcount == 1:
        written.emptied.append(slot)


def _all_there(changed: int, named: int) -> None:
    """Every row that a batch names must be there: counts stay exact (D-13)."""
    if changed != named:
        raise CommitRefused(f"only {changed} of {named} rows that the batch names are there")


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
    rows += len(batch.session_counts) + len(batch.session_states) + len(batch.transfers)
    scattered = len(batch.duplicates) + len(batch.transactions)  # at random places in two trees
    data_bytes = sum(len(message.bare) for _, message in batch.puts if message.body_id is None)
    data_bytes += sum(len(bare) for _, bare in batch.bodies)
    data_bytes += sum(len(each.state or b"") for each in batch.session_states)
    rows += len(batch.journal) + len(batch.trims) * TRIM_ROWS
    purged = len(batch.purges) * PURGE_ROWS
    in_place = 4 + len(batch.counters) + (rows + purged) // 4
    return in_place + scattered + data_bytes // schema.PAGE_SIZE
