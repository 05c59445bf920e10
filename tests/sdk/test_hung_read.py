"""A store that hangs in a read, while nobody commits to it: what clients see of that (P-41, P-43).

The read is that of a peek, in a real store. Only how long it takes is made up here: it lasts until
the test lets it go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from busway.broker.commits import WayState
from busway.model.entities import Queue
from busway.model.partitioning import partition_of_key
from busway.runtime.stores import NodeStore
from tests.http.asking import ask, token_of
from tests.sdk.conftest import wait_until
from tests.sdk.node_in_thread import NodeInThread

NOTICED_S = 60.0
"""It is noticed after 5 s; a busy machine may take longer."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeInThread]:
    node = NodeInThread(tmp_path / "data")
    yield node
    node.stop()


@pytest.fixture
def hanging(node: NodeInThread) -> Iterator[threading.Event]:
    """Reads of the second store wait for this event, commits do not."""
    go_on = threading.Event()
    inner: Any = node.stores[1].identity
    for name in ("read_page", "read_numbers"):
        read = getattr(inner, name)

        def wait_and_read(*arguments: Any, read: Any = read, **more: Any) -> Any:
            go_on.wait()
            return read(*arguments, **more)

        setattr(inner, name, wait_and_read)
    yield go_on
    go_on.set()


def availability(node: NodeInThread) -> str:
    token = token_of(node.connection_string)
    text = ask(node, "GET", "/parts?api-version=2021-05", token=token).text  # type: ignore[arg-type]
    return text.partition("<EntityAvailabilityStatus>")[2].partition("<")[0]


def test_p_41_p_43_it_is_ill_and_sends_go_elsewhere(
    node: NodeInThread, hanging: threading.Event
) -> None:
    queue = node.change(
        lambda catalog: catalog.create_queue(Queue(path="parts", enable_partitioning=True))
    )
    ill: NodeStore = node.stores[1]
    with (
        ServiceBusClient.from_connection_string(node.connection_string, retry_total=0) as client,
        client.get_queue_sender("parts") as sender,
        client.get_queue_receiver("parts") as receiver,
        ThreadPoolExecutor() as beside,
    ):
        for number in range(16):
            sender.send_messages(ServiceBusMessage(f"before {number}"))
        assert availability(node) == "Available"
        peek = beside.submit(receiver.peek_messages, 32, timeout=NOTICED_S)
        wait_until(lambda: ill.broker.state is WayState.HUNG, NOTICED_S)
        for number in range(8):
            sender.send_messages(ServiceBusMessage(f"meanwhile {number}"))
        assert availability(node) == "Limited"
        pinned = next(
            key
            for key in map(str, range(1_000))
            if queue.placement[partition_of_key(key, 16)] == ill.store_id
        )
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("pinned", partition_key=pinned))
        hanging.set()
        wait_until(lambda: ill.broker.available)
        sender.send_messages(ServiceBusMessage("pinned", partition_key=pinned))
        assert availability(node) == "Available"
        assert peek.exception(NOTICED_S) is None
        assert len(receiver.peek_messages(100, sequence_number=1)) == 16 + 8 + 1
