"""Entities that are switched off, wholly or in one direction (STA).

A configuration file says what is on; the server is started again to change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError

from busway.testing import Server
from tests.sdk.conftest import ONCE_EACH, PARTITIONED, WAIT_S
from tests.sdk.faces import FACES

pytestmark = ONCE_EACH

CONFIG = """
[[queues]]
name = "queue"
partitioned = {partitioned}
status = "{queue}"
[[topics]]
name = "topic"
partitioned = {partitioned}
status = "{topic}"
[[topics.subscriptions]]
name = "subscription"
status = "{subscription}"
"""


@pytest.fixture
def start(tmp_path: Path, face: str, kind: str) -> Iterator[Callable[..., Any]]:
    """Start a server, or start it again, with these statuses; a client of it."""
    sdk = FACES[face]()
    with ExitStack() as running:

        def start(**statuses: str) -> Any:
            running.close()
            named = {"queue": "Active", "topic": "Active", "subscription": "Active", **statuses}
            config = CONFIG.format(partitioned=str(kind == PARTITIONED).lower(), **named)
            server = running.enter_context(Server(config=config, data=tmp_path / "data"))
            return running.enter_context(sdk.connect(server.connection_string, retry_total=0))

        yield start
    sdk.close()


def moment(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def send(sender: Any, body: str = "x") -> None:
    with sender:
        sender.send_messages(ServiceBusMessage(body))


def take(receiver: Any) -> list[str]:
    with receiver:
        messages = receiver.receive_messages(max_message_count=10, max_wait_time=WAIT_S)
        for message in messages:
            receiver.complete_message(message)
        return [str(message) for message in messages]


def test_a_disabled_queue_neither_takes_nor_gives(start: Callable[..., Any]) -> None:
    """STA-1, STA-2: and has what it had when it is switched on again."""
    send(start().get_queue_sender("queue"))
    client = start(queue="Disabled")
    with pytest.raises(MessagingEntityDisabledError, match="is currently disabled"):
        send(client.get_queue_sender("queue"))
    with pytest.raises(MessagingEntityDisabledError, match="is currently disabled"):
        take(client.get_queue_receiver("queue"))
    assert take(start().get_queue_receiver("queue")) == ["x"]


def test_a_queue_that_is_disabled_for_sends_can_be_emptied(start: Callable[..., Any]) -> None:
    """STA-1; SCH-8: nothing can be scheduled, and what is scheduled is activated."""
    client = start()
    send(client.get_queue_sender("queue"))
    with client.get_queue_sender("queue") as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled"), moment(1))
    client = start(queue="SendDisabled")
    with pytest.raises(MessagingEntityDisabledError, match="disabled for Send operations"):
        send(client.get_queue_sender("queue"))
    receiver = client.get_queue_receiver("queue")
    found: list[str] = []
    with receiver:
        while len(found) < 2:
            messages = receiver.receive_messages(max_wait_time=WAIT_S)
            assert messages
            found += [str(message) for message in messages]
    assert sorted(found) == ["scheduled", "x"]


def test_a_queue_that_is_disabled_for_receives_can_be_filled(start: Callable[..., Any]) -> None:
    """STA-1."""
    client = start(queue="ReceiveDisabled")
    send(client.get_queue_sender("queue"))
    with pytest.raises(MessagingEntityDisabledError):
        take(client.get_queue_receiver("queue"))
    assert take(start().get_queue_receiver("queue")) == ["x"]


def test_a_disabled_topic_takes_nothing(start: Callable[..., Any]) -> None:
    """STA-1: its subscriptions still give what they have."""
    send(start().get_topic_sender("topic"))
    client = start(topic="Disabled")
    with pytest.raises(MessagingEntityDisabledError):
        send(client.get_topic_sender("topic"))
    assert take(client.get_subscription_receiver("topic", "subscription")) == ["x"]


def test_a_disabled_subscription_still_collects(start: Callable[..., Any]) -> None:
    """STA-1."""
    client = start(subscription="Disabled")
    send(client.get_topic_sender("topic"))
    with pytest.raises(MessagingEntityDisabledError):
        take(client.get_subscription_receiver("topic", "subscription"))
    assert take(start().get_subscription_receiver("topic", "subscription")) == ["x"]
