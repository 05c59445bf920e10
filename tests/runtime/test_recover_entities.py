"""A catalog that is gone, and every kind of entity attached again: each message in its place.

With the real server and the SDK: a partitioned queue, sessions with their states, a topic with
subscriptions, scheduled and deferred messages, dead letters, and a second namespace.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from typer.testing import CliRunner

from busway.cli import app
from busway.cluster import attaching
from busway.store.sqlite_recovery import RecoveryError
from busway.testing import Server
from busway.testing.server import ServerError

CONFIG = """
[[queues]]
name = "parts"
partitioned = true
[[queues]]
name = "tickets"
requires_session = true
[[topics]]
name = "news"
[[topics.subscriptions]]
name = "all"
[[topics.subscriptions]]
name = "calls"
requires_session = true
[namespaces.second]
[[namespaces.second.queues]]
name = "orders"
"""
WAIT_S = 60
MESSAGES = 30
SESSIONS = ("red", "blue")
LATER = datetime.now(UTC) + timedelta(days=2)


def busway(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def fill(running: Server) -> int:
    """The number of the message that is deferred."""
    with ServiceBusClient.from_connection_string(running.connection_string) as client:
        with client.get_queue_sender("parts") as sender:
            for number in range(MESSAGES):
                sender.send_messages(
                    ServiceBusMessage(f"parts {number}", partition_key=f"k{number % 5}")
                )
        with client.get_queue_sender("tickets") as sender, client.get_topic_sender("news") as news:
            for number in range(8):
                session = SESSIONS[number % 2]
                sender.send_messages(ServiceBusMessage(f"ticket {number}", session_id=session))
                news.send_messages(ServiceBusMessage(f"news {number}", session_id=session))
            sender.schedule_messages(ServiceBusMessage("later", session_id="red"), LATER)
        for session in SESSIONS:
            with client.get_queue_receiver("tickets", session_id=session) as receiver:
                receiver.session.set_state(f"state of {session}")
        with client.get_subscription_receiver("news", "all", max_wait_time=WAIT_S) as receiver:
            first, second = receive(receiver, 2)
            receiver.defer_message(first)
            receiver.dead_letter_message(second, reason="sorted out")
            deferred = first.sequence_number
    with (
        of_second(running) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(f"second {number}") for number in range(4)])
    assert deferred is not None
    return deferred


def of_second(running: Server) -> ServiceBusClient:
    """A client of the other namespace, whose host name not every machine resolves."""
    return ServiceBusClient.from_connection_string(
        running.connection_strings["second"],
        custom_endpoint_address=f"sb://localhost:{running.port}",
    )


def receive(receiver, count: int) -> list:  # type: ignore[no-untyped-def, type-arg]
    found: list = []  # type: ignore[type-arg]
    while len(found) < count:
        page = receiver.receive_messages(count - len(found), max_wait_time=WAIT_S)
        assert page, f"{len(found)} of {count} came"
        found += page
    return found


def bodies(receiver, count: int) -> list[str]:  # type: ignore[no-untyped-def]
    with receiver:
        found = receive(receiver, count)
        for each in found:
            receiver.complete_message(each)
        return [str(each) for each in found]


def incarnations(data: Path) -> dict[str, int]:
    """By namespace and path, as the catalog had them."""
    with closing(sqlite3.connect(data / "catalog.db")) as catalog:
        rows = catalog.execute("SELECT namespace, path, incarnation FROM entities").fetchall()
    return {f"{namespace}:{path}": incarnation for namespace, path, incarnation in rows}


def lose_catalog(data: Path) -> dict[str, int]:
    known = incarnations(data)
    for file in data.glob("catalog.db*"):
        file.unlink()
    return known


@pytest.mark.timeout(600)
def test_every_kind_of_entity_has_its_messages_again(data: Path) -> None:
    with Server(config=CONFIG, data=data) as running:
        deferred = fill(running)
        running.stop()
        known = lose_catalog(data)
        for path in (
            "parts",
            "tickets",
            "news/Subscriptions/all",
            "news/Subscriptions/calls",
        ):
            busway("recover", data, "--attach", f"{known[f'busway:{path}']}={path}")
        refused = CliRunner().invoke(
            app,
            [
                "recover",
                str(data),
                "--namespace",
                "second",
                "--attach",
                f"{known['second:orders']}=o",
            ],
        )
        assert refused.exit_code == 2
        assert "there is no namespace 'second'" in refused.output
        with pytest.raises(ServerError, match="4 messages of entities that the catalog"):
            running.start()  # refused, but its namespaces are made before stores are opened
        busway(
            "recover", data, "--namespace", "second", "--attach", f"{known['second:orders']}=orders"
        )
        assert "nothing is damaged" in busway("verify", data)
        running.start()
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            check(client, deferred)
        with of_second(running) as client:
            wanted = [f"second {number}" for number in range(4)]
            assert bodies(client.get_queue_receiver("orders"), 4) == wanted


def check(client: ServiceBusClient, deferred: int) -> None:
    parts = bodies(client.get_queue_receiver("parts"), MESSAGES)
    assert sorted(parts) == sorted(f"parts {number}" for number in range(MESSAGES))
    for key in range(5):  # order within a partition key
        mine = [each for each in parts if int(each.split()[1]) % 5 == key]
        assert mine == [f"parts {number}" for number in range(key, MESSAGES, 5)]
    for index, session in enumerate(SESSIONS):
        receiver = client.get_queue_receiver("tickets", session_id=session)
        with receiver:
            assert receiver.session.get_state() == f"state of {session}".encode()
            got = [str(each) for each in receive(receiver, 4)]
        assert got == [f"ticket {number}" for number in range(index, 8, 2)]
        calls = client.get_subscription_receiver("news", "calls", session_id=session)
        assert bodies(calls, 4) == [f"news {number}" for number in range(index, 8, 2)]
    with client.get_queue_receiver("tickets", session_id="red") as receiver:
        scheduled = [each for each in receiver.peek_messages(20) if str(each) == "later"]
        assert [each.scheduled_enqueue_time_utc for each in scheduled] == [
            LATER.replace(microsecond=LATER.microsecond // 1000 * 1000)
        ]
    with client.get_subscription_receiver("news", "all") as receiver:
        (again,) = receiver.receive_deferred_messages(deferred)
        assert str(again) == "news 0"
        assert [str(each) for each in receive(receiver, 6)] == [f"news {n}" for n in range(2, 8)]
    dead = client.get_subscription_receiver("news", "all", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    with dead:
        (letter,) = receive(dead, 1)
        assert (str(letter), letter.dead_letter_reason) == ("news 1", "sorted out")


@pytest.mark.timeout(300)
def test_what_would_take_messages_from_others_is_refused(data: Path) -> None:
    config = '[[topics]]\nname = "news"\n[[topics.subscriptions]]\nname = "all"\n'
    with Server("a", "b", config=config, data=data) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            for queue in ("a", "b"):
                with client.get_queue_sender(queue) as sender:
                    sender.send_messages(ServiceBusMessage(queue))
        running.stop()
    known = lose_catalog(data)
    give = lambda name, target: attaching.attach(data, known[f"busway:{name}"], target, os.urandom)  # noqa: E731
    assert give("a", "a") == 1
    with pytest.raises(RecoveryError, match=r"has messages (of its own )?in"):
        give("b", "a")
    with pytest.raises(RecoveryError, match="'a' is a queue, not a topic"):
        give("b", "a/Subscriptions/x")
    with pytest.raises(RecoveryError, match=r"no store in .* holds anything of incarnation 17"):
        attaching.attach(data, 17, "a", os.urandom)
    assert give("b", "news/Subscriptions/late") == 1
