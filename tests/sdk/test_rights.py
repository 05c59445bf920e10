"""Rules with some rights and not others, as the SDK meets them (amqp.md 18).

This release has no face to make rules with, so the test writes them into the catalog of a server
that is stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError

from busway.cluster.catalog import Catalog
from busway.model.entities import AuthorizationRule
from busway.testing import Server
from tests.sdk.conftest import PARTITIONED
from tests.sdk.faces import FACES

QUEUES = {"conventional": "plain", PARTITIONED: "parts"}
KEYS = {"Send": "the-key-of-the-one-who-sends", "Listen": "the-key-of-the-one-who-listens"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    with Server("plain", partitioned=["parts"], data=data) as running:
        running.stop()
        write_rules(data / "catalog.db")
        running.start()
        yield running


def write_rules(path: Path) -> None:
    catalog = Catalog.open(path)
    rules = tuple(AuthorizationRule(right, (right,), key) for right, key in KEYS.items())
    catalog.update_namespace(
        replace(catalog.namespace, authorization_rules=rules), int(time.time() * 1000)
    )
    catalog.close()


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
        receiver.receive_messages(max_wait_time=0.1)


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
