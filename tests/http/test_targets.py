"""Paths as the client libraries write them (http.md section 2)."""

from __future__ import annotations

import pytest

from busway.http.targets import Kind, parse, path_of
from busway.model.errors import NOT_FOUND, BusError
from busway.model.names import SubQueueKind

MAIN, DEAD = SubQueueKind.MAIN, SubQueueKind.DEAD_LETTER


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        ("/", Kind.ROOT, ("", None, None)),
        ("/orders", Kind.ENTITY, ("orders", None, None)),
        ("/txt%2F.-_123", Kind.ENTITY, ("txt/.-_123", None, None)),  # Python
        ("/txt/.-_123", Kind.ENTITY, ("txt/.-_123", None, None)),  # JavaScript
        ("/$Resources/queues", Kind.QUEUES, ("", None, None)),
        ("/$Resources/Topics/", Kind.TOPICS, ("", None, None)),
        ("/$namespaceinfo", Kind.NAMESPACE, ("", None, None)),
        ("/news/subscriptions", Kind.SUBSCRIPTIONS, ("news", None, None)),
        ("/a%2Fb/Subscriptions/all", Kind.SUBSCRIPTION, ("a/b", "all", None)),
        ("/a/b/subscriptions/all/rules", Kind.RULES, ("a/b", "all", None)),
        ("/news/Subscriptions/all/Rules/$Default", Kind.RULE, ("news", "all", "$Default")),
        ("/subscriptions", Kind.ENTITY, ("subscriptions", None, None)),
        ("/orders/messages", Kind.ENTITY, ("orders/messages", None, None)),
        ("/$servicebus/websocket", Kind.WEBSOCKET, ("", None, None)),
    ],
)
def test_what_is_managed(path: str, kind: Kind, names: tuple[str, str | None, str | None]) -> None:
    target = parse("GET", path, has_api_version=True)
    assert (target.kind, (target.path, target.subscription, target.rule)) == (kind, names)
    assert target.raw == path


@pytest.mark.parametrize(
    ("method", "path", "names", "rest"),
    [
        ("POST", "/orders/messages", ("orders", None, MAIN), ()),
        ("POST", "/a/b/Messages/Head", ("a/b", None, MAIN), ("Head",)),
        ("DELETE", "/orders/$DeadLetterQueue/messages/head", ("orders", None, DEAD), ("head",)),
        ("PUT", "/orders/messages/a%2Fb/token", ("orders", None, MAIN), ("a/b", "token")),
        ("POST", "/t/subscriptions/s/messages/head", ("t", "s", MAIN), ("head",)),
        (
            "DELETE",
            "/t/Subscriptions/s/$deadletterqueue/messages/7/x",
            ("t", "s", DEAD),
            ("7", "x"),
        ),
    ],
)
def test_where_messages_are(
    method: str, path: str, names: tuple[str, str | None, SubQueueKind], rest: tuple[str, ...]
) -> None:
    target = parse(method, path, has_api_version=False)
    assert target.kind is Kind.MESSAGES
    assert (target.path, target.subscription, target.sub_queue) == names
    assert target.rest == rest


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
def test_a_queue_may_be_called_messages(method: str) -> None:
    assert parse(method, "/orders/messages", has_api_version=True).kind is Kind.ENTITY


def test_a_queue_may_be_called_health() -> None:
    assert parse("GET", "/health", has_api_version=False).kind is Kind.HEALTH
    assert parse("GET", "/health", has_api_version=True).kind is Kind.ENTITY


@pytest.mark.parametrize(
    "path", ["/$x/messages", "/a/$nothing/messages/head", "/a/subscriptions/b/c"]
)
def test_what_names_nothing_is_not_found(path: str) -> None:
    with pytest.raises(BusError) as caught:
        parse("POST", path, has_api_version=False)
    assert caught.value.kind is NOT_FOUND


def test_a_request_line_may_name_the_host() -> None:
    assert path_of("http://localhost:5300/orders?api-version=2021-05") == "/orders"
    assert path_of("/a%2Fb?x=/y") == "/a%2Fb"
    assert path_of("http://localhost") == "/"
