"""Several namespaces in one catalog file: what they share, and what they do not (D-16)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.broker.seams import Entities
from busway.cluster.catalog import Catalog, CatalogError, Change
from busway.cluster.catalogs import Catalogs
from busway.gateway.exchange import Directory
from busway.model.entities import DEFAULT_NAMESPACE, Queue, Subscription, Topic
from busway.model.errors import NOT_FOUND, BusError
from busway.model.limits import Tier

STORES = ["store-a", "store-b"]


def fits_the_seams(catalogs: Catalogs) -> tuple[Entities, Directory]:
    """Checked by mypy."""
    return catalogs, catalogs


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def catalogs(file: Path) -> Iterator[Catalogs]:
    opened = Catalogs.open(file)
    opened.stores.register(STORES)
    yield opened
    opened.close()


@pytest.fixture
def two(catalogs: Catalogs) -> tuple[Catalog, Catalog]:
    return catalogs.namespace("contoso"), catalogs.namespace("fabrikam", tier=Tier.PREMIUM)


def test_a_name_can_be_in_each_of_them_with_another_incarnation(
    catalogs: Catalogs, two: tuple[Catalog, Catalog]
) -> None:
    made = [each.create_queue(Queue(path="orders")) for each in (catalogs.default, *two)]
    assert len({queue.incarnation for queue in made}) == 3
    for queue in made:
        assert catalogs.get(queue.incarnation) == queue
    assert [each.find("orders") for each in (catalogs.default, *two)] == made
    assert two[0].get(made[0].incarnation) is None


def test_all_of_it_is_there_again(
    catalogs: Catalogs, two: tuple[Catalog, Catalog], file: Path
) -> None:
    for each in two:
        each.create_topic(Topic(path="events"), 5)
        each.create_subscription(Subscription(topic="events", name=each.namespace.name), 5)
    again = Catalogs.open(file)
    assert [each.namespace.name for each in again] == [DEFAULT_NAMESPACE, "contoso", "fabrikam"]
    assert again.namespace("fabrikam").namespace.tier is Tier.PREMIUM
    for each in two:
        there = again.namespace(each.namespace.name)
        topic = there.find("events")
        assert topic == each.find("events")
        assert isinstance(topic, Topic)
        (subscription,) = there.subscriptions(topic)
        assert subscription.name == each.namespace.name
        assert [rule.name for rule in there.rules(subscription)] == ["$Default"]
        assert again.topic_rules(topic.incarnation) is there.topic_rules(topic.incarnation)
    again.close()


def test_destinations_are_found_beside_their_source(
    catalogs: Catalogs, two: tuple[Catalog, Catalog]
) -> None:
    sources = [each.create_queue(Queue(path="source")) for each in two]
    target = two[0].create_queue(Queue(path="target"))
    assert catalogs.find_beside(sources[0].incarnation, "target") == target
    assert catalogs.find_beside(sources[1].incarnation, "target") is None
    two[0].delete("source")
    assert catalogs.find_beside(sources[0].incarnation, "target") is None


def test_what_is_deleted_in_one_is_gone_for_all(
    catalogs: Catalogs, two: tuple[Catalog, Catalog]
) -> None:
    topic = two[0].create_topic(Topic(path="events"))
    queue = two[1].create_queue(Queue(path="events"))
    told: list[Change] = []
    catalogs.listen(told.append)
    two[0].delete("events")
    assert told == [Change(topic, None)]
    assert catalogs.get(topic.incarnation) is None
    with pytest.raises(BusError) as raised:
        catalogs.topic_rules(topic.incarnation)
    assert raised.value.kind is NOT_FOUND
    assert catalogs.get(queue.incarnation) == queue
    (tombstone,) = catalogs.tombstones()
    assert tombstone.incarnation == topic.incarnation
    for store_id in tombstone.stores:
        catalogs.purged(topic.incarnation, store_id)
    assert catalogs.tombstones() == []


def test_a_write_that_fails_leaves_the_others_as_they_are(
    catalogs: Catalogs, two: tuple[Catalog, Catalog]
) -> None:
    """The one that failed is read again from the file; the rest is not its own to forget."""
    queues = [each.create_queue(Queue(path="orders")) for each in two]
    two[0]._file._database.execute("PRAGMA query_only = ON")
    with pytest.raises(BusError):
        two[0].create_queue(Queue(path="more"))
    two[0]._file._database.execute("PRAGMA query_only = OFF")
    assert [catalogs.get(queue.incarnation) for queue in queues] == queues


def test_a_store_cannot_be_removed_while_any_namespace_uses_it(
    catalogs: Catalogs, two: tuple[Catalog, Catalog], file: Path
) -> None:
    """D-14."""
    for number in range(8):
        two[0].create_queue(Queue(path=f"q{number}"))
    catalogs.close()
    with pytest.raises(CatalogError, match="holds partitions of the queue"):
        Catalogs.open(file).stores.register(STORES[:1])


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "127", "x" * 51, "-x", "localhost"])
def test_a_namespace_needs_a_name(catalogs: Catalogs, name: str) -> None:
    with pytest.raises(CatalogError, match="is not a valid namespace name"):
        catalogs.namespace(name)


def test_names_of_namespaces_are_the_same_in_any_case(catalogs: Catalogs) -> None:
    assert catalogs.namespace("Contoso") is catalogs.namespace("contoso")
