"""`/metrics`: exact numbers, bounded label sets, and not for everybody."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    TransportType,
)
from prometheus_client.openmetrics import parser as openmetrics

from busway.broker.counting import Movements
from busway.http.census import Figures, Others, Totals, important
from busway.http.depths import Depth
from busway.model.partitioning import partition_of_key
from busway.store.base import SubQueueKind
from busway.testing import Server
from tests.http.asking import Metrics, ask, make, manager, map_of, metrics_of, token_of
from tests.sdk.conftest import received, wait_until

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
STATES = {
    "active",
    "scheduled",
    "deferred",
    "dead_letter",
    "transfer",
    "transfer_dead_letter",
}
CONFIG = """
[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"

[[topics.subscriptions]]
name = "most"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(
        "busy",
        "idle",
        "linked",
        partitioned=["parts"],
        config=CONFIG,
        data=tmp_path_factory.mktemp("metrics"),
        arguments=["--stores", "2", "--allow-faults"],
    ) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        yield client


def send(client: ServiceBusClient, queue: str, count: int, **properties: object) -> None:
    with client.get_queue_sender(queue) as sender:
        for _ in range(count):
            sender.send_messages(ServiceBusMessage("x", **properties))


# Who may read them


def test_they_are_for_those_who_may_manage(server: Server) -> None:
    reply = ask(server, "GET", "/metrics")
    assert reply.status == 401
    assert "'Manage'" in reply.text
    assert b"busway_" not in reply.body


def test_a_token_for_metrics_alone_is_enough_and_opens_nothing_else(server: Server) -> None:
    token = token_of(server.connection_string, "metrics")
    assert ask(server, "GET", "/metrics", token=token).status == 200
    assert ask(server, "GET", "/$busway/map", token=token).status == 401


def test_a_server_may_show_them_to_everybody() -> None:
    with Server("orders", arguments=["--metrics", "open"]) as server:
        reply = ask(server, "GET", "/metrics")
        assert reply.status == 200
        assert Metrics(reply.text).value("busway_entities", namespace="busway") == 1
        assert ask(server, "GET", "/$busway/map").status == 401


def test_they_are_asked_for_with_get(server: Server) -> None:
    assert ask(server, "POST", "/metrics", {}, token=manager(server)).status == 405


# What they say


def test_messages_are_counted_in_and_out_and_by_state(
    server: Server, client: ServiceBusClient
) -> None:
    send(client, "busy", 5)
    with client.get_queue_receiver("busy") as receiver:
        one, two, three, four, five = received(receiver, 5)
        receiver.complete_message(one)
        receiver.dead_letter_message(two)
        receiver.defer_message(three)
        receiver.abandon_message(four)
        receiver.abandon_message(five)
    with client.get_queue_receiver("busy", receive_mode=DELETE) as receiver:
        received(receiver, 1)
    found = metrics_of(server)
    busy = {"namespace": "busway", "entity": "busy", "subscription": ""}
    assert found.value("busway_messages_in_total", **busy) == 5
    assert found.value("busway_messages_out_total", **busy) == 2
    assert found.value("busway_dead_lettered_total", **busy) == 1
    assert found.value("busway_abandoned_total", **busy) == 2
    assert found.value("busway_expired_total", **busy) == 0
    states = {
        dict(labels)["state"]: value
        for labels, value in found.of("busway_messages", **busy).items()
    }
    wanted = {"active": 1, "deferred": 1, "dead_letter": 1}
    assert states == dict.fromkeys(STATES, 0) | wanted
    assert found.value("busway_size_bytes", **busy) > 0
    for sub_queue in ("main", "dead_letter"):
        age_s = found.value("busway_oldest_message_age_seconds", sub_queue=sub_queue, **busy)
        assert age_s is not None
        assert 0 <= age_s < 600


def test_an_entity_without_messages_has_no_oldest_one(server: Server) -> None:
    assert metrics_of(server).of("busway_oldest_message_age_seconds", entity="idle") == {}


def test_a_topic_and_its_subscriptions_have_series_each(
    server: Server, client: ServiceBusClient
) -> None:
    with client.get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage("x") for _ in range(3)])
    found = metrics_of(server)
    for subscription in ("", "all", "most"):
        labels = {"entity": "news", "subscription": subscription}
        assert found.value("busway_messages_in_total", **labels) == 3
        held = found.value("busway_messages", state="active", **labels)
        assert held == (3 if subscription else 0)


def test_partitions_have_series_where_there_are_several(
    server: Server, client: ServiceBusClient
) -> None:
    index = partition_of_key("key", 16)
    send(client, "parts", 2, partition_key="key")
    send(client, "parts", 3)
    found = metrics_of(server)
    assert found.value("busway_messages_in_total", entity="parts") == 5
    assert len(found.of("busway_partition_messages_in_total", entity="parts")) == 16
    assert found.sum("busway_partition_messages_in_total", entity="parts") == 5
    assert found.sum("busway_partition_messages", entity="parts", state="active") == 5
    of_key = {"entity": "parts", "partition": str(index)}
    assert found.sum("busway_partition_messages_in_total", **of_key) >= 2
    assert len(found.of("busway_partition_oldest_message_age_seconds", **of_key)) == 1
    stores = {
        part["partition"]: part["store"]
        for part in map_of(server, "?entity=parts")["entities"][0]["partitions"]
    }
    (labels,) = found.of("busway_partition_messages_in_total", **of_key)
    assert dict(labels)["store"] == stores[index]
    assert found.of("busway_partition_messages", entity="busy") == {}


def test_connections_links_and_credit_are_told(server: Server) -> None:
    before = metrics_of(server).value("busway_connections", namespace="busway", kind="amqp")
    assert before is not None
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        with (
            client.get_queue_sender("linked"),
            client.get_queue_receiver("linked", prefetch_count=25) as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=1)
            found = metrics_of(server)
            now = found.value("busway_connections", namespace="busway", kind="amqp")
            assert now == before + 2
            for role in ("sender", "receiver"):
                assert found.value("busway_links", entity="linked", role=role) == 1
            assert found.sum("busway_link_credit", entity="linked", role="sender") > 0
        wait_until(lambda: metrics_of(server).of("busway_links", entity="linked") == {})


def connections(server: Server) -> dict[str, float]:
    found = metrics_of(server).of("busway_connections", namespace="busway")
    return {dict(labels)["kind"]: value for labels, value in found.items()}


def test_connections_are_told_by_what_they_speak(server: Server) -> None:
    """One that asks for the figures is among those by HTTP."""
    wait_until(lambda: connections(server)["http"] == 1)
    before = connections(server)
    assert set(before) == {"amqp", "websocket", "http"}
    with ExitStack() as opened:
        client = opened.enter_context(
            ServiceBusClient.from_connection_string(
                server.connection_string,
                transport_type=TransportType.AmqpOverWebsocket,
                custom_endpoint_address=f"sb://localhost:{server.port}",
            )
        )
        opened.enter_context(client.get_queue_sender("linked"))
        for _ in range(2):
            line = http.client.HTTPConnection("localhost", server.port)
            opened.callback(line.close)
            for path in ("/health/live", "/nothing/like/this"):
                line.request("GET", path)
                line.getresponse().read()
        wait_until(lambda: connections(server)["http"] == 3)
        now = connections(server)
        assert now["websocket"] == before["websocket"] + 1
        assert now["amqp"] <= before["amqp"], "it is counted once"
    wait_until(lambda: connections(server)["websocket"] == before["websocket"])
    wait_until(lambda: connections(server)["http"] == 1)


def test_commits_are_told_as_a_histogram_for_each_store(server: Server) -> None:
    found = metrics_of(server)
    for store in ("store-0", "store-1"):
        assert found.value("busway_store_up", store=store) == 1
        assert found.value("busway_store_state", store=store, state="serving") == 1
        count = found.value("busway_store_commit_seconds_count", store=store)
        assert count == found.value("busway_store_commit_seconds_bucket", store=store, le="+Inf")
        assert count is not None
        assert count > 0


def test_a_store_that_is_gone_is_told_with_what_it_takes_along(
    server: Server, client: ServiceBusClient
) -> None:
    before = metrics_of(server).value("busway_messages_in_total", entity="parts")
    make(server, "store-0", "gone")
    try:
        found = metrics_of(server)
        assert found.value("busway_store_up", store="store-0") == 0
        assert found.value("busway_store_up", store="store-1") == 1
        assert found.value("busway_partitions_unavailable", entity="parts") == 8
        assert found.value("busway_messages_in_total", entity="parts") == before
    finally:
        make(server, "store-0", "none")
    wait_until(lambda: metrics_of(server).value("busway_store_up", store="store-0") == 1)
    assert metrics_of(server).value("busway_store_commits_failed_total", store="store-0") >= 1


def test_counts_begin_anew_with_the_process_and_depths_do_not(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            send(client, "orders", 3)
        server.restart()
        found = metrics_of(server)
        assert found.value("busway_messages_in_total", entity="orders") == 0
        assert found.value("busway_messages", entity="orders", state="active") == 3
        # Nobody has received: only the store knows the message.
        assert found.sum("busway_oldest_message_age_seconds", entity="orders") > 0


def test_counts_agree_with_what_clients_did_while_it_was_scraped(server: Server) -> None:
    """Scrapes and traffic side by side: no number is lost, none goes down."""
    seen: list[float] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            seen.append(metrics_of(server).sum("busway_messages_in_total", entity="idle"))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            send(client, "idle", 200)
    finally:
        done.set()
        scraper.join()
    assert seen == sorted(seen)
    assert metrics_of(server).sum("busway_messages_in_total", entity="idle") == 200


# How they are written


def test_openmetrics_and_compression_are_spoken(server: Server) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0", "Accept-Encoding": "gzip"}
    reply = ask(server, "GET", "/metrics", token=manager(server), headers=accept)
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in openmetrics.text_string_to_metric_families(reply.text)}
    assert {"busway", "busway_messages_in", "busway_store_commit_seconds"} <= families


def test_plain_text_is_what_others_get(server: Server) -> None:
    reply = ask(server, "GET", "/metrics", token=manager(server))
    assert reply.headers["content-type"].startswith("text/plain")
    assert "content-encoding" not in reply.headers
    assert "# HELP busway_messages_in_total " in reply.text
    assert "process_resident_memory_bytes" in reply.text


# Bounded label sets


def test_what_is_too_much_is_told_as_one() -> None:
    queues = [f"queue-{number}" for number in range(6)]
    with Server(*queues, arguments=["--metrics-entities", "2", "--allow-faults"]) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            for number, queue in enumerate(queues):
                send(client, queue, number)
            found = metrics_of(server)
            assert found.value("busway_entities", namespace="busway") == 6
            for name in ("busway_messages_in_total", "busway_messages"):
                assert found.labels(name, "entity") == {"queue-4", "queue-5", "(other)"}
            assert found.value("busway_messages_in_total", entity="(other)") == 0 + 1 + 2 + 3
            assert found.sum("busway_messages", entity="(other)", state="active") == 6
            send(client, "queue-0", 20)
        found = metrics_of(server)
        assert found.labels("busway_messages", "entity") == {"queue-4", "queue-5", "(other)"}
        assert found.value("busway_messages_in_total", entity="(other)") == 26
        # Who goes makes room for the busiest of the others; what they had counted stays.
        path = "/queue-5?api-version=2021-05"
        assert ask(server, "DELETE", path, token=manager(server)).status == 200
        found = metrics_of(server)
        assert found.labels("busway_messages", "entity") == {"queue-4", "queue-0", "(other)"}
        assert found.value("busway_messages_in_total", entity="queue-0") == 20
        assert found.value("busway_messages_in_total", entity="(other)") == 26
        assert found.sum("busway_messages", entity="(other)", state="active") == 6


def test_traffic_goes_before_depth() -> None:
    def importance(sent: int, active: int) -> int:
        return important(Figures(Depth(active=active), Totals(messages_in=sent)))

    assert importance(1, 0) > importance(0, 1_000_000) > importance(0, 1) > importance(0, 0)


def test_the_totals_of_the_others_never_go_down() -> None:
    others = Others()

    def scrape(**sent: int) -> int:
        for number, count in sent.items():
            others.take(int(number[1:]), Totals(messages_in=count))
        others.taken()
        return others.totals.messages_in

    assert scrape(q1=5, q2=3) == 8
    assert scrape(q1=6, q2=3) == 9
    assert scrape(q2=4) == 10, "q1 was deleted, or has series of its own now"
    assert scrape(q2=4, q3=2) == 12
    assert scrape() == 12


def test_totals_are_put_together_from_all_sub_queues() -> None:
    main, dead, transfer = Movements(), Movements(), Movements()
    main.sent, main.received, main.expired = 10, 4, 2
    dead.received = 1
    transfer.sent, transfer.received = 3, 3
    kinds = {
        SubQueueKind.MAIN: main,
        SubQueueKind.DEAD_LETTER: dead,
        SubQueueKind.TRANSFER: transfer,
    }
    assert Totals.of(kinds) == Totals(
        messages_in=13, messages_out=4, dead_letters_out=1, forwarded=3, expired=2
    )


def test_a_scrape_does_not_wait_for_a_store_that_hangs(tmp_path: Path) -> None:
    with Server("orders", data=tmp_path, arguments=["--stores", "1", "--allow-faults"]) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            send(client, "orders", 1)
        server.restart()
        make(server, "store-0", "slow", delay_ms=20_000)
        found = metrics_of(server)
        assert found.value("busway_messages", entity="orders", state="active") == 1
        assert found.of("busway_oldest_message_age_seconds", entity="orders") == {}
        server.kill()
