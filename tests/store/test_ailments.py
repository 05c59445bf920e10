"""Each way in which a store cannot be opened has its own kind and its own text."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from busway.store.ailments import Ailment, ailment_of
from busway.store.base import StoreUnavailable
from busway.store.sqlite import SqliteStore
from tests.store.places import Owner, message, two_sub_queues


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a message that was closed properly."""
    path = tmp_path / "store.db"
    owner = Owner(SqliteStore(path, create=True))
    owner.commit(**two_sub_queues())
    owner.commit(puts=[(1, message(1, bare=bytes(50_000)))])
    owner.store.close()
    return path


def ailment_at(path: Path) -> Ailment | None:
    with pytest.raises(StoreUnavailable) as caught:
        SqliteStore(path, create=False).open()
    assert str(path) in str(caught.value)
    return caught.value.ailment


def test_every_kind_has_a_sentence_that_names_no_file() -> None:
    assert all(each.sentence.endswith(".") and "/" not in each.sentence for each in Ailment)
    assert len({each.sentence for each in Ailment}) == len(Ailment)


def test_a_missing_file(path: Path) -> None:
    path.unlink()
    assert ailment_at(path) is Ailment.MISSING


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"not a database" * 1_000)
    assert ailment_at(path) is Ailment.MALFORMED


def test_a_database_of_somebody_else(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert ailment_at(path) is Ailment.FOREIGN


def test_a_store_that_another_process_holds(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "copy.db")
    program = (
        "import sys, pathlib; from busway.store.sqlite import SqliteStore;"
        "store = SqliteStore(pathlib.Path(sys.argv[1]), create=False); store.open();"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        assert ailment_at(path) is Ailment.LOCKED


def test_errors_of_the_system_are_told_apart() -> None:
    assert ailment_of(OSError(errno.ENOSPC, "no room")) is Ailment.FULL
    assert ailment_of(OSError(errno.EACCES, "not yours")) is Ailment.FORBIDDEN
    assert ailment_of(OSError(errno.EROFS, "mounted for reading")) is Ailment.READ_ONLY
    assert ailment_of(ValueError("of the driver")) is None


def test_a_store_that_cannot_open_on_a_full_disk_releases_the_reserve(path: Path) -> None:
    class Reserve:
        released = False

        def release(self) -> bool:
            self.released = True
            return True

        def refill(self, free_bytes: int) -> None:
            """There is none left to keep."""

    reserve = Reserve()

    class OnAFullDisk(sqlite3.Connection):
        """Takes no writes until the reserve is released."""

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN") and not reserve.released:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return super().execute(sql, *values)

    store = SqliteStore(path, create=False, connection_class=OnAFullDisk, room=reserve)
    with pytest.raises(StoreUnavailable) as caught:
        store.open()
    assert caught.value.ailment is Ailment.FULL
    assert store.open().sub_queues
    store.close()
