"""What the catalog knows of a migration: enough to go on after a crash at any moment (D-16)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from busway.cluster import migrations
from busway.cluster.catalog import Catalog, Change
from busway.cluster.rule_orders import RuleOrder, encode_orders
from busway.model.entities import (
    AuthorizationRule,
    CorrelationFilter,
    Course,
    EntityStatus,
    Queue,
    Rule,
    SqlFilter,
    Subscription,
    Topic,
)
from busway.model.errors import BusError
from busway.model.limits import DEFAULT_TIER, TIERS

NOW_MS = 1_800_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog"


@pytest.fixture
def catalog(file: Path) -> Catalog:
    opened = Catalog.open(file)
    opened.stores.register(["one", "two"])
    return opened


def reopened(catalog: Catalog, file: Path) -> Catalog:
    catalog.close()
    again = Catalog.open(file)
    again.stores.register(["one", "two"])
    return again


def queue_in(catalog: Catalog, path: str = "orders") -> Queue:
    queue = catalog.find(path)
    assert isinstance(queue, Queue)
    return queue


def started(catalog: Catalog, *, capture: bool = True, **properties: object) -> tuple[Queue, Queue]:
    queue = catalog.create_queue(Queue(path="orders", **properties), NOW_MS)  # type: ignore[arg-type]
    source = migrations.start(catalog, queue, partitioned=True, capture=capture, now_ms=NOW_MS)
    assert isinstance(source, Queue)
    twin = migrations.twin_of(catalog, source)
    assert isinstance(twin, Queue)
    return source, twin


def test_the_twin_is_the_same_but_for_its_partitions(catalog: Catalog, file: Path) -> None:
    started(catalog, requires_session=True, max_delivery_count=7)
    catalog = reopened(catalog, file)
    source, twin = queue_in(catalog), queue_in(catalog, "orders.migration-1")
    assert (twin.requires_session, twin.max_delivery_count) == (True, 7)
    assert (len(source.placement), len(twin.placement)) == (1, 16)
    assert {source.status, twin.status} == {EntityStatus.DISABLED}
    assert source.migration == twin.migration
    assert migrations.twin_of(catalog, source) == twin
    assert (source.capture, twin.capture) == (True, True)


def test_d_16_the_switch_is_one_commit(catalog: Catalog, file: Path) -> None:
    source, twin = started(catalog, status=EntityStatus.SEND_DISABLED)
    told: list[Change] = []
    catalog.listen(told.append)
    final = migrations.switch(catalog, source, NOW_MS)
    assert [(each.before, each.after) for each in told] == [(source, None), (twin, final)]
    for is_later in (False, True):
        seen = reopened(catalog, file) if is_later else catalog
        queue = queue_in(seen)
        assert (queue.incarnation, queue.enable_partitioning) == (twin.incarnation, True)
        assert (queue.status, queue.migration) == (EntityStatus.SEND_DISABLED, None)
        assert not queue.capture, "it was captured for the migration only"
        assert seen.find("orders.migration-1") is None
        assert seen.get(source.incarnation) is None
        assert (seen.queue_count, seen.partitioned_count) == (1, 1)
        assert [each.incarnation for each in seen.tombstones()] == [source.incarnation]


def test_d_16_twins_are_made_and_the_source_stopped_in_one_commit(
    catalog: Catalog, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails at the last step of it leaves nothing behind: neither here nor on the disk."""
    topic = news_in(catalog)
    told: list[Change] = []
    catalog.listen(told.append)

    def fails(*changes: Change, now_ms: int = 0) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(catalog, "change", fails)
        with pytest.raises(BusError, match="busy"):
            migrations.start(catalog, topic, partitioned=True, capture=True, now_ms=NOW_MS)
    assert told == []
    for seen in (catalog, reopened(catalog, file)):
        assert seen.find("news.migration-1") is None
        assert seen.find("news") == topic
        assert [each.name for each in seen.subscriptions(topic)] == ["all", "red"]


def test_called_off_the_queue_is_what_it_was(catalog: Catalog, file: Path) -> None:
    source, _ = started(catalog)
    migrations.call_off(catalog, source, NOW_MS)
    catalog = reopened(catalog, file)
    queue = queue_in(catalog)
    assert (queue.incarnation, queue.status) == (source.incarnation, EntityStatus.ACTIVE)
    assert (queue.migration, queue.capture, catalog.queue_count) == (None, False, 1)


def test_neither_of_the_two_can_be_changed_or_deleted_meanwhile(catalog: Catalog) -> None:
    source, twin = started(catalog)
    for each in (source, twin):
        with pytest.raises(BusError, match="is being migrated"):
            catalog.update(each, NOW_MS)
        with pytest.raises(BusError, match="is being migrated"):
            catalog.delete(each.path, NOW_MS)


def test_sta_4_nor_does_it_go_because_it_is_idle(catalog: Catalog) -> None:
    started(catalog, auto_delete_on_idle_ms=300_000)
    assert catalog.delete_idle(NOW_MS + 3_600_000) == []


def test_it_is_called_off_in_steps_that_a_crash_does_not_undo(catalog: Catalog, file: Path) -> None:
    source, twin = started(catalog)
    for course, giver in (
        (Course.CALLED_OFF, source.incarnation),
        (Course.BACK, twin.incarnation),
    ):
        migrations.set_course(catalog, queue_in(catalog), course, NOW_MS)
        catalog = reopened(catalog, file)
        for path in ("orders", "orders.migration-1"):
            migration = queue_in(catalog, path).migration
            assert migration is not None
            assert (migration.course, migration.giver) == (course, giver)
        with pytest.raises(BusError, match="has been called off"):
            migrations.start(
                catalog, queue_in(catalog), partitioned=True, capture=True, now_ms=NOW_MS
            )
    served = migrations.call_off(catalog, queue_in(catalog), NOW_MS)
    assert (served.incarnation, served.migration) == (source.incarnation, None)


def test_a_second_twin_has_another_name_because_journals_tell_them_apart_by_it(
    catalog: Catalog,
) -> None:
    source, first = started(catalog)
    queue = migrations.call_off(catalog, source, NOW_MS)
    again = migrations.start(catalog, queue, partitioned=True, capture=True, now_ms=NOW_MS)
    second = migrations.twin_of(catalog, again)
    assert second is not None
    assert second.path != first.path


def test_nam_2_a_name_that_is_taken_is_passed_over(catalog: Catalog) -> None:
    catalog.create_queue(Queue(path="orders.migration-1"), NOW_MS)
    _, twin = started(catalog)
    assert twin.path == "orders.migration-2"


# --- Topics --------------------------------------------------------------------------------------

RED = [
    Rule(
        name="red",
        filter=CorrelationFilter(properties={"colour": "red"}),
        action="SET sys.Label = 'r'",
        created_ms=5,
    ),
    Rule(name="dear", filter=SqlFilter("price > @least", {"@least": 10}), created_ms=6),
]


def news_in(catalog: Catalog) -> Topic:
    catalog.create_queue(Queue(path="archive"), NOW_MS)
    rights = (AuthorizationRule("teller", ("Send",), "k" * 44),)
    topic = catalog.create_topic(Topic(path="news", authorization_rules=rights), NOW_MS)
    catalog.create_subscription(Subscription(topic="news", name="all"), NOW_MS)
    catalog.create_subscription(
        Subscription(
            topic="news",
            name="red",
            max_delivery_count=3,
            forward_dead_letters_to="archive",
            status=EntityStatus.RECEIVE_DISABLED,
            capture=True,
        ),
        NOW_MS,
        RED,
    )
    return topic


def topic_in(catalog: Catalog, path: str = "news") -> Topic:
    topic = catalog.find(path)
    assert isinstance(topic, Topic)
    return topic


def begun(catalog: Catalog) -> Topic:
    topic = news_in(catalog)
    migrations.start(catalog, topic, partitioned=True, capture=True, now_ms=NOW_MS)
    return topic_in(catalog)


def test_the_twin_of_a_topic_has_the_same_subscriptions_rules_and_access(
    catalog: Catalog, file: Path
) -> None:
    begun(catalog)
    catalog = reopened(catalog, file)
    source, twin = topic_in(catalog), topic_in(catalog, "news.migration-1")
    assert twin.authorization_rules == source.authorization_rules
    assert (len(source.placement), len(twin.placement)) == (1, 16)
    pairs = migrations.pairs_of(catalog, source)
    assert [(each.source.path, each.twin.path) for each in pairs] == [
        ("news", "news.migration-1"),
        ("news/Subscriptions/all", "news.migration-1/Subscriptions/all"),
        ("news/Subscriptions/red", "news.migration-1/Subscriptions/red"),
    ]
    for pair in pairs:
        assert {pair.source.status, pair.twin.status} == {EntityStatus.DISABLED}
        assert pair.source.migration == pair.twin.migration
        assert pair.twin.capture
    red = pairs[2].twin
    assert isinstance(red, Subscription)
    assert (red.max_delivery_count, red.forward_dead_letters_to) == (3, "archive")
    assert red.placement == twin.placement
    assert catalog.rules(red) == RED, "as old as they were, too"


def test_d_16_a_topic_and_its_subscriptions_change_places_in_one_commit(
    catalog: Catalog, file: Path
) -> None:
    source = begun(catalog)
    pairs = migrations.pairs_of(catalog, source)
    migrations.switch(catalog, source, NOW_MS)
    for is_later in (False, True):
        seen = reopened(catalog, file) if is_later else catalog
        topic = topic_in(seen)
        assert (topic.incarnation, topic.enable_partitioning) == (pairs[0].twin.incarnation, True)
        names = [each.name for each in seen.subscriptions(topic)]
        assert names == ["all", "red"]
        red = seen.find_subscription("news", "red")
        assert red is not None
        assert red.incarnation == pairs[2].twin.incarnation
        assert (red.status, red.capture) == (EntityStatus.RECEIVE_DISABLED, True)
        assert red.migration is None
        assert seen.rules(red) == RED
        assert seen.find_rule(red, "dear") is not None
        assert seen.topic_rules(topic.incarnation).correlation_filters == 1
        assert (seen.topic_count, seen.partitioned_count) == (1, 1)
        assert seen.find("news.migration-1") is None
        gone = {each.incarnation for each in seen.tombstones()}
        assert gone == {each.source.incarnation for each in pairs}
        rule = seen.entity_rule("news/Subscriptions/red", "teller")
        assert rule is not None, "D-34"
    seen.add_rule(red, Rule(name="more"), NOW_MS)


def test_a_topic_that_is_called_off_has_its_subscriptions_as_they_were(
    catalog: Catalog, file: Path
) -> None:
    source = begun(catalog)
    migrations.call_off(catalog, source, NOW_MS)
    catalog = reopened(catalog, file)
    topic = topic_in(catalog)
    assert (topic.incarnation, topic.status) == (source.incarnation, EntityStatus.ACTIVE)
    red = catalog.find_subscription("news", "red")
    assert red is not None
    assert (red.status, red.capture, red.migration) == (EntityStatus.RECEIVE_DISABLED, True, None)
    assert catalog.topic_count == 1
    assert catalog.rules(red) == RED


def test_subscriptions_and_rules_cannot_be_changed_while_their_topic_is_migrated(
    catalog: Catalog,
) -> None:
    begun(catalog)
    red = catalog.find_subscription("news", "red")
    assert red is not None
    attempts: list[Callable[[], object]] = [
        lambda: catalog.create_subscription(Subscription(topic="news", name="new"), NOW_MS),
        lambda: catalog.update(red, NOW_MS),
        lambda: catalog.delete_subscription("news", "red", NOW_MS),
        lambda: catalog.add_rule(red, Rule(name="more"), NOW_MS),
        lambda: catalog.update_rule(red, Rule(name="red"), NOW_MS),
        lambda: catalog.remove_rule(red, "red", NOW_MS),
        lambda: catalog.delete("news", NOW_MS),
    ]
    for attempt in attempts:
        with pytest.raises(BusError, match="is being migrated"):
            attempt()


def test_d_28_a_rule_of_a_transaction_from_before_reaches_both(catalog: Catalog) -> None:
    begun(catalog)
    red = catalog.find_subscription("news", "red")
    assert red is not None
    orders = encode_orders([RuleOrder(red.incarnation, "late", Rule(name="late"))])
    catalog.carry_out("one", b"transaction", orders, NOW_MS)
    for pair in migrations.pairs_of(catalog, topic_in(catalog)):
        if pair.source.incarnation == red.incarnation:
            for each in pair:
                assert isinstance(each, Subscription)
                assert catalog.find_rule(each, "late") is not None


def test_fwd_1_one_that_forwards_to_itself_would_never_be_empty(catalog: Catalog) -> None:
    topic = news_in(catalog)
    red = catalog.find_subscription("news", "red")
    assert red is not None
    catalog.update(replace(red, forward_dead_letters_to="news"), NOW_MS)
    with pytest.raises(BusError, match="forwards to 'news' itself"):
        migrations.start(catalog, topic, partitioned=True, capture=True, now_ms=NOW_MS)
    assert catalog.topic_count == 1


def test_p_16_a_namespace_that_is_full_of_partitioned_entities_refuses_the_twin(
    catalog: Catalog,
) -> None:
    topic = news_in(catalog)
    for number in range(TIERS[DEFAULT_TIER].partitioned_entities_max or 0):
        catalog.create_queue(Queue(path=f"q{number}", enable_partitioning=True), NOW_MS)
    with pytest.raises(BusError, match="partitioned queues and topics"):
        migrations.start(catalog, topic, partitioned=True, capture=True, now_ms=NOW_MS)
    assert topic_in(catalog).migration is None
