"""Bringing the catalog to what a file declares (P-10)."""

from __future__ import annotations

import pytest

from busway.cluster.catalog import Catalog, Change
from busway.cluster.declared import Applied, Outcome, apply
from busway.config import ConfigError, DeclaredQueue
from busway.model.entities import Queue


def declared(path: str, **stated: object) -> DeclaredQueue:
    return DeclaredQueue(f"tour.toml: queue '{path}'", path, stated)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog.open(None)
    catalog.register_stores(["a", "b"])
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
    assert queue is not None
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
