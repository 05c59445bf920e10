"""How fast SQLite stores are on this machine, and how many of them a node should have.

    python bench/stores.py [--directory DIR] [--rows N] [--rounds N]

Prints five tables in Markdown. CPU is that of the calling thread with its part of the kernel: what
other programs take is not in it. Rows/s and milliseconds are by the wall clock and suffer from all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from busway.model.message import Message, MessageState, sequence_number
from busway.store.base import (
    Batch,
    Counters,
    Delete,
    DuplicateMark,
    SessionCount,
    SubQueueKey,
    SubQueueKind,
    Update,
)
from busway.store.sqlite import SqliteStore

BODY = os.urandom(1024)
SUB_QUEUES = 16
BATCH_SIZES = (1, 16, 64, 256, 1024)
PAGE_SIZES = (1, 16, 64, 256, 1000)
STORE_COUNTS = (1, 2, 4, 8)
KINDS = ("plain", "expiring", "session", "scheduled", "detected", "shared by 4")
KIND_ROWS = 256
WAITING_COUNTS = (0, 1_000, 100_000)


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    """Of the calling thread only."""


class Bench:
    """One store, with batches made before the clock runs."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path, create=True)
        self.number = self.store.open().commit_number + 1
        self.counters = [0] * SUB_QUEUES
        keys = [(slot, SubQueueKey(1, slot, SubQueueKind.MAIN)) for slot in range(SUB_QUEUES)]
        self.store.commit(self.batch(sub_queues=keys))

    def batch(self, **content: object) -> Batch:
        batch = Batch(self.number, **content)  # type: ignore[arg-type]
        self.number += 1
        return batch

    def put_batch(self, size: int) -> Batch:
        puts = []
        for index in range(size):
            slot = index % SUB_QUEUES
            self.counters[slot] += 1
            number = sequence_number(slot, self.counters[slot])
            puts.append((slot, Message(bare=BODY, size=1100, number=number, enqueued_ms=1 << 40)))
        used = {slot: Counters(self.counters[slot] + 1) for slot in range(min(size, SUB_QUEUES))}
        return self.batch(puts=puts, counters=used)

    def delete_batch(self, put: Batch) -> Batch:
        deletes = [Delete(slot, message.number) for slot, message in put.puts]
        ended = [count._replace(active=0) for count in put.session_counts]
        return self.batch(deletes=deletes, session_counts=ended, counters=put.counters)


def measure(call: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> Cost:
    wall, cpu = time.perf_counter(), time.thread_time()
    for each in arguments:
        call(*each)
    return Cost(time.perf_counter() - wall, time.thread_time() - cpu)


def one_store(directory: Path, rows: int, rounds: int) -> Iterator[str]:
    yield "| rows per batch | put rows/s | ms/commit | CPU us/row | delete rows/s | CPU us/row |"
    yield "|---|---|---|---|---|---|"
    for size in BATCH_SIZES:
        count = max(20, min(500, rows // size))
        total = count * size
        costs = [put_and_delete(directory, size, count) for _ in range(rounds)]
        put_s, put_cpu_s, delete_s, delete_cpu_s = medians(costs)
        yield (
            f"| {size} | {total / put_s:,.0f} | {put_s / count * 1e3:.2f}"
            f" | {put_cpu_s / total * 1e6:.1f} | {total / delete_s:,.0f}"
            f" | {delete_cpu_s / total * 1e6:.1f} |"
        )


def put_and_delete(
    directory: Path, size: int, count: int, kind: str = "plain"
) -> tuple[float, ...]:
    bench = Bench(new_path(directory))
    puts = [of_kind(bench.put_batch(size), kind) for _ in range(count)]
    put = measure(bench.store.commit, [(batch,) for batch in puts])
    deletes = [bench.delete_batch(batch) for batch in puts]
    delete = measure(bench.store.commit, [(batch,) for batch in deletes])
    bench.store.close()
    return (*put, *delete)


def kinds(directory: Path, rows: int, rounds: int) -> Iterator[str]:
    """What a message costs by what is to be kept of it, in batches of one size."""
    yield f"| messages, {KIND_ROWS} per batch | put CPU us/row | delete CPU us/row |"
    yield "|---|---|---|"
    count = max(20, rows // KIND_ROWS)
    results: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):  # every kind in every round: a busy minute must not hit one of them
        for kind, costs in results.items():
            costs.append(put_and_delete(directory, KIND_ROWS, count, kind))
    for kind, costs in results.items():
        _, put_cpu_s, _, delete_cpu_s = medians(costs)
        total = count * KIND_ROWS
        yield f"| {kind} | {put_cpu_s / total * 1e6:.1f} | {delete_cpu_s / total * 1e6:.1f} |"


def of_kind(batch: Batch, kind: str) -> Batch:
    """The same puts, but with more to be kept of each."""
    messages = [message for _, message in batch.puts]
    if kind == "expiring":
        for message in messages:
            message.expires_ms = 2**41
    elif kind == "scheduled":
        for message in messages:
            message.state, message.expires_ms = MessageState.SCHEDULED, 2**41
    elif kind == "session":
        for index, message in enumerate(messages):
            message.session_id = f"session-{(batch.number * 37 + index * 7) % 1_000}"
        batch.session_counts = [
            SessionCount(slot, message.session_id or "", 1) for slot, message in batch.puts
        ]
    elif kind == "detected":
        batch.duplicates = [
            DuplicateMark(slot, os.urandom(16), 2**41 + batch.number) for slot, _ in batch.puts
        ]
    elif kind == "shared by 4":
        for index, message in enumerate(messages):
            message.body_id = batch.number << 20 | index // 4
        batch.bodies = [(message.body_id or 0, BODY) for message in messages[::4]]
    return batch


def active_behind_waiting(directory: Path, rows: int, rounds: int) -> Iterator[str]:
    """Pages of active messages that have many deferred ones in front of them."""
    yield "| deferred in front, in all | ms/page of 100 active | ms/page of 100 of all states |"
    yield "|---|---|---|"
    for waiting in WAITING_COUNTS:
        bench = Bench(new_path(directory))
        for _ in range(waiting // 1024):
            put = bench.put_batch(1024)
            bench.store.commit(put)
            deferred = [
                Update(slot, message.number, MessageState.DEFERRED, 0, None, None)
                for slot, message in put.puts
            ]
            bench.store.commit(bench.batch(updates=deferred))
        for _ in range(2):
            bench.store.commit(bench.put_batch(1024))
        every_slot = [(slot, 0) for slot in range(SUB_QUEUES)]

        def active(slot: int, after: int, store: SqliteStore = bench.store) -> None:
            assert len(store.read_page(slot, after, rows=100)) == 100

        def all_states(slot: int, after: int, store: SqliteStore = bench.store) -> None:
            assert len(store.read_page(slot, after, state=None, rows=100)) == 100

        (active_s,) = medians([measure(active, every_slot)[1:] for _ in range(rounds)])
        (all_s,) = medians([measure(all_states, every_slot)[1:] for _ in range(rounds)])
        per_page = 1e3 / SUB_QUEUES
        yield f"| {waiting:,} | {active_s * per_page:.2f} | {all_s * per_page:.2f} |"
        bench.store.close()


def page_reads(directory: Path, rows: int, rounds: int) -> Iterator[str]:
    bench = Bench(new_path(directory))
    for _ in range(rows // 1024):
        bench.store.commit(bench.put_batch(1024))
    yield "| rows per page | read rows/s | CPU us/row |"
    yield "|---|---|---|"
    for size in PAGE_SIZES:

        def read(slot: int, after_number: int, size: int = size) -> None:
            bench.store.read_page(slot, after_number, rows=size)

        pages = bench.counters[0] // size
        count = min(2_000, pages * SUB_QUEUES)
        total = count * size
        starts = [(i % SUB_QUEUES, i // SUB_QUEUES % pages * size) for i in range(count)]
        arguments = [(slot, sequence_number(slot, after)) for slot, after in starts]
        wall_s, cpu_s = medians([measure(read, arguments) for _ in range(rounds)])
        yield f"| {size} | {total / wall_s:,.0f} | {cpu_s / total * 1e6:.1f} |"
    bench.store.close()


def parallel_stores(directory: Path, rows: int, rounds: int) -> Iterator[str]:
    """Stores that commit at the same time, with batches of one size, then with one load divided."""
    loads = [(stores, size) for size in (16, 64, 256) for stores in STORE_COUNTS]
    loads += [(stores, 256 // stores) for stores in STORE_COUNTS[1:]]
    results: dict[tuple[int, int], list[tuple[float, ...]]] = {load: [] for load in loads}
    for _ in range(rounds):  # every load in every round: a busy minute must not hit one of them
        for load in loads:
            results[load].append(commit_together(directory, *load, rows))
    yield "| stores | rows per batch and store | total rows/s | from | to | ms/commit p50 | p99 |"
    yield "|---|---|---|---|---|---|---|"
    for (stores, size), measured in results.items():
        rows_per_s, p50_s, p99_s = medians(measured)
        slowest, *_, fastest = sorted(result[0] for result in measured)
        yield (
            f"| {stores} | {size} | {rows_per_s:,.0f} | {slowest:,.0f} | {fastest:,.0f}"
            f" | {p50_s * 1e3:.2f} | {p99_s * 1e3:.2f} |"
        )


def commit_together(directory: Path, stores: int, size: int, rows: int) -> tuple[float, ...]:
    """Rows per second of all stores, median and 99th percentile of a commit's seconds."""
    benches = [Bench(new_path(directory)) for _ in range(stores)]
    count = max(20, min(300, rows // size // stores))
    batches = [[bench.put_batch(size) for _ in range(count)] for bench in benches]
    latencies: list[float] = []
    start = threading.Barrier(stores + 1)

    def work(bench: Bench, mine: list[Batch]) -> None:
        start.wait()
        for batch in mine:
            begin = time.perf_counter()
            bench.store.commit(batch)
            latencies.append(time.perf_counter() - begin)

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(benches, batches, strict=True)
    ]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    for bench in benches:
        bench.store.close()
    p99_s = statistics.quantiles(latencies, n=100)[98]
    return stores * count * size / seconds, statistics.median(latencies), p99_s


def medians(results: Sequence[tuple[float, ...]]) -> list[float]:
    return [statistics.median(column) for column in zip(*results, strict=True)]


def new_path(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=directory)) / "store.db"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("bench/run"))
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=7, help="figures are medians of so many")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for table in (one_store, kinds, page_reads, active_behind_waiting, parallel_stores):
            for line in table(Path(directory), arguments.rows, arguments.rounds):
                print(line, flush=True)
            print()


if __name__ == "__main__":
    main()
