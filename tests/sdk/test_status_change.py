"""STA-2: an entity is switched off while clients are at it, and their links end at once.

The node runs in this process, so that its catalog can be changed beside the clients.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError

from busway.model.entities import EntityStatus, Queue
from tests.sdk.node_in_thread import WAIT_S, NodeInThread


@pytest.fixture
def node() -> Iterator[NodeInThread]:
    node = NodeInThread()
    yield node
    node.stop()


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, node: NodeInThread) -> Queue:
    description = Queue(path="queue", enable_partitioning=request.param)
    return node.change(lambda catalog: catalog.create_queue(description))


@contextmanager
def connected(node: NodeInThread) -> Iterator[ServiceBusClient]:
    """A message that meets the end of its link is an unknown error to the SDK, which tries again
    and then hears why."""
    with ServiceBusClient.from_connection_string(
        node.connection_string, retry_total=1, retry_backoff_factor=0.05
    ) as client:
        yield client


def switch(node: NodeInThread, queue: Queue, status: EntityStatus) -> None:
    node.change(lambda catalog: catalog.update(replace(queue, status=status)))


def test_a_sender_is_told_and_goes_on_when_the_queue_is_active_again(
    node: NodeInThread, queue: Queue
) -> None:
    with connected(node) as client, client.get_queue_sender("queue") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        switch(node, queue, EntityStatus.DISABLED)
        for _ in range(2):  # on the link that is gone, and on a new one
            with pytest.raises(MessagingEntityDisabledError, match="is currently disabled"):
                sender.send_messages(ServiceBusMessage("refused"))
        switch(node, queue, EntityStatus.ACTIVE)
        sender.send_messages(ServiceBusMessage("after"))
        with client.get_queue_receiver("queue") as receiver:
            assert sorted(map(str, receiver.peek_messages(10))) == ["after", "before"]


def test_a_receiver_that_waits_is_told(node: NodeInThread, queue: Queue) -> None:
    """Not at its timeout: it does not wait for what cannot come."""
    with connected(node) as client, client.get_queue_receiver("queue") as receiver:
        assert receiver.receive_messages(max_wait_time=1) == []
        switching = threading.Timer(0.5, switch, (node, queue, EntityStatus.DISABLED))
        switching.start()
        with pytest.raises(MessagingEntityDisabledError, match="is currently disabled"):
            receiver.receive_messages(max_wait_time=4 * WAIT_S)
        switching.join()


def test_what_is_disabled_for_sends_still_gives(node: NodeInThread, queue: Queue) -> None:
    """STA-1: links of both directions end, and only the sender cannot come back."""
    with (
        connected(node) as client,
        client.get_queue_sender("queue") as sender,
        client.get_queue_receiver("queue") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("there"))
        switch(node, queue, EntityStatus.SEND_DISABLED)
        with pytest.raises(MessagingEntityDisabledError, match="disabled for Send operations"):
            sender.send_messages(ServiceBusMessage("refused"))
        (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
        receiver.complete_message(message)
        assert str(message) == "there"
