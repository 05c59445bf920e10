"""Filters that are confirmed are applied; others are refused with a text (AMQP 3.5.8)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.amqp.performatives import Source
from busway.amqp.types import Described, Symbol, UInt, ULong
from tests.gateway.world import Client, World, message

SESSION_FILTER = Symbol("com.microsoft:session-filter")
SELECTOR = "apache.org:selector-filter:string"
SELECTOR_CODE = ULong(0x0000_468C_0000_0004)
NO_LOCAL_CODE = ULong(0x0000_468C_0000_0003)


def attached(client: Client, path: str, filters: Any, **options: Any) -> Any:
    return client.receiver(path, source=Source(path, filter=filters, **options), credit=5)


SELECTORS = {
    "by code": {Symbol("jms-selector"): Described(SELECTOR_CODE, "colour = 'red'")},
    "by symbol": {Symbol("selector"): Described(Symbol(SELECTOR), "colour = 'red'")},
    "by key": {Symbol(SELECTOR): "colour = 'red'"},
}
OTHERS = {
    "no-local": {Symbol("no-local"): Described(NO_LOCAL_CODE, "NoLocalFilter{}")},
    "another's": {Symbol("amqp.annotation.x-opt-offset"): "12"},
    "plain": {Symbol("colour"): "red"},
}


@pytest.mark.parametrize("filters", SELECTORS.values(), ids=SELECTORS)
def test_a_selector_is_refused_to_who_takes_messages(
    client: Client, queue: str, filters: dict[Any, Any]
) -> None:
    client.sender(queue).send(message(application_properties={"colour": "blue"}))
    receiver = attached(client, queue, filters)
    refusal = client.refusal(receiver.link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-implemented"
    assert "selector" in str(refusal.description)
    assert receiver.deliveries == []
    assert client.receiver(queue, "other", credit=1).bodies == ["hello"]


@pytest.mark.parametrize("filters", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("mode", [None, "copy"])
def test_a_filter_that_is_not_known_is_refused_by_name(
    client: Client, queue: str, filters: dict[Any, Any], mode: str | None
) -> None:
    client.sender(queue).send(message())
    receiver = attached(client, queue, filters, distribution_mode=mode)
    refusal = client.refusal(receiver.link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-implemented"
    assert str(next(iter(filters))) in str(refusal.description)
    assert receiver.deliveries == []


@pytest.mark.parametrize("filters", SELECTORS.values(), ids=SELECTORS)
def test_a_selector_of_a_browser_is_confirmed(
    client: Client, queue: str, filters: dict[Any, Any]
) -> None:
    receiver = attached(client, queue, filters, distribution_mode="copy")
    assert receiver.link.source.filter == filters


@pytest.mark.parametrize("text", ["colour =", 5, None, b"colour = 'red'"])
def test_a_selector_that_is_none_is_refused(client: Client, queue: str, text: Any) -> None:
    filters = {Symbol("jms-selector"): Described(SELECTOR_CODE, text)}
    receiver = attached(client, queue, filters, distribution_mode="copy")
    refusal = client.refusal(receiver.link)
    assert refusal is not None
    assert refusal.condition == "amqp:invalid-field"
    assert "selector" in str(refusal.description)


@pytest.mark.parametrize("filters", [{}, {Symbol("colour"): None}, None])
def test_a_filter_that_is_null_is_none(client: Client, queue: str, filters: Any) -> None:
    client.sender(queue).send(message())
    receiver = attached(client, queue, filters)
    assert receiver.bodies == ["hello"]
    assert not receiver.link.source.filter


def test_an_empty_selector_takes_everything(client: Client, queue: str) -> None:
    client.sender(queue).send(message())
    filters = {Symbol("jms-selector"): Described(SELECTOR_CODE, "")}
    assert attached(client, queue, filters).bodies == ["hello"]


@pytest.mark.parametrize("value", [UInt(5), b"binary", True, ["a"], {"a": 1}], ids=type)
@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("sessions", [False, True])
def test_a_session_filter_that_is_neither_null_nor_a_string_is_refused(
    world: World, client: Client, value: Any, described: bool, sessions: bool
) -> None:
    world.queue("talks", requires_session=sessions)
    content = Described(ULong(0x1370_0000_0C), value) if described else value
    refusal = client.refusal(attached(client, "talks", {SESSION_FILTER: content}).link)
    assert refusal is not None
    assert refusal.condition == "amqp:invalid-field"
    assert "must be a string" in str(refusal.description)


def test_there_are_two_distribution_modes(client: Client, queue: str) -> None:
    client.sender(queue).send(message())
    moved = client.receiver(queue, source=Source(queue, distribution_mode="move"), credit=1)
    assert moved.bodies == ["hello"]
    other = client.receiver(queue, "other", source=Source(queue, distribution_mode="share"))
    refusal = client.refusal(other.link)
    assert refusal is not None
    assert refusal.condition == "amqp:invalid-field"


def test_a_temporary_queue_is_refused_with_a_way_out(client: Client) -> None:
    receiver = client.receiver("", source=Source(None, dynamic=True))
    refusal = client.refusal(receiver.link)
    assert refusal is not None
    assert refusal.condition == "amqp:not-implemented"
    assert "AutoDeleteOnIdle" in str(refusal.description)
