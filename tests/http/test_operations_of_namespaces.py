"""What operators of one namespace see of a server that has several (D-34)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from busway.testing import Server
from tests.http.asking import Metrics, Reply, ask, token_of

CONFIG = """
[[queues]]
name = "ours"

[namespaces.contoso]
[[namespaces.contoso.queues]]
name = "theirs"
"""
THEIRS = {"Host": "contoso.localhost"}


@pytest.fixture(scope="module", params=["token", "open"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(config=CONFIG, arguments=["--metrics", request.param]) as server:
        yield server


def theirs(server: Server, path: str) -> Reply:
    token = token_of(server.connection_strings["contoso"])
    return ask(server, "GET", path, token=token, headers=THEIRS)


def ours(server: Server, path: str) -> Reply:
    return ask(server, "GET", path, token=token_of(server.connection_string))


def test_the_map_is_that_of_the_namespace(server: Server) -> None:
    for reply, namespace, queue in (
        (ours(server, "/$busway/map"), "busway", "ours"),
        (theirs(server, "/$busway/map"), "contoso", "theirs"),
    ):
        assert reply.json["namespace"] == namespace
        assert [entity["name"] for entity in reply.json["entities"]] == [queue]


def test_the_key_of_one_does_not_open_the_map_of_another(server: Server) -> None:
    token = token_of(server.connection_string)
    assert ask(server, "GET", "/$busway/map", token=token, headers=THEIRS).status == 401


@pytest.mark.parametrize("server", ["token"], indirect=True)
def test_metrics_for_a_token_are_those_of_its_namespace(server: Server) -> None:
    for reply, namespace, queue in (
        (ours(server, "/metrics"), "busway", "ours"),
        (theirs(server, "/metrics"), "contoso", "theirs"),
    ):
        found = Metrics(reply.text)
        assert found.labels("busway_entities", "namespace") == {namespace}
        assert found.labels("busway_messages", "entity") == {queue}


@pytest.mark.parametrize("server", ["open"], indirect=True)
def test_metrics_for_everybody_are_those_of_all_namespaces(server: Server) -> None:
    found = Metrics(ask(server, "GET", "/metrics").text)
    assert found.labels("busway_entities", "namespace") == {"busway", "contoso"}
    assert found.labels("busway_messages", "entity") == {"ours", "theirs"}
