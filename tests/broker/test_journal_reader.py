"""Reading an entity's journal over its partitions: heads, plans, ranges, gaps (D-31)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busway.broker.journal_arrow import arrow_schema, to_arrow
from busway.broker.journal_properties import TextMaps
from busway.broker.journal_reader import (
    EntityJournal,
    EpochDiffersError,
    JournalAheadError,
    JournalGapError,
)
from busway.model.entities import Queue
from busway.model.journal import BY_NAME, COLUMNS, JournalEvent, columns_named
from busway.store.base import Counters, SubQueueKey, SubQueueKind
from busway.store.journal import JournalHead, JournalHold, JournalTrim
from busway.store.sqlite import SqliteStore
from tests.broker.several_entities import message
from tests.store.places import Owner
from tests.store.test_contract_journal import content, record

SOME = columns_named(["partition", "journal_offset", "event", "body"])
OFFSETS = columns_named(["journal_offset"])


class Shelves:
    """Three partitions on two real stores."""

    def __init__(self, folder: Path) -> None:
        stores = {name: SqliteStore(folder / f"{name}.db", create=True) for name in ("a", "b")}
        self.owners = {name: Owner(store) for name, store in stores.items()}
        self.queue = Queue(
            path="orders", incarnation=7, placement=("a", "b", "a"), created_ms=99, capture=True
        )
        for partition, name in enumerate(self.queue.placement):
            key = SubQueueKey(7, partition, SubQueueKind.MAIN)
            slot = partition + 1
            self.owners[name].commit(sub_queues=[(slot, key)], counters={slot: Counters()})
        self.journal = self.journal_of(self.queue)
        self._bodies = 1

    def journal_of(self, entity: Queue) -> EntityJournal:
        return EntityJournal(
            entity, {name: each.store.journal_handle() for name, each in self.owners.items()}
        )

    def owner(self, partition: int) -> Owner:
        return self.owners[self.queue.placement[partition]]

    def write(
        self,
        partition: int,
        count: int,
        size: int = 36,
        first: int = 0,
        bare: bytes | None = None,
    ) -> None:
        """Rows of 100 bytes each, unless `size` says otherwise."""
        rows, bodies = [], []
        for offset in range(first, first + count):
            self._bodies += 1
            body = bare or message(f"{partition}-{offset}").bare
            carried = content(self._bodies, size)
            row = record(offset, JournalEvent.ENQUEUED, content=carried)
            rows.append(row._replace(slot=partition + 1))
            bodies.append((self._bodies, body))
        head = JournalHead(0, first + count, 0, 1_000, 1_000 + first + count - 1)
        self.owner(partition).commit(
            journal=rows, bodies=bodies, journal_heads={partition + 1: head}
        )

    def trim(self, partition: int, before: int, next_offset: int) -> None:
        slot = partition + 1
        self.owner(partition).commit(
            trims=[JournalTrim(slot, before)],
            journal_heads={slot: JournalHead(before, next_offset, 0, 1_000 + before, 9_000)},
        )

    def offsets(self, partition: int, first: int, stop: int) -> list[int]:
        batches = self.journal.read(partition, first, stop, OFFSETS)
        return [offset for batch in batches for offset in batch["journal_offset"]]


@pytest.fixture
def shelves(tmp_path: Path) -> Any:
    made = Shelves(tmp_path)
    yield made
    for owner in made.owners.values():
        owner.store.close()


class TestHeads:
    def test_heads_of_all_partitions(self, shelves: Shelves) -> None:
        shelves.write(1, 3)
        heads = shelves.journal.heads()
        assert [(each.partition, each.head.earliest, each.head.next_offset) for each in heads] == [
            (0, 0, 0),
            (1, 0, 3),
            (2, 0, 0),
        ]

    def test_offsets_at_a_time(self, shelves: Shelves) -> None:
        shelves.write(0, 5)
        shelves.write(2, 2)
        assert shelves.journal.at(1_003) == {0: 3, 1: 0, 2: 2}

    def test_holds_by_consumer(self, shelves: Shelves) -> None:
        shelves.owner(0).commit(holds=[JournalHold(1, "lake", 4, 9_000)])
        shelves.owner(1).commit(holds=[JournalHold(2, "lake", 5, 9_000)])
        assert [
            (partition, hold.offset) for partition, hold in shelves.journal.holds()["lake"]
        ] == [(0, 4), (1, 5)]

    def test_another_incarnation_has_another_epoch(self, shelves: Shelves) -> None:
        again = shelves.journal_of(replace(shelves.queue, incarnation=8))
        later = shelves.journal_of(replace(shelves.queue, created_ms=100))
        assert len({shelves.journal.epoch, again.epoch, later.epoch}) == 3
        with pytest.raises(EpochDiffersError) as caught:
            list(again.read(0, 0, 0, epoch=shelves.journal.epoch))
        assert caught.value.epoch == again.epoch
        with pytest.raises(EpochDiffersError, match="made again"):
            again.plan({}, rows=10, epoch=shelves.journal.epoch)


class TestPlanning:
    def test_without_limits_all_there_is(self, shelves: Shelves) -> None:
        shelves.write(0, 1_500)
        shelves.write(1, 3)
        assert shelves.journal.plan({}) == {0: 1_500, 1: 3, 2: 0}
        assert shelves.journal.plan({0: 1_500, 1: 2, 2: 0}) == {0: 1_500, 1: 3, 2: 0}

    def test_rows_are_shared_fairly_and_what_one_leaves_goes_to_others(
        self, shelves: Shelves
    ) -> None:
        for partition, count in enumerate((5_000, 5_000, 10)):
            shelves.write(partition, count)
        ends = shelves.journal.plan({}, rows=3_000)
        assert sum(ends.values()) <= 3_000
        assert ends[2] == 10
        assert abs(ends[0] - ends[1]) <= 1_000
        assert min(ends[0], ends[1]) >= 990

    @pytest.mark.parametrize("rows", [1, 2, 3, 7, 100, 2_500])
    def test_a_plan_never_has_more_rows_than_asked_for(self, shelves: Shelves, rows: int) -> None:
        for partition in range(3):
            shelves.write(partition, 700)
        total = sum(shelves.journal.plan({}, rows=rows).values())
        assert 0 < total <= rows

    def test_without_a_limit_of_bytes_no_row_is_looked_at(self, shelves: Shelves) -> None:
        """A plan costs the same however long the journal is."""
        shelves.write(0, 3)
        head = JournalHead(0, 50_000_000, 0, 1_000, 9_000)
        shelves.owner(0).commit(journal_heads={1: head})
        assert shelves.journal.plan({}) == {0: 50_000_000, 1: 0, 2: 0}
        assert shelves.journal.plan({}, rows=200_000) == {0: 200_000, 1: 0, 2: 0}

    def test_bytes(self, shelves: Shelves) -> None:
        for partition in range(3):
            shelves.write(partition, 50)
        assert sum(shelves.journal.plan({}, size=3_000).values()) == 30

    def test_one_that_is_larger_than_the_limit_is_planned_alone(self, shelves: Shelves) -> None:
        shelves.write(1, 3, size=100_000)
        assert shelves.journal.plan({}, size=10) == {0: 0, 1: 1, 2: 0}

    def test_plan_after_plan_covers_everything_once(self, shelves: Shelves) -> None:
        for partition, count in enumerate((70, 3, 41)):
            shelves.write(partition, count)
        start, plans = {0: 0, 1: 0, 2: 0}, 0
        while (ends := shelves.journal.plan(start, rows=10, size=700)) != start:
            assert all(ends[each] >= start[each] for each in ends)
            start, plans = ends, plans + 1
        assert start == {0: 70, 1: 3, 2: 41}
        assert plans >= 114 * 100 // 700

    def test_a_start_that_is_forgotten_is_a_gap(self, shelves: Shelves) -> None:
        shelves.write(0, 10)
        shelves.trim(0, 4, 10)
        with pytest.raises(JournalGapError) as caught:
            shelves.journal.plan({0: 3}, rows=5)
        assert (caught.value.partition, caught.value.asked, caught.value.earliest) == (0, 3, 4)
        assert shelves.journal.plan({}, rows=5)[0] == 9


class TestReading:
    def test_a_range_in_batches(self, shelves: Shelves) -> None:
        shelves.write(0, 2_300)
        batches = list(shelves.journal.read(0, 100, 2_200, OFFSETS))
        assert [len(batch["journal_offset"]) for batch in batches] == [1_000, 1_000, 100]
        assert shelves.offsets(0, 100, 2_200) == list(range(100, 2_200))
        assert shelves.offsets(0, 5, 5) == []

    def test_a_batch_ends_at_four_mebibytes(self, shelves: Shelves) -> None:
        shelves.write(0, 10, size=1_000_000)
        batches = list(shelves.journal.read(0, 0, 10, SOME))
        assert max(len(batch["body"]) for batch in batches) <= 5

    def test_the_same_range_again_is_the_same(self, shelves: Shelves) -> None:
        shelves.write(0, 10)
        first = list(shelves.journal.read(0, 2, 8))
        shelves.write(0, 10, first=10)
        assert list(shelves.journal.read(0, 2, 8)) == first

    def test_what_was_forgotten_is_a_gap_that_says_where_to_go_on(self, shelves: Shelves) -> None:
        shelves.write(0, 10)
        shelves.trim(0, 4, 10)
        with pytest.raises(JournalGapError, match="begins at offset 4") as caught:
            shelves.offsets(0, 1, 10)
        assert (caught.value.asked, caught.value.earliest) == (1, 4)

    def test_what_is_forgotten_while_it_is_read_is_a_gap_too(self, shelves: Shelves) -> None:
        shelves.write(0, 2_500)
        batches = shelves.journal.read(0, 0, 2_500, OFFSETS)
        assert len(next(batches)["journal_offset"]) == 1_000
        shelves.trim(0, 1_000, 2_500)
        shelves.trim(0, 2_000, 2_500)
        with pytest.raises(JournalGapError) as caught:
            list(batches)
        assert (caught.value.asked, caught.value.earliest) == (1_000, 2_000)

    def test_offsets_that_nothing_has_yet(self, shelves: Shelves) -> None:
        shelves.write(0, 10)
        with pytest.raises(JournalAheadError, match="ends at offset 10"):
            shelves.offsets(0, 5, 11)
        with pytest.raises(JournalAheadError):
            shelves.journal.plan({0: 11})

    def test_an_entity_that_is_purged_while_it_is_read(self, shelves: Shelves) -> None:
        shelves.write(0, 1_500)
        batches = shelves.journal.read(0, 0, 1_500, OFFSETS)
        next(batches)
        for _ in range(4):
            shelves.owner(0).commit(purges=[1])
        with pytest.raises((EpochDiffersError, JournalAheadError)):
            list(batches)


class TestArrow:
    def test_batches_have_the_declared_schema_and_the_values(self, shelves: Shelves) -> None:
        import pyarrow as pa

        shelves.write(1, 1_200)
        batches = [to_arrow(COLUMNS, each) for each in shelves.journal.read(1, 0, 1_200)]
        assert [batch.num_rows for batch in batches] == [1_000, 200]
        table = pa.Table.from_batches(batches)
        assert table.schema == arrow_schema(COLUMNS)
        assert table["body"].to_pylist()[:2] == [b"1-0", b"1-1"]
        assert table["journal_offset"].to_pylist() == list(range(1_200))
        assert table["event_time"].cast(pa.int64()).to_pylist()[:2] == [1_000_000, 1_001_000]
        assert str(table.schema.field("event_time").type) == "timestamp[us, tz=UTC]"

    def test_maps_and_nulls(self) -> None:
        columns = [BY_NAME["application_properties"], BY_NAME["enqueued_time"]]
        maps = TextMaps(["a", "b"], ["1", None], [0, None, 2])
        assert list(maps) == [[("a", "1"), ("b", None)], None, []]
        batch = to_arrow(columns, {"application_properties": maps, "enqueued_time": [None, 1, 2]})
        assert batch["application_properties"].to_pylist() == list(maps)

    def test_nothing_of_it_is_imported_before_it_is_needed(self) -> None:
        """D-33."""
        program = (
            "import sys, busway.broker.broker, busway.broker.journal_reader,"
            " busway.broker.journal_arrow; sys.exit('pyarrow' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
