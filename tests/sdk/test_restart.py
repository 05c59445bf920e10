"""What a client sees of a broker that is stopped or killed and comes back: the SDK reconnects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError

from busway.testing import Server
from tests.sdk.conftest import ONCE_EACH, PARTITIONED
from tests.sdk.faces import FACES, Sdk

pytestmark = ONCE_EACH

QUEUES = {"conventional": "plain", PARTITIONED: "parts"}
KILLED = pytest.mark.parametrize("restart", ["killed"], indirect=True)
"""For what must survive: what a crash leaves, a stop leaves too."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("plain", partitioned=["parts"], data=tmp_path / "data") as running:
        yield running


@pytest.fixture(params=["stopped", "killed"])
def restart(request: pytest.FixtureRequest, server: Server) -> Callable[[], None]:
    """Down and up again, on the same port and data."""

    def down_and_up() -> None:
        if request.param == "killed":
            server.kill()
        server.restart()

    return down_and_up


@pytest.fixture
def sdk(face: str) -> Iterator[Sdk]:
    made = FACES[face]()
    yield made
    made.close()


@pytest.fixture
def client(server: Server, sdk: Sdk) -> Iterator[Any]:
    """With the SDK's own retries, which are what it reconnects by."""
    client = sdk.connect(server.connection_string, retry_backoff_factor=0.1)
    with client:
        yield client


@pytest.fixture
def name(kind: str) -> str:
    return QUEUES[kind]


def test_a_sender_goes_on_after_a_restart(
    client: Any, name: str, restart: Callable[[], None]
) -> None:
    with client.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        restart()
        sender.send_messages(ServiceBusMessage("after"))
    with client.get_queue_receiver(name) as receiver:
        assert sorted(str(message) for message in receiver.peek_messages(10)) == ["after", "before"]


def test_a_receiver_goes_on_after_a_restart(
    client: Any, name: str, restart: Callable[[], None]
) -> None:
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        sender.send_messages(ServiceBusMessage("before"))
        [before] = receiver.receive_messages(max_wait_time=10)
        receiver.complete_message(before)
        restart()
        sender.send_messages(ServiceBusMessage("after"))
        [after] = receiver.receive_messages(max_wait_time=10)
        assert str(after) == "after"
        receiver.complete_message(after)
        assert receiver.peek_messages(10, sequence_number=1) == []


@KILLED
def test_a_lock_from_before_is_lost_and_the_message_comes_again(
    client: Any, name: str, restart: Callable[[], None]
) -> None:
    """D-5: locks are void after a crash, and nothing is counted. LOCK-5: the broker says so."""
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        sender.send_messages(ServiceBusMessage("held"))
        [held] = receiver.receive_messages(max_wait_time=10)
        restart()
        [again] = receiver.receive_messages(max_wait_time=10)
        assert (again.sequence_number, again.delivery_count) == (held.sequence_number, 0)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(held)
        receiver.complete_message(again)


@KILLED
def test_everything_that_was_settled_stays_settled(
    client: Any, name: str, restart: Callable[[], None]
) -> None:
    """D-5: counts, deferred messages and dead letters are durable; what was completed is gone."""
    bodies = ("completed", "abandoned", "deferred", "dead")
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body))
        messages: dict[str, Any] = {}
        while len(messages) < len(bodies):
            received = receiver.receive_messages(max_message_count=4, max_wait_time=10)
            messages |= {str(message): message for message in received}
        receiver.complete_message(messages["completed"])
        receiver.abandon_message(messages["abandoned"])
        receiver.defer_message(messages["deferred"])
        receiver.dead_letter_message(messages["dead"], reason="Why")
    restart()
    with client.get_queue_receiver(name) as receiver:
        left = {str(message): message for message in receiver.peek_messages(10)}
        assert sorted(left) == ["abandoned", "deferred"]
        assert left["abandoned"].delivery_count == 1
        assert left["deferred"].state == ServiceBusMessageState.DEFERRED
        number = messages["deferred"].sequence_number
        assert [str(m) for m in receiver.receive_deferred_messages(number)] == ["deferred"]
    dead_letters = client.get_queue_receiver(name, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    with dead_letters as receiver:
        [dead] = receiver.receive_messages(max_wait_time=10)
        assert (str(dead), dead.dead_letter_reason) == ("dead", "Why")


@KILLED
def test_numbers_are_not_given_twice(client: Any, name: str, restart: Callable[[], None]) -> None:
    """D-2, SEQ-1."""
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        numbers = []
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("x", partition_key="one"))
            [message] = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)
            numbers.append(message.sequence_number)
            restart()
        assert numbers[1] > numbers[0]
