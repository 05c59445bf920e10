"""Changes that an operator asks for in a store that nobody has open (`busway recover`).

Three things: giving sub-queues to another incarnation, giving up commits that are lost, and writing
out what there is. Each is one transaction, or copies what it replaces.
"""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from busway.store import checksums, sqlite_guard
from busway.store import sqlite_damage as damage
from busway.store import sqlite_formats as formats
from busway.store import sqlite_schema as schema
from busway.store.base import Counters, StoreUnavailable, SubQueueKind
from busway.store.commit_mark import CommitMark
from busway.store.sqlite_log import FRAME_HEADER, HEADER, LogScan, log_of, scan_log
from busway.store.sqlite_verify import messages_in, records_in
from busway.store.sqlite_writes import row_of_counters

KEPT = ".lost"
"""Behind the name of a log that was replaced: nothing of it is thrown away."""


class RecoveryError(Exception):
    """What was asked for cannot be done, and nothing was changed."""


def attach(path: Path, old: int, new: int) -> int:
    """Give what an incarnation has in this store to another; how many messages that were.

    Sub-queues of the new one that are empty make way; if one has messages, nothing is changed.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(schema.READ_SUB_QUEUES).fetchall()
        there = {(row[1], row[2], row[3]): row for row in rows}
        given = 0
        for slot, incarnation, partition, kind, shares, purging, *counters, _ in rows:
            if incarnation != old:
                continue
            given += sum(counters[1:4])
            in_the_way = there.get((new, partition, kind))
            if in_the_way is not None:
                if sum(in_the_way[7:10]):
                    raise RecoveryError(
                        f"partition {partition} of the entity has messages of its own in"
                        f" {path.name}: attach to another entity, or export"
                    )
                connection.execute(schema.DELETE_SUB_QUEUE, (in_the_way[0],))
            checksum = checksums.of_sub_queue(
                slot, (new, partition, kind), shares, purging, counters
            )
            connection.execute(
                "UPDATE sub_queues SET incarnation = ?, checksum = ? WHERE slot = ?",
                (new, checksum, slot),
            )
        _rename_source(connection, old, new)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise RecoveryError(f"{path} cannot be changed: {error}") from error
    finally:
        connection.close()
    return given


def _rename_source(connection: sqlite3.Connection, old: int, new: int) -> None:
    """What was taken from the incarnation stays taken: marks of forwarding name their source."""
    for row in connection.execute(schema.READ_TRANSFERS).fetchall():
        slot, source, partition, number, _ = row
        if source == old and damage.mark_agrees(row):
            values = (slot, new, partition, number)
            connection.execute(
                "UPDATE OR REPLACE transfers SET source_incarnation = ?, checksum = ?"
                " WHERE slot = ? AND source_incarnation = ? AND source_partition = ?",
                (new, checksums.of_values(*values), slot, old, partition),
            )


def accept_loss(path: Path) -> int:
    """Go on without the commits that are lost; how many those are, as far as can be told.

    The log is kept under another name, and a log is left that ends at its last whole commit. The
    mark is set back last: until then the store does not open, and the same call does the rest.
    """
    found = sqlite_guard.inspect(path, schema.IDENTIFY, schema.APPLICATION_ID, "store")
    log = log_of(path)
    scan = scan_log(log)
    cuts_log = scan is not None and (scan.is_damaged or scan.has_torn_end)
    if scan is not None and cuts_log:
        cut_log(log, scan)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for setting in schema.SETTINGS:
            connection.execute(setting).fetchall()
        connection.execute("BEGIN IMMEDIATE")
        (format_,) = connection.execute("SELECT format FROM store").fetchone()
        has_checksums = format_ >= formats.FIRST_CHECKED_FORMAT
        if has_checksums:
            _drop_damaged_marks(connection)
        if found.lost_commits or cuts_log:
            _leave_numbers_out(connection, has_checksums)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise RecoveryError(f"{path} cannot be changed: {error}") from error
    finally:
        connection.close()
    mark = CommitMark(path)
    mark.open(found.identity.name, found.identity.commit_number)
    mark.close()
    return found.lost_commits


def cut_log(log: Path, scan: LogScan) -> None:
    """Keep a log beside itself, then leave what SQLite takes of it."""
    data = log.read_bytes()
    _write_durably(_free_name(log), data)
    page_size = int.from_bytes(data[8:12], "big")
    end = HEADER.size + scan.committed_frames * (FRAME_HEADER.size + page_size)
    _write_durably(log, data[:end] if scan.header_is_valid and scan.committed_frames else b"")


def _free_name(log: Path) -> Path:
    """A log that was kept before is not written over."""
    kept, count = log.with_name(log.name + KEPT), 1
    while kept.exists():
        count += 1
        kept = log.with_name(f"{log.name}{KEPT}-{count}")
    return kept


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _drop_damaged_marks(connection: sqlite3.Connection) -> None:
    """They would keep the store closed for ever."""
    for table, key in (("transfers", "slot"), ("transactions", "id")):
        for row in connection.execute(f"SELECT * FROM {table}").fetchall():
            if not damage.mark_agrees(row):
                connection.execute(
                    f"DELETE FROM {table} WHERE {key} = ? AND checksum IS ?", (row[0], row[-1])
                )


def _leave_numbers_out(connection: sqlite3.Connection, has_checksums: bool) -> None:
    """The commits that are lost have given numbers, and stores that took forwarded messages know
    them: a message that got one of these again would be taken for one that came before (D-2)."""
    if not has_checksums:
        connection.execute(
            "UPDATE sub_queues SET next_counter = next_counter + ?", (damage.NUMBERS_LEFT_OUT,)
        )
        return
    for row in connection.execute(schema.READ_SUB_QUEUES).fetchall():
        slot, *_, next_counter, active, deferred, scheduled, size, _ = row
        if not damage.counters_agree(row):
            continue  # `open` counts anew, and leaves numbers out as well
        counters = Counters(
            next_counter + damage.NUMBERS_LEFT_OUT, active, deferred, scheduled, size
        )
        connection.execute(schema.UPDATE_COUNTERS, row_of_counters(slot, counters))


def exported(path: Path, incarnations: set[int] | None) -> Iterator[dict[str, Any]]:
    """Each message of these incarnations, or of all for None, as an object of JSON."""
    try:
        with sqlite_guard.read_only(path) as connection:
            records = records_in(connection)
            keys = {record.slot: record.key for record in records}
            for row, message in messages_in(connection, records):
                key = keys.get((row[0] & schema.PLACE_MASK) >> schema.COUNTER_BITS)
                if key is None or (
                    incarnations is not None and key.incarnation not in incarnations
                ):
                    continue
                told: dict[str, Any] = {
                    "store": path.name,
                    "incarnation": key.incarnation,
                    "partition": key.partition,
                    "sub_queue": SubQueueKind(key.kind).name.lower(),
                    "damaged": message is None,
                }
                if message is None:
                    values = zip(damage.COLUMNS, row, strict=True)
                    told["row"] = {name: _as_json(value) for name, value in values}
                else:
                    told |= {
                        "sequence_number": message.number,
                        "state": message.state.name.lower(),
                        "session_id": message.session_id,
                        "delivery_count": message.delivery_count,
                        "enqueued_ms": message.enqueued_ms,
                        "expires_ms": message.expires_ms,
                        "ttl_ms": message.ttl_ms,
                        "header": message.header,
                        "annotations": _as_json(message.annotations),
                        "changes": _as_json(message.changes),
                        "dead_letter_source": message.dead_letter_source,
                        "destination": message.destination,
                        "message": _as_json(message.bare),
                    }
                yield told
    except (sqlite3.Error, StoreUnavailable) as error:
        raise RecoveryError(f"{path} cannot be read: {error}") from error


def _as_json(value: object) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
