"""What becomes of who is inside when access rules change (D-34, amqp.md 5).

New tokens are judged by the rules as they are; what a token has opened stays open until it runs
out, as at the service. Nothing of this depends on the face: HTTP shows a token with every request,
and so feels a change at once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.amqp.performatives import Accepted
from busway.cluster.catalog import Catalog
from busway.model.entities import AuthorizationRule, Queue
from tests.gateway.world import World, message

SENDER = AuthorizationRule("sender", ("Send",), "first-key", "second-key")


def in_namespace(catalog: Catalog, rules: tuple[AuthorizationRule, ...]) -> None:
    catalog.update_namespace(replace(catalog.namespace, authorization_rules=rules))


def on_the_queue(catalog: Catalog, rules: tuple[AuthorizationRule, ...]) -> None:
    catalog.update(Queue(path="orders", authorization_rules=rules))


CHANGES = {
    "removed": (),
    "new keys": (replace(SENDER, primary_key="new", secondary_key="newer"),),
    "no right": (replace(SENDER, rights=("Listen",)),),
}


@pytest.fixture
def world() -> World:
    world = World()
    world.queue("orders")
    return world


@pytest.mark.parametrize("rules", CHANGES.values(), ids=CHANGES)
def test_what_is_open_stays_open_until_the_token_runs_out(
    world: World, rules: tuple[AuthorizationRule, ...]
) -> None:
    in_namespace(world.catalog, (SENDER,))
    client = world.connect(token=False)
    client.put_token("orders", rule="sender", key="first-key", life_s=60)
    sender = client.sender("orders")
    in_namespace(world.catalog, rules)
    assert isinstance(sender.send(message()), Accepted)
    answer = client.put_token("orders", rule="sender", key="first-key")
    if rules and rules[0].rights == ("Listen",):
        assert answer["status-code"] == 202  # valid, and opens less
    else:
        assert answer["status-code"] == 401
    world.settle(for_ms=61_000)
    assert not client.is_attached(sender.link)


@pytest.mark.parametrize("key", ["first-key", "second-key"])
def test_keys_are_rolled_over_one_at_a_time(world: World, key: str) -> None:
    """The other key goes on opening, which is what two keys are for."""
    in_namespace(world.catalog, (SENDER,))
    fresh = {"first-key": {"primary_key": "new"}, "second-key": {"secondary_key": "new"}}[key]
    in_namespace(world.catalog, (replace(SENDER, **fresh),))
    client = world.connect(token=False)
    other = "second-key" if key == "first-key" else "first-key"
    for tried, status in ((key, 401), (other, 202), ("new", 202)):
        assert client.put_token("orders", rule="sender", key=tried)["status-code"] == status


def test_a_rule_of_an_entity_counts_at_once_and_detaches_its_links(world: World) -> None:
    """STA-2: an entity with other rules is a changed entity; clients attach again."""
    on_the_queue(world.catalog, (SENDER,))
    client = world.connect(token=False)
    assert client.put_token("orders", rule="sender", key="first-key")["status-code"] == 202
    sender = client.sender("orders")
    assert isinstance(sender.send(message()), Accepted)
    on_the_queue(world.catalog, ())
    world.settle()
    assert not client.is_attached(sender.link)
    assert client.put_token("orders", rule="sender", key="first-key")["status-code"] == 401


def test_a_stranger_is_told_the_same_of_what_is_there_and_what_is_not(world: World) -> None:
    client = world.connect(token=False)
    answers = [
        client.put_token(path, rule=rule, key="guessed")
        for path in ("orders", "missing")
        for rule in ("RootManageSharedAccessKey", "nobody")
    ]
    texts = {answer["status-description"].partition(" TrackingId")[0] for answer in answers}
    assert {answer["status-code"] for answer in answers} == {401}
    assert texts == {"InvalidSignature: The token has an invalid signature."}
