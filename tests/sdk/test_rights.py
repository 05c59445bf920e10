"""Rules with some rights and not others, as the SDK meets them (amqp.md 18)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError

from busway.testing import Server
from tests.sdk.conftest import PARTITIONED
from tests.sdk.faces import FACES

QUEUES = {"conventional": "plain", PARTITIONED: "parts"}
KEYS = {"Send": "the-key-of-the-one-who-sends", "Listen": "the-key-of-the-one-who-listens"}


CONFIG = "".join(
    f'[[access]]\nname = "{right}"\nrights = ["{right}"]\nkey = "{key}"\n\n'
    for right, key in KEYS.items()
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("plain", partitioned=["parts"], config=CONFIG) as running:
        yield running


@pytest.fixture(params=list(KEYS))
def right(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(server: Server, face: str, right: str) -> Iterator[Any]:
    """With the key of a rule that has one right only."""
    endpoint = server.connection_string.partition(";")[0]
    sdk = FACES[face]()
    text = (
        f"{endpoint};SharedAccessKeyName={right};SharedAccessKey={KEYS[right]};"
        "UseDevelopmentEmulator=true;"
    )
    with sdk.connect(text, retry_total=0) as client:
        yield client
    sdk.close()


def send(client: Any, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))


def receive(client: Any, queue: str) -> None:
    with client.get_queue_receiver(queue) as receiver:
        receiver.receive_messages(max_wait_time=1)


@pytest.mark.parametrize("right", ["Listen"], indirect=True)
def test_who_may_only_listen_cannot_send(client: Any, kind: str) -> None:
    with pytest.raises(ServiceBusAuthorizationError):
        send(client, QUEUES[kind])


@pytest.mark.parametrize("right", ["Listen"], indirect=True)
def test_who_may_listen_receives(client: Any, kind: str) -> None:
    receive(client, QUEUES[kind])


@pytest.mark.parametrize("right", ["Send"], indirect=True)
def test_who_may_only_send_cannot_receive(client: Any, kind: str) -> None:
    with pytest.raises(ServiceBusAuthorizationError):
        receive(client, QUEUES[kind])


@pytest.mark.parametrize("right", ["Send"], indirect=True)
def test_who_may_send_sends(client: Any, kind: str) -> None:
    send(client, QUEUES[kind])
