"""An entity that is full refuses what comes, and takes it again when there is room (LIM-4).

The smallest size that can be asked for is a gigabyte, so the test writes a smaller one into the
catalog of a server that is stopped.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusQuotaExceededError

from busway.cluster.catalog_damage import seal
from busway.testing import Server
from tests.sdk.conftest import ONCE_EACH, PARTITIONED, WAIT_S, wait_until
from tests.sdk.faces import FACES

BODY = b"x" * 200_000
ROOM = 5
"""Of these are in a megabyte."""
QUEUES = {"conventional": "plain", PARTITIONED: "parts"}
CONFIG = """
[[topics]]
name = "topic"
[[topics.subscriptions]]
name = "subscription"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with Server("plain", partitioned=["parts"], config=CONFIG, data=data):
        pass
    make_small(data / "catalog.db")
    with Server(data=data) as running:  # without the file, which would be held against it
        yield running


def make_small(path: Path) -> None:
    """A megabyte for each partition."""
    with closing(sqlite3.connect(path)) as catalog, catalog:
        catalog.execute(
            "UPDATE entities SET description = json_set(description, '$.max_size_mb', 1)"
            " WHERE kind != 'subscription'"
        )
        seal(catalog, "entities", again=True)


@pytest.fixture
def client(server: Server, face: str) -> Iterator[Any]:
    sdk = FACES[face]()
    with sdk.connect(server.connection_string, retry_total=0) as client:
        yield client
    sdk.close()


def is_taken(sender: Any, key: str | None = None) -> bool:
    try:
        sender.send_messages(ServiceBusMessage(BODY, partition_key=key))
    except ServiceBusQuotaExceededError:
        return False
    return True


@ONCE_EACH
def test_a_full_queue_refuses_sends_until_it_is_drained(client: Any, kind: str) -> None:
    """LIM-4; P-12: the size is that of a partition, here of the one that the key picks."""
    with client.get_queue_sender(QUEUES[kind]) as sender:
        assert [is_taken(sender, "key") for _ in range(ROOM + 1)] == [True] * ROOM + [False]
        with client.get_queue_receiver(QUEUES[kind]) as receiver:
            [message] = receiver.receive_messages(max_wait_time=WAIT_S)
            assert not is_taken(sender, "key"), "a locked message is still there"
            receiver.complete_message(message)
            assert is_taken(sender, "key")
            assert not is_taken(sender, "key")


def test_a_full_partition_leaves_the_others_open(client: Any) -> None:
    """P-41."""
    with client.get_queue_sender("parts") as sender:
        while is_taken(sender, "full"):
            pass
        assert any(is_taken(sender, f"other {number}") for number in range(8))


def test_a_full_topic_refuses_sends_until_its_subscriptions_are_drained(client: Any) -> None:
    """LIM-4, D-30."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_topic_sender("topic") as sender:
        while is_taken(sender):
            pass
        receiver = client.get_subscription_receiver("topic", "subscription", receive_mode=mode)
        with receiver:
            assert receiver.receive_messages(max_wait_time=WAIT_S)
        wait_until(lambda: is_taken(sender))
