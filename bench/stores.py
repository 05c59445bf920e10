"""How fast SQLite stores are on this machine, and how many of them a node should have.

    python bench/stores.py [--directory DIR] [--rows N]

Prints two tables in Markdown. CPU is that of the calling thread, so what other programs take is not
in it; rows/s and milliseconds are by the wall clock and suffer from everything else that runs.
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

from busway.model.message import Message, sequence_number
from busway.store.base import Batch, Counters, Delete, SubQueueKey, SubQueueKind
from busway.store.sqlite import SqliteStore

BODY = os.urandom(1024)
SUB_QUEUES = 16
BATCH_SIZES = (1, 16, 64, 256, 1024)
STORE_COUNTS = (1, 2, 4, 8)


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
        return self.batch(deletes=deletes, counters=put.counters)


def measure(call: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> Cost:
    wall, cpu = time.perf_counter(), time.thread_time()
    for each in arguments:
        call(*each)
    return Cost(time.perf_counter() - wall, time.thread_time() - cpu)


def one_store(directory: Path, rows: int) -> Iterator[str]:
    yield "| rows per batch | put rows/s | ms/commit | CPU us/row | delete rows/s | CPU us/row |"
    yield "|---|---|---|---|---|---|"
    for size in BATCH_SIZES:
        bench = Bench(directory / f"one-{size}.db")
        count = max(20, min(500, rows // size))
        puts = [bench.put_batch(size) for _ in range(count)]
        put = measure(bench.store.commit, [(batch,) for batch in puts])
        deletes = [bench.delete_batch(batch) for batch in puts]
        delete = measure(bench.store.commit, [(batch,) for batch in deletes])
        bench.store.close()
        total = count * size
        yield (
            f"| {size} | {total / put.wall_s:,.0f} | {put.wall_s / count * 1e3:.2f}"
            f" | {put.cpu_s / total * 1e6:.1f} | {total / delete.wall_s:,.0f}"
            f" | {delete.cpu_s / total * 1e6:.1f} |"
        )


def page_reads(directory: Path, rows: int) -> Iterator[str]:
    bench = Bench(directory / "pages.db")
    for _ in range(rows // 1024):
        bench.store.commit(bench.put_batch(1024))
    yield "| rows per page | read rows/s | CPU us/row |"
    yield "|---|---|---|"
    for size in (1, 16, 64, 256, 1000):

        def read(slot: int, after_number: int, size: int = size) -> None:
            bench.store.read_page(slot, after_number, rows=size)

        pages = bench.counters[0] // size
        count = min(2_000, pages * SUB_QUEUES)
        starts = [(i % SUB_QUEUES, i // SUB_QUEUES % pages * size) for i in range(count)]
        cost = measure(read, [(slot, sequence_number(slot, after)) for slot, after in starts])
        total = count * size
        yield f"| {size} | {total / cost.wall_s:,.0f} | {cost.cpu_s / total * 1e6:.1f} |"
    bench.store.close()


def parallel_stores(directory: Path, rows: int) -> Iterator[str]:
    yield "| stores | rows per batch and store | total rows/s | ms/commit p50 | p99 |"
    yield "|---|---|---|---|---|"
    for size in (16, 64, 256):
        for stores in STORE_COUNTS:
            yield parallel(directory, stores, size, rows)
    for stores in STORE_COUNTS:  # the same load, divided
        yield parallel(directory, stores, 256 // stores, rows)


def parallel(directory: Path, stores: int, size: int, rows: int) -> str:
    benches = [Bench(Path(tempfile.mkdtemp(dir=directory)) / "store.db") for _ in range(stores)]
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
    p99 = statistics.quantiles(latencies, n=100)[98]
    return (
        f"| {stores} | {size} | {stores * count * size / seconds:,.0f}"
        f" | {statistics.median(latencies) * 1e3:.2f} | {p99 * 1e3:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("bench/run"))
    parser.add_argument("--rows", type=int, default=30_000)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        for table in (one_store, page_reads, parallel_stores):
            for line in table(Path(directory), arguments.rows):
                print(line, flush=True)
            print()


if __name__ == "__main__":
    main()
