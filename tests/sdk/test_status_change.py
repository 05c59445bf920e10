"""STA-2: an entity is switched off while clients are at it, and their links end at once.

The node runs in this process, so that its catalog can be changed beside the clients.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError

from busway.cluster.catalog import Catalog
from busway.config import load
from busway.model.entities import EntityStatus, Queue
from busway.runtime.node import Node

T = TypeVar("T")

WAIT_S = 20


class NodeInThread:
    """A node with an event loop of its own, and its catalog, to be changed from here."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._node = Node(load({"memory": True, "port": 0, "stores": 2}, {}))
        asyncio.run_coroutine_threadsafe(self._node.start(), self._loop).result(WAIT_S)

    @property
    def connection_string(self) -> str:
        return self._node.connection_string

    def change(self, what: Callable[[Catalog], T]) -> T:
        async def in_its_loop() -> T:
            assert self._node._catalog is not None
            return what(self._node._catalog)

        return asyncio.run_coroutine_threadsafe(in_its_loop(), self._loop).result(WAIT_S)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._node.stop(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()


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
            receiver.receive_messages(max_wait_time=10 * WAIT_S)
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
