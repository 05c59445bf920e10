"""`GET /$busway/map`: partitions, stores, and how they are (P-2, P-3, P-43)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from busway.model.partitioning import partition_of_key
from busway.testing import Server
from tests.http.asking import ask, make, manager, map_of
from tests.sdk.conftest import received, wait_until

STORES = 4
CONFIG = """
[[topics]]
name = "news"
partitioned = true

[[topics.subscriptions]]
name = "all"

[[topics.subscriptions]]
name = "none"

[[queues]]
name = "limited"
partitioned = true

[[queues]]
name = "limited/too"

"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(
        "plain",
        partitioned=["parts"],
        config=CONFIG,
        arguments=["--stores", str(STORES), "--allow-faults"],
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        yield client


def entity(server: Server, name: str) -> dict[str, object]:
    (found,) = map_of(server, f"?entity={name}")["entities"]
    assert isinstance(found, dict)
    return found


def test_it_is_for_those_who_may_manage(server: Server) -> None:
    assert ask(server, "GET", "/$busway/map").status == 401


def test_each_store_is_told_with_its_health(server: Server) -> None:
    stores = map_of(server)["stores"]
    assert [store["name"] for store in stores] == [f"store-{n}" for n in range(STORES)]
    assert len({store["id"] for store in stores}) == STORES
    for store in stores:
        assert (store["status"], store["fault"], store["problem"]) == ("ok", "none", None)


def test_p_2_a_conventional_queue_has_one_partition(server: Server) -> None:
    plain = entity(server, "plain")
    assert (plain["type"], plain["partitioned"]) == ("queue", False)
    assert plain["availability"] == "Available"
    assert isinstance(plain["partitions"], list)
    (partition,) = plain["partitions"]
    assert partition["partition"] == 0
    assert partition["state"] == "serving"
    assert partition["broker"] == "G0"


def test_a_partitioned_queue_is_spread_over_all_stores(server: Server) -> None:
    parts = entity(server, "parts")["partitions"]
    assert isinstance(parts, list)
    assert [part["partition"] for part in parts] == list(range(16))
    assert {part["store"] for part in parts} == {f"store-{n}" for n in range(STORES)}


def test_depth_is_that_of_the_partition_and_by_state(
    server: Server, client: ServiceBusClient
) -> None:
    index = partition_of_key("key", 16)
    with client.get_queue_sender("parts") as sender:
        sender.send_messages([ServiceBusMessage("x", partition_key="key") for _ in range(3)])
    with client.get_queue_receiver("parts") as receiver:
        first, second, third = received(receiver, 3)
        receiver.dead_letter_message(first)
        receiver.defer_message(second)
        receiver.abandon_message(third)

    def depth() -> dict[str, int]:
        parts = entity(server, "parts")["partitions"]
        assert isinstance(parts, list)
        assert all(part["depth"]["messages"] == 0 for part in parts[:index] + parts[index + 1 :])
        found = parts[index]["depth"]
        assert isinstance(found, dict)
        return found

    wait_until(lambda: depth()["active"] == 1)
    found = depth()
    assert found.pop("bytes") > 0
    assert found == {
        "messages": 3,
        "active": 1,
        "scheduled": 0,
        "deferred": 1,
        "dead_letter": 1,
        "transfer": 0,
        "transfer_dead_letter": 0,
    }
    options = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}
    with client.get_queue_receiver("parts", **options) as receiver:
        received(receiver, 1)


def test_a_topic_comes_with_its_subscriptions(server: Server) -> None:
    found = map_of(server, "?entity=NEWS")["entities"]
    assert [(each["name"].lower(), each["type"]) for each in found] == [
        ("news", "topic"),
        ("news/subscriptions/all", "subscription"),
        ("news/subscriptions/none", "subscription"),
    ]
    placed = {tuple(part["store"] for part in each["partitions"]) for each in found}
    assert len(placed) == 1, "a subscription lies where its topic does"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("limited", ["limited"]),
        ("limited*", ["limited", "limited/too"]),
        ("limited%2Ftoo", ["limited/too"]),
        ("nothing", []),
    ],
)
def test_it_can_be_asked_for_some(server: Server, pattern: str, names: list[str]) -> None:
    found = map_of(server, f"?entity={pattern}")
    assert [each["name"] for each in found["entities"]] == names
    assert found["total"] == len(names)


def test_it_comes_in_pages(server: Server) -> None:
    whole = map_of(server)
    assert whole["next"] is None
    seen, page = [], map_of(server, "?top=2")
    while True:
        assert len(page["entities"]) <= 2
        seen += page["entities"]
        if page["next"] is None:
            break
        page = ask(server, "GET", page["next"], token=manager(server)).json
    assert [each["name"] for each in seen] == [each["name"] for each in whole["entities"]]
    assert page["total"] == len(seen) == 7


@pytest.mark.parametrize("query", ["?top=x", "?top=1001", "?skip=-1", "?top="])
def test_a_page_that_cannot_be_is_refused(server: Server, query: str) -> None:
    reply = ask(server, "GET", f"/$busway/map{query}", token=manager(server))
    assert reply.status == 400
    assert "must be a whole number" in reply.text


def test_p_43_what_lies_in_a_store_that_is_gone_is_limited_and_not_counted(
    server: Server,
) -> None:
    make(server, "store-1", "gone")
    try:
        limited = entity(server, "limited")
        assert limited["availability"] == "Limited"
        assert isinstance(limited["partitions"], list)
        for part in limited["partitions"]:
            gone = part["store"] == "store-1"
            assert part["state"] == ("opening" if gone else "serving")
            assert (part["depth"] is None) == gone
        store = map_of(server)["stores"][1]
        assert (store["status"], store["fault"]) == ("ill", "gone")
    finally:
        make(server, "store-1", "none")
    wait_until(lambda: entity(server, "limited")["availability"] == "Available")


def test_d_14_a_store_that_was_not_found_at_start_is_told_with_the_reason(tmp_path: Path) -> None:
    with Server(partitioned=["parts"], data=tmp_path, arguments=["--stores", "2"]) as server:
        known = map_of(server)["stores"][1]["id"]
        server.stop()
        (tmp_path / "store-1.db").rename(tmp_path / "elsewhere.db")
        server.start()
        store = map_of(server)["stores"][1]
        assert (store["status"], store["state"], store["id"]) == ("ill", "opening", known)
        assert store["problem"]
        assert entity(server, "parts")["availability"] == "Limited"
        health = ask(server, "GET", "/health")
        assert health.status == 503
        assert "elsewhere" not in health.text
        assert str(tmp_path) not in health.text, "strangers learn no paths"


def test_other_pages_are_not_there(server: Server) -> None:
    for path in ("/$busway", "/$busway/", "/$busway/other", "/$busway/map/more"):
        assert ask(server, "GET", path, token=manager(server)).status == 404
