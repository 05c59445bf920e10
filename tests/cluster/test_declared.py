"""Bringing the catalog to what a file declares (P-10)."""

from __future__ import annotations

from typing import Any

import pytest

from busway.cluster.catalog import Catalog, Change
from busway.cluster.declared import Applied, Outcome, apply
from busway.config import ConfigError, Declared
from busway.model.entities import Queue, Rule, SqlFilter, Subscription, Topic, TrueFilter
from busway.model.properties import normalise


def declared(path: str, **stated: Any) -> Declared:
    entity = normalise(Queue(path=path, **stated))
    return Declared(f"tour.toml: queue '{path}'", entity, stated)


def topic(path: str, **stated: Any) -> Declared:
    return Declared(f"tour.toml: topic '{path}'", Topic(path=path, **stated), stated)


def subscription(topic: str, name: str, *rules: Rule, **stated: Any) -> Declared:
    where = f"tour.toml: topic '{topic}', subscription '{name}'"
    entity = normalise(Subscription(topic=topic, name=name, **stated))
    return Declared(where, entity, stated, rules or None)


def outcomes(applied: list[Applied]) -> list[Outcome]:
    return [each.outcome for each in applied]


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog.open(None)
    catalog.stores.register(["a", "b"])
    return catalog


def test_makes_what_is_missing(catalog: Catalog) -> None:
    applied = apply([declared("orders", enable_partitioning=True)], catalog, now_ms=7)
    assert applied == [Applied("orders", Outcome.CREATED)]
    made = catalog.find("orders")
    assert made is not None
    assert (made.partitions, made.created_ms) == (16, 7)


def test_a_second_time_changes_nothing(catalog: Catalog) -> None:
    apply([declared("orders", max_delivery_count=3)], catalog)
    told: list[Change] = []
    catalog.listen(told.append)
    assert apply([declared("Orders", max_delivery_count=3)], catalog) == [
        Applied("Orders", Outcome.UNCHANGED)
    ]
    assert told == []


def test_changes_what_differs_and_leaves_what_is_not_stated(catalog: Catalog) -> None:
    catalog.create_queue(Queue(path="orders", max_delivery_count=7, lock_duration_ms=5_000))
    assert apply([declared("orders", lock_duration_ms=9_000)], catalog) == [
        Applied("orders", Outcome.UPDATED)
    ]
    queue = catalog.find("orders")
    assert isinstance(queue, Queue)
    assert (queue.lock_duration_ms, queue.max_delivery_count) == (9_000, 7)


def test_leaves_alone_what_the_file_does_not_mention(catalog: Catalog) -> None:
    other = catalog.create_queue(Queue(path="other"))
    apply([declared("orders")], catalog)
    assert catalog.find("other") == other


def test_refuses_what_is_fixed_before_anything_is_changed(catalog: Catalog) -> None:
    old = catalog.create_queue(Queue(path="orders"))
    with pytest.raises(ConfigError) as raised:
        apply([declared("new"), declared("orders", enable_partitioning=True)], catalog)
    assert str(raised.value).startswith(
        "tour.toml: queue 'orders': EnablePartitioning of the queue 'orders' is false and cannot"
    )
    assert catalog.queues() == [old]


def test_refuses_a_name_that_something_else_has(catalog: Catalog) -> None:
    """NAM-2."""
    catalog.create_topic(Topic(path="events"))
    with pytest.raises(ConfigError, match="queue 'events': there is a topic of this name"):
        apply([declared("events")], catalog)


class TestTopics:
    RED = Rule(name="red", filter=SqlFilter("color = 'red'"))

    def test_are_made_before_their_subscriptions(self, catalog: Catalog) -> None:
        file = [subscription("events", "red", self.RED), topic("events", enable_partitioning=True)]
        assert outcomes(apply(file, catalog)) == [Outcome.CREATED, Outcome.CREATED]
        made = catalog.find_subscription("events", "red")
        assert made is not None
        assert len(made.placement) == 16
        assert [rule.name for rule in catalog.rules(made)] == ["red"]

    def test_a_second_time_changes_nothing(self, catalog: Catalog) -> None:
        file = [topic("events"), subscription("events", "red", self.RED)]
        apply(file, catalog, now_ms=1)
        told: list[Change] = []
        catalog.listen(told.append)
        assert outcomes(apply(file, catalog, now_ms=2)) == [Outcome.UNCHANGED] * 2
        assert told == []

    def test_rules_that_differ_are_changed(self, catalog: Catalog) -> None:
        apply([topic("events"), subscription("events", "red", self.RED)], catalog)
        made = catalog.find_subscription("events", "red")
        assert made is not None
        mine = catalog.add_rule(made, Rule(name="mine"))
        rose = Rule(name="red", filter=SqlFilter("color = 'rose'"), action="SET a = 1")
        pink = Rule(name="pink", filter=SqlFilter("color = 'pink'"))
        assert outcomes(apply([subscription("events", "red", rose, pink)], catalog)) == [
            Outcome.UPDATED
        ]
        assert catalog.rules(made) == [rose, mine, pink]

    def test_rules_of_the_file_take_the_place_of_the_default(self, catalog: Catalog) -> None:
        """RUL-1: it would let everything in."""
        apply([topic("events"), subscription("events", "red")], catalog)
        made = catalog.find_subscription("events", "red")
        assert made is not None
        assert catalog.rules(made)[0].filter == TrueFilter()
        assert outcomes(apply([subscription("events", "red", self.RED)], catalog)) == [
            Outcome.UPDATED
        ]
        assert catalog.rules(made) == [self.RED]

    def test_what_is_fixed_is_refused(self, catalog: Catalog) -> None:
        """P-10, SES-1."""
        apply([topic("events"), subscription("events", "red")], catalog)
        with pytest.raises(ConfigError, match="Change the file back, or delete the subscription"):
            apply([subscription("events", "red", requires_session=True)], catalog)


class TestForwards:
    """FWD-1."""

    @pytest.mark.parametrize("backwards", [False, True])
    def test_may_be_declared_in_any_order(self, catalog: Catalog, backwards: bool) -> None:
        file = [
            declared("a", forward_to="b", auto_delete_on_idle_ms=300_000),
            declared("b", forward_dead_letters_to="sb://ns/Events"),
            topic("events"),
            subscription("events", "all", forward_to="a"),
        ]
        if backwards:
            file.reverse()
        assert set(outcomes(apply(file, catalog))) == {Outcome.CREATED}
        first, second = catalog.find("a"), catalog.find("b")
        assert isinstance(first, Queue)
        assert isinstance(second, Queue)
        assert (first.forward_to, first.auto_delete_on_idle_ms) == ("b", 300_000)
        assert second.forward_dead_letters_to == "Events"
        third = catalog.find_subscription("events", "all")
        assert third is not None
        assert third.forward_to == "a"
        assert set(outcomes(apply(file, catalog))) == {Outcome.UNCHANGED}

    def test_may_go_in_a_circle(self, catalog: Catalog) -> None:
        """FWD-3: only hops stop it."""
        apply([declared("a", forward_to="b"), declared("b", forward_to="a")], catalog)
        queues = catalog.queues()
        assert [queue.forward_to for queue in queues] == ["b", "a"]

    def test_to_nowhere_are_refused_before_anything_is_changed(self, catalog: Catalog) -> None:
        with pytest.raises(ConfigError) as raised:
            apply([declared("b"), declared("a", forward_to="c")], catalog)
        assert str(raised.value) == (
            "tour.toml: queue 'a': ForwardTo is 'c', and there is no queue or topic of that name."
        )
        assert catalog.queues() == []

    def test_that_were_taken_back_are_gone(self, catalog: Catalog) -> None:
        apply([declared("b"), declared("a", forward_to="b")], catalog)
        apply([declared("a", forward_to=None)], catalog)
        first = catalog.find("a")
        assert isinstance(first, Queue)
        assert first.forward_to is None
