"""One port, every way to it: AMQP and AMQP over WebSocket, each plain and in TLS (D-32, D-33).

The clients are those of the Python SDK; those of JavaScript are in `compliance/js`. Python's take
the port of a connection string for plain AMQP only, so they are told of it as a custom endpoint
(amqp.md 1), and they trust no authority but the one that they are given.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from busway.runtime import trust
from busway.runtime.certificates import CertificateFolder
from busway.testing import Server
from tests.sdk.faces import FACES, Sdk

AMQP, WEBSOCKET = TransportType.Amqp, TransportType.AmqpOverWebsocket

TRANSPORTS = {
    "AMQP": (AMQP, False),
    "AMQPS": (AMQP, True),
    "WebSocket": (WEBSOCKET, False),
    "WebSocket in TLS": (WEBSOCKET, True),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateFolder:
    files = CertificateFolder(tmp_path_factory.mktemp("tls"))
    files.make([])
    return files


@pytest.fixture(scope="module")
def one_port(certificates: CertificateFolder) -> Iterator[Server]:
    tls = ["--tls-cert", str(certificates.server), "--tls-key", str(certificates.server_key)]
    with Server("conventional", partitioned=["partitioned"], arguments=tls) as server:
        # HTTP is imported now (D-33): the synchronous client waits a second for a WebSocket, which
        # may be too short on a busy machine, and these clients do not try again.
        with urlopen(f"http://localhost:{server.port}/health", timeout=60) as reply:
            assert reply.status == 200
        yield server


@dataclass
class Way:
    """How a client gets to the server."""

    server: Server
    transport: TransportType
    tls: bool
    authority: str

    def connect(self, sdk: Sdk, **options: Any) -> Any:
        server = self.server
        if self.tls or self.transport is WEBSOCKET:
            options = {"custom_endpoint_address": f"sb://localhost:{server.port}", **options}
        if self.tls:
            options = {"connection_verify": self.authority, **options}
        string = server.tls_connection_string if self.tls else server.connection_string
        return sdk.connect(string, transport_type=self.transport, retry_total=0, **options)


@pytest.fixture(params=list(TRANSPORTS))
def way(request: pytest.FixtureRequest, one_port: Server, certificates: CertificateFolder) -> Way:
    transport, tls = TRANSPORTS[request.param]
    return Way(one_port, transport, tls, str(certificates.authority))


@pytest.fixture
def sdk(face: str) -> Iterator[Sdk]:
    made = FACES[face]()
    yield made
    made.close()


def test_messages_are_sent_received_and_completed(sdk: Sdk, way: Way, kind: str) -> None:
    small, large = "small", "x" * 200_000  # of several frames
    with way.connect(sdk) as client, client.get_queue_sender(kind) as sender:
        for body in (small, large):
            sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver(kind) as receiver:
            received: list[str] = []
            while len(received) < 2:
                for message in receiver.receive_messages(max_message_count=2, max_wait_time=10):
                    received.append(str(message))
                    receiver.complete_message(message)
            assert sorted(received) == sorted([small, large])
            assert receiver.peek_messages() == []


@pytest.mark.parametrize("transport", [AMQP, WEBSOCKET], ids=["AMQPS", "WebSocket in TLS"])
def test_an_authority_that_is_not_trusted_keeps_clients_away(
    sdk: Sdk, one_port: Server, tmp_path: Path, transport: TransportType
) -> None:
    """What is encrypted is encrypted for somebody: a client checks whom it talks to."""
    stranger = CertificateFolder(tmp_path)
    stranger.make([])
    way = Way(one_port, transport, True, str(stranger.authority))
    with (
        way.connect(sdk) as client,
        pytest.raises(ServiceBusError, match=r"(?i)certificate|ssl"),
        client.get_queue_sender("conventional") as sender,
    ):
        sender.send_messages(ServiceBusMessage("not for everybody"))
    assert "Traceback" not in one_port.log


BOTH_PLANES = {
    "Python, administration": """
import sys
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
with ServiceBusAdministrationClient.from_connection_string(sys.argv[1], retry_total=0) as manager:
    names = [queue.name for queue in manager.list_queues()]
with ServiceBusClient.from_connection_string(sys.argv[1]) as client:
    with client.get_queue_sender(names[0]) as sender:
        sender.send_messages(ServiceBusMessage("to a queue that was found"))
print(*names)
""",
    "Python, administration (aio)": """
import asyncio, sys
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as Administration
async def main():
    async with Administration.from_connection_string(sys.argv[1], retry_total=0) as manager:
        names = [queue.name async for queue in manager.list_queues()]
    async with ServiceBusClient.from_connection_string(sys.argv[1]) as client:
        async with client.get_queue_sender(names[0]) as sender:
            await sender.send_messages(ServiceBusMessage("to a queue that was found"))
    print(*names)
asyncio.run(main())
""",
}
"""A program for each kind of client that `busway cert` names; it lists queues and sends to one."""


@pytest.mark.parametrize("client", list(BOTH_PLANES))
def test_one_connection_string_and_one_variable_serve_both_planes(
    client: str, certificates: CertificateFolder
) -> None:
    """http.md 1: administration insists on TLS, messages go without it, and both dial one port.

    In a process of its own, as such a variable is read when a process begins.
    """
    tls = ["--tls-cert", str(certificates.server), "--tls-key", str(certificates.server_key)]
    with Server("first", "second", arguments=tls) as server:

        def run(**variables: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", BOTH_PLANES[client], server.connection_string]
            environment = {k: v for k, v in os.environ.items() if k not in trust.VARIABLES.values()}
            return subprocess.run(
                command,
                env=environment | variables,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )

        assert "CERTIFICATE_VERIFY_FAILED" in run().stderr
        trusting = run(**{trust.VARIABLES[client]: str(certificates.authority)})
        assert trusting.stdout.split() == ["first", "second"], trusting.stderr
