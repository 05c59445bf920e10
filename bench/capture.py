"""What a journal costs: CPU of the broker per message, captured and not, and sends beside a scan.

    python bench/capture.py [--count N] [--rounds N] [--before PYTHON] [--scan EVENTS]

Needs `amqpload` (make -C bench). `--before` is the Python of another tree's environment, to compare
with a version that has no journals. Variants alternate within each round, and CPU is that of the
broker's own process (all of its threads): what else runs on the machine is not in it. `--scan`
fills a journal with so many events and measures sends at a fixed rate without a reader, and then
while the whole journal is read again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KEY = "a-key-for-the-bench-only"
TICKS = os.sysconf("SC_CLK_TCK")
SCANNED_COLUMNS = None
"""All of them, bodies decoded."""


@dataclass(frozen=True)
class Variant:
    name: str
    python: str
    capture: bool | None
    """None: a version that does not know the word."""


class Broker:
    def __init__(self, variant: Variant, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.data = folder / "data"
        config = folder / "entities.toml"
        lines = ["[[queues]]", 'name = "bench"', "max_size_mb = 5120"]
        if variant.capture is not None:
            lines.append(f"capture = {str(variant.capture).lower()}")
        config.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [variant.python, "-m", "busway", "serve", "--port", str(self.port)]
            + ["--data", str(self.data), "--config", str(config), "--key", KEY]
            + ["--log-level", "warning"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        while not self.process.stdout.readline().startswith("ready"):
            assert self.process.poll() is None, "the broker did not start"

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def load(self, amqpload: Path, mode: str, *more: str) -> dict[str, object]:
        command = [str(amqpload), mode, "--port", str(self.port), "--address", "bench"]
        command += ["--size", "1024", "--cbs-key-name", "RootManageSharedAccessKey"]
        done = subprocess.run(
            [*command, "--cbs-key", KEY, *more], capture_output=True, text=True, check=True
        )
        outcome: dict[str, object] = json.loads(done.stdout)
        return outcome

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@contextmanager
def broker(variant: Variant) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(dir=HERE / "run") as folder:
        made = Broker(variant, Path(folder))
        try:
            yield made
        finally:
            made.stop()


def one_round(variant: Variant, amqpload: Path, count: int) -> tuple[float, float]:
    """CPU in microseconds per message: to send, and to receive and settle."""
    with broker(variant) as made:
        made.load(amqpload, "send", "--count", str(count // 10), "--window", "500")
        made.load(amqpload, "receive", "--count", str(count // 10), "--settle", "second")
        start = made.cpu_s()
        made.load(amqpload, "send", "--count", str(count), "--window", "500")
        sent = made.cpu_s()
        made.load(amqpload, "receive", "--count", str(count), "--settle", "second")
        received = made.cpu_s()
    return (sent - start) / count * 1e6, (received - sent) / count * 1e6


def compare(variants: list[Variant], amqpload: Path, count: int, rounds: int) -> None:
    costs: dict[Variant, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            costs[variant].append(one_round(variant, amqpload, count))
    print("| broker | send, CPU us/message | ratio | receive and settle | ratio |")
    print("|---|---|---|---|---|")
    first = [statistics.median(column) for column in zip(*costs[variants[0]], strict=True)]
    for variant, found in costs.items():
        send, receive = (statistics.median(column) for column in zip(*found, strict=True))
        low, high = min(each[0] for each in found), max(each[0] for each in found)
        print(
            f"| {variant.name} | {send:.1f} ({low:.1f} to {high:.1f}) | {send / first[0]:.2f}"
            f" | {receive:.1f} | {receive / first[1]:.2f} |"
        )


# --- sends beside a scan -------------------------------------------------------------------------


def beside_a_scan(variant: Variant, amqpload: Path, events: int, rate: int) -> None:
    from busway.runtime.journal_readers import JournalReaders

    with broker(variant) as made:
        count = events // 2
        made.load(amqpload, "send", "--count", str(count), "--window", "500", "--connections", "4")
        made.load(amqpload, "receive", "--count", str(count), "--settle", "second")
        queue = queue_of(made.data)
        sources = {store_id: made.data / name for store_id, name in store_files(made.data).items()}

        async def scanned(probe: subprocess.Popen[str]) -> tuple[int, float]:
            readers = JournalReaders(sources)
            rows, began = 0, time.perf_counter()
            while probe.poll() is None:
                (head,) = await readers.heads(queue)
                stream = readers.stream(queue, 0, 0, head.head.next_offset, SCANNED_COLUMNS)
                async for _ in stream:
                    if probe.poll() is not None:
                        break
                else:
                    rows += head.head.next_offset
            seconds = time.perf_counter() - began
            await readers.close()
            return rows, seconds

        for name in ("without a reader", "beside a scan", "without a reader", "beside a scan"):
            command = [str(amqpload), "send", "--port", str(made.port), "--address", "bench"]
            command += ["--size", "1024", "--rate", str(rate), "--duration", "8"]
            command += ["--cbs-key-name", "RootManageSharedAccessKey", "--cbs-key", KEY]
            probe = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            if name == "beside a scan":
                rows, seconds = asyncio.run(scanned(probe))
                name += f" (whole scans of {rows:,} rows in {seconds:.1f} s)"
            outcome = json.loads(probe.communicate()[0])
            print(f"{name}: ack_us {outcome['send']['ack_us']}", flush=True)


def queue_of(data: Path):  # type: ignore[no-untyped-def]
    import sqlite3

    from busway.cluster.catalog_rows import entity_of_row

    catalog = sqlite3.connect(f"file:{data / 'catalog.db'}?mode=ro", uri=True)
    row = catalog.execute(
        "SELECT kind, path, incarnation, version, description FROM entities"
    ).fetchone()
    return entity_of_row(*row)


def store_files(data: Path) -> dict[str, str]:
    import sqlite3

    found = {}
    for path in data.rglob("*.db"):
        if path.name != "catalog.db":
            store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            (store_id,) = store.execute("SELECT store_id FROM store").fetchone()
            found[store_id] = str(path.relative_to(data))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--amqpload", type=Path, default=HERE / "amqpload")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", help="the Python of a tree without journals")
    parser.add_argument("--scan", type=int, metavar="EVENTS", help="measure sends beside a scan")
    parser.add_argument("--rate", type=int, default=500, help="of those sends, per second")
    arguments = parser.parse_args()
    (HERE / "run").mkdir(exist_ok=True)
    on = Variant("captured", sys.executable, True)
    if arguments.scan:
        beside_a_scan(on, arguments.amqpload, arguments.scan, arguments.rate)
        return
    variants = [Variant("not captured", sys.executable, False), on]
    if arguments.before:
        variants.insert(0, Variant("before", arguments.before, None))
    compare(variants, arguments.amqpload, arguments.count, arguments.rounds)


if __name__ == "__main__":
    main()
