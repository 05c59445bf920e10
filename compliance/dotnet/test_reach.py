"""Which port the SDK dials with which connection string: the table of docs/how-to/tls.md.

On a loopback address of the suite's own, where 5671 and 443 are free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from certificates import tls_arguments
from sdk import result
from world import message, receive_one

from busway.testing.server import Server, ServerError

# isort: split

from Azure.Messaging.ServiceBus import (
    ServiceBusClient,
    ServiceBusClientOptions,
    ServiceBusTransportType,
)
from Azure.Messaging.ServiceBus.Administration import (
    CreateQueueOptions,
    ServiceBusAdministrationClient,
)
from System import Uri

ADDRESS = os.environ.get("BUSWAY_OWN_ADDRESS", "")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A port of its own, 5671 and 443: as `busway serve --tls` opens them on a usual machine."""
    if not ADDRESS:
        pytest.skip("BUSWAY_OWN_ADDRESS is not set; compliance/run.py sets it")
    fixed = ["--host", ADDRESS, "--tls-port", "5671", "--https-port", "443"]
    server = Server("queue", arguments=[*tls_arguments(), *fixed])
    try:
        server.start()
    except ServerError as error:
        if "Permission denied" in str(error) or "Cannot assign" in str(error):
            server.close()
            pytest.skip(f"{ADDRESS}:443 is not for us here")
        raise
    yield server
    server.close()


def portless(text: str) -> str:
    """A string as it is in the portal, and as it is printed for clients that dial fixed ports."""
    endpoint, rest = text.split(";", 1)
    return f"{endpoint.rpartition(':')[0]};{rest}"


def exchange(connection_string: str, **options: Any) -> None:
    chosen = ServiceBusClientOptions()
    chosen.RetryOptions.MaxRetries = 0
    for name, value in options.items():
        setattr(chosen, name, value)
    client = ServiceBusClient(connection_string, chosen)
    try:
        result(client.CreateSender("queue").SendMessageAsync(message("hello")))
        receiver = client.CreateReceiver("queue")
        result(receiver.CompleteMessageAsync(receive_one(receiver)))
    finally:
        result(client.DisposeAsync())


def administer(connection_string: str) -> None:
    administration = ServiceBusAdministrationClient(connection_string)
    result(administration.CreateQueueAsync(CreateQueueOptions("made")))
    result(administration.DeleteQueueAsync("made"))


WEBSOCKET = ServiceBusTransportType.AmqpWebSockets


def test_the_first_string_takes_messages_and_administration_to_its_port(server: Server) -> None:
    exchange(server.connection_string)
    exchange(server.connection_string, TransportType=WEBSOCKET)
    administer(server.connection_string)


@pytest.mark.short
def test_a_string_without_the_flag_takes_messages_to_5671_and_administration_to_its_port(
    server: Server,
) -> None:
    exchange(server.tls_connection_string)
    administer(server.tls_connection_string)


@pytest.mark.short
def test_a_string_without_a_port_takes_everything_to_5671_and_443(server: Server) -> None:
    text = portless(server.tls_connection_string)
    exchange(text)
    exchange(text, TransportType=WEBSOCKET)
    administer(text)


def test_a_websocket_without_the_flag_goes_to_443_whatever_the_string_says(server: Server) -> None:
    exchange(server.tls_connection_string, TransportType=WEBSOCKET)


def test_a_custom_endpoint_takes_messages_to_another_port(server: Server) -> None:
    endpoint = Uri(f"sb://{ADDRESS}:{server.port}")
    exchange(server.tls_connection_string, CustomEndpointAddress=endpoint)
    exchange(server.tls_connection_string, CustomEndpointAddress=endpoint, TransportType=WEBSOCKET)
