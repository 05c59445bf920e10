"""Messages of a lake are sent again, each once, whatever is killed on the way (P-47)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from busway.pipeline.jobs.capture import Capture, CaptureSettings
from busway.pipeline.jobs.replay import Replay, ReplayError, Selection
from busway.pipeline.lake.lake import Lake
from busway.pipeline.lake.tables import EVENTS
from busway.remote import connection
from busway.remote.wire.copies import ORIGINAL_ID
from busway.remote.wire.target import TargetError
from busway.testing.server import Server
from tests.pipeline.stories import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[[queues]]
name = "orders"
enable_partitioning = true
requires_session = true
capture = true

[[queues]]
name = "again"
requires_duplicate_detection = true
requires_session = true

[[queues]]
name = "killed"
requires_duplicate_detection = true
requires_session = true
enable_partitioning = true

[[queues]]
name = "forgetful"
requires_session = true
"""
SENT, SESSIONS = 240, 6
NOTICED_S = 300.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        with (
            ServiceBusClient.from_connection_string(running.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            for number in range(SENT):
                sender.send_messages(
                    ServiceBusMessage(
                        f"{number}",
                        message_id=f"m-{number}",
                        session_id=f"s-{number % SESSIONS}",
                        subject="even" if number % 2 == 0 else "odd",
                        application_properties={"n": number, "when": datetime(2026, 1, 1)},
                    )
                )
        yield running


@pytest.fixture(scope="module")
def secret(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("secret") / "connection-string"
    file.write_text(server.connection_string)
    return f"file:{file}"


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, server: Server, secret: str, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    credentials = connection.read(server.connection_string)
    job = Capture(lake, credentials, CaptureSettings(("orders",)))
    job.begin(once=True)
    job.run(spark, once=True)
    return lake


@pytest.fixture
def replay(spark: SparkSession, lake: Lake, secret: str) -> Any:
    def make(selection: Selection | None = None, to: str = "again", **more: Any) -> Replay:
        return Replay(
            spark,
            lake,
            selection or Selection("orders"),
            to,
            more.pop("plan", f"test-{uuid4().hex}"),
            sink_options={"credentialsFrom": secret},
            **{"chunk_size": 50, **more},
        )

    return make


def taken(server: Server, queue: str, count: int = 0) -> dict[str, list[Any]]:
    """By session, everything that is in a queue, so many at least; it is empty then."""
    deadline = time.monotonic() + NOTICED_S
    found: dict[str, list[Any]] = defaultdict(list)
    text = server.connection_string
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        while True:
            receiver = client.get_queue_receiver(
                queue,
                session_id=NEXT_AVAILABLE_SESSION,
                receive_mode="receiveanddelete",
                max_wait_time=2,
            )
            try:
                with receiver:
                    while batch := receiver.receive_messages(500, max_wait_time=1):
                        for each in batch:
                            found[str(each.session_id)].append(each)
            except OperationTimeoutError:
                there = sum(map(len, found.values()))
                if there >= count:
                    return found
                assert time.monotonic() < deadline, f"{there} of {count} came"


def numbers(found: dict[str, list[Any]]) -> list[int]:
    return sorted(int(str(each)) for messages in found.values() for each in messages)


def assert_in_order(found: dict[str, list[Any]]) -> None:
    for messages in found.values():
        sent = [int(str(each)) for each in messages]
        assert sent == sorted(sent)


def test_everything_is_sent_again_in_the_order_of_its_session(replay: Any, server: Server) -> None:
    job = replay()
    replayed = job.send(job.plan())
    assert (replayed.messages, replayed.chunks, replayed.sent) == (SENT, 5, SENT)
    assert replayed.doubtful == []
    found = taken(server, "again", SENT)
    assert numbers(found) == list(range(SENT))
    assert_in_order(found)
    one = found["s-1"][0]
    assert one.subject == "odd"
    assert one.message_id != "m-1"
    assert one.application_properties[ORIGINAL_ID.encode()] == b"m-1"
    assert one.application_properties[b"n"] == 1
    assert one.application_properties[b"when"] is not None


def test_a_plan_that_is_done_sends_nothing_again(replay: Any, server: Server) -> None:
    plan = "done"
    for expected in (40, 0):
        job = replay(Selection("orders", where="session_id = 's-2'"), plan=plan)
        replayed = job.send(job.plan())
        assert (replayed.sent, replayed.sent_before) == (expected, 40 - expected)
    assert len(numbers(taken(server, "again", 40))) == 40


@pytest.mark.parametrize("state", ["sending", "sent"])
def test_a_run_that_ends_in_the_middle_goes_on(replay: Any, server: Server, state: str) -> None:
    """Before a chunk is sent, and when it is sent and the lake does not know it yet."""
    plan = f"middle-{state}"

    def end(chunk: int, now: str) -> None:
        if (chunk, now) == (2, state):
            raise KeyboardInterrupt

    job = replay(plan=plan)
    with pytest.raises(KeyboardInterrupt):
        job.send(job.plan(), end)
    job = replay(plan=plan)
    replayed = job.send(job.plan())
    assert (replayed.sent_before, replayed.sent) == (100, SENT - 100)
    found = taken(server, "again", SENT)
    assert numbers(found) == list(range(SENT))
    assert_in_order(found)


def test_a_chunk_that_nobody_remembers_is_not_sent_again_unasked(
    replay: Any, server: Server
) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=2)
    job = replay(plan="late")
    planned = job.plan()
    job._append(job._progress, ("late", 0, "sending", 50, long_ago), 0)
    with pytest.raises(ReplayError, match="remembers message ids for 600 s"):
        job.send(planned)
    assert numbers(taken(server, "again")) == []
    job = replay(plan="late", accept_duplicates=True)
    replayed = job.send(job.plan())
    assert (replayed.sent, replayed.doubtful) == (SENT, [0])
    assert numbers(taken(server, "again", SENT)) == list(range(SENT))


def test_a_dry_run_tells_and_sends_nothing(replay: Any, server: Server) -> None:
    selection = Selection("orders", since=datetime(2020, 1, 1, tzinfo=UTC), where="subject = 'odd'")
    seen = replay(selection).look(samples=3)
    assert (seen.messages, seen.sessions, seen.left_out) == (SENT // 2, 3, 0)
    assert seen.by_state == {"active": SENT // 2}
    assert seen.by_session == {"s-1": 40, "s-3": 40, "s-5": 40}
    assert [each["body"] for each in seen.samples] == ["1", "3", "5"]
    assert sum(seen.by_day.values()) == SENT // 2
    assert taken(server, "again") == {}


def test_times_cut_it(replay: Any) -> None:
    first = replay().look(samples=1).samples[0]["enqueued_at"]
    assert replay(Selection("orders", until=first)).look(0).messages == 0
    later = Selection("orders", since=first + timedelta(milliseconds=1))
    assert 0 < replay(later).look(0).messages < SENT
    assert replay(Selection("orders", since=datetime.now(UTC))).look(0).messages == 0
    assert replay(Selection("other")).look(0).messages == 0


def test_what_is_wrong_is_said(replay: Any) -> None:
    with pytest.raises(ReplayError, match="not one on the table 'messages'"):
        replay(Selection("orders", where="sesion_id = 'x'")).look(0)
    with pytest.raises(ReplayError, match="no name for a plan"):
        replay(plan="../x")
    job = replay(to="forgetful")
    planned = job.plan()
    with pytest.raises(TargetError, match="does not detect duplicates"):
        job.send(planned)
    replay(Selection("orders", where="1 = 0"), plan="taken").plan()
    with pytest.raises(ReplayError, match="There is a plan 'taken' already"):
        replay(Selection("orders", where="1 = 1"), plan="taken").plan()


def test_a_run_that_is_killed_goes_on(lake: Lake, server: Server) -> None:
    """The command itself, and everything that it has started, in the middle of its chunks."""
    command = [
        sys.executable, "-m", "busway", "pipeline", "replay", "--lake", lake.folder,
        "--entity", "orders", "--to", "killed", "--plan", "killed", "--chunk", "20",
        "--master", "local[2,4]", "--json",
    ]  # fmt: skip
    environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if "60 of 240 sent" in line:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "".join(told)
    again = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=NOTICED_S, check=False
    )
    assert again.returncode == 0, again.stderr
    assert '"sent_before": 60' in again.stdout
    found = taken(server, "killed", SENT)
    assert numbers(found) == list(range(SENT))
    assert_in_order(found)


def test_a_plan_is_kept_in_the_lake(replay: Any, lake: Lake) -> None:
    replay(Selection("orders", where="session_id = 's-3'"), plan="kept").plan()
    assert Path(lake.folder, "replays", "kept", "_delta_log").is_dir()


def test_a_target_with_sessions_refuses_others_before_anything_is_sent(
    spark: SparkSession, server: Server, secret: str, tmp_path: Path
) -> None:
    """P-47, SES-1; and a lake that has lost what a plan is about says so."""
    lake = Lake(tmp_path / "lake")
    story = Story()
    for number in range(3):
        story.tell("enqueued", number + 1, number, body_type="data",
                   typed_properties=json.dumps({"n": ["int", number]}),
                   session_id="s" if number else None)  # fmt: skip
    lake.table(EVENTS.layout()).append(story.frame(spark), "test", 0)
    options = {"credentialsFrom": secret}
    job = Replay(spark, lake, Selection("orders"), "again", "none", sink_options=options)
    planned = job.plan()
    with pytest.raises(ReplayError, match="1 of the 3 messages have no session id"):
        job.send(planned)
    with_session = Selection("orders", where="session_id is not null")
    job = Replay(spark, lake, with_session, "again", "some", sink_options=options)
    planned = job.plan()
    assert job.send(planned).sent == 2  # rows without an envelope, of an older version
    found = taken(server, "again", 2)
    assert [str(each) for each in found["s"]] == ["b-2", "b-3"]
    assert [each.application_properties[b"n"] for each in found["s"]] == [1, 2]
    job = Replay(spark, lake, with_session, "again", "lost", sink_options=options)
    planned = job.plan()
    lake.table(EVENTS.layout()).delta().delete("sequence_number = 2")
    with pytest.raises(ReplayError, match="has only 1 of the 2 messages of the plan 'lost'"):
        job.send(planned)
    assert taken(server, "again") == {}
