"""Ten thousand queues: nothing walks over all of them to make, find, list or delete one (P-16)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from busway.cluster.catalog import Catalog
from busway.cluster.catalogs import Catalogs
from busway.model.entities import Queue, Subscription, Topic
from busway.model.errors import ENTITY_COUNT_EXCEEDED, BusError

MANY = 10_000
PAGE = 100


class NotWalked(dict[Any, Any]):
    """A dictionary for look-ups only."""

    def _walk(self) -> Any:
        raise AssertionError("all entities were walked over")

    __iter__ = keys = values = items = _walk


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog of ten thousand queues, the last of them made first."""
    file = tmp_path_factory.mktemp("many") / "catalog.db"
    catalog = opened(file)
    catalog._file._database.execute("PRAGMA synchronous = OFF")  # ten thousand waits for the disk
    for number in reversed(range(MANY)):
        catalog.create_queue(Queue(path=named(number)))
    catalog.close()
    return file


@pytest.fixture
def catalog(file: Path) -> Iterator[Catalog]:
    catalog = opened(file)
    yield catalog
    catalog.close()


def opened(file: Path) -> Catalog:
    catalogs = Catalogs.open(file)
    catalogs.stores.register(["store-a", "store-b", "store-c"])
    return catalogs.default


def named(number: int) -> str:
    """In upper and lower case by turns, which does not matter to their order."""
    return f"{'Queue' if number % 2 else 'queue'}-{number:05}"


def test_they_are_there_again_in_the_order_of_their_names(catalog: Catalog) -> None:
    listed = [queue.path for skip in range(0, MANY, PAGE) for queue in catalog.queues(skip, PAGE)]
    assert listed == [named(number) for number in range(MANY)]
    assert catalog.queues(MANY, PAGE) == []
    assert catalog.queues(0, 0) == []
    assert [queue.path for queue in catalog.queues(MANY - 1)] == [named(MANY - 1)]


def test_one_more_is_refused_until_one_is_gone(catalog: Catalog) -> None:
    """P-16."""
    for create in (
        lambda: catalog.create_queue(Queue(path="more")),
        lambda: catalog.create_topic(Topic(path="more")),
    ):
        with pytest.raises(BusError) as raised:
            create()
        assert raised.value.kind is ENTITY_COUNT_EXCEEDED
        assert "already has its maximum of 10000 entities" in raised.value.text
    catalog.delete(named(17))
    catalog.create_queue(Queue(path=named(17)))


def test_none_of_it_walks_over_all(catalog: Catalog) -> None:
    catalog._by_key = NotWalked(catalog._by_key)
    catalog._by_incarnation = NotWalked(catalog._by_incarnation)
    catalog.delete(named(4711))
    assert catalog.find(named(4711)) is None
    assert [queue.path for queue in catalog.queues(4710, 2)] == [named(4710), named(4712)]
    catalog.create_topic(Topic(path=named(4711)))
    catalog.create_subscription(Subscription(topic=named(4711), name="all"))
    catalog.update(Queue(path=named(4710), max_delivery_count=3))
    assert [topic.path for topic in catalog.topics(0, PAGE)] == [named(4711)]
    catalog.delete(named(4711))
    assert catalog.topic_count == 0
    catalog.create_queue(Queue(path=named(4711)))
    assert catalog.queue_count == MANY


def test_subscriptions_are_listed_by_the_page(catalog: Catalog) -> None:
    catalog.delete(named(0))
    topic = catalog.create_topic(Topic(path="topic"))
    for number in reversed(range(30)):
        catalog.create_subscription(Subscription(topic="topic", name=f"s{number:02}"))
    page = catalog.subscriptions(topic, 10, 5)
    assert [each.name for each in page] == ["s10", "s11", "s12", "s13", "s14"]
    catalog.delete_subscription("topic", "S12")
    assert [each.name for each in catalog.subscriptions(topic, 12, 2)] == ["s13", "s14"]
    assert catalog.subscription_count(topic) == 29
    catalog.delete("topic")
    catalog.create_queue(Queue(path=named(0)))
