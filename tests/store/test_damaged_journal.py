"""Rows of journals that are not what was written: handed to nobody, told, and the others are read.

Damage is done with SQLite itself, so that each test changes exactly one value and nothing else.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from busway.model.journal import JournalEvent
from busway.store import sqlite_schema as schema
from busway.store.base import Counters, StoreUnavailable
from busway.store.journal import FIELDS, JournalDamaged, JournalHold, JournalTrim
from busway.store.sqlite import SqliteStore
from busway.store.sqlite_journal_handle import SqliteJournalHandle
from busway.store.sqlite_verify import verify_store
from tests.store.places import MAIN, MAIN_KEY, Owner, message, two_sub_queues
from tests.store.test_contract_journal import content, record, write

BODY, OTHER_BODY = 7 << 20 | 1, 7 << 20 | 2
ROWS = 6
RICH = 2
"""The offset of the row that has everything that a row can have."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    owner = Owner(SqliteStore(path, create=True))
    owner.commit(**two_sub_queues())
    rich = content(
        BODY,
        size=300,
        header=3,
        ttl_ms=60_000,
        annotations=b"pairs",
        annotation_items=2,
        session_id="s",
        enqueued_ms=999,
        expires_ms=1_234,
        enqueued_number=17,
        changes=b"map",
        dead_letter_source="from",
        destination="to",
    )
    rows = [record(offset, lock_token=b"t" * 16) for offset in range(ROWS)]
    rows[RICH] = record(
        RICH,
        JournalEvent.ENQUEUED,
        content=rich,
        delivery_count=4,
        lock_token=b"u" * 16,
        related_number=5,
        reason="why",
        description="because",
    )
    rows[4] = record(4, JournalEvent.ENQUEUED, content=content(OTHER_BODY))
    owner.commit(
        puts=[(MAIN, message(1, bare=b"shared", body_id=OTHER_BODY))],
        bodies=[(BODY, b"a body"), (OTHER_BODY, b"shared")],
        journal=rows,
        counters={MAIN: Counters(2, 1, 0, 0, 100)},
        holds=[JournalHold(MAIN, "lake", 3, 10_000)],
        journal_heads={MAIN: _head()},
    )
    owner.store.close()
    return path


def _head() -> object:
    from busway.store.journal import JournalHead

    return JournalHead(0, ROWS, 64 * ROWS + 400, 1_000, 1_000 + ROWS - 1)


def damage(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute(statement).rowcount == 1
    database.close()


def offsets(path: Path, first: int = 0, fields: tuple[str, ...] = FIELDS) -> list[int]:
    handle = SqliteJournalHandle(path)
    try:
        page = handle.read(MAIN_KEY, first, ROWS, fields)
        return list(range(page.first, page.first + len(page)))
    finally:
        handle.close()


COLUMNS = (
    *("time_ms", "event", "number", "delivery_count", "related_number", "size", "header"),
    *("ttl_ms", "annotation_items", "enqueued_ms", "expires_ms", "enqueued_number"),
)
CHANGES = (
    {each: f"{each} = {each} + 1" for each in COLUMNS}
    | {
        each: f"{each} = {each} || 'x'"
        for each in ("reason", "description", "session_id", "dead_letter_source", "destination")
    }
    | {each: f"{each} = x'00'" for each in ("lock_token", "changes", "annotations")}
    | {
        "a text that is none": "reason = CAST(x'ff' AS TEXT)",
        "another type": "time_ms = 'soon'",
        "no lock token": "lock_token = NULL",
        "no checksum": "checksum = NULL",
        "another body": f"body_id = {OTHER_BODY}",
    }
)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_damaged_row_is_not_handed_out_and_the_others_are(path: Path, change: str) -> None:
    place = schema.place_of(MAIN, RICH)
    damage(path, f"UPDATE journal SET {change} WHERE id = {place}")
    assert offsets(path) == [0, 1]
    for fields in (FIELDS, ("number",)):
        with pytest.raises(JournalDamaged) as found:
            offsets(path, RICH, fields)
        assert (found.value.offset, found.value.next_offset) == (RICH, RICH + 1)
    assert offsets(path, RICH + 1) == [3, 4, 5]
    problems = "\n".join(verify_store(path).problems)
    assert f"1 rows of the journal of slot {MAIN} are damaged (offsets {RICH})" in problems


def test_a_sound_journal_is_read_whole(path: Path) -> None:
    assert offsets(path) == list(range(ROWS))
    assert verify_store(path).problems == []


def test_rows_that_are_damaged_one_after_the_other_are_told_at_once(path: Path) -> None:
    for offset in (0, 1, 2, 4):
        place = schema.place_of(MAIN, offset)
        damage(path, f"UPDATE journal SET number = number + 1 WHERE id = {place}")
    with pytest.raises(JournalDamaged) as found:
        offsets(path)
    assert found.value.next_offset == 3
    assert offsets(path, 3) == [3]


def test_a_row_whose_id_is_damaged_moves_no_other(path: Path) -> None:
    """Offsets are counted along a page: a hole would give every row behind it a wrong one."""
    place = schema.place_of(MAIN, 3)
    damage(path, f"UPDATE journal SET id = id + 1000 WHERE id = {place}")
    assert offsets(path) == [0, 1, 2]
    assert offsets(path, 3) == []  # the reader asks the head, and tells a hole
    assert offsets(path, 4) == [4, 5]


def test_a_damaged_body_is_not_handed_out(path: Path) -> None:
    damage(path, f"UPDATE bodies SET bare = x'00' WHERE id = {BODY}")
    assert offsets(path) == [0, 1]
    with pytest.raises(JournalDamaged):
        offsets(path, RICH)
    assert offsets(path, fields=("number", "event")) == list(range(ROWS))


def test_a_body_that_is_gone_is_damage(path: Path) -> None:
    damage(path, f"DELETE FROM bodies WHERE id = {BODY}")
    with pytest.raises(JournalDamaged):
        offsets(path, RICH)


def test_a_damaged_row_takes_no_body_from_a_message(path: Path) -> None:
    place = schema.place_of(MAIN, RICH)
    damage(path, f"UPDATE journal SET body_id = {OTHER_BODY} WHERE id = {place}")
    owner = Owner(SqliteStore(path, create=False))
    write(owner, record(ROWS), earliest=ROWS, trims=[JournalTrim(MAIN, ROWS)])
    assert [each.bare for each in owner.store.read_page(MAIN, 0)] == [b"shared"]
    owner.store.close()
    assert "journal" not in "\n".join(verify_store(path).problems)


@pytest.mark.parametrize("column", ["earliest", "next_offset", "bytes", "earliest_ms", "last_ms"])
def test_a_damaged_head_is_made_anew_from_the_rows(
    path: Path, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(path, f"UPDATE journal_heads SET {column} = {column} + 3")
    handle = SqliteJournalHandle(path)
    with pytest.raises(StoreUnavailable, match="the head of journal 1 is damaged"):
        handle.head(MAIN_KEY)
    handle.close()
    assert "the head of the journal of slot 1 is damaged" in "\n".join(verify_store(path).problems)
    with caplog.at_level(logging.ERROR):
        owner = Owner(SqliteStore(path, create=False))
    assert "the head of journal 1 is damaged, and made anew" in caplog.text
    assert [head for _, head in owner.opened.journal_heads] == [_head()]
    owner.store.close()
    assert verify_store(path).problems == []


def test_a_damaged_hold_is_dropped_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(path, "UPDATE journal_holds SET next_offset = next_offset + 1")
    assert "1 holds of journals are damaged" in "\n".join(verify_store(path).problems)
    with caplog.at_level(logging.ERROR):
        owner = Owner(SqliteStore(path, create=False))
    assert owner.opened.holds == []
    owner.store.close()
    assert "is damaged, and dropped" in caplog.text


def test_times_are_found_past_a_damaged_row(path: Path) -> None:
    damage(path, f"UPDATE journal SET time_ms = 1 WHERE id = {schema.place_of(MAIN, 3)}")
    handle = SqliteJournalHandle(path)
    assert [handle.offset_at(MAIN_KEY, 1_000 + offset) for offset in (0, 1, 2, 5, 9)] == [
        *(0, 1, 2, 5, 6)
    ]
    handle.close()


def test_a_file_of_format_5_is_read_on_and_its_heads_get_checksums(path: Path) -> None:
    with sqlite3.connect(path) as database:
        for table in ("journal", "journal_heads", "journal_holds"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        database.execute("ALTER TABLE store DROP COLUMN journal_checked")
        database.execute("UPDATE store SET format = 5")
    database.close()
    owner = Owner(SqliteStore(path, create=False))
    assert [head for _, head in owner.opened.journal_heads] == [_head()]
    assert owner.opened.holds == [JournalHold(MAIN, "lake", 3, 10_000)]
    write(owner, record(ROWS))
    owner.store.close()
    assert offsets(path) == list(range(ROWS))
    assert verify_store(path).problems == []
    place = schema.place_of(MAIN, ROWS)  # written by this version, so it has one
    damage(path, f"UPDATE journal SET number = number + 1 WHERE id = {place}")
    assert "1 rows of the journal of slot 1" in "\n".join(verify_store(path).problems)
