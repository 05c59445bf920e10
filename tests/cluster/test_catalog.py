"""The catalog: what may be made, changed and removed, and what survives (P-10, D-14, D-16)."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.broker.seams import Entities
from busway.cluster.catalog import Catalog, CatalogError, Change, StoreStanding
from busway.cluster.catalog_rows import description_of, entity_of_row
from busway.gateway.auth import AccessRules
from busway.model.entities import AuthorizationRule, EntityStatus, Queue, Topic
from busway.model.errors import (
    ENTITY_ALREADY_EXISTS,
    ENTITY_COUNT_EXCEEDED,
    NOT_FOUND,
    PROPERTY_IMMUTABLE,
    SERVER_BUSY,
    BusError,
    ErrorKind,
)


def fits_the_seams(catalog: Catalog) -> tuple[Entities, AccessRules]:
    """Checked by the type checker: the broker and the gateway can use it."""
    return catalog, catalog


STORES = ["store-a", "store-b", "store-c"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def catalog(file: Path) -> Iterator[Catalog]:
    catalog = Catalog.open(file)
    catalog.stores.register(STORES)
    yield catalog
    catalog.close()


def reopened(file: Path) -> Catalog:
    """Without closing the one before: as after a kill."""
    catalog = Catalog.open(file)
    catalog.stores.register(STORES)
    return catalog


def refused(kind: ErrorKind, attempt: object, *args: object) -> BusError:
    assert callable(attempt)
    with pytest.raises(BusError) as raised:
        attempt(*args)
    assert raised.value.kind is kind
    return raised.value


class TestCreating:
    def test_gives_an_incarnation_and_a_placement(self, catalog: Catalog) -> None:
        """D-14, D-16."""
        queue = catalog.create_queue(Queue(path="Orders"), now_ms=5)
        assert queue.incarnation > 0
        assert (queue.version, queue.created_ms, queue.updated_ms) == (1, 5, 5)
        assert len(queue.placement) == 1
        assert catalog.get(queue.incarnation) is queue

    def test_spreads_the_partitions_over_all_stores(self, catalog: Catalog) -> None:
        """P-3, P-12."""
        queue = catalog.create_queue(Queue(path="orders", enable_partitioning=True))
        assert len(queue.placement) == 16
        assert set(queue.placement) == set(STORES)

    def test_a_name_that_is_taken_in_any_case_is_refused(self, catalog: Catalog) -> None:
        """NAM-2."""
        catalog.create_queue(Queue(path="Orders"))
        refused(ENTITY_ALREADY_EXISTS, catalog.create_queue, Queue(path="oRDERS"))
        found = catalog.find("ORDERS")
        assert found is not None
        assert found.path == "Orders"

    def test_an_invalid_description_makes_nothing(self, catalog: Catalog) -> None:
        with pytest.raises(BusError):
            catalog.create_queue(Queue(path="orders", max_delivery_count=0))
        assert catalog.queues() == []

    def test_without_a_store_that_is_well_is_busy(self, file: Path) -> None:
        catalog = Catalog.open(file)
        refused(SERVER_BUSY, catalog.create_queue, Queue(path="orders"))
        assert catalog.queues() == []

    def test_beyond_a_hundred_partitioned_entities_is_refused(self) -> None:
        """P-16."""
        catalog = Catalog.open(None)
        catalog.stores.register(STORES)
        for i in range(100):
            catalog.create_queue(Queue(path=f"p{i}", enable_partitioning=True))
        error = refused(
            ENTITY_COUNT_EXCEEDED,
            catalog.create_queue,
            Queue(path="one-more", enable_partitioning=True),
        )
        assert "maximum of 100 partitioned queues and topics" in error.text
        assert catalog.find("one-more") is None
        catalog.create_queue(Queue(path="conventional"))

    def test_beyond_ten_thousand_entities_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """P-16, with a smaller number."""
        from busway.cluster import admission as module
        from busway.model.limits import TIERS, Tier

        assert TIERS[Tier.STANDARD].entities_max == 10_000
        small = {Tier.STANDARD: replace(TIERS[Tier.STANDARD], entities_max=3)}
        monkeypatch.setattr(module, "TIERS", small)
        catalog = Catalog.open(None)
        catalog.stores.register(STORES)
        for i in range(3):
            catalog.create_queue(Queue(path=f"q{i}"))
        refused(ENTITY_COUNT_EXCEEDED, catalog.create_queue, Queue(path="q3"))


class TestUpdating:
    def test_makes_a_new_version_of_the_same_incarnation(self, catalog: Catalog) -> None:
        """D-16."""
        old = catalog.create_queue(Queue(path="orders"), now_ms=1)
        new = catalog.update(Queue(path="ORDERS", max_delivery_count=3), now_ms=2)
        assert (new.incarnation, new.version, new.path) == (old.incarnation, 2, "orders")
        assert (new.placement, new.created_ms, new.updated_ms) == (old.placement, 1, 2)
        assert catalog.get(old.incarnation) == new

    def test_what_is_fixed_is_refused_and_nothing_changes(
        self, catalog: Catalog, file: Path
    ) -> None:
        """P-10."""
        old = catalog.create_queue(Queue(path="orders"))
        new = replace(old, enable_partitioning=True, max_delivery_count=3)
        error = refused(PROPERTY_IMMUTABLE, catalog.update, new)
        assert "EnablePartitioning of the queue 'orders'" in error.text
        assert catalog.get(old.incarnation) == old
        assert reopened(file).get(old.incarnation) == old

    def test_an_old_incarnation_is_not_found(self, catalog: Catalog) -> None:
        """D-16."""
        old = catalog.create_queue(Queue(path="orders"))
        catalog.delete("orders")
        catalog.create_queue(Queue(path="orders"))
        refused(NOT_FOUND, catalog.update, replace(old, max_delivery_count=3))


class TestDeleting:
    def test_leaves_a_tombstone_until_every_store_has_purged(
        self, catalog: Catalog, file: Path
    ) -> None:
        """D-16."""
        queue = catalog.create_queue(Queue(path="orders", enable_partitioning=True))
        catalog.delete("ORDERS", now_ms=9)
        assert catalog.get(queue.incarnation) is None
        assert catalog.find("orders") is None
        (tombstone,) = reopened(file).tombstones()
        assert (tombstone.incarnation, tombstone.path) == (queue.incarnation, "orders")
        assert tombstone.stores == set(STORES)

        catalog.purged(queue.incarnation, "store-a")
        assert catalog.tombstones()[0].stores == {"store-b", "store-c"}
        catalog.purged(queue.incarnation)
        assert catalog.tombstones() == []

    def test_never_gives_an_incarnation_twice(self, catalog: Catalog, file: Path) -> None:
        """D-16: not even after its tombstone is gone and the process too."""
        first = catalog.create_queue(Queue(path="orders"))
        catalog.delete("orders")
        catalog.purged(first.incarnation)
        second = reopened(file).create_queue(Queue(path="orders"))
        assert second.incarnation > first.incarnation

    def test_of_what_is_not_there_is_not_found(self, catalog: Catalog) -> None:
        assert "'orders'" in refused(NOT_FOUND, catalog.delete, "orders").text


class TestSurviving:
    def test_everything_is_there_again_without_a_close(self, catalog: Catalog, file: Path) -> None:
        rule = AuthorizationRule("send", ("Send",), "key1", None)
        catalog.create_queue(Queue(path="a", authorization_rules=(rule,)))
        catalog.create_queue(Queue(path="B", enable_partitioning=True, default_ttl_ms=5))
        catalog.update(Queue(path="a", status=EntityStatus.SEND_DISABLED), now_ms=3)
        catalog.create_queue(Queue(path="c"))
        catalog.delete("c")
        again = reopened(file)
        assert again.queues() == catalog.queues()
        assert [queue.path for queue in again.queues()] == ["a", "B"]
        assert again.tombstones() == catalog.tombstones()

    def test_a_kill_loses_nothing_that_was_answered(self, file: Path) -> None:
        program = """
import sys, pathlib
from busway.cluster.catalog import Catalog
from busway.model.entities import Queue
catalog = Catalog.open(pathlib.Path(sys.argv[1]))
catalog.stores.register(["store-a", "store-b", "store-c"])
for i in range(1000):
    print(catalog.create_queue(Queue(path=f"q{i}")).path, flush=True)
"""
        source = Path(__file__).parents[2] / "src"
        with subprocess.Popen(
            [sys.executable, "-c", program, str(file)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source)},
        ) as process:
            assert process.stdout is not None
            answered = [process.stdout.readline().strip() for _ in range(20)]
            process.send_signal(signal.SIGKILL)
            answered += process.stdout.read().split()
        catalog = reopened(file)
        assert all(catalog.find(path) is not None for path in answered)
        assert len(catalog.queues()) - len(answered) in (0, 1)

    def test_a_write_that_fails_changes_nothing(self, catalog: Catalog, file: Path) -> None:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON entities BEGIN SELECT raise(FAIL, 'full'); END"
        )
        refused(SERVER_BUSY, catalog.create_queue, Queue(path="orders"))
        assert catalog.find("orders") is None
        other.execute("DROP TRIGGER full")
        other.close()
        assert catalog.create_queue(Queue(path="orders")).incarnation > 0

    def test_a_file_that_another_process_has_locked_changes_nothing_and_waits_for_nobody(
        self, catalog: Catalog, file: Path
    ) -> None:
        catalog._file.be_quick()
        assert catalog._file._database.execute("PRAGMA busy_timeout").fetchone() == (0,)
        kept = catalog.create_queue(Queue(path="kept"))
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        refused(SERVER_BUSY, catalog.create_queue, Queue(path="orders"))
        refused(SERVER_BUSY, catalog.delete, "kept")
        with pytest.raises(BusError) as raised, catalog.together():
            catalog.create_queue(Queue(path="orders"))
        assert raised.value.kind is SERVER_BUSY
        assert catalog.queues() == [kept]
        assert catalog.find("kept") is kept, "what is known is not read again"
        other.execute("ROLLBACK")
        other.close()
        assert catalog.create_queue(Queue(path="orders")).incarnation > 0

    def test_only_its_owner_can_read_the_file(self, catalog: Catalog, file: Path) -> None:
        catalog.create_queue(Queue(path="orders"))
        for each in file.parent.iterdir():
            assert stat.S_IMODE(each.stat().st_mode) == 0o600, each

    def test_every_commit_is_synced(self, catalog: Catalog) -> None:
        full = 2
        database = catalog._file._database
        assert database.execute("PRAGMA synchronous").fetchone() == (full,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    def test_a_file_of_a_newer_version_is_left_alone(self, file: Path) -> None:
        database = sqlite3.connect(file)
        database.execute("PRAGMA user_version = 99")
        database.close()
        with pytest.raises(CatalogError, match=r"written by a newer Busway \(format 99"):
            Catalog.open(file)

    def test_a_file_that_is_no_catalog_is_left_alone(self, file: Path) -> None:
        file.write_text("hello" * 1000)
        with pytest.raises(CatalogError, match="cannot be opened"):
            Catalog.open(file)
        assert file.read_text() == "hello" * 1000

    def test_in_memory_it_behaves_the_same(self) -> None:
        catalog = Catalog.open(None)
        catalog.stores.register(STORES)
        queue = catalog.create_queue(Queue(path="orders"))
        assert catalog.get(queue.incarnation) == queue

    @settings(max_examples=50, deadline=None)
    @given(
        st.builds(
            Queue,
            path=st.just("orders"),
            placement=st.lists(st.text()).map(tuple),
            default_ttl_ms=st.none() | st.integers(1),
            user_metadata=st.none() | st.text(),
            status=st.sampled_from(EntityStatus),
            authorization_rules=st.lists(
                st.builds(
                    AuthorizationRule,
                    st.text(),
                    st.lists(st.sampled_from(["Send", "Listen"])).map(tuple),
                    st.text(),
                    st.none() | st.text(),
                )
            ).map(tuple),
        )
    )
    def test_a_row_gives_back_the_queue(self, queue: Queue) -> None:
        row = description_of(queue)
        assert entity_of_row("queue", queue.path, queue.incarnation, queue.version, row) == queue


class TestListeners:
    def test_are_told_of_every_change_when_it_is_true(self, catalog: Catalog) -> None:
        """STA-2, STA-5."""
        told: list[Change] = []
        stop = catalog.listen(told.append)
        catalog.listen(lambda change: seen.append(catalog.find("orders")))
        seen: list[Queue | Topic | None] = []
        made = catalog.create_queue(Queue(path="orders"))
        changed = catalog.update(replace(made, status=EntityStatus.DISABLED))
        catalog.delete("orders")
        assert told == [Change(None, made), Change(made, changed), Change(changed, None)]
        assert seen == [made, changed, None]
        stop()
        catalog.create_queue(Queue(path="orders"))
        assert len(told) == 3

    def test_are_not_told_of_what_was_refused(self, catalog: Catalog) -> None:
        catalog.create_queue(Queue(path="orders"))
        told: list[Change] = []
        catalog.listen(told.append)
        refused(ENTITY_ALREADY_EXISTS, catalog.create_queue, Queue(path="orders"))
        assert told == []


class TestStores:
    """D-14."""

    def test_are_remembered_in_order(self, file: Path) -> None:
        assert Catalog.open(file).stores.expected(0) is None
        Catalog.open(file).stores.register(["a", "b"])
        again = Catalog.open(file)
        assert [again.stores.expected(i) for i in range(3)] == ["a", "b", None]
        assert again.stores.register(["a", "b"]) == (
            StoreStanding(0, "a"),
            StoreStanding(1, "b"),
        )

    def test_that_are_missing_are_ill(self, file: Path) -> None:
        Catalog.open(file).stores.register(["a", "b"])
        well, ill = Catalog.open(file).stores.register(["a", None])
        assert well.problem is None
        assert ill.store_id == "b"
        assert "store 1 (b) is missing" in str(ill.problem)

    def test_that_have_another_id_are_ill_and_do_not_take_its_place(self, file: Path) -> None:
        Catalog.open(file).stores.register(["a", "b"])
        catalog = Catalog.open(file)
        ill, well = catalog.stores.register(["x", "b"])
        assert ill.problem is not None
        assert ill.problem.startswith(
            "store 0 is x, and the catalog expects a there: put the files"
        )
        assert well.problem is None
        assert catalog.stores.expected(0) == "a"

    def test_that_are_copies_are_ill(self) -> None:
        _, copy = Catalog.open(None).stores.register(["a", "a"])
        assert copy.problem == "store 1 is a copy of store 0 (a)"

    def test_that_are_ill_get_no_new_entities(self, file: Path) -> None:
        Catalog.open(file).stores.register(["a", "b"])
        catalog = Catalog.open(file)
        catalog.stores.register([None, "b"])
        queue = catalog.create_queue(Queue(path="orders", enable_partitioning=True))
        assert set(queue.placement) == {"b"}

    def test_that_are_new_serve_new_entities_only(self, file: Path) -> None:
        catalog = Catalog.open(file)
        catalog.stores.register(["a"])
        old = catalog.create_queue(Queue(path="old", enable_partitioning=True))
        catalog = Catalog.open(file)
        catalog.stores.register(["a", "b"])
        new = catalog.create_queue(Queue(path="new", enable_partitioning=True))
        assert catalog.get(old.incarnation) == old
        assert set(new.placement) == {"a", "b"}

    def test_that_hold_partitions_cannot_be_removed(self, file: Path) -> None:
        catalog = Catalog.open(file)
        catalog.stores.register(["a", "b"])
        catalog.create_queue(Queue(path="orders", enable_partitioning=True))
        with pytest.raises(
            CatalogError, match="The store b holds partitions of the queue 'orders'"
        ):
            Catalog.open(file).stores.register(["a"])
        catalog.delete("orders")
        again = Catalog.open(file)
        assert again.stores.register(["a"]) == (StoreStanding(0, "a"),)
        assert again.stores.expected(1) is None
        assert again.tombstones()[0].stores == {"a"}
