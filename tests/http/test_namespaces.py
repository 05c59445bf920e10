"""Several namespaces behind one port: the header Host says which, its tier what goes (P-14)."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from busway.testing import Server
from tests.http.asking import Reply, ask, token_of
from tests.http.atom_client import description, service

CONFIG = """
[namespaces.small]
tier = "basic"

[namespaces.large]
tier = "premium"
namespace_partitions = 2
hosts = ["large.example"]
"""
HOSTS = {"": "localhost", "small": "small.localhost:5300", "large": "LARGE.example"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        yield running


class Bus:
    """Requests to one namespace, with a token of the same or of another one."""

    def __init__(self, server: Server, namespace: str, key_of: str | None = None) -> None:
        self._server = server
        self._host = HOSTS[namespace]
        of = namespace if key_of is None else key_of
        text = server.connection_strings[of] if of else server.connection_string
        self._token = token_of(text)

    def ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        content = None if body is None else body.decode()
        headers = {"Host": self._host}
        return ask(self._server, method, path, content, token=self._token, headers=headers)

    def create(self, name: str, kind: str = "Queue", **elements: object) -> Reply:
        return self.ask("PUT", f"/{name}", description(kind, **elements))

    def element(self, name: str, element: str) -> str | None:
        found = ElementTree.fromstring(self.ask("GET", f"/{name}").body)
        return found.findtext(f".//{service(element)}")


def test_one_name_is_another_queue_in_each(server: Server) -> None:
    for namespace, count in (("", 3), ("small", 4), ("large", 5)):
        assert Bus(server, namespace).create("orders", MaxDeliveryCount=count).status == 201
    for namespace, told in (("", "3"), ("small", "4"), ("large", "5")):
        assert Bus(server, namespace).element("orders", "MaxDeliveryCount") == told
    assert Bus(server, "small").ask("DELETE", "/orders").status == 200
    assert Bus(server, "small").ask("GET", "/orders").status == 404
    assert Bus(server, "large").ask("GET", "/orders").status == 200


@pytest.mark.parametrize(
    ("namespace", "key_of"), [("", "small"), ("small", ""), ("large", "small"), ("small", "large")]
)
def test_a_key_of_one_does_not_open_another(server: Server, namespace: str, key_of: str) -> None:
    stranger = Bus(server, namespace, key_of)
    assert stranger.create("mine").status == 401
    there, missing = stranger.ask("GET", "/orders"), stranger.ask("GET", "/missing")
    assert there.status == missing.status == 401
    assert Bus(server, namespace).ask("GET", "/mine").status == 404


def test_messages_stay_in_their_namespace(server: Server) -> None:
    for namespace in HOSTS:
        Bus(server, namespace).create("letters")
    assert Bus(server, "large").ask("POST", "/letters/messages", b"for large").status == 201
    for namespace in ("", "small"):
        assert (
            Bus(server, namespace).ask("DELETE", "/letters/messages/head?timeout=0").status == 204
        )
    received = Bus(server, "large").ask("DELETE", "/letters/messages/head?timeout=10")
    assert (received.status, received.body) == (200, b"for large")


def test_each_says_what_it_is(server: Server) -> None:
    for namespace, name, tier in (
        ("", "busway", "Standard"),
        ("small", "small", "Basic"),
        ("large", "large", "Premium"),
    ):
        told = ElementTree.fromstring(Bus(server, namespace).ask("GET", "/$namespaceinfo").body)
        assert told.findtext(f".//{service('Name')}") == name
        assert told.findtext(f".//{service('MessagingSKU')}") == tier


@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        ("Topic", {}),
        ("Queue", {"RequiresSession": "true"}),
        ("Queue", {"RequiresDuplicateDetection": "true"}),
        ("Queue", {"ForwardTo": "sb://localhost/orders"}),
    ],
)
def test_basic_is_without_some_things(
    server: Server, kind: str, elements: dict[str, object]
) -> None:
    bus = Bus(server, "small")
    bus.create("orders")
    assert bus.create("refused", kind, **elements).status in (400, 403)
    assert bus.ask("GET", "/refused").status == 404


def test_p14_all_is_partitioned_in_a_partitioned_namespace(server: Server) -> None:
    bus = Bus(server, "large")
    assert bus.create("absent").status == 201
    assert bus.create("said", EnablePartitioning="true").status == 201
    for name in ("absent", "said"):
        assert bus.element(name, "EnablePartitioning") == "true"
        assert bus.element(name, "MaxSizeInMegabytes") == "2048"  # P-15
    refused = bus.create("not", EnablePartitioning="false")
    assert refused.status == 400
    assert "are partitioned" in refused.text
    assert bus.ask("GET", "/not").status == 404


def test_p16_a_hundred_partitioned_entities_in_each(server: Server) -> None:
    """The quota is the namespace's own; one that is full leaves the others alone."""
    small = Bus(server, "small")
    for number in range(100):
        assert small.create(f"p{number}", EnablePartitioning="true").status == 201
    refused = small.create("more", EnablePartitioning="true")
    assert refused.status == 403
    assert "the namespace 'small' already has its maximum of 100 partitioned" in refused.text
    assert small.ask("GET", "/more").status == 404
    assert Bus(server, "").create("more", EnablePartitioning="true").status == 201
    assert Bus(server, "large").create("more").status == 201
