"""Lakes in an object store: the whole way, on a real server for S3 (P-47)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.pipeline.jobs.capture import Capture, CaptureSettings
from busway.pipeline.jobs.capture_task import Told
from busway.pipeline.jobs.curate import curate
from busway.pipeline.jobs.export import export
from busway.pipeline.lake.files import FileWriter
from busway.pipeline.lake.lake import ConflictError, Lake
from busway.pipeline.lake.pending import PendingBatches
from busway.pipeline.lake.place import Place
from busway.pipeline.lake.tables import BY_NAME, EVENTS
from busway.remote import connection
from busway.testing.server import Server
from tests.pipeline.object_stores import SECRET, ObjectStore, environment, s3
from tests.pipeline.test_commands import invoke

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[[queues]]
name = "orders"
enable_partitioning = true
capture = true
"""
SENT = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def store(spark: SparkSession) -> Iterator[ObjectStore]:
    """Its keys are in the environment of this process and of Spark's workers, and nowhere else."""
    with s3() as running, environment(running.environ):
        spark.sparkContext.environment.update(running.environ)
        yield running
        for name in running.environ:
            del spark.sparkContext.environment[name]


def send(server: Server, numbers: range) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("orders") as sender,
    ):
        for number in numbers:
            sender.send_messages(ServiceBusMessage(f"body {number}", message_id=f"m-{number}"))


def job(server: Server, store: ObjectStore, said: list[str], **settings: Any) -> Capture:
    credentials = connection.read(server.connection_string)
    chosen = CaptureSettings(("orders",), **settings)
    return Capture(Lake(store.lake), credentials, chosen, say=said.append)


def enqueued(store: ObjectStore) -> list[str]:
    table = Lake(store.lake).table(EVENTS.layout()).delta().to_pyarrow_table()
    return sorted(table["message_id"].to_pylist())


def test_a_lake_in_s3_is_filled_curated_joined_reported_and_exported(
    server: Server, store: ObjectStore, spark: SparkSession, tmp_path: Path
) -> None:
    said: list[str] = []
    send(server, range(SENT))
    for first in (True, False):
        run = job(server, store, said, events_per_trigger=15)
        run.begin(once=True)
        assert run.run(spark, once=True)["orders"].rows == (SENT if first else 0)
    assert enqueued(store) == sorted(f"m-{number}" for number in range(SENT))

    lake = Lake(store.lake)
    curated = curate(spark, lake)
    assert curated.rows["messages"] == SENT
    messages = lake.table(BY_NAME["messages"].layout())
    states = messages.frame(spark).groupBy("state").count().collect()
    assert [(row.state, row["count"]) for row in states] == [("active", SENT)]

    joined = invoke("compact", "--lake", store.lake, "--table", "events")
    assert "files became 1" in joined.stdout
    assert invoke("report", "--no-curate", "--lake", store.lake).exit_code == 0
    page = lake.place.read_bytes("report.html")
    assert page is not None
    assert b"<h2>orders</h2>" in page
    done = export(spark, lake, "messages", tmp_path / "out", "message_id < 'm-2'")
    assert done.rows == sum(f"m-{number}" < "m-2" for number in range(SENT))


def test_what_was_cut_off_is_removed_by_name(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(f"{store.lake}-cut")
    table = lake.table(EVENTS.layout())
    table.create()
    schema = table.layout.schema
    row = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names)], schema)
    begun = PendingBatches(lake.place, table).batch()
    name = begun.__enter__()  # and then its process is gone

    def write(batch: str) -> str:
        by = table.layout.partition_by
        (file,) = FileWriter(table.place, schema.serialize().to_pybytes(), by, batch).write([row])
        return file.path

    left, somebodys = write(name), write("")
    (note,) = lake.place.below("_pending").names()
    assert note == f"{name}.json"
    assert PendingBatches(lake.place, table).clean() == 0, "it is at work"
    monkeypatch.setattr("busway.pipeline.lake.pending._ACTIVE", set())
    assert PendingBatches(lake.place, table).clean() == 1
    assert not table.place.has(left)
    assert table.place.has(somebodys)
    assert list(lake.place.below("_pending").names()) == []


def test_of_two_commits_of_one_version_one_is_told(store: ObjectStore) -> None:
    table = Lake(f"{store.lake}-two").table(EVENTS.layout())
    table.create()
    stale = table.delta()
    table.add([], {"capture:e:00": 5}, {})
    with pytest.raises(ConflictError):
        table.add([], {"capture:e:00": 5}, {})  # it looks first
    with pytest.raises(ConflictError):
        table._write_log(stale, [], "append", {"capture:e:00": 7})  # and so does the log
    assert table.marks(["capture:e:00", "capture:e:01"]) == {"capture:e:00": 5}


def test_a_store_that_is_away_is_waited_for(
    server: Server, store: ObjectStore, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes when a batch is planned, and is back after that has failed."""
    said: list[str] = []
    run = job(server, store, said)
    run.begin(once=False)
    before = len(enqueued(store))
    send(server, range(1000, 1003))
    run.watch.look()
    again = Capture._again

    def back_then(self: Capture, error: Exception) -> None:
        store.door.reopen()
        again(self, error)

    written = Capture._written

    def cut_off(self: Capture, *arguments: Any) -> list[Told]:
        store.door.shut()  # the batch is noted, and its tasks find nobody
        return written(self, *arguments)

    monkeypatch.setattr(Capture, "_again", back_then)
    monkeypatch.setattr(Capture, "_written", cut_off)
    assert not run._turn(spark, None)
    monkeypatch.setattr(Capture, "_written", written)
    assert any("the lake cannot be written, trying again" in each for each in said)
    deadline = threading.Event()
    while not run._turn(spark, None):  # until the door is open; the suite's own limit ends it
        deadline.wait(0.2)
    assert len(enqueued(store)) == before + 3


def test_no_key_is_in_what_is_kept_or_said(
    server: Server, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place = Place.of(store.lake)
    for name in place.names():
        assert SECRET.encode() not in (place.read_bytes(name) or b"")
    assert SECRET not in repr(place) + str(place.options()) + caplog.text


@pytest.mark.parametrize("command", [["capture", "--entity", "orders", "--once"], ["curate"]])
def test_a_store_that_is_not_there_is_one_sentence_before_spark_starts(
    server: Server, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv(connection.VARIABLE, server.connection_string)
    refused = invoke(*command, "--lake", "s3://lakes/lake")
    assert refused.exit_code == 1, refused.output
    assert "starting Spark" not in refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr
