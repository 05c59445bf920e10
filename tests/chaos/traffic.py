"""Clients of the real SDK in threads, which write down what they do until their broker is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
)

from tests.chaos.ledger import Ledger
from tests.sdk.conftest import everything

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE
NEXT_SESSION: dict[str, Any] = {
    "session_id": NEXT_AVAILABLE_SESSION,
    "max_wait_time": 1,
    "prefetch_count": 20,
}
ENDED_S = 300.0


def connect(connection_string: str) -> ServiceBusClient:
    """Without retries: an outcome that is unknown must be seen as such."""
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0)


class Traffic:
    """Threads that run until `stop`, or until their connection breaks."""

    def __init__(self, connection_string: str, ledger: Ledger) -> None:
        self.ledger = ledger
        self._connection_string = connection_string
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self.failures: list[ServiceBusError] = []
        """What ended a client, as it must when the broker dies under it."""
        self.unexpected: list[BaseException] = []

    def __enter__(self) -> Traffic:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def send(self, queue: str, *, batch: int = 1, **properties: Any) -> None:
        """A client that sends one message after the other, or lists of `batch`."""
        self._start(self._send, queue, batch, properties)

    def receive(self, queue: str) -> None:
        """A client that receives and completes."""
        self._start(self._receive, queue)

    def receive_and_delete(self, queue: str) -> None:
        self._start(self._receive_and_delete, queue)

    def receive_sessions(self, queue: str) -> None:
        """A client that takes whatever session is next, completes some of it, and goes on."""
        self._start(self._receive_sessions, queue)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(ENDED_S)
            assert not thread.is_alive(), "a client hangs"

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                with connect(self._connection_string) as client:
                    work(client, *arguments)
            except ServiceBusError as error:
                self.failures.append(error)
            except BaseException as error:
                self.unexpected.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _send(
        self, client: ServiceBusClient, queue: str, batch: int, properties: dict[str, Any]
    ) -> None:
        with client.get_queue_sender(queue) as sender:
            while not self._stopping.is_set():
                ids = self.ledger.new_ids(batch)
                messages = [
                    ServiceBusMessage("x" * 100, message_id=each, **properties) for each in ids
                ]
                sender.send_messages(messages[0] if batch == 1 else messages)
                self.ledger.accept(ids)

    def _receive(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_receiver(queue, prefetch_count=20) as receiver:
            while not self._stopping.is_set():
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=0.2):
                    self._complete(receiver, message)

    def _complete(self, receiver: Any, message: ServiceBusReceivedMessage) -> None:
        message_id = str(message.message_id)
        self.ledger.deliver(message_id)
        self.ledger.begin_completing(message_id)
        try:
            receiver.complete_message(message)
        except MessageLockLostError:
            return  # certainly not completed, and it comes again
        self.ledger.complete(message_id)

    def _receive_sessions(self, client: ServiceBusClient, queue: str) -> None:
        while not self._stopping.is_set():
            try:
                receiver = client.get_queue_receiver(queue, **NEXT_SESSION).__enter__()
            except OperationTimeoutError:
                continue
            with receiver:
                for _ in range(5):
                    batch = receiver.receive_messages(max_message_count=10, max_wait_time=0.2)
                    for message in batch:
                        self.ledger.deliver_in_order(
                            str(message.session_id), str(message.message_id)
                        )
                        self._complete(receiver, message)

    def _receive_and_delete(self, client: ServiceBusClient, queue: str) -> None:
        with client.get_queue_receiver(queue, receive_mode=DELETE) as receiver:
            while not self._stopping.is_set():
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=0.2):
                    self.ledger.deliver(str(message.message_id))


def drain(connection_string: str, queue: str) -> list[str]:
    """The ids of all that is there."""
    with (
        connect(connection_string) as client,
        client.get_queue_receiver(queue, receive_mode=DELETE, prefetch_count=200) as receiver,
    ):
        return ids_in(receiver)


def ids_in(receiver: Any) -> list[str]:
    return [str(message.message_id) for message in everything(receiver, ENDED_S)]


def drain_sessions(connection_string: str, queue: str) -> list[str]:
    """The same of a queue with sessions, each of them in order."""
    ids: list[str] = []
    with connect(connection_string) as client:
        for session_id in client.list_queue_sessions(queue):
            options: dict[str, Any] = {"receive_mode": DELETE, "prefetch_count": 200}
            with client.get_queue_receiver(queue, session_id=session_id, **options) as receiver:
                ids += ids_in(receiver)
        assert list(client.list_queue_sessions(queue)) == []
    return ids


def wait_until(condition: Callable[[], object], within_s: float = ENDED_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.005)
