"""Kill Spark and the broker again and again while messages are captured, and count (P-47, D-31).

    python -m tests.pipeline.chaos --messages 1000000
    python -m tests.pipeline.chaos --messages 1000000 --s3 --store-cuts 3

Messages of 1 KiB go into a partitioned queue while a capture runs. Now and then, at a moment that a
seed picks, all processes of the capture are killed, or its JVM or the broker is, or the object
store is cut off for some seconds. A part of the messages is let
go just before each kill, so that it comes in the middle of traffic. In the end the table
`events` must have what the broker acknowledged: each message enqueued once, each journal without a
gap, no row twice. What was under way when a broker died is sent again; duplicate detection makes
that one message.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.pipeline.lake.lake import Lake, Table
from busway.pipeline.lake.tables import EVENTS
from busway.pipeline.wire.journal import Journal
from busway.remote import connection
from busway.remote.wire.sender import Sender
from busway.testing.server import Server
from tests.pipeline.jobs import Job, java_of, pipeline, wait_for
from tests.pipeline.object_stores import ObjectStore, environment, s3

QUEUE = "chaos"
BODY = bytes(range(256)) * 4
CONFIG = f"""
[journal]
max_size_mb = 8192

[[queues]]
name = "{QUEUE}"
enable_partitioning = true
requires_duplicate_detection = true
duplicate_detection_history_time_window = "1d"
max_size_in_megabytes = 5120
capture = true
"""
PATIENCE_S = 600.0
LATEST_KILL_S = 2.0
"""After the next part of the messages was let go."""
CUT_OFF_S = 5.0


class Traffic(threading.Thread):
    """Sends the messages, as many as are let go."""

    def __init__(self, server: Server, messages: int, steps: int) -> None:
        super().__init__(daemon=True)
        self._allowed = connection.read(server.connection_string).pass_for(QUEUE)
        self._messages = messages
        self._steps = steps
        self._let_go = threading.Semaphore(1)
        self.problem: BaseException | None = None
        self.acknowledged = 0
        self.seconds = 0.0

    def let_go(self) -> None:
        """The next part of them."""
        self._let_go.release()

    def run(self) -> None:
        sender = Sender(QUEUE, self._allowed, patience_s=PATIENCE_S)
        try:
            for message in self._in_parts():
                sender.send(message)
            self.acknowledged = sender.finish()
        except BaseException as problem:
            self.problem = problem
        finally:
            sender.close()

    def _in_parts(self) -> Iterator[bytes]:
        for step in range(self._steps):
            self._let_go.acquire()
            began = time.monotonic()
            first, last = (self._messages * each // self._steps for each in (step, step + 1))
            for number in range(first, last):
                yield encode_message(properties=Properties(message_id=f"m-{number}"), data=BODY)
            self.seconds += time.monotonic() - began

    def finished(self) -> bool:
        if self.problem is not None:
            raise self.problem
        return not self.is_alive()


def run(
    folder: Path, store: ObjectStore | None, messages: int, plan: list[str], seed: int
) -> list[str]:
    """What is wrong in the end; nothing, if all is well."""
    moments = random.Random(seed)
    moments.shuffle(plan)
    lake = str(folder / "lake") if store is None else store.lake
    table = Lake(lake).table(EVENTS.layout())
    began = time.monotonic()
    with Server(config=CONFIG, data=folder / "data") as server:

        def capture(*more: str) -> Job:
            command = pipeline("capture", "--entity", QUEUE, "--lake", lake, *more)
            return Job(folder / "capture.log", server, command)

        traffic = Traffic(server, messages, len(plan) + 1)
        traffic.start()
        job = capture()
        before = 0  # the table, still empty
        for number, victim in enumerate(plan, 1):
            # Looked at before a part of the messages is let go: each part makes a version.
            job.wait_for(lambda before=before: version_of(table) > before)  # type: ignore[misc]
            before = version_of(table)
            traffic.let_go()
            time.sleep(moments.uniform(0, LATEST_KILL_S))
            say(began, f"kill {number} of {len(plan)}: {victim}; the lake has {rows_of(table):,}")
            match victim:
                case "spark":
                    say(began, f"  {job.kill()} processes")
                    job = capture()
                case "jvm":
                    os.kill(java_of(job), signal.SIGKILL)
                    job.ended(1)  # it says so, and is started again
                    job = capture()
                case "store":
                    assert store is not None
                    store.door.shut()
                    time.sleep(CUT_OFF_S)
                    store.door.reopen()
                case _:
                    server.kill()
                    server.restart()
        wait_for(traffic.finished)
        say(began, f"acknowledged {traffic.acknowledged:,} in {traffic.seconds:.0f} s of sending")
        with Journal(QUEUE, connection.read(server.connection_string).pass_for(QUEUE)) as journal:
            ends = journal.heads().latest.next
        job.wait_for(lambda: rows_of(table) >= sum(ends.values()))
        say(began, "the lake has all of it")
        job.interrupt()
        job.ended()
        captured = capture("--once", "--json").summary()["entities"][QUEUE]
        say(began, f"a last run: {captured}")
    found = check(table, traffic.acknowledged, messages, ends)
    versions, files = version_of(table), len(table.delta().file_uris())
    say(began, f"{rows_of(table):,} rows in {versions} versions and {files} files")
    return found


def check(table: Table, acknowledged: int, messages: int, ends: Mapping[int, int]) -> list[str]:
    columns = ["partition", "journal_offset", "event", "message_id", "body_size"]
    rows = table.delta().to_pyarrow_table(columns=columns)
    wrong: list[str] = []
    if acknowledged < messages:
        wrong.append(f"{acknowledged:,} of {messages:,} messages were acknowledged")
    for partition, end in ends.items():
        of_it = rows.filter(pc.equal(rows["partition"], partition))
        offsets = of_it["journal_offset"].combine_chunks().sort()
        if not offsets.equals(pa.array(range(end), pa.int64())):
            distinct = len(pc.unique(offsets))
            wrong.append(f"partition {partition}: {end} events, {len(offsets)} rows, {distinct}")
    enqueued = rows.filter(pc.equal(rows["event"], "enqueued"))
    ids = Counter(enqueued["message_id"].to_pylist())
    missing = sum(f"m-{number}" not in ids for number in range(messages))
    twice = sum(count > 1 for count in ids.values())
    strange = len(ids) - (messages - missing)
    if missing or twice or strange:
        wrong.append(f"messages: {missing} missing, {twice} more than once, {strange} strange")
    if pc.unique(enqueued["body_size"]).to_pylist() != [len(BODY)]:
        wrong.append("bodies have other sizes than were sent")
    events = Counter(rows["event"].to_pylist())
    print(f"{len(ids):,} message ids; events: {dict(events)}; {len(ends)} partitions", flush=True)
    return wrong


def version_of(table: Table) -> int:
    return table.delta().version() if table.exists() else -1


def rows_of(table: Table) -> int:
    if not table.exists():
        return 0
    actions = pa.table(table.delta().get_add_actions())
    return int(pc.sum(actions["num_records"]).as_py() or 0)


def say(began: float, text: str) -> None:
    print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    default = int(os.environ.get("BUSWAY_PIPELINE_MESSAGES", "200000"))
    parser.add_argument("--messages", type=int, default=default)
    parser.add_argument("--spark-kills", type=int, default=5)
    parser.add_argument("--jvm-kills", type=int, default=1)
    parser.add_argument("--broker-kills", type=int, default=2)
    parser.add_argument("--s3", action="store_true", help="the lake in an object store")
    parser.add_argument("--store-cuts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"{given.messages:,} messages, seed {given.seed}", flush=True)
    victims = {
        "spark": given.spark_kills,
        "jvm": given.jvm_kills,
        "broker": given.broker_kills,
        "store": given.store_cuts if given.s3 else 0,
    }
    plan = [victim for victim, times in victims.items() for _ in range(times)]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="busway-chaos-"))
        store = stack.enter_context(s3()) if given.s3 else None
        if store is not None:
            stack.enter_context(environment(store.environ))
        wrong = run(Path(folder), store, given.messages, plan, given.seed)
    for each in wrong:
        print(f"WRONG: {each}", file=sys.stderr)
    print("failed" if wrong else "each message once, no gap, no row twice")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
