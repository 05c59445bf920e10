"""`/health` goes to every store and back, and says which are ill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from busway import __version__
from busway.config import load
from busway.http.health import Examiner
from busway.runtime.host import Host
from busway.runtime.node import Node
from busway.store.faults import Fault
from busway.testing import Server
from tests.http.asking import ask, make
from tests.sdk.conftest import wait_until

STORES = [f"store-{position}" for position in range(3)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("health")
    with Server(data=data, arguments=["--stores", "3", "--allow-faults"]) as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    yield running
    for store in STORES:
        make(running, store, "none")
    wait_until(lambda: ask(running, "GET", "/health").status == 200)


def test_all_is_well_and_nobody_needs_a_token(server: Server) -> None:
    reply = ask(server, "GET", "/health")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("application/json")
    assert reply.json["status"] == "ok"
    assert reply.json["version"] == __version__
    assert [store["name"] for store in reply.json["stores"]] == STORES
    for store in reply.json["stores"]:
        assert (store["status"], store["state"], store["reason"]) == ("ok", "serving", None)
        assert store["round_trip_ms"] >= 0


@pytest.mark.parametrize(("mode", "state"), [("gone", "opening"), ("ill", "refusing")])
def test_a_store_that_is_ill_is_named(server: Server, mode: str, state: str) -> None:
    make(server, "store-1", mode)
    reply = ask(server, "GET", "/health")
    assert reply.status == 503
    assert reply.json["status"] == "ill"
    first, second, third = reply.json["stores"]
    assert (second["status"], second["state"]) == ("ill", state)
    assert second["reason"]
    assert first["status"] == third["status"] == "ok"


def test_a_store_that_nobody_has_used_since_it_went_is_found_out(server: Server) -> None:
    """The round trip is a real one: nothing else would have noticed."""
    path = "/$busway/stores/store-2/fault"
    assert ask(server, "POST", path, {"mode": "gone"}).status == 401
    assert ask(server, "GET", "/health").status == 200
    make(server, "store-2", "gone")
    assert ask(server, "GET", "/health").status == 503


def test_a_store_that_is_too_slow_is_ill(server: Server) -> None:
    make(server, "store-0", "slow", delay_ms=4_000)
    reply = ask(server, "GET", "/health")
    assert reply.status == 503
    assert "longer than 2 s" in reply.json["stores"][0]["reason"]
    assert reply.json["stores"][0]["round_trip_ms"] is None


def test_the_process_is_alive_whatever_its_stores_are(server: Server) -> None:
    for store in STORES:
        make(server, store, "gone")
    reply = ask(server, "GET", "/health/live")
    assert reply.status == 200
    assert reply.json == {"status": "ok", "version": __version__}


def test_it_is_asked_with_get_or_head(server: Server) -> None:
    assert ask(server, "HEAD", "/health")[::2] == (200, b"")
    reply = ask(server, "POST", "/health", {})
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD"


def test_it_tells_no_more_than_names_and_states(server: Server) -> None:
    make(server, "store-1", "gone")
    told = ask(server, "GET", "/health").json["stores"][1]
    assert set(told) == {
        *("name", "status", "state", "round_trip_ms", "reason", "damaged_messages"),
    }


# Who asks often does not make a store busy.


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(load({"data": tmp_path / "data", "port": 0, "stores": 1, "http_port": "off"}, {}))
    await node.start()
    yield node
    node.stores[0].faults.be(Fault.NONE)
    await node.stop()


async def test_many_who_ask_at_once_share_one_commit(node: Node) -> None:
    (store,) = node.stores
    host, examiner = Host(asyncio.get_running_loop()), Examiner()
    before = sum(store.broker.commit_times.counts)
    found = await asyncio.gather(*(examiner.examine(store, host) for _ in range(50)))
    assert {each.status for each in found} == {"ok"}
    assert sum(store.broker.commit_times.counts) == before + 1


async def test_d_9_a_store_whose_disk_is_full_is_ill_although_it_serves(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store,) = node.stores
    host, examiner = Host(asyncio.get_running_loop()), Examiner()
    monkeypatch.setattr(store.identity, "free_bytes", lambda: 1)
    found = await examiner.examine(store, host)
    assert found.status == "ill"
    assert "disk is full" in str(found.reason)
    monkeypatch.undo()
    assert (await examiner.examine(store, host, again=True)).status == "ok"


async def test_who_asks_while_a_store_hangs_does_not_make_it_longer(node: Node) -> None:
    (store,) = node.stores
    host, examiner = Host(asyncio.get_running_loop()), Examiner()
    store.faults.be(Fault.SLOW, delay_s=6.0)
    before = sum(store.broker.commit_times.counts)
    for _ in range(2):
        found = await asyncio.gather(*(examiner.examine(store, host) for _ in range(20)))
        assert {each.status for each in found} == {"ill"}
    store.faults.be(Fault.NONE)
    async with asyncio.timeout(120):
        while (await examiner.examine(store, host, again=True)).status != "ok":
            await asyncio.sleep(0.05)
    assert sum(store.broker.commit_times.counts) == before + 2
