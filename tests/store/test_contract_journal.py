"""The sentences of `store/journal.py`, for every store (D-31)."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from busway.model.journal import JournalEvent
from busway.store import sqlite_formats as formats
from busway.store.base import (
    PURGE_ROWS,
    CommitRefused,
    Counters,
    Delete,
    Move,
    StoreUnavailable,
    SubQueueKey,
    SubQueueKind,
)
from busway.store.journal import (
    JOURNAL_ROW_BYTES,
    TRIM_ROWS,
    JournalContent,
    JournalHandle,
    JournalHead,
    JournalHold,
    JournalRecord,
    JournalSize,
    JournalTrim,
)
from busway.store.memory import MemoryDisk, MemoryStore
from busway.store.sqlite import SqliteStore
from tests.store.places import (
    DEAD,
    MAIN,
    MAIN_KEY,
    NewHandle,
    Owner,
    message,
    number,
    two_sub_queues,
)

ENQUEUED, COMPLETED = JournalEvent.ENQUEUED, JournalEvent.COMPLETED
BODY = 7 << 20 | 1
DATABASE_OF_FORMAT_2 = Path(__file__).with_name("format_2.sql")


def content(body_id: int = BODY, size: int = 100, **fields: object) -> JournalContent:
    defaults = JournalContent(
        body_id=body_id,
        size=size,
        header=0,
        ttl_ms=None,
        annotations=b"",
        annotation_items=0,
        session_id=None,
        enqueued_ms=0,
        expires_ms=None,
        enqueued_number=0,
        changes=None,
        dead_letter_source=None,
        destination=None,
    )
    return defaults._replace(**fields)  # type: ignore[arg-type]


def record(
    offset: int, event: JournalEvent = COMPLETED, *, time_ms: int | None = None, **fields: object
) -> JournalRecord:
    return JournalRecord(
        slot=MAIN,
        offset=offset,
        event=event,
        time_ms=1_000 + offset if time_ms is None else time_ms,
        kind=SubQueueKind.MAIN,
        number=number(offset + 1),
        **fields,  # type: ignore[arg-type]
    )


def write(owner: Owner, *records: JournalRecord, earliest: int = 0, **more: object) -> None:
    """The rows, and the head that follows from them."""
    head = JournalHead(earliest, records[-1].offset + 1, 640, 1_000 + earliest, records[-1].time_ms)
    owner.commit(journal=list(records), journal_heads={MAIN: head}, **more)


def many(count: int, first: int = 0) -> list[JournalRecord]:
    return [record(offset) for offset in range(first, first + count)]


@pytest.fixture
def handle(owner: Owner) -> JournalHandle:
    return owner.store.journal_handle()


def offsets(handle: JournalHandle, first: int = 0, stop: int = 1 << 40, **how: int) -> list[int]:
    return [row.record.offset for row in handle.read(MAIN_KEY, first, stop, **how).rows()]


class TestRows:
    def test_every_field_comes_back(self, owner: Owner, handle: JournalHandle) -> None:
        carried = content(
            size=5_000,
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
        rows = [
            record(0, ENQUEUED, content=carried, related_number=9),
            record(1, JournalEvent.DELIVERED, delivery_count=2, lock_token=bytes(range(16))),
            record(2, JournalEvent.DEAD_LETTERED, reason="why", description="because"),
            record(3)._replace(kind=SubQueueKind.DEAD_LETTER),
            record(4, JournalEvent.DUPLICATE_DROPPED)._replace(number=0),
            record(5, JournalEvent.DEAD_LETTERED, description="and no reason"),
        ]
        write(owner, *rows, bodies=[(BODY, b"the body")])
        read = handle.read(MAIN_KEY, 0, 6).rows()
        assert [row.record for row in read] == rows
        assert [row.bare for row in read] == [b"the body", None, None, None, None, None]
        assert all(isinstance(row.record.event, JournalEvent) for row in read)

    def test_a_range_ends_before_its_stop(self, owner: Owner, handle: JournalHandle) -> None:
        write(owner, *many(10))
        assert offsets(handle, 3, 6) == [3, 4, 5]
        assert offsets(handle, 8) == [8, 9]
        assert offsets(handle, 5, 5) == []
        assert offsets(handle, 10) == []

    def test_a_read_is_bounded_by_rows_and_bytes(self, owner: Owner, handle: JournalHandle) -> None:
        large = [record(n, ENQUEUED, content=content(BODY + n, 1_000)) for n in range(5)]
        write(owner, *large, bodies=[(BODY + n, b"x") for n in range(5)])
        assert offsets(handle, rows=2) == [0, 1]
        assert offsets(handle, size=1_500) == [0, 1]
        assert offsets(handle, size=1) == [0]

    def test_no_more_than_a_thousand_rows_at_once(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        write(owner, *many(1_200))
        assert len(offsets(handle, rows=5_000)) == 1_000

    def test_bodies_are_left_out_if_nobody_asks_for_them(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        write(owner, record(0, ENQUEUED, content=content()), bodies=[(BODY, b"x" * 9_000)])
        page = handle.read(MAIN_KEY, 0, 1, ["body_id", "event"])
        assert (list(page.column("body_id")), list(page.column("event"))) == ([BODY], [ENQUEUED])
        assert page.fields is not None
        assert set(page.fields) == {"body_id", "event"}

    def test_an_offset_is_never_given_twice(self, owner: Owner, handle: JournalHandle) -> None:
        write(owner, *many(3))
        with pytest.raises(CommitRefused):
            write(owner, record(2), time_ms=9)
        write(owner, record(3))
        assert offsets(handle) == [0, 1, 2, 3]

    def test_a_refused_batch_leaves_no_row(self, owner: Owner, handle: JournalHandle) -> None:
        with pytest.raises(CommitRefused):
            write(owner, *many(3), deletes=[Delete(MAIN, number(99))])
        assert handle.head(MAIN_KEY) is None
        assert offsets(handle) == []

    def test_a_journal_of_a_slot_that_is_not_there_is_refused(self, owner: Owner) -> None:
        with pytest.raises(CommitRefused):
            owner.commit(
                journal=[record(0)._replace(slot=99)], journal_heads={99: JournalHead(0, 1)}
            )


class TestHeads:
    def test_heads_and_holds_are_told_at_opening(self, owner: Owner, new_handle: NewHandle) -> None:
        write(owner, *many(3))
        hold = JournalHold(MAIN, "lake", 2, 9_000)
        owner.commit(holds=[hold])
        opened = new_handle().open()
        assert list(opened.journal_heads) == [(MAIN, JournalHead(0, 3, 640, 1_000, 1_002))]
        assert list(opened.holds) == [hold]

    def test_a_head_is_that_of_the_last_commit(self, owner: Owner, handle: JournalHandle) -> None:
        assert handle.head(MAIN_KEY) is None
        write(owner, *many(3))
        write(owner, *many(2, first=3))
        assert handle.head(MAIN_KEY) == JournalHead(0, 5, 640, 1_000, 1_004)

    def test_another_incarnation_has_no_journal(self, owner: Owner, handle: JournalHandle) -> None:
        write(owner, *many(3))
        other = SubQueueKey(MAIN_KEY.incarnation + 1, MAIN_KEY.partition, SubQueueKind.MAIN)
        assert handle.head(other) is None
        assert len(handle.read(other, 0, 9)) == 0
        assert handle.offset_at(other, 0) == 0
        assert list(handle.holds(other)) == []

    def test_a_hold_may_be_there_before_the_first_row(
        self, owner: Owner, handle: JournalHandle, new_handle: NewHandle
    ) -> None:
        owner.commit(holds=[JournalHold(MAIN, "lake", 0, 9_000)])
        assert handle.head(MAIN_KEY) is None
        assert list(new_handle().open().journal_heads) == []

    def test_a_hold_moves_and_ends(self, owner: Owner, handle: JournalHandle) -> None:
        owner.commit(
            holds=[JournalHold(MAIN, "lake", 1, 9_000), JournalHold(MAIN, "audit", 4, 5_000)]
        )
        owner.commit(holds=[JournalHold(MAIN, "lake", 3, 9_500)])
        assert list(handle.holds(MAIN_KEY)) == [
            JournalHold(MAIN, "audit", 4, 5_000),
            JournalHold(MAIN, "lake", 3, 9_500),
        ]
        owner.commit(holds=[JournalHold(MAIN, "audit", None, 0)])
        owner.commit(holds=[JournalHold(MAIN, "nobody", None, 0)])
        assert [each.name for each in handle.holds(MAIN_KEY)] == ["lake"]

    @pytest.mark.parametrize(
        ("time_ms", "offset"),
        [(0, 0), (10, 0), (11, 1), (20, 1), (21, 4), (30, 4), (31, 5), (9_999, 5)],
    )
    def test_the_offset_at_a_time(
        self, owner: Owner, handle: JournalHandle, time_ms: int, offset: int
    ) -> None:
        times = [10, 20, 20, 20, 30]
        write(owner, *(record(n, time_ms=each) for n, each in enumerate(times)))
        assert handle.offset_at(MAIN_KEY, time_ms) == offset

    def test_sizes_tell_what_rows_count_for(self, owner: Owner, handle: JournalHandle) -> None:
        carrying = record(1, ENQUEUED, content=content(size=500))
        write(owner, record(0), carrying, bodies=[(BODY, b"x")])
        expected = [
            JournalSize(0, 1_000, JOURNAL_ROW_BYTES),
            JournalSize(1, 1_001, JOURNAL_ROW_BYTES + 500),
        ]
        assert carrying.bytes == JOURNAL_ROW_BYTES + 500
        assert owner.store.read_journal_sizes(MAIN, 0, 10) == expected
        assert handle.sizes(MAIN_KEY, 0) == expected
        assert handle.sizes(MAIN_KEY, 1, 1) == expected[1:]


class TestTrimming:
    def test_what_is_before_an_offset_is_forgotten(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        write(owner, *many(5))
        owner.commit(trims=[JournalTrim(MAIN, 3)], journal_heads={MAIN: JournalHead(3, 5, 2, 3, 4)})
        assert offsets(handle, 3) == [3, 4]
        assert len(handle.read(MAIN_KEY, 0, 3)) == 0

    def test_a_range_that_begins_with_what_was_forgotten_is_empty(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        """Never the rest of it: who reads must notice that there is a gap."""
        write(owner, *many(5))
        owner.commit(trims=[JournalTrim(MAIN, 3)], journal_heads={MAIN: JournalHead(3, 5, 2, 3, 4)})
        assert offsets(handle, 2) == []
        assert handle.sizes(MAIN_KEY, 2) == []

    def test_a_commit_forgets_a_small_step(self, owner: Owner, handle: JournalHandle) -> None:
        write(owner, *many(TRIM_ROWS + 5))
        heads = {MAIN: JournalHead(TRIM_ROWS, TRIM_ROWS + 5)}
        owner.commit(trims=[JournalTrim(MAIN, TRIM_ROWS + 5)], journal_heads=heads)
        assert offsets(handle, TRIM_ROWS) == list(range(TRIM_ROWS, TRIM_ROWS + 5))

    def test_rows_can_be_written_in_the_commit_that_forgets_others(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        write(owner, *many(3))
        write(owner, record(3), earliest=2, trims=[JournalTrim(MAIN, 2)])
        assert offsets(handle, 2) == [2, 3]


class TestSharedBodies:
    """Message and journal have one stored body, freed when both have let go (D-31)."""

    def captured(self, owner: Owner) -> None:
        write(
            owner,
            record(0, ENQUEUED, content=content()),
            bodies=[(BODY, b"shared")],
            puts=[(MAIN, message(1, bare=b"shared", body_id=BODY))],
            counters={MAIN: Counters(2, 1, 0, 0, 100)},
        )

    def trim(self, owner: Owner) -> None:
        owner.commit(trims=[JournalTrim(MAIN, 1)], journal_heads={MAIN: JournalHead(1, 1)})

    def delete(self, owner: Owner) -> None:
        owner.commit(deletes=[Delete(MAIN, number(1))])

    def is_free(self, owner: Owner) -> bool:
        """Whether nobody has the body: then another may have its id."""
        try:
            owner.commit(
                bodies=[(BODY, b"another")], puts=[(MAIN, message(50, bare=b"", body_id=BODY))]
            )
        except CommitRefused:
            return False
        return True

    def test_the_journal_keeps_it_when_the_message_is_gone(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        self.captured(owner)
        self.delete(owner)
        assert [row.bare for row in handle.read(MAIN_KEY, 0, 1).rows()] == [b"shared"]
        assert not self.is_free(owner)
        self.trim(owner)
        assert self.is_free(owner)

    def test_the_message_keeps_it_when_the_journal_is_trimmed(self, owner: Owner) -> None:
        self.captured(owner)
        self.trim(owner)
        assert [each.bare for each in owner.store.read_page(MAIN, 0)] == [b"shared"]
        assert not self.is_free(owner)
        self.delete(owner)
        assert self.is_free(owner)

    def test_a_later_row_may_carry_a_body_that_is_there(
        self, owner: Owner, handle: JournalHandle
    ) -> None:
        """A scheduled message that becomes active (SCH-3) is moved, and told of once more."""
        self.captured(owner)
        write(
            owner,
            record(1, ENQUEUED, content=content()),
            moves=[Move(MAIN, number(1), DEAD, message(2, body_id=BODY))],
        )
        self.trim(owner)
        owner.commit(deletes=[Delete(DEAD, number(2))])
        assert [row.bare for row in handle.read(MAIN_KEY, 1, 2).rows()] == [b"shared"]
        owner.commit(trims=[JournalTrim(MAIN, 2)], journal_heads={MAIN: JournalHead(2, 2)})
        assert self.is_free(owner)

    def test_a_row_may_have_a_body_for_itself(self, owner: Owner, handle: JournalHandle) -> None:
        write(owner, record(0, ENQUEUED, content=content()), bodies=[(BODY, b"own")])
        assert [row.bare for row in handle.read(MAIN_KEY, 0, 1).rows()] == [b"own"]
        self.trim(owner)
        assert self.is_free(owner)

    def test_a_row_without_its_body_is_refused(self, owner: Owner) -> None:
        with pytest.raises(CommitRefused):
            write(owner, record(0, ENQUEUED, content=content()))


class TestPurging:
    def test_a_deleted_incarnation_takes_its_journal_with_it(
        self, owner: Owner, handle: JournalHandle, new_handle: NewHandle
    ) -> None:
        """D-16: in small steps, and its bodies are freed."""
        rows = many(PURGE_ROWS + 10)
        rows[5] = record(5, ENQUEUED, content=content())
        write(owner, *rows, bodies=[(BODY, b"x")], holds=[JournalHold(MAIN, "lake", 2, 9_000)])
        owner.commit(purges=[MAIN])
        assert handle.head(MAIN_KEY) is not None
        for _ in range(3):
            owner.commit()
        assert handle.head(MAIN_KEY) is None
        again = Owner(new_handle())
        assert [each.slot for each in again.opened.sub_queues] == [DEAD]
        assert (list(again.opened.journal_heads), list(again.opened.holds)) == ([], [])
        key = SubQueueKey(8, MAIN_KEY.partition, SubQueueKind.MAIN)
        again.commit(sub_queues=[(MAIN, key)], counters={MAIN: Counters()})
        again.commit(bodies=[(BODY, b"y")], puts=[(MAIN, message(1, body_id=BODY))])
        assert len(again.store.journal_handle().read(key, 0, 9)) == 0


class TestReadingBeside:
    def test_another_thread_reads_while_the_owner_commits(self, owner: Owner) -> None:
        """Every page is a whole prefix, whatever is committed meanwhile."""
        write(owner, *many(10))
        wrong: list[list[int]] = []
        over, begun = threading.Event(), threading.Event()

        def scan() -> None:
            handle = owner.store.journal_handle()
            while not over.is_set():
                seen = offsets(handle)
                if seen != list(range(len(seen))) or len(seen) < 10:
                    wrong.append(seen)
                begun.set()
            handle.close()

        reader = threading.Thread(target=scan)
        reader.start()
        assert begun.wait(60)
        for each in range(100):
            write(owner, *many(5, first=10 + 5 * each))
        over.set()
        reader.join(60)
        assert wrong == []
        assert len(offsets(owner.store.journal_handle())) == 510

    def test_it_does_not_fence_the_owner(self, owner: Owner, handle: JournalHandle) -> None:
        handle.head(MAIN_KEY)
        write(owner, *many(3))
        assert owner.numbers() == []

    def test_a_closed_handle_may_be_used_again(self, owner: Owner, handle: JournalHandle) -> None:
        write(owner, *many(3))
        assert offsets(handle) == [0, 1, 2]
        handle.close()
        handle.close()
        assert offsets(handle) == [0, 1, 2]


class TestSqlite:
    def test_a_missing_file_is_unavailable_and_not_made(self, tmp_path: Path) -> None:
        handle = SqliteStore(tmp_path / "store.db", create=True).journal_handle()
        with pytest.raises(StoreUnavailable, match=r"store\.db"):
            handle.head(MAIN_KEY)
        assert not (tmp_path / "store.db").exists()

    def test_a_handle_cannot_write(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "store.db", create=True)
        Owner(store)
        handle = store.journal_handle()
        handle.head(MAIN_KEY)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            handle._connection.execute("DELETE FROM journal")  # type: ignore[attr-defined]

    def test_a_reader_does_not_keep_the_log_from_being_reused(self, tmp_path: Path) -> None:
        """D-11: a scan that goes on for ever must not make the log grow for ever."""
        owner = Owner(SqliteStore(tmp_path / "store.db", create=True, checkpoint_pages=64))
        owner.commit(sub_queues=[(MAIN, MAIN_KEY)], counters={MAIN: Counters()})
        handle = owner.store.journal_handle()
        log = tmp_path / "store.db-wal"
        sizes = []
        for each in range(60):
            body_id = BODY + each
            carrying = record(each, ENQUEUED, content=content(body_id, 100_000))
            write(owner, carrying, bodies=[(body_id, bytes(100_000))])
            offsets(handle, 0, 3)
            sizes.append(log.stat().st_size)
        assert max(sizes) < 2_000_000 < 60 * 100_000

    def test_a_file_of_format_2_is_made_one_of_today(self, tmp_path: Path) -> None:
        """Its messages stay as they are, and from then on it keeps journals."""
        path = tmp_path / "store.db"
        made = sqlite3.connect(path)
        made.executescript(DATABASE_OF_FORMAT_2.read_text())
        made.execute("PRAGMA journal_mode = WAL")
        made.close()
        owner = Owner(SqliteStore(path, create=False))
        assert (owner.opened.store_id, owner.opened.commit_number) == ("a-store-of-format-2", 2)
        assert [each.bare for each in owner.store.read_page(MAIN, 0)] == [b"plain", b"shared"]
        assert [each.bare for each in owner.store.read_page(DEAD, 0)] == [b"shared"]
        write(owner, *many(3))
        owner.commit(deletes=[Delete(MAIN, number(2)), Delete(DEAD, number(2))])
        owner.store.close()
        again = Owner(SqliteStore(path, create=False))
        assert offsets(again.store.journal_handle()) == [0, 1, 2]
        assert again.numbers() == [number(1)]
        (found,) = sqlite3.connect(path).execute("SELECT format FROM store").fetchone()
        assert found == formats.FORMAT_VERSION

    def test_an_upgrade_that_fails_leaves_the_file_as_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        made = sqlite3.connect(path)
        made.executescript(DATABASE_OF_FORMAT_2.read_text())
        made.execute("CREATE TABLE journal_holds (in_the_way)")
        made.close()
        with pytest.raises(StoreUnavailable, match="journal_holds"):
            SqliteStore(path, create=False).open()
        left = sqlite3.connect(path)
        names = {name for (name,) in left.execute("SELECT name FROM sqlite_master")}
        assert "journal" not in names
        assert left.execute("SELECT format FROM store").fetchone() == (2,)


def test_a_crash_of_a_memory_disk_takes_back_whole_commits_with_their_rows() -> None:
    disk = MemoryDisk(sync_each_commit=False)
    owner = Owner(MemoryStore(disk))
    owner.commit(**two_sub_queues())
    write(owner, record(0, ENQUEUED, content=content()), bodies=[(BODY, b"kept")])
    owner.commit(holds=[JournalHold(MAIN, "lake", 0, 9_000)])
    disk.sync()
    write(owner, *many(3, first=1))
    owner.commit(trims=[JournalTrim(MAIN, 2)], journal_heads={MAIN: JournalHead(2, 4)})
    owner.commit(holds=[JournalHold(MAIN, "lake", None, 0), JournalHold(MAIN, "new", 1, 9)])
    owner.commit(purges=[MAIN])
    disk.crash()
    again = Owner(MemoryStore(disk))
    handle = again.store.journal_handle()
    assert [row.bare for row in handle.read(MAIN_KEY, 0, 9).rows()] == [b"kept"]
    assert list(again.opened.journal_heads) == [(MAIN, JournalHead(0, 1, 640, 1_000, 1_000))]
    assert [(each.name, each.offset) for each in again.opened.holds] == [("lake", 0)]
