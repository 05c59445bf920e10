"""Capture into a lake, each event once, whatever is killed in between (P-47, D-31)."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.pipeline.jobs.capture import Capture, CaptureError, CaptureSettings
from busway.pipeline.jobs.capture_watch import Captured
from busway.pipeline.jobs.older_lake import folder_name
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

DIES = """
import os, signal
from busway.cli import main
from busway.pipeline.lake.lake import Table

add = Table.add

def add_and_die(self, *arguments):
    if {after}:
        add(self, *arguments)
    os.killpg(0, signal.SIGKILL)

Table.add = add_and_die
main()
"""
"""A job that is killed when its files are written, before or after the commit."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        yield running


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


def files_of(lake: Path) -> set[str]:
    """All Parquet files of the table, whether they belong to it or not."""
    table = lake / "events"
    return {
        file.relative_to(table).as_posix()
        for file in table.rglob("*.parquet")
        if "_delta_log" not in file.parts
    }


def test_a_capture_goes_on_where_it_was_interrupted_or_killed(
    server: Server, tmp_path: Path
) -> None:
    lake, log = tmp_path / "lake", tmp_path / "log"
    command = ["capture", "--entity", "orders", "--lake", str(lake), "--json"]
    send(server, "orders", range(-5, 0))  # before it was captured: never in the lake

    job = Job(log, server, pipeline(*command))
    job.wait_for(lambda: "orders: captured from now on" in job.told)
    send(server, "orders", range(100))
    job.wait_for(lambda: len(enqueued(lake)) == 100)
    job.process.terminate()
    assert job.summary()["entities"]["orders"]["rows"] == 100
    assert "the next run goes on from there" in job.told

    send(server, "orders", range(100, 150))
    for after in (False, True):
        dies = [sys.executable, "-c", DIES.format(after=after), "pipeline", *command, "--once"]
        Job(log, server, dies).ended(-signal.SIGKILL)
        table = Lake(lake).table(EVENTS.layout())
        committed = {each.rpartition("/events/")[2] for each in table.delta().file_uris()}
        # What the first one wrote belongs to no version; the second one has removed it.
        assert (files_of(lake) == committed) is after
        assert enqueued(lake) == ids(range(150 if after else 100))

    send(server, "orders", range(150, 160))
    job = Job(log, server, pipeline(*command, "--once"))
    assert job.summary()["entities"]["orders"]["rows"] == 10
    assert enqueued(lake) == ids(range(160))
    assert len(places(lake)) == len(set(places(lake)))
    assert re.search(r"orders: captured since 20\d\d-", job.told)
    assert "of a batch that was cut off" in job.told
    assert not list((lake / "_pending").iterdir())


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


# --- What it makes of entities --------------------------------------------------------------------


class Runs:
    """Captures of what there is, in the session that tests share."""

    def __init__(self, spark: SparkSession, server: Server, lake: Path) -> None:
        self._spark = spark
        self._credentials = connection.read(server.connection_string)
        self.lake = lake
        self.said: list[str] = []

    def job(self, *entities: str, **settings: Any) -> Capture:
        chosen = CaptureSettings(entities, **settings)
        return Capture(Lake(self.lake), self._credentials, chosen, say=self.said.append)

    def capture(self, entity: str, **settings: Any) -> Captured:
        job = self.job(entity, **settings)
        job.begin(once=True)
        return job.run(self._spark, once=True)[entity]

    def turn(self, job: Capture) -> None:
        """What a capture without end does between two rests, until nothing is left to read."""
        job.watch.look()
        while job._turn(self._spark, None):
            job.watch.look()


@pytest.fixture
def runs(spark: SparkSession, server: Server, tmp_path: Path) -> Runs:
    return Runs(spark, server, tmp_path / "lake")


@pytest.fixture(scope="module")
def invoices(server: Server) -> int:
    send(server, "invoices", range(60))
    return 60


def test_what_is_there_is_not_added_again(runs: Runs, invoices: int) -> None:
    first = runs.capture("invoices", events_per_trigger=25)
    assert (first.rows, first.batches) == (invoices, 3)
    again = runs.capture("INVOICES")  # names compare without case
    assert (again.rows, again.batches) == (0, 0)
    assert enqueued(runs.lake) == ids(range(invoices))


def test_a_lake_of_before_there_were_marks_goes_on_after_its_rows(
    runs: Runs, server: Server, spark: SparkSession
) -> None:
    send(server, "restored", range(5))
    runs.capture("restored")
    table = Lake(runs.lake).table(EVENTS.layout())
    rows = table.frame(spark).cache()
    assert rows.count() == 5
    allowed = connection.read(server.connection_string).pass_for("restored")
    with Journal("restored", allowed) as journal:
        epoch = journal.heads().epoch
        shutil.rmtree(runs.lake)
        table.append(rows, "capture:as-it-was", 0)
        older = runs.lake / "_checkpoints" / "capture" / folder_name("restored", epoch)
        older.mkdir(parents=True)
        (older / "id").write_text("as-it-was")
        journal.hold("capture-as-it-was", journal.heads().latest)
        send(server, "restored", range(5, 8))
        assert runs.capture("restored").rows == 3
        assert "capture-as-it-was" not in [each.name for each in journal.consumers()]
    assert enqueued(runs.lake) == ids(range(8))


def test_of_two_captures_of_one_entity_each_event_is_there_once(
    runs: Runs, server: Server, invoices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busway.pipeline.jobs.capture.PAUSE_S", 0.0)
    first, second = (runs.job("invoices", events_per_trigger=20) for _ in range(2))
    for job in (first, second):
        job.begin(once=False)
    for _ in range(4):  # both plan from where they were, and the one that is late is told
        runs.turn(first)
        runs.turn(second)
        send(server, "invoices", range(3))
    assert "another capture has written the same events; going on after them" in runs.said
    assert len(places(runs.lake)) == len(set(places(runs.lake)))
    monkeypatch.setattr("busway.pipeline.jobs.capture.CONFLICTS_MAX", 1)
    runs.turn(first)
    send(server, "invoices", range(3))
    second.watch.look()
    runs.turn(first)
    with pytest.raises(CaptureError, match=r"Another capture of invoices into .* is running"):
        second._turn(runs._spark, None)


def test_each_entity_has_a_life_of_its_own(runs: Runs, server: Server) -> None:
    manage(server, "PUT", "brief", QUEUE_ENTRY)
    manage(server, "PUT", "steady", QUEUE_ENTRY)
    job = runs.job("brief", "steady")
    job.begin(once=False)
    send(server, "brief", range(3))
    send(server, "steady", range(10, 12))
    runs.turn(job)
    assert enqueued(runs.lake) == sorted([*ids(range(3)), *ids(range(10, 12))])

    manage(server, "DELETE", "brief")
    send(server, "steady", range(12, 14))
    runs.turn(job)
    assert "brief: was deleted; waiting until it is made again" in runs.said
    assert (job.captured["brief"].state, job.captured["steady"].rows) == ("waiting", 4)

    manage(server, "PUT", "brief", QUEUE_ENTRY)
    runs.turn(job)
    assert any("brief: it was migrated, or made anew" in each for each in runs.said)
    send(server, "brief", range(3))
    runs.turn(job)
    assert (job.captured["brief"].state, job.captured["brief"].rows) == ("reading", 6)
    assert len({epoch for epoch, _, _ in places(runs.lake)}) == 3


def test_one_that_is_deleted_in_the_middle_of_a_batch_takes_nothing_from_the_others(
    runs: Runs, server: Server
) -> None:
    for name in ("leaving", "staying"):
        manage(server, "PUT", name, QUEUE_ENTRY)
    job = runs.job("leaving", "staying")
    job.begin(once=False)
    send(server, "leaving", range(3))
    send(server, "staying", range(10, 12))
    job.watch.look()
    manage(server, "DELETE", "leaving")  # after its events were planned
    assert not job._turn(runs._spark, None)
    runs.turn(job)
    assert enqueued(runs.lake) == ids(range(10, 12))
    assert job.captured["leaving"].state == "waiting"
    assert len(files_of(runs.lake)) == len(
        Lake(runs.lake).table(EVENTS.layout()).delta().file_uris()
    )


def test_a_pattern_finds_what_is_made_later(
    runs: Runs, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busway.pipeline.jobs.capture_watch.LIST_EVERY_S", 0.0)
    job = runs.job("shop-*", "news/subscriptions/read*")
    job.begin(once=False)
    assert list(job.captured) == ["news/Subscriptions/readers"]
    manage(server, "PUT", "shop-1", QUEUE_ENTRY)
    manage(server, "PUT", "other-shop-1", QUEUE_ENTRY)
    runs.turn(job)
    assert "shop-1: is new" in runs.said
    send(server, "shop-1", range(2))
    runs.turn(job)
    assert job.captured["shop-1"].rows == 2
    assert set(job.captured) == {"news/Subscriptions/readers", "shop-1"}
    everything = runs.job("*")
    everything.begin(once=False)
    assert {"orders", "Invoices", "news", "news/Subscriptions/readers", "shop-1"} <= set(
        everything.captured
    )


def test_a_subscription_has_a_journal_of_its_own(runs: Runs, server: Server) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_topic_sender("news") as sender,
    ):
        sender.send_messages([ServiceBusMessage("x", message_id=f"m-{n}") for n in range(4)])
    assert runs.capture("news/Subscriptions/readers").rows == 4
    assert runs.capture("News/subscriptions/Readers").rows == 0
    assert enqueued(runs.lake) == ids(range(4))


def test_the_hold_is_at_what_the_lake_has(runs: Runs, server: Server, invoices: int) -> None:
    runs.capture("invoices")
    table = Lake(runs.lake).table(EVENTS.layout())
    consumer = f"capture-{table.delta().metadata().id}"
    allowed = connection.read(server.connection_string).pass_for("invoices")
    with Journal("invoices", allowed) as journal:
        held = {each.name: each.lag_rows for each in journal.consumers()}
    assert held[consumer] == 0


def test_what_a_journal_has_lost_is_said_and_accepted_only_when_told(
    runs: Runs, server: Server, invoices: int
) -> None:
    """The lake's mark is behind what the journal still has: as after a retention that passed it."""
    runs.capture("invoices", events_per_trigger=20)
    allowed = connection.read(server.connection_string).pass_for("invoices")
    with Journal("invoices", allowed) as journal:
        heads = journal.heads()
    cut = replace(
        heads,
        partitions=tuple(
            replace(each, earliest=each.next + 5, next=each.next + 9) for each in heads.partitions
        ),
    )
    lost = 5 * len(heads.partitions)
    for accept_loss in (False, True):
        job = runs.job("invoices", accept_loss=accept_loss)
        followed = job.watch.followed["invoices"]
        job.watch._see(followed, cut)
        if accept_loss:
            assert f"going on without {lost} events that are lost" in runs.said[-1]
            assert sum(followed.captured.behind.values()) == 4 * len(heads.partitions)
        else:
            assert (followed.captured.state, job.watch.can_go_on) == ("failed", False)
            assert f"no longer has {lost} events" in followed.captured.problem
            assert "--accept-loss" in followed.captured.problem
        job.watch.close()
