"""What a journal costs: CPU of the broker per message, captured and not, and sends beside a scan.

    python bench/capture.py [--count N] [--rounds N] [--before PYTHON] [--scan EVENTS]

Needs `amqpload` (make -C bench). `--before` is the Python of another tree's environment, to compare
with a version that has no journals. Variants alternate within each round, and CPU is that of the
broker's own process (all of its threads): what else runs on the machine is not in it. `--scan`
fills a journal with so many events and measures sends at a fixed rate, in turns without a reader
and while readers get the whole journal over HTTP again and again; medians of the turns count.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import resource
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
from typing import Any

from busway.remote.connection import Credentials
from busway.remote.connection import read as read_connection
from busway.runtime.background import go_last, step_back

HERE = Path(__file__).parent
KEY = "a-key-for-the-bench-only"
TICKS = os.sysconf("SC_CLK_TCK")
SCANNED_ROWS = 20_000
"""In one request of a reader."""


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
        return cpu_of(self.process.pid)

    def workers_cpu_s(self) -> float:
        """Of the processes that it has started to read journals."""
        pid = self.process.pid
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        return sum(cpu_of(int(child)) for task in tasks for child in task.read_text().split())

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

QUANTILES = ("p50", "p99", "p999")
EVENTS_OF_A_MESSAGE = 3
"""Enqueued, delivered, completed."""


@dataclass(frozen=True)
class Measured:
    ack_us: dict[str, float]
    rows: int
    """That readers got meanwhile."""
    seconds: float
    broker_cores: float
    workers_cores: float
    others_share: float
    """Of the machine, for what is no part of this."""


def beside_a_scan(
    variant: Variant, amqpload: Path, events: int, rate: int, pairs: int, readers: int, seconds: int
) -> None:
    with broker(variant) as made:
        count = str(events // EVENTS_OF_A_MESSAGE)
        made.load(amqpload, "send", "--count", count, "--window", "500", "--connections", "4")
        made.load(amqpload, "receive", "--count", count, "--settle", "second")
        command = [str(amqpload), "send", "--port", str(made.port), "--address", "bench"]
        command += ["--size", "1024", "--rate", str(rate), "--duration", str(seconds)]
        command += ["--cbs-key-name", "RootManageSharedAccessKey", "--cbs-key", KEY]
        found: dict[str, list[Measured]] = {"without a reader": [], "beside a scan": []}
        print(
            "| pair | case | p50 ms | p99 | p99.9 | rows/s read | broker cores | workers | others |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        one_measurement(made, command, readers)  # starts workers, warms caches
        for pair in range(pairs):
            # Whichever is first in a pair is second in the next: drift hits both alike.
            for name in list(found)[:: 1 if pair % 2 == 0 else -1]:
                scanning = readers if name == "beside a scan" else 0
                measured = one_measurement(made, command, scanning)
                found[name].append(measured)
                print(f"| {pair + 1} | {name} | {described(measured)} |", flush=True)
    for name, each in found.items():
        medians = {
            quantile: statistics.median(one.ack_us[quantile] for one in each)
            for quantile in QUANTILES
        }
        others = statistics.median(one.others_share for one in each)
        shown = " | ".join(f"{medians[quantile] / 1e3:.2f}" for quantile in QUANTILES)
        rows = statistics.median(one.rows / one.seconds for one in each)
        print(f"| median | {name} | {shown} | {rows:,.0f} | | | {others:.0%} |")


def described(measured: Measured) -> str:
    cells = [f"{measured.ack_us[quantile] / 1e3:.2f}" for quantile in QUANTILES]
    cells.append(f"{measured.rows / measured.seconds:,.0f}")
    cells += [f"{measured.broker_cores:.2f}", f"{measured.workers_cores:.2f}"]
    return " | ".join([*cells, f"{measured.others_share:.0%}"])


def one_measurement(made: Broker, command: list[str], readers: int) -> Measured:
    spawn = multiprocessing.get_context("spawn")
    over, rows = spawn.Event(), spawn.Value("q", 0)
    token = credentials(made.port).pass_for("bench").token
    reading = [
        spawn.Process(target=scan, args=(made.port, token, over, rows)) for _ in range(readers)
    ]
    for reader in reading:
        reader.start()
    while reading and not rows.value:
        time.sleep(0.01)
    rows_before, machine, began = rows.value, machine_cpu_s(), time.perf_counter()
    broker_s, workers_s = made.cpu_s(), made.workers_cpu_s()
    own_s = sum(cpu_of(reader.pid) for reader in reading)
    children_s = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    outcome = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    seconds, got = time.perf_counter() - began, rows.value - rows_before
    broker_s, workers_s = made.cpu_s() - broker_s, made.workers_cpu_s() - workers_s
    own_s = sum(cpu_of(reader.pid) for reader in reading) - own_s + broker_s + workers_s
    own_s += sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - children_s
    others_s = machine_cpu_s() - machine - own_s
    over.set()
    for reader in reading:
        reader.join()
    return Measured(
        outcome["send"]["ack_us"],
        got,
        seconds,
        broker_s / seconds,
        workers_s / seconds,
        max(0.0, others_s) / seconds / (os.cpu_count() or 1),
    )


def scan(port: int, token: str, over: Any, rows: Any) -> None:
    """A reader: all columns of all there is, again and again, as a broker serves them over HTTP. It
    stands for one on another machine, so it is content with what is left of this one."""
    step_back()
    go_last()
    buffer = bytearray(1 << 20)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {"Authorization": token}
    while not over.is_set():
        connection.request("GET", "/bench/$journal", headers=headers)
        (head,) = json.loads(connection.getresponse().read())["partitions"]
        first = head["earliest"]
        while first < head["next"] and not over.is_set():
            stop = min(first + SCANNED_ROWS, head["next"])
            path = f"/bench/$journal/read?partition=0&from={first}&to={stop}"
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            while reply.readinto(buffer):
                pass
            with rows.get_lock():
                rows.value += stop - first
            first = stop


def credentials(port: int) -> Credentials:
    return read_connection(
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
        f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
    )


def cpu_of(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def machine_cpu_s() -> float:
    """What all cores have worked."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--amqpload", type=Path, default=HERE / "amqpload")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", help="the Python of a tree without journals")
    parser.add_argument("--scan", type=int, metavar="EVENTS", help="measure sends beside a scan")
    parser.add_argument("--rate", type=int, default=500, help="of those sends, per second")
    parser.add_argument("--pairs", type=int, default=5, help="of measurements, with --scan")
    parser.add_argument("--readers", type=int, default=os.cpu_count(), help="of a scan")
    parser.add_argument("--seconds", type=int, default=8, help="of a measurement, with --scan")
    arguments = parser.parse_args()
    (HERE / "run").mkdir(exist_ok=True)
    on = Variant("captured", sys.executable, True)
    if arguments.scan:
        beside_a_scan(
            on,
            arguments.amqpload,
            arguments.scan,
            arguments.rate,
            arguments.pairs,
            arguments.readers,
            arguments.seconds,
        )
        return
    variants = [Variant("not captured", sys.executable, False), on]
    if arguments.before:
        variants.insert(0, Variant("before", arguments.before, None))
    compare(variants, arguments.amqpload, arguments.count, arguments.rounds)


if __name__ == "__main__":
    main()
