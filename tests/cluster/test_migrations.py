"""What the catalog knows of a migration: enough to go on after a crash at any moment (D-16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from busway.cluster import migrations
from busway.cluster.catalog import Catalog, Change
from busway.model.entities import EntityStatus, Queue
from busway.model.errors import BusError

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
    twin = migrations.twin_of(catalog, source)
    assert twin is not None
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
    final = migrations.switch(catalog, source, twin, NOW_MS)
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


def test_a_twin_that_its_source_does_not_know_is_found_again(catalog: Catalog) -> None:
    """The first of the two commits was the last thing before a crash."""
    queue = catalog.create_queue(Queue(path="orders"), NOW_MS)
    wanted = Queue(
        path="orders.migration-1",
        enable_partitioning=True,
        status=EntityStatus.DISABLED,
        migration=migrations.Migration(queue.incarnation, 0, EntityStatus.ACTIVE),
    )
    orphan = catalog.create_queue(wanted, NOW_MS)
    source = migrations.start(catalog, queue, partitioned=True, capture=False, now_ms=NOW_MS)
    assert source.migration is not None
    assert source.migration.twin == orphan.incarnation
    assert catalog.queue_count == 2


def test_called_off_the_queue_is_what_it_was(catalog: Catalog, file: Path) -> None:
    source, twin = started(catalog)
    migrations.call_off(catalog, source, twin, NOW_MS)
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
