"""`busway pipeline migrate`: Spark compares what left with what arrived, and then the name goes."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)

from busway.pipeline.jobs.capture import Capture, CaptureSettings
from busway.pipeline.jobs.capture_watch import Captured
from busway.pipeline.jobs.curate import curate
from busway.pipeline.jobs.migrate import Migrate, MigrationError, Migrations, NotTheSameError
from busway.pipeline.jobs.move_judge import COMPARED, judged, paired
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import EVENTS, MESSAGES
from busway.remote import connection
from busway.testing.server import Server
from tests.pipeline.jobs import Job, pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READER_KEY = "cmVhZGVyLXJlYWRlci1yZWFkZXItcmVhZGVyLXJlYWRlcg=="
CONFIG = f"""
[[access]]
name = "reader"
rights = ["Listen"]
key = "{READER_KEY}"

[[queues]]
name = "orders"
requires_session = true

[[queues]]
name = "kept"
requires_session = true
partitioned = true
capture = true

[[queues]]
name = "feeder"
forward_to = "kept"

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "talks"
requires_session = true

[[topics.subscriptions]]
name = "few"
[[topics.subscriptions.rules]]
name = "first"
sql_filter = "sys.MessageId = 'm0'"
"""
SESSIONS = 7
SENT = 210
WAIT_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data", arguments=["--stores", "2"]) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string) as made:
        yield made


def fill(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    """In order by session; of the first session, the first message is deferred, the second dead."""
    with sender:
        for session in range(SESSIONS):
            sender.send_messages(
                [
                    ServiceBusMessage(
                        f"body {number}", message_id=f"m{number}", session_id=f"s{session}"
                    )
                    for number in range(session, SENT, SESSIONS)
                ]
            )
    with receiver:
        first, second = received(receiver, 2)
        receiver.defer_message(first)
        receiver.dead_letter_message(second, reason="bad")


def fill_queue(client: ServiceBusClient, queue: str) -> None:
    fill(client.get_queue_sender(queue), client.get_queue_receiver(queue, session_id="s0"))


def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        page = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
        assert page, f"only {len(found)} of {count} came"
        found += page
    return found


def secret(server: Server, tmp_path: Path) -> dict[str, str]:
    """Where the connection string is: Spark's processes do not see this one's variables."""
    file = tmp_path / "connection-string"
    file.write_text(server.connection_string)
    return {"credentialsFrom": f"file:{file}"}


def job(server: Server, spark: SparkSession, tmp_path: Path, queue: str, **more: Any) -> Migrate:
    credentials = connection.read(server.connection_string)
    options = secret(server, tmp_path)
    return Migrate(credentials, queue, spark=lambda: spark, source_options=options, **more)


def check_sessions(receiver_of: Callable[[str], ServiceBusReceiver]) -> None:
    """All but the first, of which some were dealt with: in order, and to the end (SES-4)."""
    for session in range(1, SESSIONS):
        expected = [f"body {number}" for number in range(session, SENT, SESSIONS)]
        with receiver_of(f"s{session}") as receiver:
            found = received(receiver, len(expected))
            for message in found:
                receiver.complete_message(message)
            assert [str(message) for message in found] == expected


def test_p_47_messages_from_before_the_capture_are_compared_and_the_name_goes(
    server: Server, client: ServiceBusClient, spark: SparkSession, tmp_path: Path
) -> None:
    fill_queue(client, "orders")
    lake = tmp_path / "lake"
    told: list[str] = []
    migrate = job(
        server, spark, tmp_path, "orders", partitioned=True, lake=str(lake), say=told.append
    )
    assert migrate.plan().there == {"active": SENT - 2, "deferred": 1, "dead_letter": 1}

    done = migrate.run()

    assert done.outcome == "migrated"
    assert done.verified is not None
    assert done.verified.messages == SENT
    assert done.verified.sessions == SESSIONS
    assert done.verified.states == {"active": SENT - 2, "deferred": 1, "dead_letter": 1}
    (deferred,) = done.verified.deferred
    assert deferred["session_id"] == "s0"
    assert done.numbers is not None
    kept = spark.read.parquet(done.numbers)
    assert kept.where("state = 'deferred'").collect()[0].new_sequence_number == deferred["is"]
    assert kept.count() == SENT
    check_sessions(lambda session: client.get_queue_receiver("orders", session_id=session))
    assert any("is stopped" in line for line in told)
    assert migrate.run().outcome == "already", "asked for again, there is nothing to do"
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = received(receiver, 1)
        assert dead.dead_letter_reason == "bad"


def test_a_run_that_was_killed_is_run_again_and_goes_on(server: Server, tmp_path: Path) -> None:
    """A job that died after it had begun has left the topic stopped; so has a server. Spark judges
    each subscription, and what waits in the topic itself."""
    due = datetime.now(UTC) + timedelta(days=1)
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        talks = client.get_subscription_receiver("news", "talks", session_id="s0")
        fill(client.get_topic_sender("news"), talks)
        with client.get_topic_sender("news") as sender:
            sender.schedule_messages(ServiceBusMessage("later", session_id="s1"), due)
    command = pipeline("migrate", "--entity", "news", "--partitioned", "--json")
    first = Job(tmp_path / "log", server, command)
    first.wait_for(lambda: "is stopped" in first.told)
    first.kill()
    server.kill()
    server.restart()
    summary = Job(tmp_path / "log", server, command).summary()
    assert summary["outcome"] == "migrated"
    verified = summary["verified"]
    assert verified["messages"] == SENT + 2
    assert verified["states"] == {
        "active": SENT - 2 + 1,
        "deferred": 1,
        "dead_letter": 1,
        "scheduled": 1,
    }
    assert verified["differences"] == []
    assert [each["entity"] for each in verified["deferred"]] == ["news/Subscriptions/talks"]
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        check_sessions(
            lambda session: client.get_subscription_receiver("news", "talks", session_id=session)
        )
        with client.get_subscription_receiver("news", "few") as receiver:
            assert [str(message) for message in received(receiver, 1)] == ["body 0"]


def test_called_off_it_comes_back_and_can_be_migrated_again(
    server: Server, client: ServiceBusClient, spark: SparkSession, tmp_path: Path
) -> None:
    """The journal of the queue then tells of messages that left it twice: each time has its own
    twin, and the judge looks at those of the last one."""
    fill_queue(client, "orders")
    asked = job(server, spark, tmp_path, "orders")
    assert asked.call_off().outcome == "not_migrated"
    started = Migrations("orders", asked._credentials.pass_for("")).start(partitioned=True)
    asked._hold(started)
    asked._until_moved()
    command = pipeline("migrate", "--entity", "orders", "--call-off")
    assert "serves again" in Job(tmp_path / "log", server, command).ended()
    assert asked.call_off().outcome == "not_migrated"
    done = job(server, spark, tmp_path, "orders", partitioned=True).run()
    assert done.verified is not None
    assert (done.outcome, done.verified.messages) == ("migrated", SENT)
    check_sessions(lambda session: client.get_queue_receiver("orders", session_id=session))


# --- Captures, before and after -------------------------------------------------------------------


def captured(server: Server, spark: SparkSession, tmp_path: Path, entity: str) -> Captured:
    """`capture --once`, in the session that tests share."""
    credentials = connection.read(server.connection_string)
    work = Capture(Lake(tmp_path / "lake"), credentials, CaptureSettings((entity,)))
    work.begin(once=True)
    return work.run(spark, once=True)[entity]


def events_of(lake: Path) -> list[dict[str, Any]]:
    table = Lake(lake).table(EVENTS.layout())
    if not table.exists():
        return []
    columns = ["epoch", "partition", "journal_offset", "event", "message_id", "dead_letter_reason"]
    found: list[dict[str, Any]] = table.delta().to_pyarrow_table(columns=columns).to_pylist()
    return found


def sent(lake: Path) -> list[str]:
    """The ids of what was sent, and not brought by a migration."""
    rows = [row for row in events_of(lake) if row["event"] == "enqueued"]
    return sorted(row["message_id"] for row in rows if row["dead_letter_reason"] != "Migrated")


def test_p_47_a_lake_has_the_journals_of_before_and_after_and_each_message_once(
    server: Server,
    client: ServiceBusClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = tmp_path / "lake"
    fill_queue(client, "kept")
    before = captured(server, spark, tmp_path, "kept")
    curate(spark, Lake(lake))
    with client.get_queue_sender("kept") as sender:
        sender.send_messages(ServiceBusMessage("uncaptured", message_id="late", session_id="s1"))
    said: list[str] = []
    migrate = job(server, spark, tmp_path, "kept", partitioned=False, say=said.append)
    monkeypatch.setattr("busway.pipeline.jobs.migrate.CAPTURE_PATIENCE_S", 0.0)

    ahead = migrate.plan().preflight
    assert ahead is not None
    (behind,) = ahead.behind
    assert "has 1 events of 'kept' to read" in behind
    assert (ahead.forwarded_by, ahead.refusal) == (["feeder"], None)
    assert ahead.bytes > SENT
    with pytest.raises(MigrationError, match="'kept' was not stopped") as told:
        migrate.run()
    assert behind in str(told.value)
    assert "busway pipeline capture --once" in str(told.value)
    assert len([each for each in said if each.startswith("waiting")]) == 1

    # It is stopped only behind their backs; then it comes back by itself, and serves.
    monkeypatch.setattr(migrate, "check", lambda planned, told: None)
    with pytest.raises(MigrationError, match="'kept' could not be migrated, and serves again"):
        migrate.run()
    assert Migrations("kept", migrate._credentials.pass_for("")).progress().phase == "none"
    monkeypatch.undo()
    monkeypatch.setattr("busway.pipeline.jobs.migrate.MOVED_PATIENCE_S", 0.0)

    assert captured(server, spark, tmp_path, "kept").epoch == before.epoch
    assert migrate.run().outcome == "migrated"  # nobody has to read that they were moved
    assert any("is away: it has seen everything but" in each for each in said)
    with client.get_queue_sender("kept") as sender:
        sender.send_messages(ServiceBusMessage("after", message_id="new", session_id="s1"))
    after = captured(server, spark, tmp_path, "kept")
    assert after.epoch != before.epoch

    rows = events_of(lake)
    places = {(row["epoch"], row["partition"], row["journal_offset"]) for row in rows}
    assert len(places) == len(rows), "each event is there once"
    assert sent(lake) == sorted([*(f"m{number}" for number in range(SENT)), "late", "new"])

    curate(spark, Lake(lake))
    bit_by_bit = messages_in(lake)
    assert Counter(row["state"] for row in bit_by_bit) == {
        "active": SENT,
        "deferred": 1,
        "dead_lettered": 1,
    }
    assert {row["epoch"] for row in bit_by_bit} == {after.epoch}
    assert len({row["message_id"] for row in bit_by_bit}) == SENT + 2, "none is there twice"
    moved_ms = min(row["last_event_at"] for row in bit_by_bit)
    old = [row for row in bit_by_bit if row["message_id"] != "new"]
    assert all(row["enqueued_at"] < moved_ms for row in old), "they are as old as they are"
    shutil.rmtree(lake / "messages")
    curate(spark, Lake(lake))
    assert messages_in(lake) == bit_by_bit, "and all at once gives the same"


def messages_in(lake: Path) -> list[dict[str, Any]]:
    table = Lake(lake).table(MESSAGES.layout()).delta().to_pyarrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: row["sequence_number"])


def test_a_capture_that_runs_goes_on_with_the_new_journal_by_itself(
    server: Server,
    client: ServiceBusClient,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for patience in ("CAPTURE_PATIENCE_S", "MOVED_PATIENCE_S"):  # on a busy machine
        monkeypatch.setattr(f"busway.pipeline.jobs.migrate.{patience}", 600.0)
    lake = tmp_path / "lake"
    fill_queue(client, "kept")
    running = Job(
        tmp_path / "log", server, pipeline("capture", "--entity", "kept", "--lake", str(lake))
    )
    try:
        running.wait_for(lambda: len(sent(lake)) == SENT)
        done = job(server, spark, tmp_path, "kept", partitioned=False).run()
        assert done.outcome == "migrated"
        with client.get_queue_sender("kept") as sender:
            sender.send_messages(ServiceBusMessage("after", message_id="new", session_id="s1"))
        running.wait_for(lambda: "new" in sent(lake))
        running.interrupt()
        running.ended()
    finally:
        if running.process.poll() is None:
            running.kill()
    assert "going on with that" in running.told
    rows = events_of(lake)
    assert len({(row["epoch"], row["partition"], row["journal_offset"]) for row in rows}) == len(
        rows
    )
    assert len([row for row in rows if row["event"] == "moved"]) == SENT
    assert sent(lake) == sorted([*(f"m{number}" for number in range(SENT)), "new"])


# --- What goes wrong ------------------------------------------------------------------------------


def test_who_may_not_manage_is_told_so(server: Server, tmp_path: Path) -> None:
    listener = re.sub(
        "SharedAccessKeyName=[^;]*;SharedAccessKey=[^;]*",
        f"SharedAccessKeyName=reader;SharedAccessKey={READER_KEY}",
        server.connection_string,
    )
    for more in (["--partitioned"], ["--call-off"]):
        command = pipeline("migrate", "--entity", "orders", *more)
        refused = Job(tmp_path / "log", None, [*command, "--connection-string", listener])
        refused.ended(1)
        assert "needs the right to manage the namespace" in refused.told
        assert "starting Spark" not in refused.told
    found = Migrations("orders", connection.read(server.connection_string).pass_for("")).progress()
    assert found.phase == "none"


def test_one_that_was_started_without_capture_is_not_judged(
    server: Server, tmp_path: Path, spark: SparkSession
) -> None:
    credentials = connection.read(server.connection_string)
    asked = Migrations("orders", credentials.pass_for(""))
    asked._json("POST", "", body={"entity": "orders", "partitioned": True})
    with pytest.raises(MigrationError, match="started without capture"):
        job(server, spark, tmp_path, "orders", partitioned=True).run()
    assert asked.progress().phase in ("moving", "moved")


class ReadsLess(Migrate):
    """Does not see one of the arrivals."""

    def _events(self, entity: str, events: Sequence[str]) -> DataFrame:
        found = super()._events(entity, events)
        is_twin = ".migration-" in entity
        return found.where("not (message_id <=> 'm100')") if is_twin else found


def test_on_a_difference_nothing_is_switched_and_everything_stays(
    server: Server, client: ServiceBusClient, tmp_path: Path, spark: SparkSession
) -> None:
    fill_queue(client, "orders")
    credentials = connection.read(server.connection_string)
    options = secret(server, tmp_path)
    wrong = ReadsLess(
        credentials, "orders", partitioned=True, spark=lambda: spark, source_options=options
    )
    with pytest.raises(NotTheSameError, match="did not arrive"):
        wrong.run()
    found = Migrations("orders", credentials.pass_for("")).progress()
    assert (found.phase, found.moved_total) == ("moved", SENT)
    assert job(server, spark, tmp_path, "orders", partitioned=True).run().outcome == "migrated"


# --- The judge -----------------------------------------------------------------------------------

FACTS = {
    "part": "q",
    "partition": 0,
    "sub_queue": "main",
    "message_id": "m",
    "session_id": "s",
    "delivery_count": 0,
    "typed_properties": None,
    "raw": b"bytes",
}
SCHEMA = (
    "part string, partition int, event string, sub_queue string, sequence_number long, "
    "related_sequence_number long, dead_letter_reason string, message_id string, "
    "session_id string, delivery_count int, typed_properties string, raw binary"
)


def rows(spark: SparkSession, *changed: dict[str, Any]) -> DataFrame:
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    full = [{**dict.fromkeys(names), **FACTS, **each} for each in changed]
    return spark.createDataFrame([tuple(each[name] for name in names) for each in full], SCHEMA)


def left(number: int, state: str = "active", **more: Any) -> dict[str, Any]:
    return {"event": "moved", "sequence_number": number, "dead_letter_reason": state, **more}


def arrived(was: int, number: int, event: str = "enqueued", **more: Any) -> dict[str, Any]:
    return {
        "event": event,
        "sequence_number": number,
        "related_sequence_number": was,
        "dead_letter_reason": "Migrated",
        **more,
    }


GOOD = [arrived(1, 10), arrived(2, 11), arrived(3, 12)]
BAD: dict[str, list[dict[str, Any]]] = {
    "Message 3 of 'q' did not arrive.": GOOD[:2],
    "Message 4 of 'q' was not in the source.": [*GOOD, arrived(4, 13)],
    "Message 2 of 'q' arrived twice.": [*GOOD, arrived(2, 13)],
    "Message 3 of 'q' has been overtaken.": [GOOD[0], arrived(2, 12), arrived(3, 11)],
    "Message 2 of 'q' is in another state.": [GOOD[0], arrived(2, 11, "scheduled"), GOOD[2]],
    **{
        f"Message 2 of 'q' {words}.": [
            GOOD[0],
            arrived(2, 11, **{"raw" if name == "content" else name: value}),
            GOOD[2],
        ]
        for name, words, value in (
            ("sub_queue", COMPARED["sub_queue"], "dead_letter"),
            ("session_id", COMPARED["session_id"], "t"),
            ("message_id", COMPARED["message_id"], "n"),
            ("delivery_count", COMPARED["delivery_count"], 1),
            ("typed_properties", COMPARED["typed_properties"], "{}"),
            ("content", COMPARED["content"], b"others"),
        )
    },
}


def test_the_judge_is_content_with_what_is_the_same(spark: SparkSession) -> None:
    verified = judged(paired(rows(spark, left(1), left(2), left(3)), rows(spark, *GOOD)))
    assert (verified.messages, verified.sessions, verified.differences) == (3, 1, [])


@pytest.mark.parametrize("difference", list(BAD))
def test_the_judge_finds_what_is_different(spark: SparkSession, difference: str) -> None:
    source = rows(spark, left(1), left(2), left(3))
    verified = judged(paired(source, rows(spark, *BAD[difference])))
    assert difference in verified.differences
