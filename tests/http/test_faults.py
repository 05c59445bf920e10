"""`POST /$busway/stores/{store}/fault`: only where it is allowed, and only as it is meant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from busway.testing import Server
from tests.http.asking import ask, make, manager, map_of
from tests.sdk.conftest import received, wait_until


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server("orders", arguments=["--stores", "1", "--allow-faults"]) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    yield running
    make(running, "store-0", "none")
    wait_until(lambda: map_of(running)["stores"][0]["state"] == "serving")


def post(server: Server, body: object, store: str = "store-0") -> tuple[int, str]:
    path = f"/$busway/stores/{store}/fault"
    reply = ask(server, "POST", path, body, token=manager(server))
    return reply.status, reply.text


def test_a_server_that_was_not_started_for_it_refuses() -> None:
    with Server() as server:
        status, text = post(server, {"mode": "gone"})
        assert status == 403
        assert "--allow-faults" in text
        assert ask(server, "GET", "/health").status == 200


def test_it_is_for_those_who_may_manage(server: Server) -> None:
    assert ask(server, "POST", "/$busway/stores/store-0/fault", {"mode": "gone"}).status == 401
    assert map_of(server)["stores"][0]["fault"] == "none"


def test_the_server_says_at_its_start_what_it_allows(server: Server) -> None:
    assert "--allow-faults" in server.log


def test_a_store_is_known_by_name_id_and_position(server: Server) -> None:
    (store,) = map_of(server)["stores"]
    for name in (store["name"], store["id"], "0", "STORE-0"):
        assert make(server, name, "ill")["fault"] == "ill"
        assert make(server, name, "none")["fault"] == "none"


def test_a_store_that_is_not_there_is_not_found(server: Server) -> None:
    status, text = post(server, {"mode": "gone"}, "store-7")
    assert status == 404
    assert "store-0" in text


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "[]",
        "{}",
        {"mode": "broken"},
        {"mode": 1},
        {"mode": None},
        {"mode": "gone", "for": 1},
        {"mode": "slow"},
        {"mode": "slow", "delay_ms": 0},
        {"mode": "slow", "delay_ms": -1},
        {"mode": "slow", "delay_ms": 1.5},
        {"mode": "slow", "delay_ms": True},
        {"mode": "slow", "delay_ms": 60_001},
        {"mode": "slow", "delay_ms": "100"},
    ],
    ids=str,
)
def test_what_it_does_not_understand_is_refused_and_changes_nothing(
    server: Server, body: object
) -> None:
    status, text = post(server, body)
    assert status == 400
    assert "slow, ill, gone" in text
    assert map_of(server)["stores"][0]["fault"] == "none"


def test_too_much_of_a_body_is_refused(server: Server) -> None:
    assert post(server, {"mode": "none", "x": "x" * 5_000})[0] == 413


def test_it_shows_at_once_and_as_often_as_it_is_asked_for(server: Server) -> None:
    for _ in range(2):
        assert make(server, "store-0", "gone")["state"] == "opening"
    told = ask(server, "GET", "/$busway/stores/store-0/fault", token=manager(server))
    assert (told.json["fault"], told.json["status"]) == ("gone", "ill")


def test_a_slow_store_says_how_slow(server: Server) -> None:
    told = make(server, "store-0", "slow", delay_ms=50)
    assert (told["fault"], told["delay_ms"], told["state"]) == ("slow", 50, "serving")
    assert told["round_trip_ms"] >= 50


@pytest.mark.parametrize("mode", ["gone", "ill"])
def test_p_24_sends_are_refused_until_the_store_is_back(server: Server, mode: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        make(server, "store-0", mode)
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("meanwhile"))
        make(server, "store-0", "none")
        wait_until(lambda: map_of(server)["stores"][0]["state"] == "serving")
        sender.send_messages(ServiceBusMessage("after"))
        with client.get_queue_receiver("orders") as receiver:
            texts = []
            for message in received(receiver, 2):
                texts.append(str(message))
                receiver.complete_message(message)
            assert receiver.peek_messages(1, sequence_number=1) == []
    assert texts == ["before", "after"]


def test_other_methods_are_refused(server: Server) -> None:
    reply = ask(server, "DELETE", "/$busway/stores/store-0/fault", token=manager(server))
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, POST"
