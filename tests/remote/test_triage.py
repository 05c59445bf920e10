"""Dead letters by reason, and copies of some: one transaction each, so each once (P-47, TXN-2)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)

from busway.remote import connection, triage
from busway.remote.connection import Credentials
from busway.remote.triage import Resubmitted, Triage, TriageError
from busway.remote.wire.conditions import ConditionError
from busway.remote.wire.copies import ORIGINAL_ID, RESUBMITTED_FOR, copy_of
from busway.remote.wire.dead_letters import DeadLetterQueue, RolledBackError
from busway.remote.wire.line import RefusedError
from busway.remote.wire.target import TargetError
from busway.testing.server import Server

CONFIG = """
[[queues]]
name = "orders"
partitioned = true
requires_duplicate_detection = true
lock_duration = "15s"

[[queues]]
name = "brief"
partitioned = true
lock_duration = "5s"

[[queues]]
name = "spread"
partitioned = true

[[queues]]
name = "plain"

[[queues]]
name = "other"
requires_duplicate_detection = true

[[queues]]
name = "sessions"
partitioned = true
requires_session = true

[[topics]]
name = "news"
partitioned = true

[[topics.subscriptions]]
name = "all"

[[topics.subscriptions]]
name = "rest"

[[topics.subscriptions.rules]]
name = "not-resubmitted"
sql_filter = "[busway-resubmitted-for] IS NULL"
"""
SENT = 60
REASONS = ("Unreadable", "Late", "Broken")
NEWS = "news/Subscriptions/all"
SOON_S = 60.0
"""For anything that a broker does by itself."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data") as running:
        yield running


@pytest.fixture
def credentials(server: Server) -> Credentials:
    return connection.read(server.connection_string)


def receiver_of(client: ServiceBusClient, entity: str, **how: Any) -> ServiceBusReceiver:
    topic, node, subscription = entity.partition("/Subscriptions/")
    if node:
        return client.get_subscription_receiver(topic, subscription, **how)
    return client.get_queue_receiver(entity, **how)


def dead_letter(server: Server, numbers: range, entity: str = "orders", **more: Any) -> None:
    """A third of each reason."""
    path = entity.partition("/")[0]
    session = more.get("session_id")
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        sender = client.get_queue_sender(path) if path == entity else client.get_topic_sender(path)
        with sender:
            for number in numbers:
                message = ServiceBusMessage(
                    f"{number}",
                    message_id=f"m-{number}",
                    application_properties={"n": number},
                    **more,
                )
                sender.send_messages(message)
        how = {} if session is None else {"session_id": session}
        with receiver_of(client, entity, **how) as receiver:
            left = len(numbers)
            while left:  # few at a time: their locks run
                for message in receiver.receive_messages(min(left, 20), max_wait_time=5):
                    reason = REASONS[int(str(message)) % 3]
                    receiver.dead_letter_message(message, reason, f"because of {reason}")
                    left -= 1


def received(receiver: ServiceBusReceiver, count: int) -> list[Any]:
    """So many messages, and whatever else is there then."""
    found: list[Any] = []
    deadline = time.monotonic() + SOON_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        found += receiver.receive_messages(500, max_wait_time=5)
    return found + receiver.receive_messages(500, max_wait_time=1)


def taken(server: Server, entity: str, count: int, **how: Any) -> list[Any]:
    """All that is there, so many; it is empty then."""
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        receiver_of(client, entity, receive_mode="receiveanddelete", **how) as receiver,
    ):
        return received(receiver, count)


def numbers_in(server: Server, entity: str, count: int, **how: Any) -> list[int]:
    return sorted(int(str(each)) for each in taken(server, entity, count, **how))


DEAD = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}


def with_reason(reason: str) -> list[int]:
    return list(range(REASONS.index(reason), SENT, 3))


def chosen_of(credentials: Credentials, entity: str, *reasons: str) -> list[Any]:
    return triage.choose(triage.look(entity, credentials), reasons)


def resubmitted(credentials: Credentials, entity: str, to: str, *reasons: str) -> Resubmitted:
    chosen = chosen_of(credentials, entity, *reasons)
    return Triage(entity, to, credentials).resubmit(chosen)


def test_looking_tells_reasons_and_touches_nothing(
    server: Server, credentials: Credentials
) -> None:
    dead_letter(server, range(SENT))
    letters = triage.look("orders", credentials)
    found = triage.told("orders", letters, letters, samples=1)
    assert found.by_reason == dict.fromkeys(REASONS, SENT // 3)
    assert sorted(each["description"] for each in found.samples) == sorted(
        f"because of {reason}" for reason in REASONS
    )
    dead = taken(server, "orders", SENT, **DEAD)
    assert len(dead) == SENT
    assert {each.delivery_count for each in dead} == {0}


def test_chosen_ones_are_sent_again_and_others_stay(
    server: Server, credentials: Credentials
) -> None:
    dead_letter(server, range(SENT))
    done = resubmitted(credentials, "orders", "orders", "Late")
    assert (done.chosen, done.moved) == (20, 20)
    assert (done.gone, done.locked, done.deferred, done.refused) == (0, 0, 0, {})
    copies = taken(server, "orders", 20)
    assert sorted(int(str(each)) for each in copies) == with_reason("Late")
    one = next(each for each in copies if str(each) == "1")
    # The queue detects duplicates, and would have dropped a message with the old id (DUP-1).
    assert one.message_id != "m-1"
    assert one.application_properties == {b"n": 1, ORIGINAL_ID.encode(): b"m-1"}
    dead = taken(server, "orders", 40, **DEAD)
    assert sorted(int(str(each)) for each in dead) == sorted(
        [*with_reason("Unreadable"), *with_reason("Broken")]
    )
    assert {each.delivery_count for each in dead} == {0}  # handed back, and not counted


@pytest.mark.parametrize("queue", ["spread", "plain"])
def test_a_target_need_not_detect_duplicates(
    server: Server, credentials: Credentials, queue: str
) -> None:
    """P-33: nor need messages of a partitioned queue have a key, to be part of a transaction."""
    dead_letter(server, range(SENT), queue)
    done = resubmitted(credentials, queue, queue)
    assert done.moved == SENT
    copies = taken(server, queue, SENT)
    assert sorted(int(str(each)) for each in copies) == list(range(SENT))
    # Nobody drops it as a duplicate, so it is the message that was sent.
    assert {str(each.message_id) for each in copies} == {f"m-{n}" for n in range(SENT)}
    assert copies[0].application_properties == {b"n": int(str(copies[0]))}
    assert triage.look(queue, credentials) == []


def test_a_session_keeps_its_order(server: Server, credentials: Credentials) -> None:
    """P-40: a session's copies meet in one partition again; SES-12: dead letters have none."""
    for session in ("a", "b"):
        dead_letter(server, range(12), "sessions", session_id=session)
    assert resubmitted(credentials, "sessions", "sessions").moved == 24
    for session in ("a", "b"):
        copies = taken(server, "sessions", 12, session_id=session)
        assert [int(str(each)) for each in copies] == list(range(12))


def test_a_target_with_sessions_refuses_others_before_anything_is_sent(
    server: Server, credentials: Credentials
) -> None:
    dead_letter(server, range(3), "plain")
    with pytest.raises(TriageError, match="3 of the 3 chosen dead letters have no session id"):
        resubmitted(credentials, "plain", "sessions")
    assert len(triage.look("plain", credentials)) == 3


def test_dead_letters_of_a_subscription_go_to_a_queue(
    server: Server, credentials: Credentials
) -> None:
    dead_letter(server, range(6), NEWS)
    assert resubmitted(credentials, NEWS, "plain", "Late").moved == 2
    copies = taken(server, "plain", 2)
    assert sorted(int(str(each)) for each in copies) == [1, 4]
    assert copies[0].application_properties[RESUBMITTED_FOR.encode()] == b"all"
    assert numbers_in(server, NEWS, 4, **DEAD) == [0, 2, 3, 5]


def test_rules_can_tell_what_was_resubmitted_for_another_subscription(
    server: Server, credentials: Credentials
) -> None:
    dead_letter(server, range(6), NEWS)
    assert numbers_in(server, "news/Subscriptions/rest", 6) == list(range(6))
    assert resubmitted(credentials, NEWS, "news").moved == 6
    assert numbers_in(server, NEWS, 6) == list(range(6))
    assert numbers_in(server, "news/Subscriptions/rest", 0) == []


def test_a_deferred_dead_letter_stays_and_is_counted(
    server: Server, credentials: Credentials
) -> None:
    dead_letter(server, range(3), "plain")
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        receiver_of(client, "plain", **DEAD) as receiver,
    ):
        aside, *others = received(receiver, 3)
        receiver.defer_message(aside)
        for each in others:
            receiver.abandon_message(each)
        done = resubmitted(credentials, "plain", "other")
        assert (done.moved, done.deferred, done.locked) == (2, 1, 0)
        (again,) = receiver.receive_deferred_messages(aside.sequence_number)
        assert str(again) == str(aside)


# --- Locks, kills and refusals -------------------------------------------------------------------


def test_locks_are_renewed_while_it_lasts_longer_than_they_do(
    server: Server, credentials: Credentials
) -> None:
    """LOCK-3: the unchosen are held all the time, and none of them counts as delivered."""
    dead_letter(server, range(SENT))
    groups: list[int] = []

    def slow(done: Resubmitted) -> None:
        groups.append(done.moved)
        time.sleep(2)  # a slow broker: about a dozen of 16 partitions have one of the twenty

    began = time.monotonic()
    chosen = chosen_of(credentials, "orders", "Late")
    done = Triage("orders", "other", credentials).resubmit(chosen, slow)
    assert time.monotonic() - began > 15, f"only {len(groups)} groups"
    assert (done.moved, done.refused) == (20, {})
    assert numbers_in(server, "other", 20) == with_reason("Late")
    dead = taken(server, "orders", 40, **DEAD)
    assert {each.delivery_count for each in dead} == {0}


def test_a_lock_that_was_lost_makes_no_copy(server: Server, credentials: Credentials) -> None:
    """TXN-2: somebody else has got the dead letters meanwhile; they are neither lost nor twice."""
    dead_letter(server, range(3), "brief")
    queue = DeadLetterQueue("brief", credentials, "other")
    held = queue.take()
    assert len(held) == 3
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        receiver_of(client, "brief", **DEAD) as receiver,
    ):
        received(receiver, 3)  # they come when the locks have run out
        for each in held:
            with pytest.raises(RolledBackError, match="lock"):
                queue.move([(each, copy_of(each.payload, 0, message_id="x"))])
    queue.close()
    assert resubmitted(credentials, "brief", "other").moved == 3
    assert numbers_in(server, "other", 3) == [0, 1, 2]


def test_a_broker_that_is_killed_is_waited_for(server: Server, credentials: Credentials) -> None:
    """Killed three times while transactions are under way (D-3, D-28): each is there once."""
    many = 600
    dead_letter(server, range(many))
    chosen = chosen_of(credentials, "orders")
    under_way = threading.Semaphore(0)
    result: list[Resubmitted] = []

    def run() -> None:
        job = Triage("orders", "other", credentials)
        result.append(job.resubmit(chosen, lambda done: under_way.release()))

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(3):
        assert under_way.acquire(timeout=SOON_S)
        server.kill()
        server.restart()
    thread.join(4 * SOON_S)
    (done,) = result
    assert (done.moved, done.gone, done.locked, done.refused) == (many, 0, 0, {})
    assert numbers_in(server, "other", many) == list(range(many))
    assert triage.look("orders", credentials) == []


def test_a_run_that_is_killed_is_run_again(server: Server) -> None:
    many = 20 * SENT
    dead_letter(server, range(many))
    command = [
        sys.executable, "-m", "busway", "dead-letters", "resubmit", "orders",
        "--reason", "Broken", "--to", "other", "--json",
    ]  # fmt: skip
    environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert " resubmitted" in line
    again = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert again.returncode == 0, again.stderr
    done = json.loads(again.stdout)
    assert done["moved"] < many // 3  # the run before had begun
    assert (done["gone"], done["locked"], done["refused"]) == (0, 0, {})
    assert numbers_in(server, "other", many // 3) == list(range(2, many, 3))
    rest = numbers_in(server, "orders", many - many // 3, **DEAD)
    assert rest == [number for number in range(many) if number % 3 != 2]


def test_one_that_the_target_refuses_does_not_keep_others(
    server: Server, credentials: Credentials
) -> None:
    """Its copy is larger than a message may be (LIM-1): it has an id and a property more."""
    dead_letter(server, range(5), "plain")
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with client.get_queue_sender("plain") as sender:
            sender.send_messages(ServiceBusMessage("6" * (256 * 1024 - 80), message_id="m"))
        with client.get_queue_receiver("plain") as receiver:
            (large,) = received(receiver, 1)
            receiver.dead_letter_message(large)
    done = resubmitted(credentials, "plain", "other")
    assert done.moved == 5
    ((text, count),) = done.refused.items()
    assert count == 1
    assert "exceeds the limit" in text
    assert numbers_in(server, "other", 5) == list(range(5))
    (left,) = triage.look("plain", credentials)
    assert left.message_id == "m"


def test_a_target_that_takes_nothing_ends_it(server: Server, credentials: Credentials) -> None:
    dead_letter(server, range(SENT), "plain")
    chosen = chosen_of(credentials, "plain")
    job = Triage("plain", "sessions", credentials)
    job._needs_session = False  # as for a key that may not know what the target is like
    with pytest.raises(TriageError, match="has refused 20 dead letters one after the other"):
        job.resubmit(chosen)
    assert numbers_in(server, "plain", SENT, **DEAD) == list(range(SENT))


def test_the_tier_basic_has_no_transactions() -> None:
    """TXN-7"""
    with Server("plain", "other", arguments=["--tier", "basic"]) as server:
        dead_letter(server, range(1), "plain")
        credentials = connection.read(server.connection_string)
        with pytest.raises(RefusedError, match="the tier Basic has not"):
            resubmitted(credentials, "plain", "other")


# --- Choosing, and the command -------------------------------------------------------------------


def test_a_condition_chooses(server: Server, credentials: Credentials) -> None:
    """In the language of subscriptions' rules (SQL-1), so that it needs nothing else."""
    dead_letter(server, range(SENT))
    letters = triage.look("orders", credentials)
    where = "n < 10 AND DeadLetterReason <> 'Late' AND sys.MessageId <> 'm-0'"
    chosen = triage.choose(letters, where=where)
    assert sorted(each.body for each in chosen) == [b"2", b"3", b"5", b"6", b"8", b"9"]
    assert triage.choose(letters, where="sys.State = 1") == []
    assert triage.choose(letters, where="sys.DeliveryCount = 0 AND 1 = 1") == letters
    assert triage.choose(letters, where="1 = 0") == []
    with pytest.raises(ConditionError, match="--where is not a condition"):
        triage.choose(letters, where="n <")


def test_what_is_wrong_is_said(credentials: Credentials) -> None:
    with pytest.raises(RefusedError, match="could not be found"):
        triage.look("nowhere", credentials)
    with pytest.raises(TargetError, match="There is no queue or topic 'nowhere'"):
        Triage("orders", "nowhere", credentials)


def test_the_command_shows_and_explains(server: Server) -> None:
    dead_letter(server, range(6), NEWS)
    environment = {**os.environ, "BUSWAY_CONNECTION_STRING": server.connection_string}

    def run(verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "busway", "dead-letters", verb, NEWS, *more],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    shown = run("list")
    assert f"6 dead letters in '{NEWS}'" in shown.stdout
    assert "2  Unreadable" in shown.stdout
    refused = run("resubmit", "--all")
    assert refused.returncode == 2
    assert "--to QUEUE, or --to news for the topic" in refused.stderr
    assert "Traceback" not in refused.stderr
    moved = run("resubmit", "--to", "plain", "--reason", "Late")
    assert moved.returncode == 0, moved.stderr
    assert f"2 of 2 dead letters of '{NEWS}' went to 'plain'" in moved.stdout
