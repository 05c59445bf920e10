"""Several namespaces behind one door: whom a host name means, and what they do not share (D-34)."""

from __future__ import annotations

import pytest

from busway.amqp import codec
from busway.amqp.performatives import Open, SaslInit
from busway.gateway.gateway import GatewaySettings
from busway.model.entities import DEFAULT_NAMESPACE, ROOT_RULE_NAME, Queue
from busway.model.names import host_name
from tests.gateway.world import KEY, Client, SomePeer, World, key_of, message, sas

CONTOSO = "contoso.localhost"
SASL_HEADER, AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"


@pytest.fixture
def world() -> World:
    hosts = {"bus.contoso.example": "contoso", "127.0.0.2": "fabrikam"}
    return World(namespaces=["contoso", "fabrikam"], hosts=hosts)


def connect(world: World, namespace: str, host: str | None = None) -> Client:
    return world.connect(host=host or f"{namespace}.localhost", key=key_of(namespace))


@pytest.mark.parametrize(
    ("host", "namespace"),
    [
        ("contoso", "contoso"),
        ("contoso.localhost", "contoso"),
        ("Contoso.ServiceBus.Windows.Net", "contoso"),
        ("contoso.localhost:5672", "contoso"),
        ("contoso.localhost.", "contoso"),
        ("bus.contoso.example", "contoso"),
        ("BUS.contoso.example:5671", "contoso"),
        ("127.0.0.2", "fabrikam"),
        ("127.0.0.2:5672", "fabrikam"),
        ("localhost", DEFAULT_NAMESPACE),
        ("localhost:5672", DEFAULT_NAMESPACE),
        ("127.0.0.1", DEFAULT_NAMESPACE),
        ("::1", DEFAULT_NAMESPACE),
        ("[::1]:5672", DEFAULT_NAMESPACE),
        ("", DEFAULT_NAMESPACE),
        ("contoso2.localhost", DEFAULT_NAMESPACE),
        ("www.contoso", DEFAULT_NAMESPACE),
        ("busway", DEFAULT_NAMESPACE),
    ],
)
def test_a_host_name_means_one_namespace(world: World, host: str, namespace: str) -> None:
    assert world.namespaces.gateway_of(host).catalog.namespace.name == namespace


def test_the_default_namespace_comes_first(world: World) -> None:
    names = [each.catalog.namespace.name for each in world.namespaces.gateways()]
    assert names == [DEFAULT_NAMESPACE, "contoso", "fabrikam"]


@pytest.mark.parametrize(
    ("authority", "name"),
    [
        ("[::1]", "::1"),
        ("fe80::1", "fe80::1"),
        ("[2001:db8::5672]:80", "2001:db8::5672"),
        ("localhost:", "localhost:"),
    ],
)
def test_an_authority_is_a_name_and_perhaps_a_port(authority: str, name: str) -> None:
    assert host_name(authority) == name


def test_one_name_is_two_queues_in_two_namespaces(world: World) -> None:
    for name in ("contoso", "fabrikam"):
        world.catalogs.namespace(name).create_queue(Queue(path="orders"))
    contoso, fabrikam = connect(world, "contoso"), connect(world, "fabrikam", "127.0.0.2")
    contoso.sender("orders").send(message("for contoso"))
    fabrikam.sender("orders").send(message("for fabrikam"))
    for client, body in ((contoso, "for contoso"), (fabrikam, "for fabrikam")):
        assert client.receiver("orders", credit=9).bodies == [body]


def test_a_key_opens_its_own_namespace_only(world: World) -> None:
    for host, key in ((CONTOSO, key_of("fabrikam")), (CONTOSO, "the-root-key")):
        client = world.connect(host=host, token=False)
        assert client.put_token("", key=key)["status-code"] == 401
    here = world.connect(token=False)
    assert here.put_token("", key=key_of("contoso"))["status-code"] == 401


@pytest.mark.parametrize(
    ("called", "signed", "status"),
    [
        # One that the connection is opened to, by any of its names.
        (CONTOSO, CONTOSO, 202),
        (CONTOSO, "CONTOSO.servicebus.windows.net:5671", 202),
        ("fabrikam", "127.0.0.2", 202),
        ("", "localhost", 202),
        ("", "127.0.0.1:5672", 202),
        ("[::1]:5672", "[::1]", 202),
        ("broker.example.org:5672", "broker.example.org", 202),
        ("localhost", "busway.servicebus.windows.net", 202),
        ("localhost", "this-machine", 202),
        # Another namespace, or another server.
        (CONTOSO, "localhost", 401),
        (CONTOSO, "fabrikam.localhost", 401),
        ("localhost", CONTOSO, 401),
        ("localhost", "127.0.0.2", 401),
        ("localhost", "broker.example.org", 401),
        ("", "broker.example.org", 401),
        ("broker.example.org", "broker.example.com", 401),
    ],
)
def test_a_token_is_for_a_name_of_the_namespace_to_which_it_is_shown(
    world: World, called: str, signed: str, status: int
) -> None:
    for catalog in world.catalogs:
        catalog.create_queue(Queue(path="orders"))
    client = world.connect(host=called, token=False)
    namespace = client.server.gateway.catalog.namespace.name
    key = KEY if namespace == DEFAULT_NAMESPACE else key_of(namespace)
    text = sas("orders", world, key=key, host=signed)
    assert client.put_token("orders", text)["status-code"] == status


def test_a_password_opens_the_namespace_that_sasl_names(world: World) -> None:
    mine = (ROOT_RULE_NAME, key_of("contoso"))
    assert world.connect(host=CONTOSO, password=mine).closed_with is None
    assert world.connect(host="fabrikam", password=mine).server.finished


@pytest.mark.parametrize(("open_host", "refused"), [(CONTOSO, False), (None, False), ("", True)])
def test_a_password_is_not_carried_over_to_another_namespace(
    world: World, open_host: str | None, refused: bool
) -> None:
    server = world.namespaces.connect(SomePeer(), lambda: None)
    response = f"\0{ROOT_RULE_NAME}\0{key_of('contoso')}".encode()
    sasl = codec.encode_sasl_frame(SaslInit("PLAIN", response, CONTOSO))
    host = "localhost" if open_host == "" else open_host
    opening = codec.encode_frame(0, Open("client", host))
    server.receive(SASL_HEADER + sasl + AMQP_HEADER + opening)
    joined = {
        each.catalog.namespace.name: len(each.connections) for each in world.namespaces.gateways()
    }
    assert joined == {DEFAULT_NAMESPACE: 0, "contoso": 0 if refused else 1, "fabrikam": 0}


def test_messages_are_forwarded_within_their_namespace(world: World) -> None:
    """FWD-1: `target` of another namespace is another entity."""
    for name in (DEFAULT_NAMESPACE, "contoso"):
        catalog = world.catalogs.namespace(name)
        catalog.create_queue(Queue(path="target"))
        catalog.create_queue(Queue(path="source", forward_to="target"))
    contoso, other = connect(world, "contoso"), world.connect()
    contoso.sender("source").send(message("here"))
    world.settle(for_ms=2_000)
    assert contoso.receiver("target", credit=9).bodies == ["here"]
    assert other.receiver("target", credit=9).bodies == []


def test_lim_9_connections_are_counted_by_namespace() -> None:
    world = World(settings=GatewaySettings(connections_max=1), namespaces=["contoso"])
    assert world.connect().closed_with is None
    assert connect(world, "contoso").closed_with is None
    second = world.connect(host=CONTOSO, token=False)
    error = second.closed_with
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    assert "contoso" in (error.description or "")


def test_deleting_a_queue_leaves_its_namesake_alone(world: World) -> None:
    catalogs = [world.catalogs.namespace(name) for name in ("contoso", "fabrikam")]
    queues = [catalog.create_queue(Queue(path="orders")) for catalog in catalogs]
    client = connect(world, "fabrikam")
    sender = client.sender("orders")
    catalogs[0].delete("orders")
    world.settle()
    assert client.is_attached(sender.link)
    assert world.catalogs.get(queues[0].incarnation) is None
    assert world.catalogs.get(queues[1].incarnation) == queues[1]
