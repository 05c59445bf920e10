"""The sender of Spark's tasks, against a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.remote import connection
from busway.remote.wire.sender import Sender, SendError
from busway.testing.server import Server


def message(number: int) -> bytes:
    return encode_message(properties=Properties(message_id=f"m-{number}"), data=b"%d" % number)


def ids_in(server: Server, queue: str) -> list[str]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):
        ids: list[str] = []
        while batch := receiver.receive_messages(500, max_wait_time=2):
            ids += [str(each.message_id) for each in batch]
        return ids


@pytest.mark.parametrize("queue", ["plain", "spread"])
def test_what_is_finished_is_stored(queue: str) -> None:
    with Server("plain", partitioned=["spread"]) as server:
        sender = Sender(queue, connection.read(server.connection_string).pass_for(queue))
        for number in range(5_000):
            sender.send(message(number))
        assert sender.finish() == 5_000
        sender.close()
        ids = ids_in(server, queue)
    assert sorted(ids) == sorted(f"m-{number}" for number in range(5_000))
    if queue == "plain":
        assert ids == [f"m-{number}" for number in range(5_000)]


def test_a_broker_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    config = '[[queues]]\nname = "orders"\nrequires_duplicate_detection = true\n'
    with Server(config=config, data=tmp_path) as server:
        sender = Sender("orders", connection.read(server.connection_string).pass_for("orders"))
        for number in range(3_000):
            sender.send(message(number))
        server.kill()
        server.restart()
        for number in range(3_000, 4_000):
            sender.send(message(number))
        sender.finish()
        sender.close()
        ids = ids_in(server, "orders")
    assert sorted(ids) == sorted(f"m-{number}" for number in range(4_000))


def test_what_cannot_be_sent_is_said() -> None:
    with Server("orders") as server:
        credentials = connection.read(server.connection_string)
        with pytest.raises(SendError, match="could not be found"):
            Sender("nowhere", credentials.pass_for("nowhere"), patience_s=1).send_all([message(1)])
        with pytest.raises(SendError, match="does not let this key use"):
            Sender("orders", credentials.pass_for("other"), patience_s=1).send_all([message(1)])
        large = encode_message(data=bytes(300 * 1024))
        with pytest.raises(SendError, match="exceeds the limit"):
            Sender("orders", credentials.pass_for("orders"), patience_s=1).send_all([large])
    with pytest.raises(SendError, match="takes no messages for 'orders'"):
        Sender("orders", credentials.pass_for("orders"), patience_s=1).send_all([message(1)])
