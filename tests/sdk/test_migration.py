"""A queue that is migrated, as an application sees it: the same messages under the same name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError

from busway.testing import Server
from tests.http.asking import Reply, ask, manager, map_of
from tests.sdk.conftest import WAIT_S, received, wait_until

CONFIG = """
[[queues]]
name = "sessions"
requires_session = true
lock_duration = "5m"

[[queues]]
name = "sessions-in-parts"
partitioned = true
requires_session = true
lock_duration = "5m"

[[queues]]
name = "orders"

[[queues]]
name = "spread"
partitioned = true
lock_duration = "15s"

[[queues]]
name = "before"
forward_to = "spread"
"""
SESSIONS = [f"s{number}" for number in range(6)]
TOMORROW = timedelta(days=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data", arguments=["--stores", "2"]) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(
        server.connection_string, retry_backoff_factor=0.1
    ) as made:
        yield made


def request(server: Server, method: str, path: str = "", body: object = None) -> Reply:
    return ask(server, method, f"/$busway/migrations{path}", body, token=manager(server))


def kinds(server: Server) -> dict[str, bool]:
    """All queues and topics, and whether they are partitioned."""
    return {each["name"]: each["partitioned"] for each in map_of(server)["entities"]}


def start(server: Server, queue: str, *, partitioned: bool) -> Any:
    wanted = {"entity": queue, "partitioned": partitioned}
    reply = request(server, "POST", "", wanted)
    assert reply.status == 200, reply.text
    return reply.json


def moved(server: Server, queue: str) -> bool:
    return bool(request(server, "GET", f"/{queue}").json["phase"] == "moved")


def migrate(server: Server, queue: str, *, partitioned: bool) -> Any:
    start(server, queue, partitioned=partitioned)
    wait_until(lambda: moved(server, queue), 300)
    reply = request(server, "POST", f"/{queue}/switch")
    assert reply.status == 200, reply.text
    return reply.json


def send(client: ServiceBusClient, queue: str, count: int, *, sessions: bool) -> None:
    with client.get_queue_sender(queue) as sender:
        for number in range(count):
            sender.send_messages(
                ServiceBusMessage(
                    f"body {number}",
                    message_id=f"m{number}",
                    session_id=SESSIONS[number % len(SESSIONS)] if sessions else None,
                    application_properties={"n": number},
                )
            )


def bodies(client: ServiceBusClient, queue: str, session: str | None, count: int) -> list[str]:
    with client.get_queue_receiver(queue, session_id=session) as receiver:  # type: ignore[arg-type]
        found: list[str] = []
        while len(found) < count:
            page = receiver.receive_messages(count, max_wait_time=WAIT_S)
            assert page, f"only {len(found)} of {count} came"
            for message in page:
                found.append(str(message))
                receiver.complete_message(message)
        return found


@pytest.mark.parametrize("first", [True, False], ids=["to partitioned", "to conventional"])
def test_d_27_all_that_a_queue_holds_is_there_afterwards(
    server: Server,
    client: ServiceBusClient,
    first: bool,
) -> None:
    """Sessions in order with their states, scheduled, deferred and dead letters; both ways."""
    queue = "sessions" if first else "sessions-in-parts"
    before = kinds(server)
    send(client, queue, 60, sessions=True)
    due = datetime.now(UTC) + TOMORROW
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("later", session_id="s1"), due)
    with client.get_queue_receiver(queue, session_id="s0") as receiver:
        deferred, dead, returned = received(receiver, 3)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead, reason="bad", error_description="very")
        receiver.abandon_message(returned)
        receiver.session.set_state(b"so far")

    ended = migrate(server, queue, partitioned=first)

    assert (ended["phase"], ended["partitioned"]) == ("none", first)
    assert kinds(server)[queue] is first
    assert kinds(server).keys() == before.keys()
    with client.get_queue_receiver(queue, session_id="s0", sub_queue=None) as receiver:
        assert receiver.session.get_state() == b"so far", "SES-10"
        peeked = receiver.peek_messages(100)
        by_state = {
            state: [each for each in peeked if each.state == state]
            for state in ServiceBusMessageState
        }
        (was_deferred,) = by_state[ServiceBusMessageState.DEFERRED]
        assert str(was_deferred) == str(deferred)
        number = was_deferred.sequence_number
        assert number is not None
        (again,) = receiver.receive_deferred_messages(number)
        assert again.application_properties == deferred.application_properties
        receiver.complete_message(again)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (letter,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert (str(letter), letter.dead_letter_reason, letter.dead_letter_error_description) == (
            str(dead),
            "bad",
            "very",
        )
        receiver.complete_message(letter)
    with client.get_queue_receiver(queue, session_id="s1") as receiver:
        scheduled = [
            each
            for each in receiver.peek_messages(100)
            if each.state == ServiceBusMessageState.SCHEDULED
        ]
        assert [str(each) for each in scheduled] == ["later"]
        assert scheduled[0].scheduled_enqueue_time_utc == due.replace(
            microsecond=due.microsecond // 1000 * 1000
        )
    expected = {
        session: [f"body {n}" for n in range(k, 60, 6)] for k, session in enumerate(SESSIONS)
    }
    expected["s0"] = expected["s0"][2:]
    for session, texts in expected.items():
        assert bodies(client, queue, session, len(texts)) == texts, "SES-4"


def test_d_27_a_kill_in_the_middle_loses_and_doubles_nothing(server: Server) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("sessions") as sender,
    ):
        for session in SESSIONS:
            texts = [f"{session} {number}" for number in range(500)]
            for first in range(0, 500, 100):
                sender.send_messages(
                    [ServiceBusMessage(t, session_id=session) for t in texts[first : first + 100]]
                )
    start(server, "sessions", partitioned=True)
    for _ in range(3):  # where it is by then is for chance; the simulation tries every place
        server.kill()
        server.restart()
    wait_until(lambda: moved(server, "sessions"), 300)
    assert request(server, "POST", "/sessions/switch").status == 200
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        for session in SESSIONS:
            expected = [f"{session} {number}" for number in range(500)]
            assert bodies(client, "sessions", session, 500) == expected
    assert request(server, "GET", "/sessions").json["left"] == {}


def test_a_queue_is_stopped_meanwhile_and_what_is_forwarded_to_it_waits(
    server: Server,
    client: ServiceBusClient,
) -> None:
    send(client, "spread", 8, sessions=False)
    with client.get_queue_receiver("spread") as receiver:
        held = receiver.receive_messages(1, max_wait_time=WAIT_S)
        assert len(held) == 1
        told = start(server, "spread", partitioned=False)
        assert told["twin"] == "spread.migration-1"
        refused = request(server, "POST", "/spread/switch")
        assert refused.status == 409
        assert "not empty yet" in refused.json["detail"]
        assert request(server, "DELETE", "/before").json["phase"] == "none"
    with client.get_queue_sender("before") as sender:
        sender.send_messages(ServiceBusMessage("forwarded"))
    with pytest.raises(ServiceBusError), client.get_queue_sender("spread") as sender:
        sender.send_messages(ServiceBusMessage("refused"))
    wait_until(lambda: moved(server, "spread"), 300)
    assert request(server, "POST", "/spread/switch").status == 200
    found = bodies(client, "spread", None, 9)
    assert sorted(found) == sorted([*(f"body {n}" for n in range(8)), "forwarded"])


def test_called_off_before_anything_was_moved_it_is_as_it_was(
    server: Server, client: ServiceBusClient
) -> None:
    start(server, "orders", partitioned=True)
    again = start(server, "orders", partitioned=True)
    assert again["twin"] == "orders.migration-1", "asked for again, it is the same one"
    assert request(server, "DELETE", "/orders").json["phase"] == "none"
    assert "orders.migration-1" not in kinds(server)
    send(client, "orders", 3, sessions=False)
    assert bodies(client, "orders", None, 3) == [f"body {n}" for n in range(3)]


def test_what_cannot_be_migrated_is_told_why(server: Server) -> None:
    asked = {
        404: {"entity": "nobody", "partitioned": True},
        400: {"entity": "orders", "partitioned": "yes"},
    }
    for status, wanted in asked.items():
        assert request(server, "POST", "", wanted).status == status
    assert start(server, "orders", partitioned=False)["phase"] == "none", "it is so already"
    start(server, "orders", partitioned=True)
    assert request(server, "POST", "", {"entity": "orders", "partitioned": False}).status == 409
    assert request(server, "GET", "/orders.migration-1").status == 409
    assert ask(server, "GET", "/$busway/migrations/orders").status == 401
