"""What is particular to SQLite stores: files, locks, settings, and errors told apart (D-3)."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from busway.model.message import MessageState
from busway.store import sqlite_schema as schema
from busway.store.base import (
    CommitRefused,
    CommitUnknown,
    Counters,
    Delete,
    DuplicateMark,
    Move,
    SessionCount,
    SessionState,
    StoreUnavailable,
    SubQueueKey,
    SubQueueKind,
    TransactionMark,
    TransferMark,
)
from busway.store.sqlite import SqliteStore
from busway.store.sqlite_marks import FORGET_PAUSE_MS
from tests.store.places import DEAD, MAIN, Owner, message, number, two_sub_queues


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def owner(path: Path) -> Iterator[Owner]:
    owner = Owner(SqliteStore(path, create=True))
    owner.commit(**two_sub_queues())
    yield owner
    owner.store.close()


class ScriptedConnection(sqlite3.Connection):
    """Fails at one statement, before or after it was carried out, as a bad disk would."""

    failing_statement = ""
    error_code = sqlite3.SQLITE_IOERR
    carried_out = False

    def execute(self, sql: str, *rest: object) -> sqlite3.Cursor:
        cls = type(self)
        if not cls.failing_statement or not sql.startswith(cls.failing_statement):
            return super().execute(sql, *rest)  # type: ignore[arg-type]
        cls.failing_statement = ""
        if cls.carried_out:
            super().execute(sql, *rest)  # type: ignore[arg-type]
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = cls.error_code
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error


@pytest.fixture
def failing(path: Path) -> Iterator[Owner]:
    """The owner of a store whose connection can be told to fail."""
    ScriptedConnection.failing_statement = ""
    ScriptedConnection.error_code = sqlite3.SQLITE_IOERR
    ScriptedConnection.carried_out = False
    owner = Owner(SqliteStore(path, create=True, connection_class=ScriptedConnection))
    owner.commit(**two_sub_queues())
    yield owner
    owner.store.close()


def put(owner: Owner, counter: int, size: int = 4) -> None:
    owner.commit(puts=[(MAIN, message(counter, bare=b"x" * size, size=size))])


def connection_of(owner: Owner) -> sqlite3.Connection:
    assert isinstance(owner.store, SqliteStore)
    connection = owner.store._connection
    assert connection is not None
    return connection


class TestTheFile:
    def test_a_missing_file_is_unavailable_not_made(self, path: Path) -> None:
        with pytest.raises(StoreUnavailable, match=r"store\.db is missing"):
            SqliteStore(path, create=False).open()
        assert list(path.parent.iterdir()) == []

    def test_a_store_that_was_there_once_is_never_made_again(
        self, owner: Owner, path: Path
    ) -> None:
        owner.store.close()
        path.unlink()
        with pytest.raises(StoreUnavailable, match="missing"):
            owner.store.open()
        assert not path.exists()

    def test_a_log_without_its_database_is_not_played_into_a_new_one(self, path: Path) -> None:
        path.with_name("store.db-wal").write_bytes(b"left behind")
        with pytest.raises(StoreUnavailable, match="log"):
            SqliteStore(path, create=True).open()
        assert not path.exists()

    @pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
    def test_a_file_of_another_kind_is_unavailable(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(StoreUnavailable, match=r"store\.db"):
            SqliteStore(path, create=True).open()
        assert path.read_bytes() == content

    def test_a_database_of_another_program_is_unavailable(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE other (one)")
        connection.close()
        with pytest.raises(StoreUnavailable, match="not a Busway store"):
            SqliteStore(path, create=True).open()

    @pytest.mark.parametrize("format_", [1, 99])
    def test_another_format_is_unavailable(self, owner: Owner, format_: int) -> None:
        connection_of(owner).execute("UPDATE store SET format = ?", (format_,))
        with pytest.raises(
            StoreUnavailable, match=f"format {format_}, .* reads formats 2 to 6 only"
        ):
            owner.store.open()

    def test_what_a_crash_left_of_the_making_does_not_matter(self, path: Path) -> None:
        path.with_name("store.db.new").write_bytes(b"half a store")
        SqliteStore(path, create=True).open()
        assert not path.with_name("store.db.new").exists()

    def test_files_are_for_their_owner_only(self, tmp_path: Path) -> None:
        path = tmp_path / "made" / "store.db"
        owner = Owner(SqliteStore(path, create=True))
        owner.commit(**two_sub_queues())
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
        assert modes == {
            "store.db": 0o600,
            "store.db-wal": 0o600,
            "store.db-shm": 0o600,
            "store.db-mark": 0o600,
            "store.db.lock": 0o600,
        }
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        owner.store.close()

    def test_a_path_with_odd_characters_is_a_path(self, tmp_path: Path) -> None:
        path = tmp_path / "a ?b=c#d%20ü.db"
        SqliteStore(path, create=True).open()
        assert path.exists()

    def test_room_is_that_of_the_disk_and_of_free_pages(self, owner: Owner, path: Path) -> None:
        store = owner.store
        for counter in range(1, 9):
            put(owner, counter, 200_000)
        full = store.free_bytes()
        owner.commit(deletes=[Delete(MAIN, number(counter)) for counter in range(1, 9)])
        disk = os.statvfs(path.parent)
        drained = store.free_bytes()
        (free_pages,) = connection_of(owner).execute("PRAGMA freelist_count").fetchone()
        assert full is not None
        assert drained is not None
        assert free_pages * schema.PAGE_SIZE > 1_500_000
        assert abs(drained - free_pages * schema.PAGE_SIZE - disk.f_bavail * disk.f_frsize) < 2**30


class TestTheLock:
    OTHER_PROCESS = (
        "import sys; from pathlib import Path; from busway.store.sqlite import SqliteStore\n"
        "try: print(SqliteStore(Path(sys.argv[1]), create=False).open().epoch)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )

    def opened_elsewhere(self, path: Path) -> str:
        command = [sys.executable, "-c", self.OTHER_PROCESS, str(path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        ).stdout.strip()

    def test_a_second_process_is_refused_by_a_text_that_names_the_file(
        self, owner: Owner, path: Path
    ) -> None:
        answer = self.opened_elsewhere(path)
        assert answer.startswith("StoreUnavailable")
        assert f"pid {os.getpid()}" in answer
        assert f"{path}.lock" in answer
        put(owner, 1)

    def test_a_closed_store_can_be_opened_by_another_process(
        self, owner: Owner, path: Path
    ) -> None:
        owner.store.close()
        assert self.opened_elsewhere(path) == "2"

    def test_the_lock_stays_until_the_last_handle_of_the_process_is_closed(
        self, owner: Owner, path: Path
    ) -> None:
        second = SqliteStore(path, create=False)
        second.open()
        owner.store.close()
        assert self.opened_elsewhere(path).startswith("StoreUnavailable")
        second.close()
        assert self.opened_elsewhere(path) == "3"

    def test_a_failed_opening_gives_the_lock_back(self, path: Path) -> None:
        path.write_bytes(b"not a database at all" * 100)
        with pytest.raises(StoreUnavailable):
            SqliteStore(path, create=True).open()
        assert "lock" not in self.opened_elsewhere(path)


class TestSettings:
    @pytest.mark.parametrize(
        ("pragma", "value"),
        [
            ("journal_mode", "wal"),
            ("synchronous", 2),
            ("page_size", schema.PAGE_SIZE),
            ("wal_autocheckpoint", 0),
            ("mmap_size", 0),
            ("secure_delete", 0),
            ("auto_vacuum", 0),
        ],
    )
    def test_the_connection_is_set_up(self, owner: Owner, pragma: str, value: object) -> None:
        assert connection_of(owner).execute(f"PRAGMA {pragma}").fetchone() == (value,)

    @pytest.mark.parametrize(
        ("statement", "parameters", "plan"),
        [
            (schema.READ_RANGE, (1, 2, 3), "messages USING INTEGER PRIMARY KEY (rowid>? AND"),
            (schema.READ_SESSION_RANGE, ("", 1, 2, 3), "in_session (session_id=? AND rowid>?"),
            (schema.READ_SESSION_WAITING, ("", 1, 1, 2, 3), "in_session (session_id=? AND rowid>"),
            (schema.READ_SESSION_STATE, (1, ""), "(slot=? AND session_id=?)"),
            (schema.RELEASE_BODY, (1,), "copies USING INTEGER PRIMARY KEY"),
            (schema.READ_IDS, (1, 2, 3), "USING INTEGER PRIMARY KEY (rowid>? AND"),
            (schema.READ_DUPLICATES, (1, b"", 2, 3), "PRIMARY KEY (slot=? AND digest>?)"),
            (schema.FORGET_DUPLICATES, (1, 2), "COVERING INDEX duplicates_over (until_ms<?)"),
            (schema.FORGET_TRANSACTIONS, (1, 2), "USING INDEX transactions_over (until_ms<?)"),
            (schema.READ_SESSIONS, (), "SCAN sessions"),
            (schema.READ_TRANSFERS, (), "SCAN transfers"),
            *((each, (1, 2), "(slot=?") for each in schema.PURGE_MARKS),
            (schema.READ_WAITING, (2, 1, 2, 3), "USING INDEX waiting (state=? AND rowid>?"),
            (schema.READ_EXPIRING, (1,), "INDEX expiring"),
            (schema.READ_EXPIRING_WITH, (1, 2, 3), "expiring (expires_ms=? AND <expr>>?"),
            (schema.READ_EXPIRING_AFTER, (1, 2), "expiring (expires_ms>?"),
            (schema.READ_NUMBERS, ("[]",), "USING INTEGER PRIMARY KEY"),
        ],
    )
    def test_no_read_scans_or_sorts(
        self, owner: Owner, statement: str, parameters: tuple[object, ...], plan: str
    ) -> None:
        steps = connection_of(owner).execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        text = "\n".join(step[3] for step in steps)
        assert plan in text
        assert "TEMP B-TREE" not in text

    def test_the_log_does_not_grow_without_bound(self, owner: Owner, path: Path) -> None:
        log = path.with_name("store.db-wal")
        longest = 0
        for round_ in range(60):
            counters = range(round_ * 100 + 1, round_ * 100 + 101)
            owner.commit(puts=[(MAIN, message(c, bare=b"x" * 8_000)) for c in counters])
            owner.commit(deletes=[Delete(MAIN, number(counter)) for counter in counters])
            longest = max(longest, log.stat().st_size)
        assert longest < 3 * schema.WAL_CHECKPOINT_PAGES * schema.PAGE_SIZE


class TestAFullDisk:
    @contextmanager
    def full(self, owner: Owner) -> Iterator[None]:
        connection = connection_of(owner)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()
        yield
        connection.execute("PRAGMA max_page_count = 1073741823").fetchone()

    def test_a_batch_that_does_not_fit_is_refused(self, owner: Owner) -> None:
        with self.full(owner):
            with pytest.raises(CommitRefused, match="SQLITE_FULL"):
                put(owner, 1, 500_000)
            assert owner.numbers() == []
        put(owner, 1, 500_000)
        assert owner.store.open().commit_number == 2

    def test_a_full_store_can_be_drained_and_then_takes_more(self, owner: Owner) -> None:
        put(owner, 1, 100_000)
        with self.full(owner):
            with pytest.raises(CommitRefused):
                put(owner, 2, 500_000)
            owner.commit(deletes=[Delete(MAIN, number(1))])
            put(owner, 2, 90_000)
        assert owner.numbers() == [number(2)]


def may_mount() -> bool:
    return os.geteuid() == 0 and sys.platform == "linux"


@pytest.mark.skipif(not may_mount(), reason="mounting a small disk needs root")
class TestADiskThatIsReallyFull:
    RESERVE = 2_000_000

    @pytest.fixture
    def small_disk(self, tmp_path: Path) -> Iterator[Path]:
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("mounting is not allowed here")
        yield disk
        subprocess.run(["umount", "-l", str(disk)], check=True)

    @pytest.fixture
    def small_owner(self, small_disk: Path) -> Iterator[Owner]:
        owner = Owner(SqliteStore(small_disk / "store.db", create=True))
        owner.commit(**two_sub_queues())
        yield owner
        owner.store.close()

    def fill(self, owner: Owner, reserve: int = 0) -> list[int]:
        """Put until the disk refuses, or has no more room than the reserve; what is in then."""
        counters: list[int] = []
        for counter in range(1, 1_000):
            free = owner.store.free_bytes()
            assert free is not None
            if free < reserve:
                return counters
            try:
                put(owner, counter, 30_000)
            except CommitRefused:
                return counters
            counters.append(counter)
        raise AssertionError("the disk never filled up")

    def test_no_room_at_commit_is_refused_and_all_before_can_be_read(
        self, small_owner: Owner
    ) -> None:
        counters = self.fill(small_owner)
        assert small_owner.numbers() == [number(counter) for counter in counters]

    def test_once_there_is_room_again_it_goes_on_without_being_opened(
        self, small_owner: Owner, small_disk: Path
    ) -> None:
        counters = self.fill(small_owner)
        subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
        put(small_owner, 5_000)
        again = Owner(small_owner.store)
        assert again.opened.commit_number == 2 + len(counters)
        assert again.numbers() == [number(counter) for counter in [*counters, 5_000]]

    def test_with_a_reserve_it_can_be_opened_and_drained_and_takes_more(
        self, small_owner: Owner
    ) -> None:
        counters = self.fill(small_owner, self.RESERVE)
        again = Owner(small_owner.store)
        for counter in counters:
            again.commit(deletes=[Delete(MAIN, number(counter))])
        assert again.numbers() == []
        free = again.store.free_bytes()
        assert free is not None
        assert free > self.RESERVE
        put(again, 5_000, 30_000)


class TestIoErrors:
    def test_at_commit_the_batch_is_unknown_and_the_handle_closed(self, failing: Owner) -> None:
        ScriptedConnection.failing_statement = "COMMIT"
        with pytest.raises(CommitUnknown, match="SQLITE_IOERR_FSYNC"):
            put(failing, 1)
        with pytest.raises(StoreUnavailable, match="SQLITE_IOERR_FSYNC"):
            put(failing, 1)
        with pytest.raises(StoreUnavailable):
            failing.numbers()
        with pytest.raises(StoreUnavailable):
            failing.store.free_bytes()

    @pytest.mark.parametrize("done", [False, True])
    def test_opening_settles_an_unknown_batch(self, failing: Owner, done: bool) -> None:
        ScriptedConnection.failing_statement = "COMMIT"
        ScriptedConnection.carried_out = done
        with pytest.raises(CommitUnknown):
            put(failing, 1)
        again = Owner(failing.store)
        assert again.opened.commit_number == (2 if done else 1)
        assert again.numbers() == ([number(1)] if done else [])

    def test_before_commit_the_batch_is_refused_and_the_handle_closed(self, failing: Owner) -> None:
        ScriptedConnection.failing_statement = "UPDATE store"
        with pytest.raises(CommitRefused):
            put(failing, 1)
        with pytest.raises(StoreUnavailable):
            put(failing, 1)
        assert Owner(failing.store).opened.commit_number == 1

    def test_a_full_disk_at_commit_is_refused_and_the_handle_goes_on(self, failing: Owner) -> None:
        ScriptedConnection.failing_statement = "COMMIT"
        ScriptedConnection.error_code = sqlite3.SQLITE_FULL
        with pytest.raises(CommitRefused):
            put(failing, 1)
        put(failing, 1)
        assert failing.numbers() == [number(1)]

    def test_at_a_checkpoint_the_batch_is_durable_but_the_handle_closed(
        self, failing: Owner
    ) -> None:
        ScriptedConnection.failing_statement = "PRAGMA wal_checkpoint(PASSIVE)"
        counter = 0
        while ScriptedConnection.failing_statement:
            counter += 1
            put(failing, counter, 2_000_000)
        with pytest.raises(StoreUnavailable):
            failing.numbers()
        assert Owner(failing.store).opened.commit_number == 1 + counter

    def test_at_a_checkpoint_a_full_disk_changes_nothing(self, failing: Owner) -> None:
        ScriptedConnection.failing_statement = "PRAGMA wal_checkpoint(PASSIVE)"
        ScriptedConnection.error_code = sqlite3.SQLITE_FULL
        counter = 0
        while ScriptedConnection.failing_statement:
            counter += 1
            put(failing, counter, 2_000_000)
        put(failing, counter + 1)

    def test_at_a_read_the_handle_is_closed(self, failing: Owner) -> None:
        put(failing, 1)
        ScriptedConnection.failing_statement = "SELECT id, state"
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            failing.numbers()
        with pytest.raises(StoreUnavailable, match="open it again"):
            failing.numbers()
        assert Owner(failing.store).numbers() == [number(1)]

    def test_at_opening_the_store_is_unavailable(self, failing: Owner) -> None:
        for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE store", "COMMIT"):
            ScriptedConnection.failing_statement = statement
            with pytest.raises(StoreUnavailable, match="cannot open"):
                failing.store.open()
        assert failing.store.open().commit_number == 1

    def test_a_value_that_cannot_be_stored_refuses_its_batch_only(self, owner: Owner) -> None:
        with pytest.raises(CommitRefused):
            owner.commit(puts=[(MAIN, message(1, session_id="\ud800"))])
        with pytest.raises(CommitRefused):
            owner.commit(puts=[(MAIN, message(1, expires_ms=2**70))])
        put(owner, 1)


def test_a_busy_database_refuses_a_batch_and_goes_on(owner: Owner, path: Path) -> None:
    connection_of(owner).execute("PRAGMA busy_timeout = 0").fetchone()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(CommitRefused, match="locked"):
        put(owner, 1)
    blocker.execute("ROLLBACK")
    blocker.close()
    put(owner, 1)
    assert owner.numbers() == [number(1)]


def test_opening_costs_by_sub_queues_not_by_messages(owner: Owner) -> None:
    """The statements of `open` name no message (D-13), but for the first one of a session."""
    put(owner, 1)
    connection = connection_of(owner)
    for statement in (
        schema.READ_STORE,
        schema.READ_SUB_QUEUES,
        schema.READ_SESSIONS,
        schema.READ_TRANSFERS,
        schema.READ_TRANSACTIONS,
    ):
        steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        looks = [step[3] for step in steps if "messages" in step[3]]
        first = "SEARCH messages USING COVERING INDEX in_session (session_id=? AND rowid>? AND"
        assert all(look.startswith(first) for look in looks)
        assert len(looks) == (statement == schema.READ_SESSIONS)


class TestWhatIsForgotten:
    """Rows that nothing reads any more are not there either."""

    def count(self, owner: Owner, *tables: str) -> list[int]:
        connection = connection_of(owner)
        return [connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables]

    @pytest.mark.parametrize("reopened", [False, True])
    def test_a_shared_body_with_its_last_message(self, owner: Owner, reopened: bool) -> None:
        states = [MessageState.ACTIVE, MessageState.DEFERRED, MessageState.ACTIVE]
        shared = [message(n, body_id=7, state=state) for n, state in enumerate(states, 1)]
        owner.commit(bodies=[(7, b"body")], puts=[(MAIN, each) for each in shared])
        owner.commit(moves=[Move(MAIN, number(3), DEAD, message(3, body_id=7))])
        if reopened:
            owner = Owner(owner.store)
        owner.commit(deletes=[Delete(MAIN, number(1)), Delete(DEAD, number(3))])
        assert self.count(owner, "bodies", "copies") == [1, 1]
        assert connection_of(owner).execute("SELECT count FROM copies").fetchone() == (1,)
        owner.commit(deletes=[Delete(MAIN, number(2))])
        assert self.count(owner, "bodies", "copies") == [0, 0]

    def test_a_shared_body_that_no_message_took(self, owner: Owner) -> None:
        owner.commit(bodies=[(7, b"body")])
        owner.commit(bodies=[(8, b"body")], puts=[(MAIN, message(1))])
        assert self.count(owner, "bodies", "copies") == [0, 0]

    def test_a_body_is_stored_once(self, owner: Owner) -> None:
        shared = [(MAIN, message(n, body_id=7, bare=b"body")) for n in (1, 2, 3)]
        owner.commit(bodies=[(7, b"body")], puts=shared)
        bares = connection_of(owner).execute("SELECT bare FROM messages").fetchall()
        assert bares == [(None,)] * 3

    def test_marks_whose_time_is_over(self, owner: Owner) -> None:
        owner.commit(
            duplicates=[DuplicateMark(MAIN, b"%d" % n, 1_000 * n) for n in range(10)],
            transactions=[TransactionMark(b"%d" % n, 1_000 * n) for n in range(10)],
        )
        owner.commit(time_ms=4_000)
        assert self.count(owner, "duplicates", "transactions") == [5, 5]
        owner.commit(time_ms=4_000 + FORGET_PAUSE_MS)
        assert self.count(owner, "duplicates", "transactions") == [4, 4]

    def test_a_purged_slot_leaves_nothing(self, owner: Owner) -> None:
        owner.commit(
            bodies=[(7, b"body")],
            puts=[(MAIN, message(1, body_id=7)), (MAIN, message(2, session_id="s"))],
            session_counts=[SessionCount(MAIN, "s", 1)],
            session_states=[SessionState(MAIN, "t", b"x", 1)],
            duplicates=[DuplicateMark(MAIN, b"d", 9)],
            transfers=[TransferMark(MAIN, 1, 1, 1)],
        )
        owner.commit(purges=[MAIN, DEAD])
        tables = "messages bodies copies sessions session_states duplicates transfers sub_queues"
        assert self.count(owner, *tables.split()) == [0] * 8


def test_active_pages_do_not_walk_over_messages_that_wait(owner: Owner) -> None:
    """Those lie elsewhere: what is read does not grow with them."""
    put(owner, 5_000)
    connection, read = connection_of(owner), []
    connection.set_progress_handler(lambda: read.append(1), 100)
    owner.numbers()
    before = len(read)
    connection.set_progress_handler(None, 0)
    waiting = [message(n, state=MessageState.DEFERRED) for n in range(1, 2_000)]
    owner.commit(puts=[(MAIN, each) for each in waiting])
    read.clear()
    connection.set_progress_handler(lambda: read.append(1), 100)
    assert owner.numbers() == [number(5_000)]
    assert len(read) <= before + 1


def test_slots_and_counters_outside_their_bits_are_the_owners_mistake(owner: Owner) -> None:
    key = SubQueueKey(9, 0, SubQueueKind.MAIN)
    with pytest.raises(AssertionError):
        owner.commit(sub_queues=[(schema.SLOT_LIMIT, key)])
    with pytest.raises(AssertionError):
        put(owner, schema.COUNTER_LIMIT)
    last = schema.SLOT_LIMIT - 1
    highest = message(1, number=schema.COUNTER_LIMIT - 1, state=MessageState.ACTIVE)
    owner.commit(sub_queues=[(last, key)], puts=[(last, highest)], counters={last: Counters()})
    assert owner.numbers(last) == [schema.COUNTER_LIMIT - 1]
