#!/usr/bin/env python3
"""What a broker costs in memory and time: idle, with a million queued messages, after a restart, and drained.

    make -C bench && .venv/bin/python bench/memory.py

Start time is from spawn to the `ready` line. RSS is the process's own, read from /proc; `peak` is its VmHWM. Nothing is
received while the queue fills, so that all of it is queued; then the broker is restarted on the same data and drained.
"""
import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import peers

KEY = "a-key-for-the-bench-only"
LIMIT_MIB = 300


class Broker:
    def __init__(self, folder, partitioned):
        self.folder = folder
        self.port = peers.free_port()
        self.config = folder / "entities.toml"
        self.config.write_text(
            f'[[queues]]\nname = "bench"\npartitioned = {str(partitioned).lower()}\nmax_size_mb = 5120\n')
        self.process = None

    def start(self):
        """Seconds until it is ready."""
        began = time.monotonic()
        self.process = subprocess.Popen(
            [peers.python(), "-m", "busway", "serve", "--port", str(self.port), "--data", str(self.folder / "data"),
             "--config", str(self.config), "--key", KEY, "--log-level", "warning"], stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("ready"):
                return time.monotonic() - began
        sys.exit("the broker did not start")

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def status(self, name):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
        return 0.0

    def report(self, what, **more):
        figures = {"rss_mib": round(self.status("VmRSS"), 1), "peak_mib": round(self.status("VmHWM"), 1), **more}
        print(f"{what:30} " + "  ".join(f"{k} {v:,}" for k, v in figures.items()), flush=True)
        return figures

    def load(self, mode, count, size):
        """Run the generator, looking at the broker's memory from time to time."""
        command = [peers.AMQPLOAD, mode, "--port", str(self.port), "--address", "bench", "--count", str(count),
                   "--size", str(size), "--window", "500", "--credit", "500", "--connections", "2", "--timeout", "3600",
                   "--cbs-key-name", "RootManageSharedAccessKey", "--cbs-key", KEY]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as generator:
            result = json.loads(generator.stdout.read())
        if not result["ok"]:
            sys.exit(f"the load did not succeed: {result}")
        return round(result[mode]["msgs_per_s"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--count", type=int, default=1_000_000)
    p.add_argument("--size", type=int, default=1024)
    p.add_argument("--conventional", action="store_true", help="one partition instead of 16")
    p.add_argument("--steps", type=int, default=4, help="how often to look while the queue fills")
    p.add_argument("--workdir", default=str(peers.HERE / "run"), help="put it on the file system to measure")
    a = p.parse_args()
    folder = Path(a.workdir).resolve() / "memory"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    broker = Broker(folder, not a.conventional)
    try:
        broker.report("idle", start_s=round(broker.start(), 2))
        for step in range(a.steps):
            rate = broker.load("send", a.count // a.steps, a.size)
            queued = broker.report(f"{(step + 1) * a.count // a.steps:,} queued", msgs_per_s=rate)
        disk = sum(f.stat().st_size for f in (folder / "data").iterdir())
        began = time.monotonic()
        broker.stop()
        print(f"{'stopped':30} after_s {time.monotonic() - began:.2f}  disk_mib {disk / 2**20:,.0f}")
        broker.report("started again, all queued", start_s=round(broker.start(), 2))
        rate = broker.load("receive", a.count // a.steps * a.steps, a.size)
        broker.report("drained", msgs_per_s=rate)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    verdict = "below" if queued["peak_mib"] < LIMIT_MIB else "NOT below"
    print(f"with {a.count:,} messages of {a.size:,} bytes queued: peak {queued['peak_mib']:.0f} MiB, {verdict} {LIMIT_MIB}")
    sys.exit(0 if queued["peak_mib"] < LIMIT_MIB else 1)


if __name__ == "__main__":
    main()
