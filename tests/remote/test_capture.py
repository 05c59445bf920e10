"""`busway capture`, as somebody at a terminal uses it (D-31)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.testing import Server
from tests.http.asking import ask, manager
from tests.remote.test_commands import run

CONFIG = """
[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"

[[access]]
name = "reader"
rights = ["Listen"]
key = "a-key-that-may-only-listen"
"""
SENT = 5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Each test has an entity of its own."""
    queues = ["orders", "switched", "limited", "read", "machine"]
    with Server(*queues, partitioned=["parts"], config=CONFIG) as running:
        yield running


def send(server: Server, queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for number in range(SENT):
            sender.send_messages(ServiceBusMessage(f"m{number}"))


def said(server: Server, *arguments: str) -> str:
    ended = run(server, "capture", *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def told(server: Server, entity: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(server, entity, "--json"))
    return found


def hold(server: Server, entity: str, offset: int) -> None:
    place = {"epoch": told(server, entity)["epoch"], "p": {"00": offset}, "v": 1}
    path = f"/{entity}/$journal/consumers/lake"
    assert ask(server, "PUT", path, {"offset": place}, token=manager(server)).status == 200


def test_it_is_switched_on_and_off(server: Server) -> None:
    assert "switched is not captured." in said(server, "switched")
    assert "switched is captured since 20" in said(server, "switched", "on")
    send(server, "switched")
    text = said(server, "switched")
    assert f"Its journal has {SENT} events" in text
    assert ["0", "0", "to", str(SENT), str(SENT)] in [line.split()[:5] for line in text.split("\n")]
    assert "switched is not captured." in said(server, "switched", "off")
    send(server, "switched")
    assert f"Its journal has {SENT} events" in said(server, "switched")


def test_a_subscription_has_a_journal_of_its_own(server: Server) -> None:
    said(server, "news/Subscriptions/all", "on")
    assert told(server, "news/Subscriptions/all")["subscription"] == "all"
    assert not told(server, "news")["capture"]


def test_partitions_are_told_where_there_is_something(server: Server) -> None:
    assert "partition" not in said(server, "parts", "on")
    send(server, "parts")
    rows = said(server, "parts").partition("partition ")[2].splitlines()[1:]
    assert len(rows) == SENT
    assert len(told(server, "parts")["partitions"]) == 16


def test_it_has_limits_of_its_own_until_they_are_taken_back(server: Server) -> None:
    text = said(server, "limited", "on", "--retention", "36h", "--max-size-mb", "512")
    assert "kept for 1d12h (its own) and up to 512 MB (its own), 4,096 MB for readers" in text
    assert "kept for 1d12h (its own) and up to 512 MB (its own)" in said(server, "limited")
    text = said(server, "limited", "--retention", "default", "--held-size-mb", "9")
    assert "is captured" in text, "limits alone switch nothing"
    assert "kept for 7d and up to 512 MB (its own), 9 MB for readers that are behind" in text


def test_its_readers_are_told_and_how_far_behind_they_are(server: Server) -> None:
    said(server, "read", "on")
    send(server, "read")
    hold(server, "read", 2)
    (line,) = (row.split() for row in said(server, "read").splitlines() if row.startswith("lake"))
    assert line[:3] == ["lake", str(SENT - 2), "events"]
    text = said(server, "read", "off")
    assert "1 of its readers have not read all of it" in text
    hold(server, "read", SENT)
    assert "have not read" not in said(server, "read", "off")


def test_programs_get_one_object(server: Server) -> None:
    assert told(server, "machine") == {
        "capture": False,
        "since": None,
        "limits": {"retention": "P7D", "max_size_mb": 1024, "held_size_mb": 4096},
        "own_limits": [],
        "partitions": [],
        "consumers": [],
    }
    found = json.loads(said(server, "machine", "on", "--json"))
    assert (found["entity"], found["capture"], found["consumers"]) == ("machine", True, [])


def test_who_may_listen_may_look_and_not_switch(server: Server) -> None:
    root = server.connection_string.partition("SharedAccessKeyName=")[0]
    listening = (
        f"{root}SharedAccessKeyName=reader;SharedAccessKey=a-key-that-may-only-listen;"
        "UseDevelopmentEmulator=true;"
    )
    ended = run(None, "capture", "orders", connection_string=listening)
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = run(None, "capture", "orders", "on", connection_string=listening)
    assert ended.returncode == 4
    assert "that rule may not manage" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["ordres"], 1, "There is no 'ordres' at localhost:"),
        (["ordres"], 1, "Is it 'orders'?"),
        (["News/subscriptions/al"], 1, "Is it 'news/Subscriptions/all'?"),
        (["nothing/like/it"], 1, "There is no 'nothing/like/it'"),
        (["orders", "maybe"], 2, "'maybe' is neither on nor off"),
        (["orders", "on", "--retention", "5s"], 2, "--retention is '5s', and must be a duration"),
        (["orders", "on", "--max-size-mb", "0"], 2, "--max-size-mb is '0', and must be 1 to"),
        (["orders", "--held-size-mb", "1g"], 2, "--held-size-mb is '1g', and must be a whole"),
    ],
)
def test_what_cannot_be_is_said(
    server: Server, arguments: list[str], status: int, text: str
) -> None:
    ended = run(server, "capture", *arguments)
    assert ended.returncode == status
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


NOBODY = "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;"


@pytest.mark.parametrize(
    ("connection_string", "text", "status"),
    [
        ("nonsense", "is not one", 2),
        (f"{NOBODY}UseDevelopmentEmulator=true;", "Nobody listens at localhost:1", 3),
        (NOBODY, "Nobody listens at localhost:1", 3),
    ],
)
def test_a_server_that_is_not_there_is_said_so(
    connection_string: str, text: str, status: int
) -> None:
    ended = run(None, "capture", "orders", connection_string=connection_string)
    assert ended.returncode == status
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_without_tls_is_said_so(server: Server) -> None:
    in_tls = server.connection_string.replace("UseDevelopmentEmulator=true;", "")
    ended = run(None, "capture", "orders", connection_string=in_tls)
    assert ended.returncode == 3
    assert "speaks no TLS" in ended.stderr
