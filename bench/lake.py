"""How fast a journal gets into a lake, and how that compares with plain Parquet files (P-47).

    python bench/lake.py --rows 300000

One broker, one captured partitioned queue with messages of 1 KiB, one Spark session. The rows go
from the journal into Delta (`capture`), and from the journal into `noop`, which only reads them.
Then the same rows are read into `noop` from Parquet files that `export` has written, with the same
columns. Each way is run once to warm up and then `--rounds` times, in turns; the median counts.
CPU is that of all processes together: broker, workers, Spark. It tells more than rows per second
where the machine is not ours alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.pipeline.jobs.capture import Capture, CaptureSettings
from busway.pipeline.jobs.export import export
from busway.pipeline.lake.lake import Lake
from busway.remote.wire.sender import Sender
from busway.pipeline.spark.session import open_session
from busway.remote import connection
from busway.testing.server import Server

TICKS = os.sysconf("SC_CLK_TCK")
QUEUE = "bench"
BODY = os.urandom(1024)
CONFIG = f"""
[journal]
max_size_mb = 65536

[[queues]]
name = "{QUEUE}"
enable_partitioning = true
max_size_in_megabytes = 5120
capture = true
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch-events", type=int, default=200_000)
    parser.add_argument("--columns", help="of the journal; all without it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="busway-lake-") as folder:
        print(json.dumps(measure(Path(folder), given), indent=2))


def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    with Server(config=CONFIG, data=folder / "data") as server:
        os.environ[connection.VARIABLE] = server.connection_string
        credentials = connection.read(server.connection_string)
        began = time.monotonic()
        Sender(QUEUE, credentials.pass_for(QUEUE)).send_all(
            encode_message(
                properties=Properties(message_id=f"m-{number}"),
                application_properties={"number": number},
                data=BODY,
            )
            for number in range(given.rows)
        )
        sending = given.rows / (time.monotonic() - began)
        spark = open_session("busway bench", f"local[{given.tasks},4]")
        options = {"entity": QUEUE, "tasks": str(given.tasks)}
        if given.columns:
            options["columns"] = given.columns

        def capture(number: int) -> None:
            settings = CaptureSettings((QUEUE,), given.batch_events, tasks=given.tasks)
            job = Capture(Lake(folder / f"lake-{number}"), credentials, settings)
            job.begin(once=True)
            captured = job.run(spark, once=True)[QUEUE]
            assert captured.rows == given.rows, captured

        def journal(number: int) -> None:
            rows = spark.read.format("busway").options(**options).load()
            rows.write.format("noop").mode("overwrite").save()

        def parquet(number: int) -> None:
            rows = spark.read.parquet(str(folder / "parquet"))
            wanted = [*spark.read.format("busway").options(**options).load().columns]
            rows.select(*wanted).write.format("noop").mode("overwrite").save()

        seconds: dict[str, list[float]] = {"capture": [], "journal": [], "parquet": []}
        cpu: dict[str, list[float]] = {name: [] for name in seconds}
        ways = {"capture": capture, "journal": journal, "parquet": parquet}
        for number in range(given.rounds + 1):
            for name, way in ways.items():
                if name == "parquet" and number == 0:
                    export(spark, Lake(folder / "lake-0"), "events", folder / "parquet")
                began, used = time.monotonic(), cpu_s(os.getpid())
                way(number)
                if number > 0:
                    seconds[name].append(time.monotonic() - began)
                    cpu[name].append(cpu_s(os.getpid()) - used)
        spark.stop()
    rates = {name: given.rows / statistics.median(each) for name, each in seconds.items()}
    return {
        "rows": given.rows,
        "body_bytes": len(BODY),
        "tasks": given.tasks,
        "rounds": given.rounds,
        "sent_per_s": round(sending),
        "capture_rows_per_s": round(rates["capture"]),
        "noop_rows_per_s": round(rates["journal"]),
        "parquet_rows_per_s": round(rates["parquet"]),
        "noop_to_parquet": round(rates["journal"] / rates["parquet"], 3),
        "cpu_us_per_row": {
            name: round(statistics.median(each) / given.rows * 1e6, 1) for name, each in cpu.items()
        },
        "seconds": {name: [round(one, 2) for one in each] for name, each in seconds.items()},
    }


def cpu_s(pid: int) -> float:
    """Of a process and all that it has started, those included that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").glob("*/children")
            for child in task.read_text().split()
        ]
    except OSError:
        return 0.0  # it has ended meanwhile; whoever waited for it counts it
    return sum(map(int, fields[11:15])) / TICKS + sum(map(cpu_s, children))


if __name__ == "__main__":
    main()
