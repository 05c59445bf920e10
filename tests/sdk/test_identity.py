"""Applications with a credential of azure-identity, as they are, and tokens of one's own issuer."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.identity import DefaultAzureCredential, ManagedIdentityCredential
from azure.identity.aio import DefaultAzureCredential as AsyncCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from busway.testing import Server
from tests.gateway.issuers import ISSUER, key_set, token

WAIT_S = 60
REFUSED = (ServiceBusAuthenticationError, ServiceBusConnectionError)
"""With a custom endpoint the SDK says the second, and not why."""

CONFIG = f"""
[[issuers]]
issuer = "{ISSUER}"
jwks_file = "{{keys}}"

[[roles]]
role = "Azure Service Bus Data Sender"
app = "shop"
issuer = "{ISSUER}"
entities = ["q"]

[[roles]]
role = "Azure Service Bus Data Receiver"
app = "desk"
issuer = "https://busway.invalid/dev-tokens"
"""


class Given:
    """A credential that has its token already."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return AccessToken(self.text, int(time.time()) + 3600)

    def close(self) -> None:
        pass


class Broker:
    def __init__(self, server: Server, data: Path) -> None:
        self.server = server
        self.endpoint = f"http://localhost:{server.port}/msi/token"
        self.header = (data / "identity" / "header").read_text()
        self.verify = str(data / "tls" / "authority.pem")

    def options(self) -> dict[str, Any]:
        """The test's port is not the one that clients with a credential dial."""
        custom = f"sb://localhost:{self.server.port}"
        return {
            "connection_verify": self.verify,
            "custom_endpoint_address": custom,
            "transport_type": TransportType.Amqp,
        }

    def client(self, credential: Any) -> ServiceBusClient:
        return ServiceBusClient("localhost", credential, retry_total=0, **self.options())

    def administration(self, credential: Any) -> ServiceBusAdministrationClient:
        name = f"localhost:{self.server.port}"
        return ServiceBusAdministrationClient(name, credential, connection_verify=self.verify)

    def ask(self, query: str, **headers: str) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(f"{self.endpoint}?{query}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("identity")
    keys = data / "keys.json"
    keys.write_bytes(key_set("first"))
    config = CONFIG.replace("{keys}", str(keys))
    with Server("q", "p", config=config, data=data / "data", arguments=["--dev-tokens"]) as server:
        yield Broker(server, data / "data")


@pytest.fixture
def credential(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[DefaultAzureCredential]:
    monkeypatch.setenv("IDENTITY_ENDPOINT", broker.endpoint)
    monkeypatch.setenv("IDENTITY_HEADER", broker.header)
    with DefaultAzureCredential() as found:
        yield found


def test_messages_go_and_come_with_the_default_credential(
    broker: Broker, credential: DefaultAzureCredential
) -> None:
    with (
        broker.client(credential) as client,
        client.get_queue_sender("q") as sender,
        client.get_queue_receiver("q", max_wait_time=WAIT_S) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("by token"))
        message = next(iter(receiver))
        receiver.complete_message(message)
        assert str(message) == "by token"


async def test_the_other_face_does_so_too(
    broker: Broker, credential: DefaultAzureCredential
) -> None:
    async with (
        AsyncCredential() as own,
        AsyncClient("localhost", own, **broker.options()) as client,
        client.get_queue_sender("p") as sender,
        client.get_queue_receiver("p", max_wait_time=WAIT_S) as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("by token"))
        (message,) = await receiver.receive_messages(max_wait_time=WAIT_S)
        await receiver.complete_message(message)
        assert str(message) == "by token"


def test_entities_are_managed_with_it(broker: Broker, credential: DefaultAzureCredential) -> None:
    with broker.administration(credential) as administration:
        administration.create_queue("made", forward_to="p")  # shows a second token for `p`
        names = [each.name for each in administration.list_queues()]
        assert "made" in names
        administration.delete_queue("made")


def test_an_application_that_the_file_gives_a_role_has_that_role(
    broker: Broker, credential: DefaultAzureCredential
) -> None:
    with (
        ManagedIdentityCredential(client_id="desk") as desk,
        broker.client(desk) as client,
    ):
        with client.get_queue_receiver("p", max_wait_time=WAIT_S) as receiver:
            assert receiver.peek_messages() == []
        with pytest.raises(ServiceBusError, match=r"'Send' claim\(s\) are required"):
            client.get_queue_sender("p").send_messages(ServiceBusMessage("no"))


def test_a_token_of_a_trusted_issuer_opens_what_its_role_says(broker: Broker) -> None:
    good = Given(token(time.time_ns() // 1_000_000))
    with broker.client(good) as client:
        with client.get_queue_sender("q") as sender:
            sender.send_messages(ServiceBusMessage("from the shop"))
        with pytest.raises(REFUSED), client.get_queue_sender("p"):
            pass
    assert "put-token refused: " in broker.server.log
    assert "'appid shop' has no role for 'p'" in broker.server.log


@pytest.mark.parametrize(
    ("key", "claims", "text"),
    [
        ("second", {}, "is not one of its issuer's"),
        ("first", {"iss": "https://evil.example/"}, "is not trusted here"),
        ("first", {"aud": "https://vault.azure.net"}, "InvalidAudience"),
        ("first", {"exp": 1_000_000_000}, "ExpiredToken"),
        ("first", {"filler": "x" * 20_000}, "longer than"),
    ],
)
def test_a_bad_token_is_refused_with_the_reason(
    broker: Broker, key: str, claims: dict[str, Any], text: str
) -> None:
    bad = Given(token(time.time_ns() // 1_000_000, key, **claims))
    before = len(broker.server.log)
    with broker.client(bad) as client, pytest.raises(REFUSED), client.get_queue_sender("q"):
        pass
    assert text in broker.server.log[before:]


@pytest.mark.parametrize("word", ["Bearer ", "bearer ", ""])
def test_requests_may_leave_the_word_out(broker: Broker, word: str) -> None:
    """The administration client for Go does."""
    _, found = broker.ask(TestTheEndpoint.GOOD, **{"X-IDENTITY-HEADER": broker.header})
    url = f"http://localhost:{broker.server.port}/$Resources/queues"
    request = urllib.request.Request(url)
    request.add_header("Authorization", word + found["access_token"])
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        assert answer.status == 200


def test_a_role_in_a_queue_lets_requests_send_there_and_nowhere_else(broker: Broker) -> None:
    def send_to(queue: str) -> int:
        url = f"http://localhost:{broker.server.port}/{queue}/messages"
        request = urllib.request.Request(url, b"by request", method="POST")
        request.add_header("Authorization", f"Bearer {token(time.time_ns() // 1_000_000)}")
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return int(answer.status)

    assert send_to("q") == 201
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        send_to("p")
    refused.value.close()


class TestTheEndpoint:
    GOOD = "api-version=2019-08-01&resource=https://servicebus.azure.net/"

    def test_a_token_is_as_app_service_gives_it(self, broker: Broker) -> None:
        status, found = broker.ask(self.GOOD, **{"X-IDENTITY-HEADER": broker.header})
        assert status == 200
        assert found["token_type"] == "Bearer"
        assert found["resource"] == "https://servicebus.azure.net/"
        assert int(found["expires_on"]) > time.time() + 3_000

    @pytest.mark.parametrize("headers", [{}, {"X-IDENTITY-HEADER": "guess"}, {"Metadata": "true"}])
    def test_who_does_not_know_the_secret_gets_none(
        self, broker: Broker, headers: dict[str, str]
    ) -> None:
        status, found = broker.ask(self.GOOD, **headers)
        assert status == 401
        assert "access_token" not in found
        assert "IDENTITY_HEADER" in found["message"]

    def test_it_gives_none_for_other_services(self, broker: Broker) -> None:
        query = "resource=https://vault.azure.net"
        status, found = broker.ask(query, **{"X-IDENTITY-HEADER": broker.header})
        assert status == 400
        assert "https://servicebus.azure.net only" in found["message"]

    def test_the_log_has_neither_the_secret_nor_tokens(self, broker: Broker) -> None:
        _, found = broker.ask(self.GOOD, **{"X-IDENTITY-HEADER": broker.header})
        assert broker.header not in broker.server.log
        assert found["access_token"][:60] not in broker.server.log

    def test_without_the_flag_there_is_none(self) -> None:
        with Server() as server:
            url = f"http://localhost:{server.port}/msi/token?{self.GOOD}"
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url, timeout=WAIT_S)
            assert refused.value.code == 404
            refused.value.close()
