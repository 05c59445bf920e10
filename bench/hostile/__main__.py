"""How long one hostile client makes the others wait, and what it makes the broker keep.

    make hostile                                   every attack, a table
    make hostile ARGS="all_credit ranges"          some of them
    make hostile ARGS="--list"

Each attack has a broker of its own (two SQLite stores, TLS) and runs in a process of its own for `--seconds`, while two
polite clients work: a canary that sends and receives a message every few milliseconds, and one that connects, puts its
token and sends a message, anew each time. Memory is the resident set of the broker, read from /proc: before the attack,
at most, and when it is over and everybody has left. Exit status 1 if something is above its limit.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from hostile.attacks import ATTACKS, TOPIC_SUBSCRIPTIONS  # noqa: E402
from hostile.client import KEY  # noqa: E402

from busway.testing import Server  # noqa: E402

WAIT_LIMIT_MS = 250
MEMORY_LIMIT_MB = 150
MEMORY_LEFT_MB = 20
CALM_S = 10.0
"""How long memory may take to come back."""

CONFIG = "\n".join(
    [f'[[queues]]\nname = "{name}"' for name in ("canary", "arrivals", "deep", "empty")]
    + ['[[queues]]\nname = "sessions"\nrequires_session = true', '[[topics]]\nname = "wide"']
    + [f'[[topics.subscriptions]]\nname = "s{n}"' for n in range(TOPIC_SUBSCRIPTIONS)]
    + ['[[topics]]\nname = "patterns"']
    + [f'[[topics.subscriptions]]\nname = "s{n}"\n[[topics.subscriptions.rules]]\nname = "r"\n'
       f"sql_filter = \"p LIKE '%a%a%a%a%a%a%a%a%a%{n}%b'\"" for n in range(20)])


def rss_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Polite:
    """A client that behaves, in a process of its own."""

    def __init__(self, port: int, mode: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "hostile.canary", str(port), mode], cwd=HERE.parent,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.read(5) == "ready"

    def stop(self) -> dict:
        out, _ = self.process.communicate("\n", timeout=120)
        return json.loads(out)


def figures(waits: list, since: float, until: float) -> tuple[float, float]:
    """Worst and median milliseconds of those that were going on within this time."""
    found = [took * 1000 for began, took in waits if began + took >= since and began <= until]
    return (max(found), statistics.median(found)) if found else (float("nan"), float("nan"))


def run(name: str, seconds: float, log_folder: Path | None) -> dict:
    with tempfile.TemporaryDirectory(prefix="busway-hostile-") as folder:
        server = Server(config=CONFIG, data=Path(folder, "data"), arguments=["--key", KEY, "--tls"]).start()
        try:
            return measure(server, name, seconds, log_folder)
        finally:
            if server.is_running:
                server.kill()  # what is left to say to hostile clients does not matter
            server.close()


def measure(server: Server, name: str, seconds: float, log_folder: Path | None) -> dict:
    pid = server.pid
    attack = subprocess.Popen([sys.executable, "-m", "hostile.attacks", name, str(server.port), str(seconds)],
                              cwd=HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if attack.stdout.readline() != "ready\n":
        raise SystemExit(f"{name} could not be prepared")
    polite = [Polite(server.port, mode) for mode in ("messages", "connections")]
    time.sleep(1.5)
    before, peak, done = rss_mb(pid), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, rss_mb(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    since = time.time()
    attack.stdin.write("go\n")
    attack.stdin.flush()
    try:
        out, _ = attack.communicate(timeout=seconds + 30)
        sent = json.loads(out.splitlines()[-1])["sent"]
    except (subprocess.TimeoutExpired, IndexError, KeyError):
        attack.kill()
        attack.communicate()
        sent = -1
    time.sleep(1.0)
    until = time.time()
    messages, connections = [each.stop() for each in polite]
    after = rss_mb(pid)
    calm = time.time() + CALM_S
    while after > before + MEMORY_LEFT_MB and time.time() < calm:
        time.sleep(0.2)
        after = rss_mb(pid)
    done.set()
    watcher.join()
    if log_folder is not None:
        (log_folder / f"{name}.log").write_text(server.log)
    worst, median = figures(messages["waits"], since, until)
    new_worst, new_median = figures(connections["waits"], since, until)
    hung = server.log.count("does not answer")
    errors = messages["errors"] + connections["errors"]
    return dict(name=name, sent=sent, worst=worst, median=median, new_worst=new_worst, new_median=new_median,
                before=before, peak=peak, after=after, errors=errors, hung=hung)


def problems(row: dict) -> list[str]:
    found = []
    if max(row["worst"], row["new_worst"]) > WAIT_LIMIT_MS:
        found.append("wait")
    if row["peak"] - row["before"] > MEMORY_LIMIT_MB:
        found.append("memory")
    if row["after"] - row["before"] > MEMORY_LEFT_MB:
        found.append("memory kept")
    if row["errors"]:
        found.append(f"{len(row['errors'])} polite requests failed: {row['errors'][0][:80]}")
    if row["hung"]:
        found.append("a store was called hung")
    return found


HEAD = (f"{'attack':24}{'sent kB':>10}{'canary worst':>14}{'median':>8}{'new worst':>11}{'median':>8}"
        f"{'MB before':>11}{'most':>7}{'after':>7}  above its limit")


def line(row: dict) -> str:
    return (f"{row['name']:24}{row['sent'] / 1000:>10,.0f}{row['worst']:>11,.0f} ms{row['median']:>8,.1f}"
            f"{row['new_worst']:>11,.0f}{row['new_median']:>8,.0f}{row['before']:>11.0f}{row['peak']:>7.0f}"
            f"{row['after']:>7.0f}  {', '.join(problems(row))}")


def main() -> None:
    p = argparse.ArgumentParser(prog="hostile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="ATTACK", help="all of them by default")
    p.add_argument("--list", action="store_true", help="what there is")
    p.add_argument("--seconds", type=float, default=6.0, help="how long each attack lasts")
    p.add_argument("--logs", type=Path, help="keep the brokers' logs in this folder")
    a = p.parse_args()
    if a.list:
        for name, (text, _) in ATTACKS.items():
            print(f"{name:24}{text}")
        return
    unknown = [name for name in a.names if name not in ATTACKS]
    if unknown:
        raise SystemExit(f"no such attack: {', '.join(unknown)}; --list says what there is")
    if a.logs is not None:
        a.logs.mkdir(parents=True, exist_ok=True)
    print(HEAD, flush=True)
    rows = []
    for name in a.names or ATTACKS:
        rows.append(run(name, a.seconds, a.logs))
        print(line(rows[-1]), flush=True)
    bad = [row["name"] for row in rows if problems(row)]
    print(f"{len(rows)} attacks, {len(rows) - len(bad)} within all limits "
          f"(worst wait {WAIT_LIMIT_MS} ms, memory +{MEMORY_LIMIT_MB} MB at most, +{MEMORY_LEFT_MB} MB afterwards)")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
