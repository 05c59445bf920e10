"""What each tier allows, and what a namespace of it is fixed to (P-12 to P-14, P-16, LIM)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busway.cluster.catalog import Catalog, CatalogError
from busway.cluster.catalogs import Catalogs
from busway.model.entities import DEFAULT_NAMESPACE, Queue, Subscription, Topic
from busway.model.errors import (
    ENTITY_COUNT_EXCEEDED,
    INVALID_OPERATION,
    PROPERTY_IMMUTABLE,
    PROPERTY_INVALID,
    BusError,
    ErrorKind,
)
from busway.model.limits import KIB, MIB, TIERS, Tier

STORES = ["store-a", "store-b", "store-c"]


def catalog_of(tier: Tier, partitions: int | None = None) -> Catalog:
    catalogs = Catalogs.open(None)
    catalogs.stores.register(STORES)
    return catalogs.namespace("contoso", tier=tier, partitions=partitions)


def refused(kind: ErrorKind, action: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(BusError) as raised:
        action(*arguments)
    assert raised.value.kind is kind
    return raised.value.text


@pytest.mark.parametrize(
    ("tier", "sizes_mb", "refused_mb"),
    [
        (Tier.BASIC, [1024, 2048, 3072, 4096, 5120], 10_240),
        (Tier.STANDARD, [1024, 2048, 3072, 4096, 5120], 10_240),
        (Tier.PREMIUM, [1024, 2048, 3072, 4096, 5120, 10_240, 20_480, 40_960, 81_920], 6144),
    ],
)
def test_p12_p13_sizes(tier: Tier, sizes_mb: list[int], refused_mb: int) -> None:
    catalog = catalog_of(tier)
    for size_mb in sizes_mb:
        catalog.create_queue(Queue(path=f"q{size_mb}", max_size_mb=size_mb))
    refused(PROPERTY_INVALID, catalog.create_queue, Queue(path="odd", max_size_mb=refused_mb))
    assert catalog.create_queue(Queue(path="plain")).max_size_mb == 1024


@pytest.mark.parametrize("tier", [Tier.BASIC, Tier.STANDARD])
@pytest.mark.parametrize(("flag", "partitions"), [(None, 1), (False, 1), (True, 16)])
def test_p12_each_entity_says_whether_it_is_partitioned(
    tier: Tier, flag: bool | None, partitions: int
) -> None:
    queue = catalog_of(tier).create_queue(
        Queue(path="q", enable_partitioning=flag, max_size_mb=5120)
    )
    assert queue.enable_partitioning is (partitions > 1)
    assert len(queue.placement) == partitions
    assert queue.total_size_mb == 5120 * partitions  # P-15: 80 GB


@pytest.mark.parametrize("flag", [None, False, True])
def test_p13_the_flag_has_no_effect_in_premium(flag: bool | None) -> None:
    queue = catalog_of(Tier.PREMIUM).create_queue(Queue(path="q", enable_partitioning=flag))
    assert queue.enable_partitioning is False
    assert len(queue.placement) == 1


def test_p13_what_was_partitioned_before_it_came_to_premium_goes_on(tmp_path: Path) -> None:
    """As an import would leave it: the entity is older than the tier of its namespace."""
    file = tmp_path / "catalog.db"
    catalogs = Catalogs.open(file)
    catalogs.stores.register(STORES)
    catalogs.default.create_queue(Queue(path="q", enable_partitioning=True))
    catalogs._file.write_namespace(replace(catalogs.default.namespace, tier=Tier.PREMIUM))
    catalogs.close()
    catalog = Catalogs.open(file).default
    queue = catalog.find("q")
    assert isinstance(queue, Queue)
    assert (catalog.namespace.tier, len(queue.placement)) == (Tier.PREMIUM, 16)
    changed = catalog.update(Queue(path="q", max_delivery_count=3))
    assert (changed.enable_partitioning, len(changed.placement)) == (True, 16)
    assert changed.max_message_size_kb == 1024


@pytest.mark.parametrize("partitions", [2, 4])
@pytest.mark.parametrize("flag", [None, True])
def test_p14_all_entities_of_a_partitioned_namespace_are(
    partitions: int, flag: bool | None
) -> None:
    catalog = catalog_of(Tier.PREMIUM, partitions)
    queue = catalog.create_queue(Queue(path="q", enable_partitioning=flag))
    topic = catalog.create_topic(Topic(path="t", enable_partitioning=flag))
    subscription = catalog.create_subscription(Subscription(topic="t", name="s"))
    for placement in (queue.placement, topic.placement, subscription.placement):
        assert len(placement) == partitions
    assert queue.enable_partitioning is topic.enable_partitioning is True
    assert queue.total_size_mb == 1024 * partitions


def test_p14_an_explicit_false_is_refused_there() -> None:
    catalog = catalog_of(Tier.PREMIUM, 2)
    for create, description in (
        (catalog.create_queue, Queue(path="q", enable_partitioning=False)),
        (catalog.create_topic, Topic(path="q", enable_partitioning=False)),
    ):
        text = refused(PROPERTY_INVALID, create, description)
        assert "All queues and topics of the namespace 'contoso' are partitioned" in text
        assert "The property EnablePartitioning must be set to true." in text
    assert catalog.find("q") is None


@pytest.mark.parametrize("flag", [None, False])
def test_p14_a_namespace_of_one_partition_is_not_partitioned(flag: bool | None) -> None:
    catalog = catalog_of(Tier.PREMIUM, 1)
    assert len(catalog.create_queue(Queue(path="q", enable_partitioning=flag)).placement) == 1


def test_p14_an_explicit_true_is_refused_there(tmp_path: Path) -> None:
    """N-16: as the service does since 2024, where the number of partitions was stated as 1."""
    file = tmp_path / "catalog.db"
    first = Catalogs.open(file)
    first.namespace(DEFAULT_NAMESPACE, tier=Tier.PREMIUM, partitions=1)
    first.close()
    catalogs = Catalogs.open(file)  # it is known after a restart, too, whatever is said then
    catalogs.stores.register(STORES)
    catalog = catalogs.namespace(DEFAULT_NAMESPACE)
    for create, description in (
        (catalog.create_queue, Queue(path="q", enable_partitioning=True)),
        (catalog.create_topic, Topic(path="q", enable_partitioning=True)),
    ):
        text = refused(PROPERTY_INVALID, create, description)
        assert "Partitioned entities are not allowed in a namespace that is not partitioned" in text
        assert "EnablePartitioning must be set to false, or left out" in text
    assert catalog.find("q") is None


@pytest.mark.parametrize(
    ("tier", "partitions"), [(Tier.BASIC, 2), (Tier.STANDARD, 2), (Tier.PREMIUM, 3)]
)
def test_p14_other_numbers_of_partitions_are_refused(tier: Tier, partitions: int) -> None:
    with pytest.raises(CatalogError, match=f"cannot have {partitions} partitions"):
        catalog_of(tier, partitions)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({"tier": Tier.STANDARD}, "The tier of the namespace 'busway' is Premium and cannot"),
        ({"partitions": 4}, "The number of partitions of the namespace 'busway' is 2 and cannot"),
    ],
)
def test_p14_what_a_namespace_is_cannot_be_changed_later(
    tmp_path: Path, later: dict[str, Any], said: str
) -> None:
    file = tmp_path / "catalog.db"
    first = Catalogs.open(file)
    first.namespace(DEFAULT_NAMESPACE, tier=Tier.PREMIUM, partitions=2)
    first.close()
    again = Catalogs.open(file)
    with pytest.raises(CatalogError, match=said):
        again.namespace(DEFAULT_NAMESPACE, **later)
    for same in ({}, {"tier": Tier.PREMIUM}, {"partitions": 2}):
        namespace = again.namespace(DEFAULT_NAMESPACE, **same).namespace
        assert (namespace.tier, namespace.partitions) == (Tier.PREMIUM, 2)


def test_an_update_may_leave_open_what_was_decided_at_creation() -> None:
    """P-9, P-10: a client that does not know the property does not send it."""
    catalog = catalog_of(Tier.PREMIUM, 2)
    catalog.create_queue(Queue(path="q", max_message_size_kb=4096))
    changed = catalog.update(Queue(path="q", max_delivery_count=3))
    assert (changed.enable_partitioning, changed.max_message_size_kb) == (True, 4096)
    description = Queue(path="q", enable_partitioning=False)
    refused(PROPERTY_IMMUTABLE, catalog.update, description)


class TestBasic:
    @pytest.fixture
    def catalog(self) -> Catalog:
        return catalog_of(Tier.BASIC)

    def test_has_no_topics(self, catalog: Catalog) -> None:
        text = refused(INVALID_OPERATION, catalog.create_topic, Topic(path="t"))
        assert "the tier Basic has no topics" in text

    @pytest.mark.parametrize(
        "properties",
        [
            {"requires_session": True},
            {"requires_duplicate_detection": True},
            {"forward_to": "other"},
            {"forward_dead_letters_to": "other"},
        ],
    )
    def test_does_not_have(self, catalog: Catalog, properties: dict[str, Any]) -> None:
        catalog.create_queue(Queue(path="other"))
        description = Queue(path="q", **properties)
        text = refused(PROPERTY_INVALID, catalog.create_queue, description)
        assert "the tier of the namespace does not have it" in text
        catalog.create_queue(Queue(path="q"))
        if "forward" in next(iter(properties)):
            refused(PROPERTY_INVALID, catalog.update, description)

    def test_has_partitioned_queues(self, catalog: Catalog) -> None:
        assert len(catalog.create_queue(Queue(path="q", enable_partitioning=True)).placement) == 16


@pytest.mark.parametrize(
    ("tier", "default_kb", "allowed", "not_allowed"),
    [
        (Tier.BASIC, 256, [256], [255, 1024, 0]),
        (Tier.STANDARD, 256, [256], [255, 1024, 0]),
        (Tier.PREMIUM, 1024, [1024, 4096, 102_400], [256, 1023, 102_401, 0]),
    ],
)
def test_lim_1_messages(
    tier: Tier, default_kb: int, allowed: list[int], not_allowed: list[int]
) -> None:
    catalog = catalog_of(tier)
    made = catalog.create_queue(Queue(path="plain"))
    assert made.max_message_size_bytes == default_kb * KIB
    for size_kb in allowed:
        catalog.create_queue(Queue(path=f"q{size_kb}", max_message_size_kb=size_kb))
    for size_kb in not_allowed:
        description = Queue(path="odd", max_message_size_kb=size_kb)
        refused(PROPERTY_INVALID, catalog.create_queue, description)


def test_lim_2_batches() -> None:
    assert TIERS[Tier.STANDARD].batch_max_bytes == 256 * KIB
    assert TIERS[Tier.PREMIUM].batch_max_bytes == MIB


class TestQuotas:
    """P-16."""

    def test_are_counted_by_namespace(self) -> None:
        catalogs = Catalogs.open(None)
        catalogs.stores.register(STORES)
        first, second = catalogs.namespace("first"), catalogs.namespace("second")
        for number in range(100):
            first.create_queue(Queue(path=f"q{number}", enable_partitioning=True))
        description = Queue(path="more", enable_partitioning=True)
        text = refused(ENTITY_COUNT_EXCEEDED, first.create_queue, description)
        assert "the namespace 'first' already has its maximum of 100 partitioned" in text
        second.create_queue(description)

    def test_a_deleted_entity_makes_room(self) -> None:
        catalog = catalog_of(Tier.STANDARD)
        for number in range(100):
            catalog.create_topic(Topic(path=f"t{number}", enable_partitioning=True))
        description = Queue(path="more", enable_partitioning=True)
        refused(ENTITY_COUNT_EXCEEDED, catalog.create_queue, description)
        catalog.delete("t7")
        catalog.create_queue(description)
        refused(ENTITY_COUNT_EXCEEDED, catalog.create_queue, replace(description, path="last"))

    def test_do_not_apply_to_premium(self) -> None:
        catalog = catalog_of(Tier.PREMIUM, 2)
        for number in range(101):
            catalog.create_queue(Queue(path=f"q{number}"))
        assert catalog.partitioned_count == 101
        assert TIERS[Tier.PREMIUM].entities_max is None
