"""What the Azure SDK does to a captured entity is in its journal, also after a kill (D-31)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from busway.cluster.catalog import Catalog
from busway.model.entities import Entity
from busway.runtime.journal_readers import JournalReaders
from busway.store.sqlite import SqliteStore
from busway.testing import Server

CONFIG = """
[[queues]]
name = "orders"
capture = true
[[queues]]
name = "shards"
partitioned = true
capture = true
[[queues]]
name = "quiet"
[[topics]]
name = "news"
capture = true
[[topics.subscriptions]]
name = "all"
capture = true
"""
WAIT_S = 60


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def entity_of(data: Path, path: str, subscription: str | None = None) -> Entity:
    catalog = Catalog.open(data / "catalog.db")
    try:
        found = catalog.find(path)
        if subscription is not None:
            found = catalog.find_subscription(path, subscription)  # type: ignore[assignment]
        assert found is not None
        return found
    finally:
        catalog.close()


def sources(data: Path) -> dict[str, Path]:
    found = {}
    for path in sorted(data.glob("store-*.db")):
        store = SqliteStore(path, create=False)
        found[store.open().store_id] = path
        store.close()
    return found


def rows(data: Path, path: str, subscription: str | None = None) -> list[dict[str, Any]]:
    """Everything that is told, of a broker that is not running."""
    entity = entity_of(data, path, subscription)

    async def read() -> list[dict[str, Any]]:
        readers = JournalReaders(sources(data))
        told: list[dict[str, Any]] = []
        for partition, head in await readers.heads(entity):
            stream = readers.stream(entity, partition, head.earliest, head.next_offset)
            pieces = [piece async for piece in stream]
            told += pa.ipc.open_stream(b"".join(pieces)).read_all().to_pylist()
        await readers.close()
        return told

    return asyncio.run(read())


def test_the_lives_of_messages_with_all_that_senders_said(data: Path) -> None:
    with Server(config=CONFIG, data=data) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(
                    ServiceBusMessage(
                        b"hello",
                        message_id="m-1",
                        subject="greeting",
                        content_type="text/plain",
                        correlation_id="c-1",
                        application_properties={"retries": 3, "who": "me"},
                    )
                )
                sender.send_messages(ServiceBusMessage("spoilt", message_id="m-2"))
            with client.get_queue_receiver("orders") as receiver:
                first, second = receive_two(receiver)
                token = str(first.lock_token)
                receiver.complete_message(first)
                receiver.dead_letter_message(second, reason="bad", error_description="very")
        assert server.stop() == 0
        told = rows(data, "orders")
    of_first = [row for row in told if row["sequence_number"] == first.sequence_number]
    assert [row["event"] for row in of_first] == ["enqueued", "delivered", "completed"]
    arrival = of_first[0]
    assert arrival["body"] == b"hello"
    assert arrival["message_id"] == "m-1"
    assert arrival["subject"] == "greeting"
    assert arrival["content_type"] == "text/plain"
    assert arrival["correlation_id"] == "c-1"
    assert dict(arrival["application_properties"]) == {"retries": "3", "who": "me"}
    assert arrival["enqueued_time"] == first.enqueued_time_utc
    assert [row["lock_token"] for row in of_first] == [None, token, token]
    of_second = [row for row in told if row["sequence_number"] == second.sequence_number]
    assert [row["event"] for row in of_second] == ["enqueued", "delivered", "dead_lettered"]
    assert of_second[2]["dead_letter_reason"] == "bad"
    assert of_second[2]["dead_letter_description"] == "very"


def receive_two(receiver: Any) -> tuple[Any, Any]:
    found: list[Any] = []
    while len(found) < 2:
        more = receiver.receive_messages(2 - len(found), max_wait_time=WAIT_S)
        assert more, "nothing came"
        found += more
    return found[0], found[1]


def test_nothing_acknowledged_is_missing_after_a_kill(data: Path) -> None:
    """Sends and completions that were answered are told, each once, in whatever partition."""
    sent = [f"m-{number}" for number in range(200)]
    with Server(config=CONFIG, data=data) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_queue_sender("shards") as sender:
                for message_id in sent:
                    sender.send_messages(ServiceBusMessage(message_id, message_id=message_id))
            completed: list[str] = []
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            with client.get_queue_receiver("shards", receive_mode=mode) as receiver:
                while len(completed) < 50:
                    for each in receiver.receive_messages(50, max_wait_time=WAIT_S):
                        completed.append(each.message_id)
            server.kill()
        told = rows(data, "shards")
        arrived = Counter(row["message_id"] for row in told if row["event"] == "enqueued")
        assert arrived == Counter(sent)
        numbers = {
            row["sequence_number"]: row["message_id"] for row in told if row["event"] == "enqueued"
        }
        gone = [numbers[row["sequence_number"]] for row in told if row["event"] == "completed"]
        assert len(gone) == len(set(gone))
        assert set(completed) <= set(gone)


def test_a_topic_and_its_subscription_and_who_is_not_captured(data: Path) -> None:
    with Server(config=CONFIG, data=data) as server:
        with ServiceBusClient.from_connection_string(server.connection_string) as client:
            with client.get_topic_sender("news") as sender:
                sender.send_messages(ServiceBusMessage("extra"))
            with client.get_queue_sender("quiet") as sender:
                sender.send_messages(ServiceBusMessage("psst"))
            with client.get_subscription_receiver("news", "all") as receiver:
                (copy,) = receiver.receive_messages(1, max_wait_time=WAIT_S)
                receiver.complete_message(copy)
        assert server.stop() == 0
        assert [row["event"] for row in rows(data, "news")] == ["enqueued"]
        told = rows(data, "news", "all")
        assert rows(data, "quiet") == []
    assert [row["event"] for row in told] == ["enqueued", "delivered", "completed"]
    assert {(row["entity"], row["subscription"]) for row in told} == {("news", "all")}
