"""HTTP requests while a store is gone, a queue is full, or the process dies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

from busway.model.partitioning import partition_of_key
from busway.testing import Server
from tests.http.asking import make, map_of
from tests.http.in_process import HttpInProcess
from tests.http.rest_client import Rest, until
from tests.sdk.test_quota import make_small


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("plain", partitioned=["parts"], arguments=["--allow-faults"]) as running:
        yield running


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    client = Rest(server)
    yield client
    client.close()


@pytest.fixture
def gone(server: Server, rest: Rest) -> Iterator[set[int]]:
    """The partitions of `parts` whose store is gone, and known to be."""
    stores = stores_of(server, "parts")
    lost = {partition for partition, store in enumerate(stores) if store == stores[0]}
    make(server, stores[0], "gone")
    until(lambda: not takes(rest, key_in(lost)))
    yield lost
    make(server, stores[0], "none")
    until(lambda: takes(rest, key_in(lost)))
    while rest.delete("parts", timeout=0).status == 200:
        continue


def stores_of(server: Server, queue: str) -> list[str]:
    (entity,) = [each for each in map_of(server)["entities"] if each["name"] == queue]
    return [each["store"] for each in entity["partitions"]]


def takes(rest: Rest, key: str) -> bool:
    return rest.send("parts", "probe", {"PartitionKey": key}).status == 201


def key_in(partitions: set[int]) -> str:
    return next(key for key in map(str, range(1_000)) if partition_of_key(key, 16) in partitions)


def test_a_key_pins_a_message_to_a_partition_that_is_gone(rest: Rest, gone: set[int]) -> None:
    """P-24."""
    assert 0 < len(gone) < 16
    reply = rest.send("parts", "x", {"PartitionKey": key_in(gone)})
    assert reply.status == 503
    assert "is temporarily unavailable. Please try again." in reply.text


def test_all_other_messages_go_elsewhere(rest: Rest, gone: set[int]) -> None:
    """P-23, P-41."""
    rest.sent("parts", *(str(n) for n in range(32)))
    rest.sent("parts", "keyed", PartitionKey=key_in(set(range(16)) - gone))
    found = [rest.delete("parts") for _ in range(33)]
    assert sorted(reply.text for reply in found) == sorted([*map(str, range(32)), "keyed"])
    assert not {reply.broker["SequenceNumber"] >> 48 for reply in found} & gone


def test_receiving_goes_on_with_what_is_left(rest: Rest, gone: set[int]) -> None:
    assert rest.is_empty("parts")
    rest.sent("parts", "x")
    locked = rest.locked("parts")
    assert rest.complete(locked).status == 200


def test_a_lock_in_a_store_that_is_gone_is_busy_not_lost(rest: Rest, server: Server) -> None:
    """D-3: nobody knows, so the client is to ask again."""
    store = stores_of(server, "parts")[0]
    rest.sent("parts", "x", PartitionKey=key_in({0}))
    locked = rest.locked("parts")
    make(server, store, "gone")
    try:
        reply = rest.complete(locked)
        assert reply.status == 503, reply.text
    finally:
        make(server, store, "none")
    until(lambda: rest.complete(locked).status == 404)  # all locks are void with the store (D-5)
    assert rest.taken("parts", 1) == ["x"]


def test_a_server_that_has_too_much_to_commit_takes_no_more() -> None:
    """D-8: said before the body is sent."""
    with HttpInProcess() as http:
        http.world.queue("plain")
        budget = http.world.gateway.budget
        budget.take(budget.limit_bytes)
        headers = {"Expect": "100-continue", "Content-Length": "5"}
        answer = http.request("POST", "/plain/messages", headers=headers)
        assert answer.status == 503
        assert b"The server is busy. Please wait 2 seconds" in answer.body


def test_a_full_queue_refuses_what_comes(tmp_path: Path) -> None:
    """LIM-4: 403, until there is room again."""
    with Server("plain", partitioned=["parts"], data=tmp_path):
        pass
    make_small(tmp_path / "catalog.db")
    body = b"x" * 200_000
    with Server(data=tmp_path) as server:
        rest = Rest(server)
        for queue, partitions in (("plain", 1), ("parts", 16)):
            sent = 0
            while (reply := rest.send(queue, body)).status == 201:
                sent += 1
                assert sent < 200
            assert sent >= 5 * partitions
            assert reply.status == 403
            assert "The maximum entity size has been reached or exceeded" in reply.text
            assert rest.delete(queue).status == 200
            assert rest.send(queue, body).status == 201
        rest.close()


def test_what_was_answered_with_201_is_there_after_kill_9(tmp_path: Path) -> None:
    """MSG-2, D-5: and what was completed is not."""
    server = Server("plain", partitioned=["parts"], data=tmp_path)
    answered: list[str] = []
    enough = threading.Event()

    def send(queue: str, name: str) -> None:
        rest = Rest(server)
        try:
            for number in range(100_000):
                body = f"{queue} {name} {number}"
                if rest.send(queue, body).status == 201:
                    answered.append(body)
                if len(answered) >= 300:
                    enough.set()
        except (OSError, HTTPException):
            return  # the server is gone

    with server:
        with ThreadPoolExecutor() as pool:
            for queue in ("plain", "parts"):
                for name in ("a", "b"):
                    pool.submit(send, queue, name)
            assert enough.wait(300)
            server.kill()
        server.restart()
        rest = Rest(server)
        found = []
        for queue in ("plain", "parts"):
            locked = rest.locked(queue)
            found.append(locked.text)
            assert rest.complete(locked).status == 200
            while (reply := rest.delete(queue, timeout=0)).status == 200:
                found.append(reply.text)
        rest.close()
    assert set(answered) <= set(found)
    assert len(found) == len(set(found))
