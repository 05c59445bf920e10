"""A topic that is migrated, and a migration that is called off, as an application sees them."""

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

from busway.testing import Server
from tests.http.asking import Reply, ask, manager
from tests.http.atom_client import Management, description
from tests.sdk.conftest import received, wait_until

CONFIG = """
[[queues]]
name = "archive"

[[queues]]
name = "orders"
requires_session = true
lock_duration = "5m"

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "talks"
requires_session = true
lock_duration = "5m"

[[topics.subscriptions]]
name = "even"
lock_duration = "5m"
[[topics.subscriptions.rules]]
name = "even"
sql_filter = "n % 2 = 0"
action = "SET even = 'yes'"

[[topics.subscriptions]]
name = "kept"
forward_to = "archive"
"""
SESSIONS = [f"s{number}" for number in range(4)]
SENT = 40
PATIENCE_S = 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path / "data", arguments=["--stores", "2"]) as running:
        yield running


def client_of(server: Server) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        server.connection_string, retry_backoff_factor=0.1
    )


def request(server: Server, method: str, path: str = "", body: object = None) -> Reply:
    return ask(server, method, f"/$busway/migrations{path}", body, token=manager(server))


def asked(server: Server, method: str, path: str = "", body: object = None) -> Any:
    reply = request(server, method, path, body)
    assert reply.status == 200, reply.text
    return reply.json


def start(server: Server, entity: str, *, partitioned: bool) -> Any:
    return asked(server, "POST", "", {"entity": entity, "partitioned": partitioned})


def until(server: Server, entity: str, phase: str) -> Any:
    def found() -> Any:
        told = asked(server, "GET", f"/{entity}")
        return told if told["phase"] == phase else None

    return wait_until(found, PATIENCE_S)


def message(number: int) -> ServiceBusMessage:
    return ServiceBusMessage(
        f"body {number}",
        message_id=f"m{number}",
        session_id=SESSIONS[number % len(SESSIONS)],
        application_properties={"n": number},
    )


def send(sender: Any, first: int, last: int) -> None:
    with sender:
        for number in range(first, last):
            sender.send_messages(message(number))


def in_session(receiver: Any, count: int) -> list[str]:
    with receiver:
        found = received(receiver, count)
        for each in found:
            receiver.complete_message(each)
        return [str(each) for each in found]


def expected(session: int, count: int = SENT) -> list[str]:
    return [f"body {number}" for number in range(session, count, len(SESSIONS))]


@pytest.mark.parametrize("kill", [False, True], ids=["there and back", "with kills"])
def test_d_27_all_that_a_topic_and_its_subscriptions_hold_is_there_afterwards(
    server: Server, kill: bool
) -> None:
    """Sessions in order, states, deferred, dead letters, what waits in the topic, forwarding."""
    due = datetime.now(UTC) + timedelta(days=1)
    with client_of(server) as client:
        send(client.get_topic_sender("news"), 0, SENT)
        with client.get_topic_sender("news") as sender:
            sender.schedule_messages(message(100), due)
        with client.get_subscription_receiver("news", "talks", session_id="s0") as receiver:
            deferred, dead = received(receiver, 2)
            receiver.defer_message(deferred)
            receiver.dead_letter_message(dead, reason="bad", error_description="very")
            receiver.session.set_state(b"so far")
    for partitioned in (True,) if kill else (True, False):
        told = start(server, "news", partitioned=partitioned)
        assert told["twin"].startswith("news.migration-")
        for _ in range(3 if kill else 0):  # where it is by then is for chance (see tests/sim)
            server.kill()
            server.restart()
        told = until(server, "news", "moved")
        assert [part["entity"] for part in told["parts"]] == [
            "news",
            "news/Subscriptions/even",
            "news/Subscriptions/kept",
            "news/Subscriptions/talks",
        ]
        assert told["left"] == {}
        assert told["moved"]["scheduled"] == 1
        ended = asked(server, "POST", "/news/switch")
        assert (ended["phase"], ended["partitioned"]) == ("none", partitioned)

    with client_of(server) as client:
        with client.get_subscription_receiver("news", "talks", session_id="s0") as receiver:
            assert receiver.session.get_state() == b"so far", "SES-10"
            (was_deferred,) = (
                each
                for each in receiver.peek_messages(100)
                if each.state == ServiceBusMessageState.DEFERRED
            )
            assert str(was_deferred) == str(deferred)
            number = was_deferred.sequence_number
            assert number is not None
            (again,) = receiver.receive_deferred_messages(number)
            receiver.complete_message(again)
        with client.get_subscription_receiver(
            "news", "talks", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        ) as receiver:
            (letter,) = received(receiver, 1)
            assert (str(letter), letter.dead_letter_reason) == (str(dead), "bad")
        for number, session in enumerate(SESSIONS):
            receiver = client.get_subscription_receiver("news", "talks", session_id=session)
            texts = expected(number)[2 if number == 0 else 0 :]
            assert in_session(receiver, len(texts)) == texts, "SES-4"
        with client.get_subscription_receiver("news", "even") as receiver:
            even = received(receiver, SENT // 2)
            assert {str(each) for each in even} == {f"body {n}" for n in range(0, SENT, 2)}
            properties = even[0].application_properties
            assert properties is not None
            assert properties[b"even"] == b"yes", "the action was carried out once, when it came"
            for each in even:
                receiver.complete_message(each)
        # And it goes on: rules, forwarding, and what was scheduled can be cancelled (SCH-4).
        send(client.get_topic_sender("news"), SENT, SENT + 2)
        with client.get_subscription_receiver("news", "even") as receiver:
            assert [str(each) for each in received(receiver, 1)] == [f"body {SENT}"]
        with client.get_queue_receiver("archive") as receiver:
            forwarded = {str(each) for each in received(receiver, SENT + 2)}
            assert forwarded == {f"body {n}" for n in range(SENT + 2)}


def test_called_off_after_it_was_moved_everything_comes_back_in_order(server: Server) -> None:
    with client_of(server) as client:
        send(client.get_queue_sender("orders"), 0, SENT)
        with client.get_queue_receiver("orders", session_id="s0") as receiver:
            receiver.session.set_state(b"so far")
    start(server, "orders", partitioned=True)
    until(server, "orders", "moved")
    back = asked(server, "DELETE", "/orders")
    assert (back["phase"], back["called_off"]) in (("returning", True), ("returned", True))
    for path in ("POST /orders/switch", "POST "):
        method, _, rest = path.partition(" ")
        refused = request(server, method, rest, {"entity": "orders", "partitioned": True})
        assert refused.status == 409
        assert "called off" in refused.json["detail"]
    server.kill()
    server.restart()
    assert until(server, "orders", "returned")["moved"] == {}
    assert asked(server, "DELETE", "/orders")["phase"] == "none"
    with client_of(server) as client:
        send(client.get_queue_sender("orders"), SENT, SENT + 4)
        with client.get_queue_receiver("orders", session_id="s0") as receiver:
            assert receiver.session.get_state() == b"so far"
        for number, session in enumerate(SESSIONS):
            receiver = client.get_queue_receiver("orders", session_id=session)
            texts = expected(number, SENT + 4)
            assert in_session(receiver, len(texts)) == texts, "SES-4"
    again = start(server, "orders", partitioned=True)
    assert again["phase"] in ("moving", "moved"), "and it can be migrated after all"


def test_called_off_while_it_moves_it_goes_to_its_end_first(server: Server) -> None:
    """A message that somebody has locked keeps the move from its end for as long as we like."""
    with client_of(server) as client:
        send(client.get_topic_sender("news"), 0, 8)
        with client.get_subscription_receiver("news", "even") as receiver:
            received(receiver, 1)
            start(server, "news", partitioned=True)
            wait_until(lambda: asked(server, "GET", "/news")["moved"])
            told = asked(server, "DELETE", "/news")
            assert (told["phase"], told["called_off"], told["locked"]) == ("moving", True, 1)
            assert asked(server, "DELETE", "/news")["phase"] == "moving", "asked for again"
    server.kill()  # and with it every lock (D-5)
    server.restart()
    until(server, "news", "moved")
    asked(server, "DELETE", "/news")
    until(server, "news", "returned")
    assert asked(server, "DELETE", "/news")["phase"] == "none"
    with client_of(server) as client:
        for number, session in enumerate(SESSIONS):
            receiver = client.get_subscription_receiver("news", "talks", session_id=session)
            assert in_session(receiver, 2) == expected(number, 8)


def test_what_is_being_migrated_cannot_be_changed_and_says_so(server: Server) -> None:
    first = start(server, "news", partitioned=True)
    second = start(server, "news", partitioned=True)
    assert second["twin"] == first["twin"], "asked for again at once, it is the same one"
    bus = Management(server)
    attempts: dict[str, bytes | None] = {
        "DELETE /news": None,
        "PUT /news/Subscriptions/late": description("Subscription"),
        "DELETE /news/Subscriptions/even": None,
        "PUT /news/Subscriptions/even/Rules/late": description("Rule"),
        "DELETE /news/Subscriptions/even/Rules/even": None,
        f"DELETE /{first['twin']}": None,
    }
    for attempt, body in attempts.items():
        refused = bus.request(*attempt.split(" "), body)
        assert (refused.status // 100, attempt) == (4, attempt)
        assert "is being migrated" in refused.detail
    assert request(server, "GET", f"/{first['twin']}").status == 409
    asked(server, "DELETE", "/news")
    assert bus.request("DELETE", "/news").status == 200
    assert request(server, "GET", "/news").status == 404
    assert request(server, "POST", "/news/switch").status == 404
