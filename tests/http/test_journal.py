"""Journals over HTTP: heads, plans, ranges as Arrow, holds (D-31, P-47)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.model.journal import COLUMNS
from busway.testing import Server
from tests.http.asking import Reply, ask, manager
from tests.sdk.conftest import wait_until

CONFIG = """
[[queues]]
name = "captured"
capture = true

[[queues]]
name = "spread"
enable_partitioning = true
capture = true

[[queues]]
name = "quiet"

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"
capture = true
"""
SENT = 40


@pytest.fixture(scope="module", params=["memory", "files"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data") if request.param == "files" else None
    with Server(config=CONFIG, data=data) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            for queue in ("captured", "spread"):
                with client.get_queue_sender(queue) as sender:
                    for number in range(SENT):
                        sender.send_messages(
                            ServiceBusMessage(f"b{number}", message_id=f"m{number}")
                        )
            with client.get_topic_sender("news") as sender:
                sender.send_messages(ServiceBusMessage("hello", message_id="n1"))
        yield running


def get(server: Server, path: str, **query: Any) -> Reply:
    text = f"?{urlencode(query)}" if query else ""
    return ask(server, "GET", f"/{path}{text}", token=manager(server))


def put(server: Server, path: str, body: object) -> Reply:
    return ask(server, "PUT", f"/{path}", body, token=manager(server))


def heads(server: Server, path: str) -> dict[str, Any]:
    reply = get(server, f"{path}/$journal")
    assert reply.status == 200, reply.text
    told: dict[str, Any] = reply.json
    return told


def rows(reply: Reply) -> list[dict[str, Any]]:
    assert reply.status == 200, reply.text
    assert reply.headers["content-type"] == "application/vnd.apache.arrow.stream"
    return pa.ipc.open_stream(reply.body).read_all().to_pylist()  # type: ignore[no-any-return]


class TestHeads:
    def test_say_where_each_partition_begins_and_ends(self, server: Server) -> None:
        told = heads(server, "captured")
        (part,) = told["partitions"]
        assert (told["entity"], told["subscription"], told["capture"]) == ("captured", None, True)
        assert (part["earliest"], part["next"], part["rows"]) == (0, SENT, SENT)
        assert part["earliest_time"] <= part["latest_time"]
        spread = heads(server, "spread")["partitions"]
        assert [each["partition"] for each in spread] == list(range(16))
        assert sum(each["rows"] for each in spread) == SENT

    def test_of_a_subscription_are_its_own(self, server: Server) -> None:
        told = heads(server, "news/Subscriptions/all")
        assert (told["entity"], told["subscription"]) == ("news", "all")
        assert told["partitions"][0]["next"] == 1

    def test_what_is_not_captured_says_how_to(self, server: Server) -> None:
        reply = get(server, "quiet/$journal")
        assert (reply.status, reply.json["error"]) == (404, "not-captured")
        assert '{"capture": true}' in reply.json["detail"]

    def test_what_is_not_there_is_not_found(self, server: Server) -> None:
        reply = get(server, "nowhere/$journal")
        assert (reply.status, reply.json["error"]) == (404, "not-found")


class TestTheSwitch:
    def test_captures_from_now_on_and_no_longer(self, server: Server) -> None:
        ask(server, "PUT", "/switched?api-version=2021-05", QUEUE, token=manager(server))
        told = put(server, "switched/$journal", {"capture": True}).json
        assert (told["capture"], told["partitions"][0]["next"]) == (True, 0)
        assert told["since"] is not None
        send(server, "switched", 3)
        assert heads(server, "switched")["partitions"][0]["next"] == 3
        put(server, "switched/$journal", {"capture": False})
        send(server, "switched", 3)
        told = heads(server, "switched")
        assert (told["capture"], told["since"], told["partitions"][0]["next"]) == (False, None, 3)

    def test_stays_when_a_client_of_the_service_updates_the_queue(self, server: Server) -> None:
        path = "/kept?api-version=2021-05"
        ask(server, "PUT", path, QUEUE, token=manager(server))
        put(server, "kept/$journal", {"capture": True})
        update = ask(server, "PUT", path, QUEUE, token=manager(server), headers={"If-Match": "*"})
        assert update.status == 200
        assert heads(server, "kept")["capture"]

    def test_says_how_much_is_kept(self, server: Server) -> None:
        ask(server, "PUT", "/limited?api-version=2021-05", QUEUE, token=manager(server))
        told = put(server, "limited/$journal", {"capture": True}).json
        defaults = {"retention": "P7D", "max_size_mb": 1024, "held_size_mb": 4096}
        assert (told["limits"], told["own_limits"]) == (defaults, [])
        told = put(server, "limited/$journal", {"retention": "36h", "max_size_mb": 5}).json
        own = {"retention": "P1DT12H", "max_size_mb": 5}
        assert (told["limits"], told["own_limits"]) == (defaults | own, list(own))
        assert told["capture"], "what is not said stays as it is"
        told = put(server, "limited/$journal", {"retention": None}).json
        assert (told["limits"]["retention"], told["own_limits"]) == ("P7D", ["max_size_mb"])
        told = put(server, "limited/$journal", {"capture": False}).json
        assert (told["capture"], told["limits"]["max_size_mb"]) == (False, 5)
        again = get(server, "limited/$journal").json
        assert (again["error"], again["limits"]) == ("not-captured", told["limits"])

    def test_limits_stay_when_a_client_of_the_service_updates_the_queue(
        self, server: Server
    ) -> None:
        path = "/kept-so?api-version=2021-05"
        ask(server, "PUT", path, QUEUE, token=manager(server))
        put(server, "kept-so/$journal", {"capture": True, "held_size_mb": 9})
        ask(server, "PUT", path, QUEUE, token=manager(server), headers={"If-Match": "*"})
        assert heads(server, "kept-so")["own_limits"] == ["held_size_mb"]

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ({"retention": "5s"}, "a duration of a minute or more"),
            ({"max_size_mb": 0}, "1 to"),
            ({"max_size_mb": "5"}, "a whole number of megabytes"),
            ({"retention_mb": 5}, "retention, max_size_mb, held_size_mb"),
            ({}, "retention, max_size_mb, held_size_mb"),
        ],
    )
    def test_limits_that_cannot_be_are_refused(
        self, server: Server, body: object, said: str
    ) -> None:
        reply = put(server, "quiet/$journal", body)
        assert (reply.status, reply.json["error"]) == (400, "bad-request")
        assert said in reply.json["detail"]

    @pytest.mark.parametrize("body", ["", "{", '{"capture": 1}', "[]", "null"])
    def test_wants_a_clear_word(self, server: Server, body: str) -> None:
        reply = put(server, "quiet/$journal", body)
        assert (reply.status, reply.json["error"]) == (400, "bad-request")


class TestReading:
    def test_gives_a_range_as_arrow(self, server: Server) -> None:
        epoch = heads(server, "captured")["epoch"]
        query = {"epoch": epoch, "partition": 0, "from": 5, "to": 9}
        found = rows(get(server, "captured/$journal/read", **query))
        assert [row["journal_offset"] for row in found] == [5, 6, 7, 8]
        assert [row["message_id"] for row in found] == ["m5", "m6", "m7", "m8"]
        assert list(found[0]) == [column.name for column in COLUMNS]

    def test_gives_the_columns_asked_for(self, server: Server) -> None:
        query = {"partition": 0, "from": 0, "to": 1, "columns": "body,event,raw"}
        (row,) = rows(get(server, "captured/$journal/read", **query))
        assert (row["event"], row["body"]) == ("enqueued", b"b0")
        assert b"b0" in row["raw"]

    def test_an_empty_range_has_a_schema(self, server: Server) -> None:
        reply = get(server, "captured/$journal/read", **{"partition": 0, "from": 3, "to": 3})
        assert rows(reply) == []

    @pytest.mark.parametrize(
        ("query", "status", "word"),
        [
            ({"partition": 0, "from": 0, "to": 1_000_000}, 400, "ahead"),
            ({"partition": 9, "from": 0, "to": 1}, 400, "bad-request"),
            ({"partition": 0, "from": 5, "to": 1}, 400, "bad-request"),
            ({"partition": 0, "to": 1}, 400, "bad-request"),
            ({"partition": 0, "from": "-1", "to": 1}, 400, "bad-request"),
            ({"partition": 0, "from": 0, "to": 1, "columns": "bodi"}, 400, "bad-request"),
            ({"partition": 0, "from": 0, "to": 1, "epoch": "old"}, 409, "epoch"),
        ],
    )
    def test_what_cannot_be_read_is_said(
        self, server: Server, query: dict[str, Any], status: int, word: str
    ) -> None:
        reply = get(server, "captured/$journal/read", **query)
        assert (reply.status, reply.json["error"]) == (status, word)

    def test_a_plan_is_fair_and_within_its_limits(self, server: Server) -> None:
        told = heads(server, "spread")
        start = offset(told["epoch"], dict.fromkeys(range(16), 0))
        reply = get(server, "spread/$journal/plan", **{"from": start, "rows": 20})
        ends = reply.json["to"]["p"]
        assert sum(ends.values()) == 20
        assert max(ends.values()) <= 2
        everything = get(server, "spread/$journal/plan", **{"from": start}).json["to"]["p"]
        assert sum(everything.values()) == SENT

    def test_a_time_is_a_place(self, server: Server) -> None:
        late = int(time.time() * 1000) + 60_000
        assert get(server, "captured/$journal/at", time=late).json["p"] == {"00": SENT}
        assert get(server, "captured/$journal/at", time="2020-01-01T00:00:00Z").json["p"] == {
            "00": 0
        }
        assert get(server, "captured/$journal/at", time="soon").status == 400


class TestConsumers:
    def test_hold_what_they_have_not_read(self, server: Server) -> None:
        told = heads(server, "captured")
        place = {"epoch": told["epoch"], "p": {"00": 7}, "v": 1}
        path = "captured/$journal/consumers/me%2Fand%20you"
        made = put(server, path, {"offset": place, "expires_s": 60})
        assert (made.status, made.json["name"]) == (200, "me/and you")
        found = get(server, path).json
        assert (found["offset"], found["lag_rows"]) == (place, SENT - 7)
        assert "me/and you" in [
            each["name"] for each in get(server, "captured/$journal/consumers").json
        ]
        assert ask(server, "DELETE", f"/{path}", token=manager(server)).status == 200
        assert get(server, path).status == 404

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"offset": {}},
            {"offset": {"epoch": "e", "p": {"00": -1}, "v": 1}},
            {"offset": {"epoch": "e", "p": {"00": 1}, "v": 1}, "expires_s": 0},
        ],
    )
    def test_say_what_they_mean(self, server: Server, body: object) -> None:
        assert put(server, "captured/$journal/consumers/x", body).status == 400


def test_a_journal_that_was_passed_by_tells_of_the_gap(tmp_path: Path) -> None:
    config = CONFIG + "\n[journal]\nmax_size_mb = 1\n"
    with Server(config=config, data=tmp_path) as server:
        send(server, "captured", 12, body=b"x" * 200_000)
        wait_until(lambda: heads(server, "captured")["partitions"][0]["earliest"] > 0)
        earliest = heads(server, "captured")["partitions"][0]["earliest"]
        reply = get(server, "captured/$journal/read", **{"partition": 0, "from": 0, "to": 1})
        assert (reply.status, reply.json["error"]) == (410, "gap")
        assert reply.json["earliest"] >= earliest


def test_a_limit_counts_at_once_and_after_a_kill(tmp_path: Path) -> None:
    with Server(config=CONFIG, data=tmp_path) as server:
        send(server, "captured", 12, body=b"x" * 200_000)
        put(server, "captured/$journal", {"max_size_mb": 1})
        wait_until(lambda: heads(server, "captured")["partitions"][0]["earliest"], 120)
        server.kill()
        server.restart()
        told = heads(server, "captured")
        assert (told["limits"]["max_size_mb"], told["own_limits"]) == (1, ["max_size_mb"])
        rows_before = told["partitions"][0]["rows"]
        send(server, "captured", 12, body=b"x" * 200_000)
        wait_until(lambda: heads(server, "captured")["partitions"][0]["rows"] <= rows_before, 120)


def test_a_hold_lasts_as_long_as_the_configuration_says_if_its_reader_does_not() -> None:
    with Server(config=f'{CONFIG}\n[journal]\nhold = "90d"\n') as server:
        place = {"epoch": heads(server, "captured")["epoch"], "p": {"00": 0}, "v": 1}
        made = put(server, "captured/$journal/consumers/me", {"offset": place}).json
        left = datetime.fromisoformat(made["expires"]) - datetime.now(UTC)
        assert timedelta(days=89) < left <= timedelta(days=90)


def test_a_kill_loses_no_event(tmp_path: Path) -> None:
    with Server(config=CONFIG, data=tmp_path) as server:
        send(server, "captured", 25)
        server.kill()
        server.restart()
        query = {"partition": 0, "from": 0, "to": 25, "columns": "event,message_id"}
        found = rows(get(server, "captured/$journal/read", **query))
        assert [row["message_id"] for row in found] == [f"m{n}" for n in range(25)]


@pytest.mark.parametrize("kept", ["memory", "files"])
def test_what_is_not_installed_is_told_as_such_and_not_as_busy(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client waits while a server is busy; for a library it would wait in vain."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('there is no pyarrow')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Server(config=CONFIG, data=tmp_path / "data" if kept == "files" else None) as bare:
        reply = get(bare, "captured/$journal/read", partition=0, **{"from": 0, "to": 0})
        assert (reply.status, reply.json["error"]) == (501, "not-installed")
        assert "make pipeline" in reply.json["detail"]
        assert heads(bare, "captured")["partitions"]


LARGE, LARGE_BYTES = 150, 200_000
"""More than a batch, one that is read ahead, and all that sockets hold."""


def test_a_reader_whose_rows_are_forgotten_meanwhile_is_cut_off(tmp_path: Path) -> None:
    """It is not told an end that is none."""
    with Server(config=CONFIG, data=tmp_path) as server:
        send(server, "captured", LARGE, b"x" * LARGE_BYTES)
        path = f"/captured/$journal/read?partition=0&from=0&to={LARGE}"
        with closing(socket.socket()) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            slow.settimeout(60)
            slow.connect(("127.0.0.1", server.port))
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {manager(server)}"
            slow.sendall(f"{head}\r\n\r\n".encode())
            got = slow.recv(1024)
            assert got.startswith(b"HTTP/1.1 200 ")
            assert (
                put(server, "captured/$journal", {"capture": True, "max_size_mb": 1}).status == 200
            )
            wait_until(lambda: heads(server, "captured")["partitions"][0]["earliest"] > LARGE / 2)
            while piece := slow.recv(1 << 20):
                got = got[-16:] + piece
        assert not got.endswith(b"0\r\n\r\n")  # the last chunk of a reply that is whole


QUEUE = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
)


def offset(epoch: str, places: dict[int, int]) -> str:
    return json.dumps({"epoch": epoch, "p": {f"{p:02d}": n for p, n in places.items()}, "v": 1})


def send(server: Server, queue: str, count: int, body: bytes = b"x") -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(quote(queue)) as sender,
    ):
        for number in range(count):
            sender.send_messages(ServiceBusMessage(body, message_id=f"m{number}"))
