"""Journals are read beside the loop: by a process for files, in a thread for memory (D-31)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pyarrow as pa
import pytest

from busway.broker.journal_arrow import arrow_schema
from busway.broker.journal_reader import EpochDiffersError, JournalGapError
from busway.model.entities import Queue
from busway.model.journal import COLUMNS, columns_named
from busway.runtime.journal_readers import CHUNK_BYTES, JournalReaders
from busway.runtime.journal_workers import Workers
from busway.store.base import Counters, StoreUnavailable, SubQueueKey, SubQueueKind
from busway.store.journal import JournalHead, JournalHold
from busway.store.memory import MemoryDisk, MemoryStore
from busway.store.sqlite import SqliteStore
from tests.broker.test_journal_reader import Shelves
from tests.store.places import Owner
from tests.store.test_contract_journal import many

DEADLINE_S = 120.0


@pytest.fixture
def shelves(tmp_path: Path) -> Shelves:
    return Shelves(tmp_path)


@pytest.fixture
async def readers(shelves: Shelves, tmp_path: Path) -> AsyncIterator[JournalReaders]:
    made = JournalReaders({name: tmp_path / f"{name}.db" for name in shelves.owners})
    yield made
    await made.close()
    for owner in shelves.owners.values():
        owner.store.close()


async def table(stream: AsyncIterator[bytes]) -> pa.Table:
    return pa.ipc.open_stream(b"".join([piece async for piece in stream])).read_all()


async def test_questions_are_answered_by_a_process_of_its_own(
    shelves: Shelves, readers: JournalReaders
) -> None:
    shelves.write(0, 5)
    shelves.write(1, 2)
    shelves.owner(0).commit(holds=[JournalHold(1, "lake", 4, 9_000)])
    heads = await readers.heads(shelves.queue)
    assert [each.head.next_offset for each in heads] == [5, 2, 0]
    assert await readers.at(shelves.queue, 1_003) == {0: 3, 1: 2, 2: 0}
    assert await readers.plan(shelves.queue, {0: 1}, rows=100) == {0: 5, 1: 2, 2: 0}
    assert [hold.offset for _, hold in (await readers.holds(shelves.queue))["lake"]] == [4]


async def test_a_range_as_an_arrow_stream(shelves: Shelves, readers: JournalReaders) -> None:
    shelves.write(0, 2_300)
    read = await table(readers.stream(shelves.queue, 0, 100, 2_200))
    assert read.schema == arrow_schema(COLUMNS)
    assert read["journal_offset"].to_pylist() == list(range(100, 2_200))
    assert read["body"].to_pylist()[0] == b"0-100"
    few = await table(readers.stream(shelves.queue, 0, 0, 10, ["event", "journal_offset"]))
    assert few.schema == arrow_schema(columns_named(["event", "journal_offset"]))
    none = await table(readers.stream(shelves.queue, 0, 7, 7, ["event"]))
    assert none.num_rows == 0


async def test_what_goes_wrong_there_is_raised_here(
    shelves: Shelves, readers: JournalReaders
) -> None:
    shelves.write(0, 10)
    shelves.trim(0, 4, 10)
    with pytest.raises(JournalGapError) as gap:
        await table(readers.stream(shelves.queue, 0, 0, 10))
    assert (gap.value.asked, gap.value.earliest) == (0, 4)
    with pytest.raises(EpochDiffersError):
        await readers.plan(shelves.queue, {}, epoch="1-1")
    with pytest.raises(KeyError, match="no_such"):
        await table(readers.stream(shelves.queue, 0, 4, 10, ["no_such"]))


async def test_many_readers_share_the_workers(shelves: Shelves, readers: JournalReaders) -> None:
    shelves.write(0, 3_000)
    read = await asyncio.gather(
        *(table(readers.stream(shelves.queue, 0, 0, 3_000, ["body"])) for _ in range(4))
    )
    assert [each.num_rows for each in read] == [3_000] * 4


async def test_a_worker_that_dies_is_replaced(shelves: Shelves, readers: JournalReaders) -> None:
    shelves.write(0, 5)
    await readers.heads(shelves.queue)
    (worker,) = readers.workers.running
    worker.kill()
    await worker.wait()
    assert (await readers.heads(shelves.queue))[0].head.next_offset == 5


async def test_a_worker_that_dies_with_a_question_is_told_of(
    shelves: Shelves, readers: JournalReaders
) -> None:
    await readers.heads(shelves.queue)
    (worker,) = readers.workers.running
    os.kill(worker.pid, signal.SIGSTOP)  # it takes the question and does not answer
    asked = asyncio.create_task(readers.heads(shelves.queue))
    await asyncio.sleep(0)
    worker.kill()
    with pytest.raises(StoreUnavailable, match="ask again"):
        await asked
    assert len(await readers.heads(shelves.queue)) == 3


async def test_who_gives_up_in_the_middle_gets_nobody_elses_answer(
    shelves: Shelves, readers: JournalReaders
) -> None:
    shelves.write(0, 5)
    await readers.heads(shelves.queue)
    (worker,) = readers.workers.running
    os.kill(worker.pid, signal.SIGSTOP)
    asked = asyncio.create_task(readers.at(shelves.queue, 0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert (await readers.heads(shelves.queue))[0].head.next_offset == 5


def stop(readers: JournalReaders) -> int:
    """Make the only worker take its next question and not answer; its process."""
    (worker,) = readers.workers.running
    os.kill(worker.pid, signal.SIGSTOP)
    return worker.pid


async def test_a_question_that_waits_starts_another_worker(
    shelves: Shelves, tmp_path: Path
) -> None:
    readers = JournalReaders({name: tmp_path / f"{name}.db" for name in "ab"}, Workers(most=2))
    await readers.heads(shelves.queue)
    pid = stop(readers)
    first = asyncio.create_task(readers.at(shelves.queue, 0))
    await asyncio.sleep(0)
    assert len(await readers.heads(shelves.queue)) == 3
    assert len(readers.workers.running) == 2
    assert not first.done()
    os.kill(pid, signal.SIGCONT)
    assert await first == {0: 0, 1: 0, 2: 0}
    await readers.close()


async def test_there_are_never_more_workers_than_allowed(shelves: Shelves, tmp_path: Path) -> None:
    readers = JournalReaders({name: tmp_path / f"{name}.db" for name in "ab"}, Workers(most=1))
    await readers.heads(shelves.queue)
    pid = stop(readers)
    asked = [asyncio.create_task(readers.heads(shelves.queue)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(readers.workers.running) == 1
    os.kill(pid, signal.SIGCONT)
    assert [len(heads) for heads in await asyncio.gather(*asked)] == [3, 3, 3]
    assert [worker.pid for worker in readers.workers.running] == [pid]
    await readers.close()


async def test_a_short_question_does_not_wait_for_all_of_a_long_one(
    shelves: Shelves, tmp_path: Path
) -> None:
    """Readers take turns, batch by batch, however few workers there are."""
    shelves.write(0, 5_000)
    readers = JournalReaders({name: tmp_path / f"{name}.db" for name in "ab"}, Workers(most=1))
    finished: list[str] = []

    async def read(name: str, stop: int) -> None:
        await table(readers.stream(shelves.queue, 0, 0, stop, ["body"]))
        finished.append(name)

    await asyncio.gather(read("long", 5_000), read("short", 10))
    assert finished == ["short", "long"]
    await readers.close()


async def test_a_worker_that_has_nothing_to_do_is_ended(shelves: Shelves, tmp_path: Path) -> None:
    sources = {name: tmp_path / f"{name}.db" for name in "ab"}
    readers = JournalReaders(sources, Workers(idle_s=0.0))
    await readers.heads(shelves.queue)
    (worker,) = readers.workers.running
    await asyncio.wait_for(worker.wait(), DEADLINE_S)
    assert readers.workers.running == []
    assert len(await readers.heads(shelves.queue)) == 3
    await readers.close()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="a system without such a class")
async def test_workers_run_when_nobody_else_wants_to(
    shelves: Shelves, readers: JournalReaders
) -> None:
    await readers.heads(shelves.queue)
    (worker,) = readers.workers.running
    assert os.sched_getscheduler(worker.pid) == os.SCHED_IDLE
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == 19
    assert os.getsid(worker.pid) == os.getsid(0)
    assert os.getpgid(worker.pid) == worker.pid  # a Ctrl-C is not for it


async def test_a_large_batch_comes_in_small_chunks(
    shelves: Shelves, readers: JournalReaders
) -> None:
    shelves.write(0, 1_000, bare=b"\x00\x53\x75\xb0\x00\x00\x10\x00" + bytes(4_096))
    chunks = [chunk async for chunk in readers.stream(shelves.queue, 0, 0, 1_000)]
    assert sum(map(len, chunks)) > 4_096_000
    assert max(map(len, chunks)) <= CHUNK_BYTES


async def test_who_leaves_a_stream_in_the_middle_costs_no_worker(
    shelves: Shelves, readers: JournalReaders
) -> None:
    shelves.write(0, 5_000)
    async with aclosing(readers.stream(shelves.queue, 0, 0, 5_000)) as chunks:
        await anext(chunks)
    (worker,) = readers.workers.running
    assert len(await readers.heads(shelves.queue)) == 3
    assert worker.is_running


async def test_after_closing_nothing_is_asked(shelves: Shelves, readers: JournalReaders) -> None:
    await readers.heads(shelves.queue)
    await readers.close()
    with pytest.raises(StoreUnavailable, match="stopped"):
        await readers.heads(shelves.queue)


async def test_a_store_in_memory_is_read_in_a_thread() -> None:
    store = MemoryStore(MemoryDisk())
    owner = Owner(store)
    key = SubQueueKey(7, 0, SubQueueKind.MAIN)
    owner.commit(sub_queues=[(1, key)], counters={1: Counters()})
    owner.commit(journal=many(5), journal_heads={1: _head(5)})
    readers = JournalReaders({"m": store.journal_handle()})
    queue = Queue(path="orders", incarnation=7, placement=("m",), capture=True)
    read = await table(readers.stream(queue, 0, 0, 5, ["event"]))
    assert read["event"].to_pylist() == ["completed"] * 5
    assert readers.workers.running == []
    await readers.close()


def _head(count: int) -> JournalHead:
    return JournalHead(0, count, count * 64, 1_000, 1_000 + count)


PARENT = """
import asyncio, sys, os
from pathlib import Path
from busway.model.entities import Queue
from busway.runtime.journal_readers import CHUNK_BYTES, JournalReaders
from busway.runtime.journal_workers import Workers
async def main():
    readers = JournalReaders({"a": Path(sys.argv[1])})
    await readers.heads(Queue(path="q", incarnation=1, placement=("a",)))
    print(readers.workers.running[0].pid, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""


def test_a_worker_does_not_outlive_a_broker_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, create=True)
    store.open()
    store.close()
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, str(path)], capture_output=True, text=True, check=False
    )
    assert parent.returncode == -9, parent.stderr
    wait_until(lambda: not _is_running(int(parent.stdout)))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
