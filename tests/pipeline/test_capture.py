"""Capture into a lake, each event once, whatever is killed in between (P-47, D-31)."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.pipeline.jobs.capture import Capture, Captured, CaptureSettings
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import EVENTS
from busway.pipeline.wire.journal import Journal
from busway.remote import connection
from busway.testing.server import Server
from tests.pipeline.jobs import Job, pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[[access]]
name = "only-send"
rights = ["Send"]
key = "a-key-that-may-only-send"

[[queues]]
name = "orders"
enable_partitioning = true

[[queues]]
name = "Invoices"
enable_partitioning = true
capture = true

[[queues]]
name = "restored"
capture = true

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "readers"
capture = true
"""

QUEUE_ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)

DIES_BETWEEN_THE_COMMITS = """
import os, signal
from busway.cli import main
from busway.pipeline.lake.lake import Table

append = Table.append

def append_and_die(self, frame, app_id, version):
    added = append(self, frame, app_id, version)
    assert added, "the batch was there already"
    os.killpg(0, signal.SIGKILL)

Table.append = append_and_die
main()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def secret(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("secret") / "connection-string"
    file.write_text(server.connection_string)
    return f"file:{file}"


def send(server: Server, queue: str, numbers: range) -> None:
    """One message at a time: a batch would be one partition's."""
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for number in numbers:
            sender.send_messages(
                ServiceBusMessage(
                    f"body {number}", message_id=f"m-{number}", partition_key=f"k-{number % 7}"
                )
            )


def manage(server: Server, method: str, queue: str, body: str | None = None) -> None:
    allowed = connection.read(server.connection_string).pass_for("")
    line = http.client.HTTPConnection(allowed.endpoint.host, allowed.endpoint.port, timeout=30)
    try:
        line.request(
            method, f"/{queue}?api-version=2021-05", body, {"Authorization": allowed.token}
        )
        assert line.getresponse().status in (200, 201)
    finally:
        line.close()


def enqueued(lake: Path) -> list[str]:
    """The ids of the messages that the lake has, by its log, without Spark."""
    table = Lake(lake).table(EVENTS.layout())
    if not table.exists():
        return []
    rows = table.delta().to_pyarrow_table(columns=["event", "message_id"]).to_pylist()
    return sorted(row["message_id"] for row in rows if row["event"] == "enqueued")


def ids(numbers: range) -> list[str]:
    return sorted(f"m-{number}" for number in numbers)


def places(lake: Path) -> list[tuple[str, int, int]]:
    """What no two rows may have in common."""
    table = Lake(lake).table(EVENTS.layout())
    columns = ["epoch", "partition", "journal_offset"]
    rows = table.delta().to_pyarrow_table(columns=columns).to_pylist()
    return sorted((row["epoch"], row["partition"], row["journal_offset"]) for row in rows)


# --- As a user runs it ---------------------------------------------------------------------------


def slow_to_start(folder: Path) -> Path:
    """A Python whose first reader of a journal does not come; Spark gives it up after 10 s."""
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        f"case \"$*\" in *streaming_source_runner*) mkdir '{folder}/given up' && exit 1;; esac\n"
        f"exec '{sys.executable}' \"$@\"\n"
    )
    program.chmod(0o755)
    return program


def test_a_capture_goes_on_where_it_was_interrupted_or_killed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, log = tmp_path / "lake", tmp_path / "log"
    command = ["capture", "--entity", "orders", "--lake", str(lake), "--json"]
    send(server, "orders", range(-5, 0))  # before it was captured: never in the lake

    job = Job(log, server, pipeline(*command))
    job.wait_for(lambda: "orders: captured from now on" in job.told)
    send(server, "orders", range(100))
    job.wait_for(lambda: len(enqueued(lake)) == 100)
    job.interrupt()
    captured = job.summary()["entities"]["orders"]
    assert (captured["rows"], captured["skipped"]) == (100, 0)
    assert "the next run goes on from there" in job.told

    send(server, "orders", range(100, 150))
    dies = [sys.executable, "-c", DIES_BETWEEN_THE_COMMITS, "pipeline", *command, "--once"]
    Job(log, server, dies).ended(-signal.SIGKILL)
    assert enqueued(lake) == ids(range(150))

    send(server, "orders", range(150, 160))
    monkeypatch.setenv("PYSPARK_PYTHON", str(slow_to_start(tmp_path)))
    captured = Job(log, server, pipeline(*command, "--once")).summary()["entities"]["orders"]
    assert (tmp_path / "given up").exists()
    assert (captured["rows"], captured["skipped"]) == (10, 1)
    assert enqueued(lake) == ids(range(160))
    assert len(places(lake)) == len(set(places(lake)))
    assert re.search(r"orders: captured since 20\d\d-", job.told)


@pytest.mark.parametrize(
    ("change", "entity", "text"),
    [
        ({}, "nowhere", "There is no queue, topic or subscription 'nowhere'"),
        ({"SharedAccessKeyName": "only-send", "SharedAccessKey": "a-key-that-may-only-send"},
         "orders", "needs the right to listen"),
        ({"SharedAccessKey": "c29tZXRoaW5n"}, "orders", "does not let this key read the journal"),
        ({"Endpoint": "sb://localhost:9"}, "orders", "cannot be reached"),
        ({"SharedAccessKey": ""}, "orders", "has no SharedAccessKey"),
    ],
)  # fmt: skip
def test_what_cannot_be_captured_is_said_before_spark_starts(
    server: Server, tmp_path: Path, change: dict[str, str], entity: str, text: str
) -> None:
    parts = dict(
        part.split("=", 1) for part in server.connection_string.rstrip(";").split(";") if part
    )
    given = ";".join(f"{name}={value}" for name, value in (parts | change).items())
    command = pipeline("capture", "--entity", entity, "--lake", str(tmp_path / "lake"), "--once")
    job = Job(tmp_path / "log", None, [*command, "--connection-string", given])
    status = 2 if "has no" in text else 1
    assert job.ended(status) == ""
    assert text in job.told
    assert "Traceback" not in job.told
    assert "starting Spark" not in job.told
    assert not (tmp_path / "lake").exists()


# --- What it makes of checkpoints and entities ---------------------------------------------------


class Runs:
    """Captures of what there is, in the session that tests share."""

    def __init__(self, spark: SparkSession, server: Server, secret: str, lake: Path) -> None:
        self._spark = spark
        self._credentials = connection.read(server.connection_string)
        self._options = {"credentialsFrom": secret}
        self.lake = lake

    def capture(self, entity: str, **settings: Any) -> Captured:
        chosen = CaptureSettings(entity, **settings)
        job = Capture(self._spark, Lake(self.lake), self._credentials, chosen, self._options)
        heads, _ = job.switch_on()
        job.begin(heads, once=True).awaitTermination()
        job.release(heads)
        return job.captured

    @property
    def checkpoints(self) -> Sequence[Path]:
        return sorted((self.lake / "_checkpoints" / "capture").iterdir())


@pytest.fixture
def runs(spark: SparkSession, server: Server, secret: str, tmp_path: Path) -> Runs:
    return Runs(spark, server, secret, tmp_path / "lake")


@pytest.fixture(scope="module")
def invoices(server: Server) -> int:
    send(server, "invoices", range(60))
    return 60


def test_what_is_there_is_not_added_again(runs: Runs, invoices: int) -> None:
    first = runs.capture("invoices", events_per_trigger=25)
    assert (first.rows, first.batches) == (invoices, 3)
    again = runs.capture("invoices")
    assert (again.rows, again.batches) == (0, 0)
    assert enqueued(runs.lake) == ids(range(invoices))


def test_a_lost_checkpoint_is_no_loss(runs: Runs, invoices: int) -> None:
    runs.capture("invoices")
    shutil.rmtree(runs.lake / "_checkpoints")
    assert runs.capture("INVOICES").rows == 0  # names compare without case
    assert enqueued(runs.lake) == ids(range(invoices))


def test_a_checkpoint_of_another_time_is_refused(
    runs: Runs, server: Server, tmp_path: Path
) -> None:
    send(server, "restored", range(5))
    assert runs.capture("restored").rows == 5
    (checkpoint,) = runs.checkpoints
    shutil.copytree(checkpoint, tmp_path / "backup")
    send(server, "restored", range(5, 10))
    assert runs.capture("restored").rows == 5
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "backup", checkpoint)
    send(server, "restored", range(10, 15))
    with pytest.raises(Exception, match="is not the one that the lake was filled with"):
        runs.capture("restored")  # its second batch is not the one that the lake has
    shutil.rmtree(checkpoint)
    assert runs.capture("restored").rows == 5
    assert enqueued(runs.lake) == ids(range(15))


def test_an_entity_that_was_made_anew_is_captured_beside_the_old(
    runs: Runs, server: Server
) -> None:
    for number in range(2):
        manage(server, "PUT", "brief", QUEUE_ENTRY)
        assert runs.capture("brief").rows == 0
        send(server, "brief", range(3))
        assert runs.capture("brief").rows == 3
        manage(server, "DELETE", "brief")
        assert len(runs.checkpoints) == number + 1
    assert enqueued(runs.lake) == sorted(ids(range(3)) * 2)
    assert len({epoch for epoch, _, _ in places(runs.lake)}) == 2


def test_a_subscription_has_a_journal_of_its_own(runs: Runs, server: Server) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_topic_sender("news") as sender,
    ):
        sender.send_messages([ServiceBusMessage("x", message_id=f"m-{n}") for n in range(4)])
    assert runs.capture("news/Subscriptions/readers").rows == 4
    shutil.rmtree(runs.lake / "_checkpoints")
    assert runs.capture("News/subscriptions/Readers").rows == 0
    assert enqueued(runs.lake) == ids(range(4))


def test_the_hold_is_at_what_the_lake_has(runs: Runs, server: Server, invoices: int) -> None:
    runs.capture("invoices")
    (checkpoint,) = runs.checkpoints
    allowed = connection.read(server.connection_string).pass_for("invoices")
    with Journal("invoices", allowed) as journal:
        consumer = f"capture-{(checkpoint / 'id').read_text()}"
        held = journal._json("GET", f"/consumers/{consumer}")
    assert held["lag_rows"] == 0
