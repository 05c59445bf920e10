"""Rows that are not what was written: never handed out, set aside, counted; the others are served.

Damage is done with SQLite itself, so that each test changes exactly one value and nothing else.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from busway.model.message import Message, MessageState
from busway.store.ailments import Ailment
from busway.store.base import (
    Batch,
    Counters,
    DataDamaged,
    DuplicateMark,
    Move,
    SessionCount,
    SessionState,
    StoreUnavailable,
    TransferMark,
    Update,
)
from busway.store.sqlite import SqliteStore
from busway.store.sqlite_schema import place_of
from busway.store.sqlite_verify import verify_store
from tests.store.places import DEAD, MAIN, Owner, facts, message, number, two_sub_queues


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three messages, of which the second has everything that a message can have."""
    path = tmp_path / "store.db"
    owner = Owner(SqliteStore(path, create=True))
    owner.commit(**two_sub_queues())
    rich = message(
        2,
        bare=b"rich body",
        size=300,
        session_id="blue",
        annotations=b"abc",
        annotation_items=2,
        expires_ms=9_000_000,
        ttl_ms=77,
        header=5,
        enqueued_ms=1_000,
        delivery_count=3,
        changes=b"changes",
        enqueued_number=8,
        hops=1,
        dead_letter_source="there",
        destination="elsewhere",
    )
    owner.commit(
        puts=[(MAIN, message(1)), (MAIN, rich), (MAIN, message(3))],
        counters={MAIN: Counters(4, 3, 0, 0, 507)},
        session_counts=[SessionCount(MAIN, "blue", 1)],
        session_states=[SessionState(MAIN, "red", b"a state", 1)],
        duplicates=[DuplicateMark(MAIN, b"0123456789abcdef", 10_000)],
        transfers=[TransferMark(MAIN, 9, 0, 17)],
    )
    owner.store.close()
    return path


def damage(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute(statement, values).rowcount == 1
    connection.commit()
    connection.close()


COLUMNS = {
    "state": 1,
    "expires_ms": 9_000_001,
    "session_id": "blve",
    "delivery_count": 2,
    "enqueued_ms": 1_001,
    "ttl_ms": 78,
    "header": 4,
    "annotation_items": 3,
    "size": 301,
    "enqueued_number": 9,
    "hops": 0,
    "body_id": 12,
    "changes": b"chances",
    "dead_letter_source": "where",
    "destination": None,
    "annotations": b"abd",
    "bare": b"rich bodz",
    "checksum": None,
    "id": place_of(MAIN, 7),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_damaged_message_is_set_aside_and_the_others_are_served(path: Path, column: str) -> None:
    place = place_of(MAIN, 2)
    damage(path, f"UPDATE messages SET {column} = ? WHERE id = ?", COLUMNS[column], place)
    owner = Owner(SqliteStore(path, create=False))
    with pytest.raises(StoreUnavailable, match="set aside 1 damaged"):
        owner.store.read_page(MAIN, 0)
    again = Owner(owner.store)
    assert again.numbers() == [number(1), number(3)]
    assert again.opened.quarantined == 1
    counters = {record.slot: record.counters for record in again.opened.sub_queues}[MAIN]
    assert (counters.active, counters.deferred, counters.bytes) == (2, 0, 207)
    assert "blue" not in [each.session_id for each in again.opened.sessions]
    assert not again.store.read_expiring(None, 1 << 60).rows
    owner.store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    ((raw,),) = connection.execute("SELECT raw FROM quarantine").fetchall()
    connection.close()
    assert json.loads(raw)["size"] in (300, 301)


def test_values_that_are_not_even_of_their_type_are_damage_as_well(path: Path) -> None:
    for column, value in (("bare", 12), ("annotations", "text"), ("enqueued_ms", b"\xff")):
        damage(path, f"UPDATE messages SET {column} = ? WHERE id = ?", value, place_of(MAIN, 1))
    damage(
        path,
        "UPDATE messages SET session_id = CAST(? AS TEXT) WHERE id = ?",
        b"\xff\xfe",
        place_of(MAIN, 3),
    )
    owner = Owner(SqliteStore(path, create=False))
    with pytest.raises(StoreUnavailable, match="set aside 2 damaged"):
        owner.store.read_numbers(MAIN, [number(1), number(2), number(3)])
    again = Owner(owner.store)
    assert again.numbers() == [number(2)]
    again.store.close()


def test_what_commits_change_has_the_right_checksum(path: Path) -> None:
    """Updates, shifts and moves write a checksum for what they change, and only that."""
    owner = Owner(SqliteStore(path, create=False))
    (rich,) = owner.store.read_numbers(MAIN, [number(2)])
    deferred = Update(MAIN, number(2), MessageState.DEFERRED, 4, None, b"more")
    owner.commit(updates=[deferred])
    (found,) = owner.store.read_numbers(MAIN, [number(2)])
    assert (found.state, found.delivery_count, found.changes) == (1, 4, b"more")
    moved = Message(
        **{name: getattr(rich, name) for name in Message.__slots__ if name in MOVED_FIELDS}
    )
    moved.dead_letter_source = "main"
    owner.commit(moves=[Move(MAIN, number(2), DEAD, moved)])
    assert [facts(each) for each in owner.store.read_page(DEAD, 0)] == [facts(moved)]
    owner.store.close()


MOVED_FIELDS = {
    *("bare", "size", "header", "ttl_ms", "annotations", "annotation_items", "session_id"),
    *("number", "enqueued_ms", "expires_ms", "delivery_count", "changes", "enqueued_number"),
    *("body_id", "hops", "destination"),
}


def test_a_shared_body_that_is_damaged_is_in_no_message(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    owner = Owner(SqliteStore(path, create=True))
    owner.commit(**two_sub_queues())
    owner.commit(
        bodies=[(5, b"shared")],
        puts=[
            (MAIN, message(1, bare=b"shared", body_id=5)),
            (DEAD, message(1, bare=b"shared", body_id=5)),
        ],
        counters={MAIN: Counters(2, 1, 0, 0, 100), DEAD: Counters(1, 1, 0, 0, 100)},
    )
    owner.store.close()
    damage(path, "UPDATE bodies SET bare = ? WHERE id = 5", b"sharee")
    for slot in (MAIN, DEAD):
        owner = Owner(SqliteStore(path, create=False))
        with pytest.raises(StoreUnavailable, match="set aside"):
            owner.store.read_page(slot, 0)
        owner.store.close()


def test_a_damaged_session_state_is_refused_and_can_be_set_anew(path: Path) -> None:
    damage(path, "UPDATE session_states SET state = ?", b"another")
    owner = Owner(SqliteStore(path, create=False))
    with pytest.raises(DataDamaged, match="session 'red' is damaged"):
        owner.store.read_session_state(MAIN, "red")
    assert len(owner.numbers()) == 3  # the store goes on
    owner.commit(session_states=[SessionState(MAIN, "red", b"new", 2)])
    assert owner.store.read_session_state(MAIN, "red") == b"new"
    owner.store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sub_queues SET active = 9 WHERE slot = 1",
        "UPDATE sub_queues SET bytes = 1 WHERE slot = 1",
        "UPDATE sessions SET active = 5 WHERE session_id = 'blue'",
        "UPDATE sessions SET session_id = 'green' WHERE session_id = 'blue'",
    ],
)
def test_damaged_counters_are_counted_anew(path: Path, statement: str) -> None:
    before = Owner(SqliteStore(path, create=False))
    before.store.close()
    damage(path, statement)
    after = Owner(SqliteStore(path, create=False))
    assert after.opened.sub_queues[0].counters.active == 3
    assert after.opened.sub_queues[0].counters.bytes == 507
    assert after.opened.sub_queues[0].counters.next_counter >= 4
    assert [each[:3] for each in after.opened.sessions] == [
        each[:3] for each in before.opened.sessions
    ]
    after.store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE sub_queues SET incarnation = 6 WHERE slot = 1",
        "UPDATE sub_queues SET purging = 1 WHERE slot = 1",
        "UPDATE transfers SET number = 18",
    ],
)
def test_what_nothing_can_make_good_keeps_the_store_closed(path: Path, statement: str) -> None:
    damage(path, statement)
    with pytest.raises(StoreUnavailable) as caught:
        SqliteStore(path, create=False).open()
    assert caught.value.ailment is Ailment.MALFORMED
    assert "busway recover" in str(caught.value)


@pytest.mark.parametrize("column", ["until_ms", "checksum"])
@pytest.mark.parametrize("by_page", [True, False])
def test_a_damaged_duplicate_mark_is_removed_and_the_store_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture, column: str, by_page: bool
) -> None:
    owner = Owner(SqliteStore(path, create=False))
    others = [DuplicateMark(MAIN, bytes([each]) * 16, 10_000) for each in (1, 255)]
    owner.commit(duplicates=others)
    owner.store.close()
    statement = f"UPDATE duplicates SET {column} = {column} + 5 WHERE digest = ?"
    damage(path, statement, b"0123456789abcdef")
    owner = Owner(SqliteStore(path, create=False))

    def read() -> list[DuplicateMark]:
        if by_page:
            return owner.store.read_duplicates(MAIN, b"", 0)
        return owner.store.find_duplicates(
            MAIN, [b"0123456789abcdef", *(each.digest for each in others)], 0
        )

    assert read() == others
    assert "duplicate detection in slot 1 was removed" in caplog.text
    assert read() == others
    assert len(owner.numbers()) == 3  # the same handle goes on
    owner.commit(duplicates=[DuplicateMark(MAIN, b"0123456789abcdef", 10_000)])
    assert len(read()) == 3
    owner.store.close()
    assert not verify_store(path).problems


def test_a_duplicate_mark_whose_index_leads_elsewhere_is_removed(path: Path) -> None:
    """As a byte on the disk does it: the row changes, and its entry in the index does not."""
    page = path.read_bytes()
    stored = b"0123456789abcdef" + (10_000).to_bytes(2, "big")
    assert page.count(stored) == 1
    path.write_bytes(page.replace(stored, b"0123456789abcdef" + (10_016).to_bytes(2, "big")))
    owner = Owner(SqliteStore(path, create=False))
    assert owner.store.read_duplicates(MAIN, b"", 0) == []
    assert len(owner.numbers()) == 3
    owner.store.close()
    assert not verify_store(path).problems


def test_rows_that_vanished_are_noticed_by_who_counts(path: Path) -> None:
    damage(path, "DELETE FROM messages WHERE id = ?", place_of(MAIN, 3))
    owner = Owner(SqliteStore(path, create=False))
    with pytest.raises(StoreUnavailable, match="some may be lost"):
        owner.store.recount(MAIN)
    again = Owner(owner.store)
    assert again.opened.sub_queues[0].counters.active == 2
    again.store.close()


def test_messages_of_older_versions_have_no_checksum_and_are_served(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    made = sqlite3.connect(path)
    made.executescript(Path(__file__).with_name("format_2.sql").read_text())
    made.execute("PRAGMA journal_mode = WAL")
    made.close()
    owner = Owner(SqliteStore(path, create=False))
    assert [each.bare for each in owner.store.read_page(MAIN, 0)] == [b"plain", b"shared"]
    owner.store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(checksum) FROM messages").fetchone() == (0,)
        assert connection.execute("SELECT count(checksum) > 0 FROM sub_queues").fetchone() == (1,)


def test_a_batch_is_not_stored_that_no_checksum_can_be_made_of(path: Path) -> None:
    owner = Owner(SqliteStore(path, create=False))
    with pytest.raises(Exception, match="refused"):
        owner.store.commit(Batch(owner.next_number, puts=[(MAIN, message(9, enqueued_ms=1 << 70))]))
    owner.commit()
    owner.store.close()
