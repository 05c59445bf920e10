"""Looks through a whole store that nobody has open, and changes nothing (`busway verify`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from busway.model.message import Message, MessageState
from busway.store import checksums, sqlite_guard
from busway.store import sqlite_damage as damage
from busway.store import sqlite_formats as formats
from busway.store import sqlite_journal as journal
from busway.store import sqlite_schema as schema
from busway.store.base import Counters, StoreUnavailable, SubQueueKey, SubQueueKind, SubQueueRecord
from busway.store.sqlite_marks import of_session_state

OFFSETS_SHOWN: Final = 5
READ_ALL: Final = f"SELECT {schema.MESSAGE_COLUMNS} FROM messages NOT INDEXED ORDER BY id"


@dataclass(slots=True)
class StoreReport:
    """What was found in one store file."""

    path: Path
    store_id: str | None = None
    commit_number: int | None = None
    messages: int = 0
    unchecked: int = 0
    """Of them, those of older versions, which have no checksum."""
    quarantined: int = 0
    lost_commits: int = 0
    records: list[SubQueueRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def verify_store(path: Path) -> StoreReport:
    report = StoreReport(path)
    try:
        found = sqlite_guard.inspect(path, schema.IDENTIFY, schema.APPLICATION_ID, "store")
        report.store_id = found.identity.name
        report.commit_number = found.identity.commit_number
        report.lost_commits = found.lost_commits
        sqlite_guard.check_whole(path, found, "store")
    except (StoreUnavailable, OSError) as error:
        report.problems.append(str(error))
        if report.store_id is None:
            return report
    try:
        with sqlite_guard.read_only(path) as connection:
            _look_through(connection, report)
    except sqlite3.Error as error:
        report.problems.append(f"{path} cannot be read further: {error}")
    return report


def _look_through(connection: sqlite3.Connection, report: StoreReport) -> None:
    name = report.path.name
    structure = damage.structure_findings(connection, thorough=True)
    report.problems += [f"{name}: {text}" for text in structure]
    (format_,) = connection.execute("SELECT format FROM store").fetchone()
    if format_ < formats.FORMAT_VERSION:
        report.problems.append(
            f"{name} has format {format_}, without checksums: start the broker once to upgrade it"
        )
        return
    report.records = list(_records(connection, report))
    counted = {record.slot: Counters() for record in report.records}
    for row, message in messages_in(connection, report.records):
        report.messages += 1
        report.unchecked += row[-1] is None
        place = row[0] & schema.PLACE_MASK
        slot, counter = place >> schema.COUNTER_BITS, place & schema.ROW_COUNTER_MASK
        if message is None:
            report.problems.append(f"{name}: message {counter} in slot {slot} is damaged")
        elif slot in counted:
            _count(counted[slot], message)
    for slot, size in connection.execute(damage.SIZES_OF_STATES):
        if slot in counted:
            counted[slot].bytes += size
    for record in report.records:
        there, said = counted[record.slot], record.counters
        there.next_counter = said.next_counter
        if there != said:
            report.problems.append(
                f"{name}: the counters of {_named(record.key)} say {_told(said)}, and sound"
                f" messages are {_told(there)}"
            )
    report.problems += [f"{name}: {text}" for text in _others(connection)]
    (report.quarantined,) = connection.execute(damage.COUNT_QUARANTINE).fetchone()


def _records(connection: sqlite3.Connection, report: StoreReport) -> Iterator[SubQueueRecord]:
    for row in connection.execute(schema.READ_SUB_QUEUES).fetchall():
        slot, incarnation, partition, kind, _, _, *counters, _ = row
        if not damage.key_agrees(row):
            report.problems.append(f"{report.path.name}: the row of sub-queue {slot} is damaged")
            continue
        if not damage.counters_agree(row):
            report.problems.append(f"{report.path.name}: the counters of slot {slot} are damaged")
        key = SubQueueKey(incarnation, partition, SubQueueKind(kind))
        yield SubQueueRecord(slot, key, Counters(*counters))


def records_in(connection: sqlite3.Connection) -> list[SubQueueRecord]:
    """Its sub-queues, as far as it is known whose they are."""
    return list(_records(connection, StoreReport(Path())))


def messages_in(
    connection: sqlite3.Connection, records: list[SubQueueRecord]
) -> Iterator[tuple[tuple[Any, ...], Message | None]]:
    """Every row with its message, or None if it is damaged or in no sub-queue."""
    (all_checked,) = connection.execute("SELECT all_checked FROM store").fetchone()
    partitions = {record.slot: record.key.partition for record in records}
    for row in connection.execute(READ_ALL):
        slot = (row[0] & schema.PLACE_MASK) >> schema.COUNTER_BITS
        partition = partitions.get(slot)
        if partition is None:
            yield row, None
        else:
            yield row, schema.sound_message(row, partition, bool(all_checked))


def _others(connection: sqlite3.Connection) -> Iterator[str]:
    for row in connection.execute(damage.READ_SESSIONS):
        if not damage.session_agrees(row):
            yield f"the row of session '{row[1]}' is damaged"
    for slot, session_id, state, checksum in connection.execute("SELECT * FROM session_states"):
        if checksum is not None and not checksums.agrees(
            checksum, of_session_state, slot, session_id, state
        ):
            yield f"the state of session '{session_id}' is damaged"
    for table in ("duplicates", "transfers", "transactions"):
        count = sum(
            not damage.mark_agrees(row) for row in connection.execute(f"SELECT * FROM {table}")
        )
        if count:
            yield f"{count} rows of {table} are damaged"
    yield from _journals(connection)
    for body_id, bare, checksum in connection.execute("SELECT * FROM bodies"):
        if checksum is not None and not checksums.agrees(
            checksum, checksums.of_body, body_id, bare
        ):
            yield f"the shared body {body_id} is damaged"


def _journals(connection: sqlite3.Connection) -> Iterator[str]:
    for row in connection.execute(journal.READ_HEADS).fetchall():
        slot, earliest, next_offset = row[:3]
        if not journal.agrees(row):
            yield f"the head of the journal of slot {slot} is damaged"
            continue
        count, wrong = 0, []
        for found in journal.checked_rows(connection, slot):
            count += 1
            if not found.is_sound:
                wrong.append(found.offset)
        if wrong:
            shown = ", ".join(map(str, wrong[:OFFSETS_SHOWN]))
            yield (
                f"{len(wrong)} rows of the journal of slot {slot} are damaged (offsets {shown}"
                f"{', ...' if len(wrong) > OFFSETS_SHOWN else ''})"
            )
        if count != next_offset - earliest:
            yield (
                f"the journal of slot {slot} has {count} rows, and its head says"
                f" {next_offset - earliest}"
            )
    holds = connection.execute(journal.READ_ALL_HOLDS).fetchall()
    count = sum(not journal.agrees(row) for row in holds)
    if count:
        yield f"{count} holds of journals are damaged"


def _count(counters: Counters, message: Message) -> None:
    counters.bytes += message.size
    if message.state is MessageState.ACTIVE:
        counters.active += 1
    elif message.state is MessageState.DEFERRED:
        counters.deferred += 1
    else:
        counters.scheduled += 1


def _named(key: SubQueueKey) -> str:
    return f"incarnation {key.incarnation}, partition {key.partition}, {key.kind.name.lower()}"


def _told(counters: Counters) -> str:
    return (
        f"{counters.active} active, {counters.deferred} deferred, {counters.scheduled} scheduled,"
        f" {counters.bytes} bytes"
    )
