"""What a client sees of a broker that is stopped or killed and comes back: the SDK reconnects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageLockLostError

from busway.testing import Server
from tests.sdk.conftest import ONCE_EACH, PARTITIONED, WAIT_S, received
from tests.sdk.faces import FACES, Sdk

pytestmark = ONCE_EACH

QUEUES = {"conventional": "plain", PARTITIONED: "parts"}
OTHERS = """
[[queues]]
name = "plain-sessions"
requires_session = true
requires_duplicate_detection = true
[[queues]]
name = "parts-sessions"
partitioned = true
requires_session = true
requires_duplicate_detection = true
[[topics]]
name = "plain-topic"
[[topics.subscriptions]]
name = "all"
[[topics]]
name = "parts-topic"
partitioned = true
[[topics.subscriptions]]
name = "all"
"""
KILLED = pytest.mark.parametrize("restart", ["killed"], indirect=True)
"""For what must survive: what a crash leaves, a stop leaves too."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    data = tmp_path / "data"
    with Server("plain", partitioned=["parts"], config=OTHERS, data=data) as running:
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
        [before] = receiver.receive_messages(max_wait_time=WAIT_S)
        receiver.complete_message(before)
        restart()
        sender.send_messages(ServiceBusMessage("after"))
        [after] = receiver.receive_messages(max_wait_time=WAIT_S)
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
        [held] = receiver.receive_messages(max_wait_time=WAIT_S)
        restart()
        [again] = receiver.receive_messages(max_wait_time=WAIT_S)
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
            received = receiver.receive_messages(max_message_count=4, max_wait_time=WAIT_S)
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
        [dead] = receiver.receive_messages(max_wait_time=WAIT_S)
        assert (str(dead), dead.dead_letter_reason) == ("dead", "Why")


@KILLED
def test_numbers_are_not_given_twice(client: Any, name: str, restart: Callable[[], None]) -> None:
    """D-2, SEQ-1."""
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        numbers = []
        for _ in range(2):
            sender.send_messages(ServiceBusMessage("x", partition_key="one"))
            [message] = receiver.receive_messages(max_wait_time=WAIT_S)
            receiver.complete_message(message)
            numbers.append(message.sequence_number)
            restart()
        assert numbers[1] > numbers[0]


@KILLED
def test_what_is_scheduled_stays_scheduled(
    client: Any, name: str, restart: Callable[[], None]
) -> None:
    """SCH-2, SCH-3: with its number; and what became due meanwhile is activated."""
    soon, later = datetime.now(UTC) + timedelta(seconds=1), datetime.now(UTC) + timedelta(hours=1)
    with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
        sender.schedule_messages(ServiceBusMessage("soon"), soon)
        sender.send_messages(ServiceBusMessage("soon, too", scheduled_enqueue_time_utc=soon))
        [number] = sender.schedule_messages(ServiceBusMessage("later"), later)
        [cancelled] = sender.schedule_messages(ServiceBusMessage("never"), later)
        sender.cancel_scheduled_messages(cancelled)
        restart()
        activated: list[str] = []
        while len(activated) < 2:
            messages = receiver.receive_messages(max_message_count=2, max_wait_time=WAIT_S)
            assert messages
            activated += [str(message) for message in messages]
            for message in messages:
                receiver.complete_message(message)
        assert sorted(activated) == ["soon", "soon, too"]
        left = receiver.peek_messages(10, sequence_number=1)
        assert [(str(each), each.sequence_number) for each in left] == [("later", number)]
        sender.cancel_scheduled_messages(number)
        assert receiver.peek_messages(10, sequence_number=1) == []


@KILLED
def test_a_session_and_its_ids_are_remembered(
    client: Any, name: str, restart: Callable[[], None]
) -> None:
    """SES-10, PRT-9, DUP-5: state, order and history are durable; D-5: the session's lock is not,
    and nothing is counted."""
    queue = f"{name}-sessions"
    first, second = (
        ServiceBusMessage(body, session_id="a", message_id=body) for body in ("first", "second")
    )
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([first, second])
        owner = client.get_queue_receiver(queue, session_id="a")
        with owner:
            owner.session.set_state("step 1")
            [held] = owner.receive_messages(max_wait_time=WAIT_S)
            restart()
        sender.send_messages([first, second])
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() == b"step 1"
        assert [str(each) for each in receiver.peek_messages(10)] == ["first", "second"]
        again = received(receiver, 2)
        assert [str(message) for message in again] == ["first", "second"]
        assert [message.delivery_count for message in again] == [0, 0]
        assert again[0].sequence_number == held.sequence_number


@KILLED
def test_copies_of_a_topic_are_kept(client: Any, name: str, restart: Callable[[], None]) -> None:
    """MSG-2, D-30."""
    topic = f"{name}-topic"
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        restart()
        sender.send_messages(ServiceBusMessage("after"))
    with client.get_subscription_receiver(topic, "all") as receiver:
        assert sorted(str(message) for message in receiver.peek_messages(10)) == ["after", "before"]
