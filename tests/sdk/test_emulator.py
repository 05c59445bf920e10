"""In place of Microsoft's emulator: its file, its key, what its samples do."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from busway.gateway import auth
from busway.testing import Server
from tests.test_emulator_files import SHIPPED

WAIT_S = 60


@pytest.fixture(scope="module")
def emulator() -> Iterator[Server]:
    with Server(config=SHIPPED, arguments=["--emulator"]) as server:
        yield server


def string(server: Server) -> str:
    """As in the samples; the port is there because tests do not take the usual one."""
    return (
        f"Endpoint=sb://localhost:{server.port};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )


def test_a_queue_of_the_file_takes_and_gives_messages(emulator: Server) -> None:
    with (
        ServiceBusClient.from_connection_string(string(emulator)) as client,
        client.get_queue_sender("queue.1") as sender,
        client.get_queue_receiver("queue.1", max_wait_time=WAIT_S) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("Hello, Azure Service Bus!"))
        message = next(iter(receiver))
        receiver.complete_message(message)
        assert str(message) == "Hello, Azure Service Bus!"


def test_a_subscription_of_the_file_has_its_filter(emulator: Server) -> None:
    with (
        ServiceBusClient.from_connection_string(string(emulator)) as client,
        client.get_topic_sender("topic.1") as sender,
        client.get_subscription_receiver(
            "topic.1", "subscription.1", max_wait_time=WAIT_S
        ) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("text", content_type="text/plain"))
        sender.send_messages(ServiceBusMessage("wanted", content_type="application/json"))
        message = next(iter(receiver))
        receiver.complete_message(message)
        assert str(message) == "wanted"


def test_queues_are_made_as_its_python_sample_makes_them(emulator: Server) -> None:
    name = f"queue-{uuid4().hex}"
    with ServiceBusAdministrationClient.from_connection_string(string(emulator)) as client:
        client._impl._client._base_url = f"http://localhost:{emulator.port}"
        client.create_queue(name)
        assert client.get_queue(name).name == name
        client.delete_queue(name)


def test_it_says_that_it_is_healthy(emulator: Server) -> None:
    url = f"http://localhost:{emulator.port}/health"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        assert answer.status == 200
        json.load(answer)


def test_the_log_warns_and_has_no_key(emulator: Server) -> None:
    assert "the key is the public one of Microsoft's emulator" in emulator.log
    assert "everybody on this machine" in emulator.log
    assert "SAS_KEY_VALUE" not in emulator.log


def test_with_a_key_of_ones_own_the_public_one_opens_nothing() -> None:
    key = "a-key-of-my-own-that-is-long"
    with Server(config=SHIPPED, arguments=["--emulator", "--key", key]) as server:
        assert "public one" not in server.log
        request = urllib.request.Request(f"http://localhost:{server.port}/$Resources/queues")
        resource = f"http://localhost:{server.port}/"
        token = auth.write(resource, "RootManageSharedAccessKey", "SAS_KEY_VALUE", 9_999_999_999)
        request.add_header("Authorization", token)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=WAIT_S)
        assert refused.value.code == 401
        refused.value.close()
