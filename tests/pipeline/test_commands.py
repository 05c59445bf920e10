"""Every job of `busway pipeline` that works on a lake, as a user runs it (P-47)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner, Result

from busway.cli import app
from busway.pipeline.jobs.capture import Capture, CaptureSettings
from busway.pipeline.jobs.capture_watch import Captured
from busway.pipeline.lake.lake import Lake, Table
from busway.pipeline.lake.tables import ALL, BY_NAME, EVENTS
from busway.remote import connection
from busway.testing.server import Server
from tests.pipeline.jobs import WAIT_S, Job, pipeline, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[[queues]]
name = "orders"
enable_partitioning = true
capture = true
"""
SENT, COMPLETED, DEAD = 30, 12, 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        yield running


def send(server: Server, numbers: range) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for number in numbers:
            sender.send_messages(ServiceBusMessage(b"x" * 100, message_id=f"m-{number}"))


def receive(server: Server) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        taken = 0
        while taken < COMPLETED + DEAD:
            for message in receiver.receive_messages(COMPLETED + DEAD - taken, max_wait_time=20):
                if taken < COMPLETED:
                    receiver.complete_message(message)
                else:
                    receiver.dead_letter_message(message, reason="too-late")
                taken += 1


@pytest.fixture(scope="module")
def lake(spark: SparkSession, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What was captured while it was compacted."""
    folder = tmp_path_factory.mktemp("lake")
    secret = tmp_path_factory.mktemp("secret") / "connection-string"
    secret.write_text(server.connection_string)
    send(server, range(SENT))
    receive(server)
    credentials = connection.read(server.connection_string)
    settings = CaptureSettings(("orders",), events_per_trigger=5)
    joined, over = threading.Event(), threading.Event()

    def compact() -> None:
        table = Lake(folder).table(EVENTS.layout())
        while not over.is_set():
            if table.exists() and table.compact()["numFilesRemoved"] > 0:
                joined.set()

    def wait_for_that(captured: Sequence[Captured]) -> None:
        if captured[0].batches == 3:
            assert joined.wait(WAIT_S)

    job = Capture(Lake(folder), credentials, settings, on_batch=wait_for_that)
    job.begin(once=True)
    beside = threading.Thread(target=compact)
    beside.start()
    try:
        job.run(spark, once=True)
    finally:
        over.set()
        beside.join()
    assert joined.is_set()
    return folder


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def run(*arguments: str) -> dict[str, Any]:
    """A command without Spark, in this process; its summary."""
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    assert isinstance(told, dict)
    return told


def events(lake: Path) -> Table:
    return Lake(lake).table(EVENTS.layout())


def test_compaction_beside_a_capture_keeps_every_row(lake: Path) -> None:
    rows = (
        events(lake).delta().to_pyarrow_table(columns=["partition", "journal_offset"]).to_pylist()
    )
    places = {(row["partition"], row["journal_offset"]) for row in rows}
    assert len(places) == len(rows) == SENT + 2 * (COMPLETED + DEAD)
    compacted = run("compact", "--lake", str(lake), "--table", "events")["events"]
    assert compacted["removed"] == 0  # younger than a week
    assert len(events(lake).delta().file_uris()) == 1
    assert len(events(lake).delta().to_pyarrow_table()) == len(rows)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--table", "evnts"], "There is no table 'evnts'. There are: events, entities, messages"),
        (["--vacuum-hours", "0"], "must be a whole number from 1"),
    ],
)
def test_compaction_refuses_what_would_do_harm(
    tmp_path: Path, arguments: list[str], text: str
) -> None:
    result = invoke("compact", "--lake", str(tmp_path), *arguments)
    assert (result.exit_code, text in result.stderr) == (2, True), result.stderr


def test_a_report_is_made_of_curated_figures(server: Server, lake: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    log = tmp_path / "log"
    told = Job(
        log, server, pipeline("report", "--lake", str(lake), "--out", str(page), "--json")
    ).summary()
    assert told == {"page": str(page)}
    assert "orders" in page.read_text()
    assert "too-late" in page.read_text()
    messages = Lake(lake).table(BY_NAME["messages"].layout()).delta().to_pyarrow_table()
    states = messages["state"].to_pylist()
    assert (states.count("completed"), states.count("dead_lettered")) == (COMPLETED, DEAD)

    again = tmp_path / "again.html"
    run("report", "--lake", str(lake), "--out", str(again), "--no-curate")
    assert "too-late" in again.read_text()

    files = tmp_path / "files"
    command = ["export", "--lake", str(lake), "--out", str(files), "--json"]
    where = ["--where", "state = 'dead_lettered'"]
    exported = Job(log, server, pipeline(*command, *where)).summary()
    assert exported["rows"] == DEAD
    assert set(pq.read_table(files)["dead_letter_reason"].to_pylist()) == {"too-late"}


def test_curate_says_what_to_do_first(tmp_path: Path) -> None:
    result = invoke("curate", "--lake", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "Fill it first: busway pipeline capture" in result.stderr
    assert "starting Spark" not in result.stderr


def test_signals_wait_until_spark_has_started(server: Server, lake: Path, tmp_path: Path) -> None:
    job = Job(tmp_path / "log", server, pipeline("curate", "--lake", str(lake)))
    wait_for(lambda: "starting Spark" in job.told)
    job.interrupt()
    job.ended(130)
    assert "run it again to go on" in job.told
    assert "Traceback" not in job.told


def test_tables_have_every_column_with_its_meaning() -> None:
    assert set(run("tables")) == {table.name for table in ALL}
    for table in ALL:
        columns = run("tables", table.name)
        assert list(columns) == [column.name for column in table.columns]
        assert all(each["meaning"] and each["type"] for each in columns.values())
    assert "There is no table 'x'" in invoke("tables", "x").stderr


def test_the_doctor_knows_what_is_here(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setenv(connection.VARIABLE, server.connection_string)
    findings = run("doctor")
    assert all(each["well"] for each in findings.values())
    key = server.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert key not in json.dumps(findings)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("busway.pipeline.spark.java._of_wheel", lambda: None)
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "JAVA_HOME names /nowhere" in result.stdout
