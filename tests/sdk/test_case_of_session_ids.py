"""Session ids that differ only in case: one session; two in older entities (SES-13)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
)
from azure.servicebus.exceptions import OperationTimeoutError

from busway.testing import Server

BEFORE = Path(__file__).with_name("case_of_session_ids")
WAIT_S = 5
NEW = """
[[queues]]
name = "new-plain"
requires_session = true
[[queues]]
name = "new-parts"
requires_session = true
partitioned = true
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of a version that told session ids apart by case: the queues `plain` and
    `parts` and the topic `news`, each with a message and a state in *Order* and in *order*."""
    folder = tmp_path / "data"
    folder.mkdir()
    for script in BEFORE.glob("*.sql"):
        made = sqlite3.connect(folder / f"{script.stem}.db")
        made.executescript(script.read_text())
        made.execute("PRAGMA journal_mode = WAL")
        made.close()
    return folder


@pytest.fixture
def server(data: Path) -> Iterator[Server]:
    with Server(config=NEW, data=data, arguments=["--stores", "1"]) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string) as made:
        yield made


Accept = Callable[[Any], ServiceBusReceiver]


def accepter(client: ServiceBusClient, name: str) -> Accept:
    def accept(session_id: Any) -> ServiceBusReceiver:
        if name == "news":
            return client.get_subscription_receiver(
                name, "all", session_id=session_id, max_wait_time=WAIT_S
            )
        return client.get_queue_receiver(name, session_id=session_id, max_wait_time=WAIT_S)

    return accept


def send(client: ServiceBusClient, name: str, *session_ids: str) -> None:
    sender = client.get_topic_sender(name) if name == "news" else client.get_queue_sender(name)
    with sender:
        for each in session_ids:
            sender.send_messages(ServiceBusMessage(f"more for {each}", session_id=each))


@pytest.mark.parametrize("name", ["plain", "parts", "news"])
def test_an_entity_from_before_keeps_two_sessions_apart(
    client: ServiceBusClient, name: str
) -> None:
    accept = accepter(client, name)
    send(client, name, "Order", "order")
    for session_id in ("Order", "order"):
        with accept(session_id) as receiver:
            assert receiver.session.get_state() == f"state of {session_id}".encode()
            found = receiver.receive_messages(5, max_wait_time=WAIT_S)
            while len(found) < 2:
                found += receiver.receive_messages(5, max_wait_time=WAIT_S)
            assert [str(each) for each in found] == [f"for {session_id}", f"more for {session_id}"]
            for each in found:
                receiver.complete_message(each)


@pytest.mark.parametrize("name", ["new-plain", "new-parts"])
def test_an_entity_made_today_has_one_session_also_after_a_crash(server: Server, name: str) -> None:
    """Its state, its order and its first spelling; each message keeps what was written on it."""
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        send(client, name, "SessionId", "sessionid")
        with accepter(client, name)("SESSIONID") as receiver:
            receiver.session.set_state("shared")
    server.kill()
    server.restart()
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        accept = accepter(client, name)
        with accept("sessionID") as receiver:
            assert receiver.session.session_id == "sessionID"
            assert receiver.session.get_state() == b"shared"
            assert [each.session_id for each in receiver.peek_messages(9)] == [
                "SessionId",
                "sessionid",
            ]
            [first] = receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert first.session_id == "SessionId"
            receiver.complete_message(first)
        with accept(NEXT_AVAILABLE_SESSION) as receiver:
            assert receiver.session.session_id == "SessionId"
            [second] = receiver.receive_messages(1, max_wait_time=WAIT_S)
            assert second.session_id == "sessionid"
            receiver.complete_message(second)
        with pytest.raises(OperationTimeoutError), accept(NEXT_AVAILABLE_SESSION):
            pass
