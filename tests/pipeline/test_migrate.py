"""`busway pipeline migrate`: Spark compares what left with what arrived, and then the name goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from busway.pipeline.migrate import (
    COMPARED,
    Migrate,
    MigrationError,
    Migrations,
    NotTheSameError,
    judged,
    paired,
)
from busway.remote import connection
from busway.testing.server import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[[queues]]
name = "orders"
requires_session = true

[[queues]]
name = "kept"
requires_session = true
partitioned = true
capture = true
"""
SESSIONS = 7
SENT = 210
WAIT_S = 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data", arguments=["--stores", "2"]) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            for queue in ("orders", "kept"):
                fill(client, queue)
        yield running


def fill(client: ServiceBusClient, queue: str) -> None:
    """In order by session; of the first session, the first message is deferred, the second dead."""
    with client.get_queue_sender(queue) as sender:
        for session in range(SESSIONS):
            sender.send_messages(
                [
                    ServiceBusMessage(
                        f"body {number}", message_id=f"m{number}", session_id=f"s{session}"
                    )
                    for number in range(session, SENT, SESSIONS)
                ]
            )
    with client.get_queue_receiver(queue, session_id="s0") as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=WAIT_S)
        receiver.defer_message(first)
        receiver.dead_letter_message(second, reason="bad")


def secret(server: Server, tmp_path: Path) -> dict[str, str]:
    """Where the connection string is: Spark's processes do not see this one's variables."""
    file = tmp_path / "connection-string"
    file.write_text(server.connection_string)
    return {"credentialsFrom": f"file:{file}"}


def job(server: Server, spark: SparkSession, tmp_path: Path, queue: str, **more: Any) -> Migrate:
    credentials = connection.read(server.connection_string)
    options = secret(server, tmp_path)
    return Migrate(credentials, queue, spark=lambda: spark, source_options=options, **more)


def in_session(server: Server, queue: str, session: str, count: int) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue, session_id=session) as receiver,
    ):
        found: list[str] = []
        while len(found) < count:
            page = receiver.receive_messages(count, max_wait_time=WAIT_S)
            assert page, f"only {len(found)} of {count} came"
            for message in page:
                receiver.complete_message(message)
            found += [str(message) for message in page]
        return found


def test_p_47_messages_from_before_the_capture_are_compared_and_the_name_goes(
    server: Server, spark: SparkSession, tmp_path: Path
) -> None:
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
    for session in range(1, SESSIONS):
        expected = [f"body {number}" for number in range(session, SENT, SESSIONS)]
        assert in_session(server, "orders", f"s{session}", len(expected)) == expected
    assert any("is stopped" in line for line in told)
    assert migrate.run().outcome == "already", "asked for again, there is nothing to do"
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        (dead,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert dead.dead_letter_reason == "bad"


def test_a_run_that_was_killed_is_run_again_and_goes_on(
    server: Server, tmp_path: Path, spark: SparkSession
) -> None:
    """A job that died after it had begun has left the queue stopped; so has a server."""
    command = [sys.executable, "-m", "busway", "pipeline", "migrate", "--entity", "kept"]
    command += ["--conventional", "--json", "--master", "local[2,4]"]
    environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}
    first = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert first.stderr is not None
    for line in first.stderr:
        if "is stopped" in line:
            first.send_signal(signal.SIGKILL)
            break
    first.stderr.close()
    first.wait()
    server.kill()
    server.restart()
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    summary = json.loads(second.stdout)
    assert summary["outcome"] == "migrated"
    assert summary["verified"]["messages"] == SENT
    assert summary["verified"]["differences"] == []
    for session in range(1, SESSIONS):
        expected = [f"body {number}" for number in range(session, SENT, SESSIONS)]
        assert in_session(server, "kept", f"s{session}", len(expected)) == expected


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

    def _events(self, entity: str) -> DataFrame:
        found = super()._events(entity)
        is_twin = ".migration-" in entity
        return found.where("not (message_id <=> 'm100')") if is_twin else found


def test_on_a_difference_nothing_is_switched_and_everything_stays(
    server: Server, tmp_path: Path, spark: SparkSession
) -> None:
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
    "partition": 0,
    "sub_queue": "main",
    "message_id": "m",
    "session_id": "s",
    "delivery_count": 0,
    "typed_properties": None,
    "raw": b"bytes",
}
SCHEMA = (
    "partition int, event string, sub_queue string, sequence_number long, "
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
    "Message 3 did not arrive.": GOOD[:2],
    "Message 4 was not in the source.": [*GOOD, arrived(4, 13)],
    "Message 2 arrived twice.": [*GOOD, arrived(2, 13)],
    "Message 3 has been overtaken.": [GOOD[0], arrived(2, 12), arrived(3, 11)],
    "Message 2 is in another state.": [GOOD[0], arrived(2, 11, "scheduled"), GOOD[2]],
    **{
        f"Message 2 {words}.": [
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
