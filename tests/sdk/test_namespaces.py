"""Several namespaces in one server, as the SDK meets them: by host name and by address (D-34)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from busway.testing import Server
from tests.sdk.conftest import WAIT_S
from tests.sdk.faces import FACES

CONFIG = """
[[queues]]
name = "orders"

[namespaces.contoso]
[[namespaces.contoso.queues]]
name = "orders"

[namespaces.fabrikam]
tier = "premium"
namespace_partitions = 2
hosts = ["127.0.0.2"]
key = "the-root-key-of-fabrikam"
[[namespaces.fabrikam.queues]]
name = "orders"
max_message_size_in_kilobytes = 10240
"""
NAMESPACES = ("busway", "contoso", "fabrikam")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("data")
    arguments = ["--host", "0.0.0.0"]
    with Server(config=CONFIG, data=data, arguments=arguments) as running:
        yield running


class Clients:
    """Connections to the namespaces of a server through one face of the SDK."""

    def __init__(self, server: Server, face: str) -> None:
        self._server = server
        self.sdk = FACES[face]()

    def text(self, namespace: str) -> str:
        if namespace == "busway":
            return self._server.connection_string
        return self._server.connection_strings[namespace]

    def connect(self, namespace: str, text: str | None = None) -> Any:
        return self.sdk.connect(text or self.text(namespace), retry_total=0)


@pytest.fixture
def clients(server: Server, face: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    monkeypatch.setattr(socket, "getaddrinfo", names_below_localhost(socket.getaddrinfo))
    clients = Clients(server, face)
    yield clients
    clients.sdk.close()


def names_below_localhost(known: Any) -> Any:
    """They mean this machine (RFC 6761), which not every resolver knows."""

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        here = isinstance(host, str) and host.endswith(".localhost")
        return known("127.0.0.1" if here else host, *arguments, **options)

    return getaddrinfo


def send(client: Any, *bodies: str) -> None:
    with client.get_queue_sender("orders") as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body))


def received(client: Any, count: int) -> list[str]:
    """So many, over as many calls as it takes (P-29), and no more."""
    bodies: list[str] = []
    deadline = time.monotonic() + WAIT_S
    with client.get_queue_receiver("orders") as receiver:
        while len(bodies) < count:
            assert time.monotonic() < deadline, f"{bodies} are all that came"
            missing = count - len(bodies)
            for message in receiver.receive_messages(missing, max_wait_time=5):
                bodies.append(str(message))
                receiver.complete_message(message)
        assert receiver.peek_messages() == []
    return sorted(bodies)


def test_a_connection_string_for_each_is_told(server: Server) -> None:
    port = server.port
    assert server.connection_strings.keys() == {"contoso", "fabrikam"}
    assert server.connection_strings["contoso"].startswith(
        f"Endpoint=sb://contoso.localhost:{port};"
    )
    assert server.connection_strings["fabrikam"].startswith(f"Endpoint=sb://127.0.0.2:{port};")
    assert ";SharedAccessKey=the-root-key-of-fabrikam;" in server.connection_strings["fabrikam"]


def test_one_name_is_another_queue_in_each(clients: Clients) -> None:
    for namespace in NAMESPACES:
        with clients.connect(namespace) as client:
            send(client, f"for {namespace}", f"again for {namespace}")
    for namespace in NAMESPACES:
        with clients.connect(namespace) as client:
            assert received(client, 2) == [f"again for {namespace}", f"for {namespace}"]


@pytest.mark.parametrize(("mine", "other"), [("contoso", "busway"), ("busway", "contoso")])
def test_a_key_of_one_does_not_open_another(clients: Clients, mine: str, other: str) -> None:
    key = clients.text(mine).partition("SharedAccessKey=")[2].partition(";")[0]
    own = clients.text(other).partition("SharedAccessKey=")[2].partition(";")[0]
    text = clients.text(other).replace(own, key)
    with (
        clients.connect(other, text) as client,
        pytest.raises((ServiceBusAuthenticationError, ServiceBusError)),
    ):
        send(client, "to nobody")
    with clients.connect(other) as client:
        assert received(client, 0) == []


def test_lim_1_a_premium_queue_takes_large_messages(clients: Clients) -> None:
    large = "x" * (3 * 1024 * 1024)
    with clients.connect("fabrikam") as client:
        send(client, large)
        assert received(client, 1) == [large]
    with clients.connect("contoso") as client, pytest.raises(ServiceBusError):
        send(client, large)


def test_their_keys_are_kept_in_the_data_folder(server: Server) -> None:
    assert server.data is not None
    key = Path(server.data, "root.contoso.key").read_text().strip()
    assert f"SharedAccessKey={key};" in server.connection_strings["contoso"]
    assert Path(server.data, "root.key").read_text().strip() != key
    assert not Path(server.data, "root.fabrikam.key").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_p14_what_a_namespace_is_cannot_be_changed_later(folder: Path) -> None:
    from busway.testing.server import ServerError

    premium = ["--tier", "premium", "--namespace-partitions", "2"]
    with Server(config="[[queues]]\nname = 'orders'\n", data=folder, arguments=premium):
        pass
    with Server(data=folder):  # what is not said stays
        pass
    for arguments, said in (
        (["--tier", "standard"], "The tier of the namespace 'busway' is Premium"),
        (["--namespace-partitions", "4"], "The number of partitions of the namespace"),
    ):
        refused = Server(data=folder, arguments=arguments)
        with pytest.raises(ServerError, match=said):
            refused.start()
        refused.close()


def test_a_namespace_that_the_file_no_longer_mentions_is_left_alone(folder: Path) -> None:
    with Server(config=CONFIG, data=folder) as first:
        there = first.connection_strings["contoso"]
    with Server(data=folder) as again:
        told = again.connection_strings["contoso"]
        assert told.partition(";")[2] == there.partition(";")[2]
