"""Dead letters by reason, and copies of some: send before remove, each once (P-47, DLQ-2)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from busway.pipeline import triage
from busway.pipeline.curate import curate
from busway.pipeline.lake import Lake
from busway.pipeline.line import RefusedError
from busway.pipeline.messages import ORIGINAL_ID
from busway.pipeline.tables import EVENTS
from busway.pipeline.target import TargetError
from busway.pipeline.triage import Notes, Triage, TriageError
from busway.remote import connection
from busway.remote.connection import Credentials
from busway.testing.server import Server
from tests.pipeline.stories import Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[[queues]]
name = "orders"
enable_partitioning = true
requires_duplicate_detection = true
lock_duration = "5s"

[[queues]]
name = "forgetful"

[[queues]]
name = "other"
requires_duplicate_detection = true
"""
SENT = 60
REASONS = ("Unreadable", "Late", "Broken")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data") as running:
        dead_letter(running, range(SENT))
        yield running


def dead_letter(server: Server, numbers: range) -> None:
    """A third of each reason."""
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender("orders") as sender:
            for number in numbers:
                sender.send_messages(
                    ServiceBusMessage(
                        f"{number}", message_id=f"m-{number}", application_properties={"n": number}
                    )
                )
        with client.get_queue_receiver("orders") as receiver:
            left = len(numbers)
            while left:
                for message in receiver.receive_messages(50, max_wait_time=20):
                    reason = REASONS[int(str(message)) % 3]
                    receiver.dead_letter_message(message, reason, f"because of {reason}")
                    left -= 1


@pytest.fixture
def credentials(server: Server) -> Credentials:
    return connection.read(server.connection_string)


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes" / "orders.jsonl")


def bodies(server: Server, queue: str, sub_queue: ServiceBusSubQueue | None = None) -> list[Any]:
    """All that can be received there now; it is empty then."""
    found = []
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(
            queue, sub_queue=sub_queue, receive_mode="receiveanddelete"
        ) as receiver,
    ):
        while batch := receiver.receive_messages(500, max_wait_time=2):
            found += batch
    return found


def numbers_in(server: Server, queue: str, sub_queue: Any = None) -> list[int]:
    return sorted(int(str(each)) for each in bodies(server, queue, sub_queue))


def with_reason(reason: str) -> list[int]:
    return list(range(REASONS.index(reason), SENT, 3))


def test_looking_tells_reasons_and_touches_nothing(
    server: Server, credentials: Credentials
) -> None:
    letters = triage.look("orders", credentials)
    found = triage.told("orders", letters, letters, samples=1)
    assert found.by_reason == dict.fromkeys(REASONS, SENT // 3)
    assert sorted(each["description"] for each in found.samples) == sorted(
        f"because of {reason}" for reason in REASONS
    )
    dead = bodies(server, "orders", ServiceBusSubQueue.DEAD_LETTER)
    assert len(dead) == SENT
    assert {each.delivery_count for each in dead} == {0}


def test_chosen_ones_are_sent_again_and_others_stay(
    server: Server, credentials: Credentials, notes: Notes
) -> None:
    letters = triage.look("orders", credentials)
    chosen = triage.choose(letters, ["Late"])
    done = Triage("orders", "orders", credentials, notes).resubmit(chosen)
    assert (done.chosen, done.sent, done.removed) == (20, 20, 20)
    assert (done.left, done.doubtful, done.gone, done.locked) == (0, 0, 0, 0)
    copies = bodies(server, "orders")
    assert sorted(int(str(each)) for each in copies) == with_reason("Late")
    one = next(each for each in copies if str(each) == "1")
    assert one.message_id != "m-1"
    assert one.application_properties == {b"n": 1, ORIGINAL_ID.encode(): b"m-1"}
    dead = bodies(server, "orders", ServiceBusSubQueue.DEAD_LETTER)
    assert sorted(int(str(each)) for each in dead) == sorted(
        [*with_reason("Unreadable"), *with_reason("Broken")]
    )
    assert {each.delivery_count for each in dead} == {0}  # handed back, and not counted
    assert not notes.file.exists()


@pytest.mark.parametrize("window_is_over", [False, True])
def test_copies_that_were_stored_are_not_sent_twice(
    server: Server, credentials: Credentials, notes: Notes, window_is_over: bool
) -> None:
    """A run that ends when copies are stored, and their dead letters are still there."""
    chosen = triage.choose(triage.look("orders", credentials), ["Late"])

    def end() -> None:
        raise KeyboardInterrupt

    job = Triage("orders", "other", credentials, notes)
    with pytest.raises(KeyboardInterrupt):
        job.resubmit(chosen, before_removing=end)
    if window_is_over:
        # It had also not got to the note that they have arrived.
        first, *_ = notes.file.read_text().splitlines()
        note = json.loads(first)
        note["at"] = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
        notes.file.write_text(f"{json.dumps(note)}\n")
    again = Triage("orders", "other", credentials, Notes(notes.file))
    chosen = triage.choose(triage.look("orders", credentials), ["Late"])
    assert len(chosen) == 20
    done = again.resubmit(chosen)
    if window_is_over:
        assert (done.removed, done.left) == (0, 20)
        anyway = Triage(
            "orders", "other", credentials, Notes(notes.file), accept_duplicates=True
        ).resubmit(triage.choose(triage.look("orders", credentials), ["Late"]))
        assert (anyway.removed, anyway.doubtful) == (20, 20)
    else:
        assert (done.sent, done.removed, done.left) == (0, 20, 0)
    # The target remembers in truth, so that each is there once either way.
    assert numbers_in(server, "other") == with_reason("Late")
    assert len(numbers_in(server, "orders", ServiceBusSubQueue.DEAD_LETTER)) == 40


def test_a_run_that_is_killed_is_run_again(server: Server, tmp_path: Path) -> None:
    dead_letter(server, range(SENT, 30 * SENT))
    command = [
        sys.executable, "-m", "busway", "pipeline", "triage", "--entity", "orders",
        "--reason", "Broken", "--to", "other", "--resubmit", "--json",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "BUSWAY_CONNECTION_STRING": server.connection_string,
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert " sent, " in line
    again = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert again.returncode == 0, again.stderr
    done = json.loads(again.stdout)
    assert (done["gone"], done["locked"], done["left"]) == (0, 0, 0)
    assert numbers_in(server, "other") == list(range(2, 30 * SENT, 3))
    rest = numbers_in(server, "orders", ServiceBusSubQueue.DEAD_LETTER)
    assert rest == [number for number in range(30 * SENT) if number % 3 != 2]


def test_a_condition_chooses(spark: SparkSession, credentials: Credentials) -> None:
    letters = triage.look("orders", credentials)
    where = "application_properties['n'] < 10 and reason <> 'Late' and body <> '0'"
    chosen = triage.choose(letters, where=where, spark=spark)
    assert sorted(each.body for each in chosen) == [b"2", b"3", b"5", b"6", b"8", b"9"]
    with pytest.raises(TriageError, match="not one on dead letters"):
        triage.choose(letters, where="raeson = 'x'", spark=spark)


def test_a_lake_knows_those_that_have_left(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with pytest.raises(TriageError, match="busway pipeline curate"):
        triage.history(lake.folder, "orders")
    story = Story()
    for number in (1, 2, 3):
        story.tell("enqueued", number, number)
        story.tell("dead_lettered", number, number + 10, sub_queue="dead_letter",
                   dead_letter_reason="Late" if number < 3 else None)  # fmt: skip
    story.tell("completed", 2, 30, sub_queue="dead_letter")
    lake.table(EVENTS.layout()).append(story.frame(spark), "test", 0)
    curate(spark, lake)
    assert triage.history(lake.folder, "Orders") == {
        "Late": {"dead_lettered": 2, "still_there": 1},
        "(none)": {"dead_lettered": 1, "still_there": 1},
    }
    assert triage.history(lake.folder, "other") == {}


def test_what_is_wrong_is_said(credentials: Credentials, notes: Notes) -> None:
    with pytest.raises(RefusedError, match="could not be found"):
        triage.look("nowhere", credentials)
    with pytest.raises(TargetError, match="does not detect duplicates"):
        Triage("orders", "forgetful", credentials, notes)
    with pytest.raises(TargetError, match="There is no queue or topic 'nowhere'"):
        Triage("orders", "nowhere", credentials, notes)


def test_the_command_shows_and_explains(server: Server, tmp_path: Path) -> None:
    environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}
    command = [sys.executable, "-m", "busway", "pipeline", "triage", "--entity", "orders"]
    shown = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert "60 dead letters in 'orders'" in shown.stdout
    assert "20  Unreadable" in shown.stdout
    refused = subprocess.run(
        [*command, "--resubmit", "--to", "forgetful"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert refused.returncode == 1
    assert "does not detect duplicates" in refused.stderr
    assert "Traceback" not in refused.stderr
