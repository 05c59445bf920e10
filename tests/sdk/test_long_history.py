"""Duplicate detection with more ids than memory keeps, in files, over a restart (DUP, P-21)."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway.broker import duplicates
from busway.model.entities import Queue
from tests.sdk.node_in_thread import NodeInThread

FEW = 32
MANY = 1_000


def send(node: NodeInThread, *message_ids: str, body: str) -> None:
    messages = [ServiceBusMessage(body, message_id=each) for each in message_ids]
    with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_sender("queue") as sender,
    ):
        for start in range(0, len(messages), 100):
            sender.send_messages(messages[start : start + 100])


def bodies(node: NodeInThread) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(node.connection_string) as client,
        client.get_queue_receiver("queue") as receiver,
    ):
        found: list[str] = []
        number = 0
        while page := receiver.peek_messages(500, sequence_number=number):
            found += map(str, page)
            number = (page[-1].sequence_number or 0) + 1
        return found


@pytest.mark.parametrize("partitioned", [False, True])
def test_an_id_of_long_ago_is_a_duplicate_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    monkeypatch.setattr(duplicates, "IDS_MAX", FEW)
    old = [f"old {number}" for number in range(MANY)]
    description = Queue(
        path="queue", enable_partitioning=partitioned, requires_duplicate_detection=True
    )
    node = NodeInThread(tmp_path)
    try:
        node.change(lambda catalog: catalog.create_queue(description))
        send(node, *old, body="first")
        send(node, *old[::7], "new", body="again")
        assert sorted(bodies(node)) == ["again", *["first"] * MANY]
    finally:
        node.stop()
    node = NodeInThread(tmp_path)
    try:
        send(node, *old, "new", "newer", body="after")
        assert sorted(bodies(node)) == ["after", "again", *["first"] * MANY]
    finally:
        node.stop()
