"""What the portal's charts, lists and cards are made from, over a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from busway.testing import Server
from tests.http.asking import ask, make, manager
from tests.http.rest_client import until

PAGE = "<!doctype html><title>Report</title><p>figures</p>"
CONFIG = """
[[queues]]
name = "plain"

[[queues]]
name = "spread"
enable_partitioning = true

[[queues]]
name = "waiting"

[[topics]]
name = "events"

[[topics.subscriptions]]
name = "all"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG, arguments=["--allow-faults"]) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as opened:
        yield opened


def get(server: Server, path: str) -> Any:
    reply = ask(server, "GET", path, token=manager(server))
    assert reply.status == 200, reply.text
    return reply.json


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)


def test_the_latency_of_an_entity_is_that_of_what_was_received(
    server: Server, client: ServiceBusClient
) -> None:
    before = get(server, "/waiting/$explorer")
    assert (sum(before["waits"]), before["waited_ms"]) == (0, 0)
    send(client, "waiting", *(ServiceBusMessage("x") for _ in range(3)))
    received = 0
    with client.get_queue_receiver("waiting") as receiver:
        while received < 2:
            for message in receiver.receive_messages(1, max_wait_time=30):
                receiver.complete_message(message)
                received += 1
    after = get(server, "/waiting/$explorer")
    assert sum(after["waits"]) == after["totals"]["messages_out"] == 2
    # What is counted in a step lies between its bounds, so the sum does.
    least = sum(count * (1 << step >> 1) for step, count in enumerate(after["waits"]))
    most = sum(count * (1 << step) for step, count in enumerate(after["waits"]))
    assert least <= after["waited_ms"] < most
    metrics = ask(server, "GET", "/metrics", token=manager(server)).text
    assert 'busway_wait_seconds_count{entity="waiting",namespace="busway",subscription=""} 2' in (
        metrics
    )


def test_entities_come_sorted_by_a_figure_in_pages(
    server: Server, client: ServiceBusClient
) -> None:
    send(client, "plain", *(ServiceBusMessage("x") for _ in range(9)))
    first = get(server, "/$busway/entities?sort=active&top=1")
    assert [each["path"] for each in first["entities"]] == ["plain"]
    paths = [each["path"] for each in first["entities"]]
    following = first["next"]
    while following:
        page = get(server, following)
        paths += [each["path"] for each in page["entities"]]
        following = page["next"]
    assert len(paths) == len(set(paths)) == first["total"] == 5
    reverse = get(server, "/$busway/entities?sort=active&reverse=1")
    assert reverse["entities"][-1]["path"] == "plain"
    found = get(server, "/$busway/entities?search=EVENTS")
    assert [each["path"] for each in found["entities"]] == ["events", "events/Subscriptions/all"]
    refused = ask(server, "GET", "/$busway/entities?sort=colour", token=manager(server))
    assert refused.status == 400
    assert "dead_letter" in refused.text


def test_scheduled_and_deferred_messages_are_purged_each_by_itself(
    server: Server, client: ServiceBusClient
) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    with client.get_queue_sender("spread") as sender:
        sender.schedule_messages([ServiceBusMessage("later") for _ in range(5)], later)
        sender.send_messages([ServiceBusMessage("now") for _ in range(4)])
    with client.get_queue_receiver("spread") as receiver:
        for message in receiver.receive_messages(1, max_wait_time=30):
            receiver.defer_message(message)

    def depth() -> tuple[int, int, int]:
        found = get(server, "/spread/$explorer")["depth"]
        return found["active"], found["scheduled"], found["deferred"]

    def purge(state: str) -> int:
        path = f"/spread/$explorer/messages?state={state}"
        reply = ask(server, "DELETE", path, token=manager(server))
        assert reply.status == 200, reply.text
        deleted = reply.json["deleted"]
        assert isinstance(deleted, int)
        return deleted

    assert depth() == (3, 5, 1)
    assert purge("scheduled") == 5
    assert depth() == (3, 0, 1)
    assert purge("deferred") == 1
    assert purge("active") == 3
    assert depth() == (0, 0, 0)


def test_p_23_p_24_what_an_outage_did_to_sends_is_counted(
    server: Server, client: ServiceBusClient
) -> None:
    before = get(server, "/spread/$explorer")
    make(server, "store-1", "gone")
    try:
        away = {
            each["partition"]
            for each in get(server, "/spread/$explorer")["partitions"]
            if not each["available"]
        }
        assert len(away) == 8
        send(client, "spread", *(ServiceBusMessage("any") for _ in range(16)))
        refused = 0
        for number in range(200):
            try:
                send(client, "spread", ServiceBusMessage("x", partition_key=f"key {number}"))
            except ServiceBusError:
                refused += 1
                break
        assert refused == 1, "no key of these belongs to a partition that is away"
        now = get(server, "/spread/$explorer")
    finally:
        make(server, "store-1", "none")
    assert now["rerouted"] - before["rerouted"] >= 1
    pinned = {
        each["partition"]: each["pinned_sends_refused"]
        for each in now["partitions"]
        if each["pinned_sends_refused"]
    }
    assert len(pinned) == 1
    assert set(pinned) <= away


def test_the_node_tells_how_it_is(server: Server) -> None:
    def told() -> Any:
        (node,) = get(server, "/$busway/nodes")["nodes"]
        return node

    until(lambda: told()["status"] == "ok")  # the test before took a store away
    node = told()
    assert node["stores"] == ["store-0", "store-1"]
    assert node["memory_bytes"] > 1_000_000
    assert ask(server, "GET", "/$busway/nodes").status == 401


def test_connections_tell_whose_key_they_have_shown(
    server: Server, client: ServiceBusClient
) -> None:
    with client.get_queue_sender("plain") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        found = get(server, "/$busway/connections")["connections"]
    mine = [each for each in found if any(link.get("entity") == "plain" for link in each["links"])]
    assert len(mine) == 1
    assert mine[0]["access_rules"] == ["RootManageSharedAccessKey"]
    assert "azure-servicebus" in mine[0]["product"] or "azsdk" in mine[0]["product"]
    assert "$cbs" in {link.get("node") for link in mine[0]["links"]}


def test_the_latest_report_is_opened_once_by_a_ticket(server: Server) -> None:
    assert get(server, "/$busway/report") == {"report": None}
    token = manager(server)
    no_page = ask(server, "PUT", "/$busway/report", {"page": "plain"}, token=token)
    assert no_page.status == 400
    assert ask(server, "PUT", "/$busway/report", {"page": PAGE}).status == 401
    assert ask(server, "PUT", "/$busway/report", {"page": PAGE}, token=token).status == 200
    assert get(server, "/$busway/report")["report"]["size"] == len(PAGE)
    path = ask(server, "POST", "/$busway/report/link", {}, token=token).json["path"]
    opened = ask(server, "GET", path)
    assert (opened.status, opened.text) == (200, PAGE)
    policy = opened.headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert ask(server, "GET", path).status == 404
    assert ask(server, "GET", "/$busway/report/00").status == 404
    assert ask(server, "POST", "/$busway/report/link", {}).status == 401


def test_the_latest_report_outlives_a_restart(tmp_path: Any) -> None:
    with Server("q", data=tmp_path / "data") as running:
        token = manager(running)
        assert ask(running, "PUT", "/$busway/report", {"page": PAGE}, token=token).status == 200
        running.kill()
        running.start()
        assert get(running, "/$busway/report")["report"]["size"] == len(PAGE)
