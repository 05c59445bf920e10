"""Commits that were acknowledged and are not there any more: a store says so and does not open.

Each test takes the files of a store as a killed process leaves them, and does something to them.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from busway.store.ailments import Ailment
from busway.store.base import Opened, StoreUnavailable
from busway.store.commit_mark import mark_of
from busway.store.sqlite import SqliteStore
from busway.store.sqlite_log import FRAME_HEADER, HEADER, checksum_of, log_of, scan_log
from busway.store.sqlite_schema import PAGE_SIZE
from tests.store.places import Owner, message, two_sub_queues

FRAME_BYTES = FRAME_HEADER.size + PAGE_SIZE
COMMITS = 30


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store of 30 commits, most of them in the log only, copied while it is open."""
    there = tmp_path / "there" / "store.db"
    owner = Owner(SqliteStore(there, create=True))
    owner.commit(**two_sub_queues())
    for counter in range(1, COMMITS):
        owner.commit(puts=[(1, message(counter, bare=bytes(3_000)))])
    killed = tmp_path / "killed"
    killed.mkdir()
    for file in there.parent.iterdir():
        if not file.name.endswith("-shm"):
            shutil.copy(file, killed)
    owner.store.close()
    return killed / "store.db"


def opened(path: Path) -> Opened:
    store = SqliteStore(path, create=False)
    try:
        return store.open()
    finally:
        store.close()


def refusal(path: Path) -> StoreUnavailable:
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(StoreUnavailable) as caught:
        opened(path)
    after = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    after.pop(path.name + "-shm", None)
    assert after.items() >= before.items(), "nothing was changed"
    assert "busway recover" in str(caught.value)
    return caught.value


def change(path: Path, offset: int, flip: int = 0x10) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ flip]))


def test_what_a_kill_leaves_is_whole(killed: Path) -> None:
    scan = scan_log(log_of(killed))
    assert scan is not None
    assert scan.frames == scan.valid_frames == scan.committed_frames > COMMITS
    assert not scan.is_damaged
    assert not scan.has_torn_end
    assert opened(killed).commit_number == COMMITS


def test_a_bad_frame_in_the_middle_of_the_log(killed: Path) -> None:
    change(log_of(killed), HEADER.size + 20 * FRAME_BYTES + 4_000)
    error = refusal(killed)
    assert error.ailment is Ailment.LOG_DAMAGED
    assert "frame 21" in str(error)


def test_it_needs_no_mark_to_see_that(killed: Path) -> None:
    mark_of(killed).unlink()
    change(log_of(killed), HEADER.size + 20 * FRAME_BYTES + 9)  # a salt
    assert refusal(killed).ailment is Ailment.LOG_DAMAGED


@pytest.mark.parametrize("offset", [0, 8, 17, 30])
def test_a_bad_header_of_the_log(killed: Path, offset: int) -> None:
    mark_of(killed).unlink()
    change(log_of(killed), offset)
    assert refusal(killed).ailment is Ailment.LOG_DAMAGED


def test_damage_to_the_last_commit_is_told_by_the_mark(killed: Path) -> None:
    change(log_of(killed), log_of(killed).stat().st_size - 100)
    error = refusal(killed)
    assert error.ailment is Ailment.LOG_DAMAGED
    assert f"ends at commit {COMMITS - 1}" in str(error)


def test_a_torn_end_is_no_damage(killed: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a machine leaves that stops in the middle of a commit: nobody was told of it."""
    log = log_of(killed)
    mark_before_last = SqliteStore(killed, create=False)._mark
    mark_before_last.open(store_id_of(killed), COMMITS - 1)
    mark_before_last.close()
    change(log, log.stat().st_size - 100)
    assert opened(killed).commit_number == COMMITS - 1
    assert "cannot be read" in caplog.text


def test_a_log_that_was_cut(killed: Path) -> None:
    with log_of(killed).open("r+b") as file:
        file.truncate(HEADER.size + 20 * FRAME_BYTES)
    assert refusal(killed).ailment is Ailment.LOG_LOST


@pytest.mark.parametrize("left", [None, b""])
def test_a_log_that_is_missing_or_empty(killed: Path, left: bytes | None) -> None:
    log_of(killed).unlink()
    if left is not None:
        log_of(killed).write_bytes(left)
    error = refusal(killed)
    assert error.ailment is Ailment.LOG_LOST
    assert f"commits up to {COMMITS} were acknowledged" in str(error)


def test_an_older_copy_of_the_file(killed: Path, tmp_path: Path) -> None:
    opened(killed)
    shutil.copy(killed, tmp_path / "older.db")
    owner = Owner(SqliteStore(killed, create=False))
    owner.commit()
    owner.store.close()
    shutil.copy(tmp_path / "older.db", killed)
    assert refusal(killed).ailment is Ailment.LOG_LOST


@pytest.mark.parametrize("size", [0, 50, PAGE_SIZE, 5 * PAGE_SIZE + 7])
def test_a_file_that_was_cut(killed: Path, size: int) -> None:
    opened(killed)
    with killed.open("r+b") as file:
        file.truncate(size)
    assert refusal(killed).ailment is Ailment.TRUNCATED


def test_a_damaged_mark_keeps_nobody_from_opening(
    killed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(mark_of(killed), 50)
    assert opened(killed).commit_number == COMMITS
    assert "is not believed" in caplog.text


def test_a_mark_of_another_store_says_nothing(killed: Path, tmp_path: Path) -> None:
    other = Owner(SqliteStore(tmp_path / "other.db", create=True))
    for _ in range(COMMITS + 5):
        other.commit()
    other.store.close()
    shutil.copy(mark_of(tmp_path / "other.db"), mark_of(killed))
    assert opened(killed).commit_number == COMMITS


def test_the_checksum_is_the_one_that_sqlite_computes() -> None:
    chance = random.Random(1)
    for words in (2, 6, 256):
        data = chance.randbytes(words * 4)
        for big_endian in (False, True):
            s0, s1 = start = (chance.getrandbits(32), chance.getrandbits(32))
            order = "big" if big_endian else "little"
            for place in range(0, len(data), 8):
                s0 = (s0 + int.from_bytes(data[place : place + 4], order) + s1) % 2**32
                s1 = (s1 + int.from_bytes(data[place + 4 : place + 8], order) + s0) % 2**32
            assert checksum_of(data, start, big_endian) == (s0, s1)


def store_id_of(path: Path) -> str:
    copy = path.parent / "copy" / path.name
    copy.parent.mkdir()
    for file in (path, log_of(path)):
        shutil.copy(file, copy.parent)
    found = opened(copy).store_id
    shutil.rmtree(copy.parent)
    return found
