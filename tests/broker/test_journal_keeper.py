"""How long journals are kept: retention by time and size, holds and their cap (D-31)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from busway.broker.broker import Broker
from busway.model.entities import Queue
from busway.model.errors import BusError
from busway.model.journal import JournalLimits
from busway.model.retention import OwnLimits
from busway.store.faults import CommitOutcome
from busway.store.journal import JOURNAL_ROW_BYTES, TRIM_ROWS, JournalHead
from tests.broker.several_entities import SeveralEntities, key_of, message

SIZE = 1_000
ROW = SIZE + JOURNAL_ROW_BYTES
HOUR_MS = 3_600_000


class Library(SeveralEntities):
    """One captured queue, with limits."""

    def __init__(self, **limits: int) -> None:
        super().__init__()
        for store in self.world.stores.values():
            store.broker.journal_limits = JournalLimits(**limits)
        self.orders = self.queue("orders", capture=True)

    def fill(self, count: int) -> None:
        """So many rows of one message each."""
        while count:
            some = min(count, 500)
            self.send(self.orders, *(message("x", size=SIZE) for _ in range(some)))
            count -= some

    @property
    def broker(self) -> Broker:
        return self.broker_of(self.orders)

    def head(self) -> JournalHead:
        handle = self.store_of(self.orders).medium.journal_handle()
        return handle.head(key_of(self.orders)) or JournalHead()

    def span(self) -> tuple[int, int]:
        """Earliest and next offset; every row between them is there."""
        head = self.head()
        handle = self.store_of(self.orders).medium.journal_handle()
        sizes = handle.sizes(key_of(self.orders), head.earliest)
        assert len(sizes) == min(head.next_offset - head.earliest, TRIM_ROWS)
        if len(sizes) < TRIM_ROWS:
            assert sum(each.bytes for each in sizes) == head.bytes
        if sizes:
            assert sizes[0].time_ms == head.earliest_ms
        return head.earliest, head.next_offset

    def hold(self, name: str, offset: int | None, for_ms: int = HOUR_MS) -> str:
        answers: list[BusError | None] = []
        self.broker.hold_journal(
            self.orders.incarnation, 0, name, offset, self.now_ms() + for_ms, answers.append
        )
        self.run()
        (error,) = answers
        return "held" if error is None else error.kind.name


def test_nothing_goes_before_its_time() -> None:
    library = Library(retention_ms=60_000)
    library.fill(10)
    library.run(58_000)
    assert library.span() == (0, 10)


def test_what_is_too_old_goes() -> None:
    library = Library(retention_ms=60_000)
    library.fill(10)
    library.run(30_000)
    library.fill(5)
    library.run(32_000)
    assert library.span() == (10, 15)
    library.run(60_000)
    assert library.span() == (15, 15)
    library.fill(1)
    assert library.span() == (15, 16)


def test_what_is_too_much_goes_oldest_first() -> None:
    library = Library(size_bytes=10 * ROW)
    library.fill(25)
    library.run(5_000)
    assert library.span() == (15, 25)


def test_many_go_in_steps_of_one_commit_each() -> None:
    library = Library(size_bytes=10 * ROW)
    library.fill(3 * TRIM_ROWS)
    store = library.store_of(library.orders)
    seen = set()
    for _ in range(3_000):
        library.run(1)
        seen.add(store.medium._journals.by_slot[1].head.earliest)
    steps = sorted(seen)
    assert len(steps) > 3
    assert max(b - a for a, b in pairwise(steps)) <= TRIM_ROWS
    assert library.span() == (3 * TRIM_ROWS - 10, 3 * TRIM_ROWS)


def test_each_partition_has_its_share_of_the_size() -> None:
    library = Library(size_bytes=16 * 10 * ROW)
    shards = library.world.create_queue(
        Queue(path="shards", enable_partitioning=True, capture=True)
    )
    library.send(shards, *(message("x", size=SIZE) for _ in range(25)))
    library.run(5_000)
    head = library.store_of(shards).medium.journal_handle().head(key_of(shards))
    assert head is not None
    assert (head.earliest, head.next_offset) == (15, 25)


def test_the_bodies_of_what_went_are_free() -> None:
    library = Library(size_bytes=10 * ROW)
    library.fill(25)
    library.receive(library.orders, delete=True)
    library.run(5_000)
    copies = library.store_of(library.orders).medium._copies
    head = library.head()
    assert head.bytes <= 10 * ROW
    assert len(copies) == (head.bytes - JOURNAL_ROW_BYTES * (50 - head.earliest)) // SIZE


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_trimming_goes_on_after_a_commit_that_failed(outcome: CommitOutcome) -> None:
    library = Library(retention_ms=60_000)
    library.fill(10)
    library.run(50_000)
    library.store_of(library.orders).next_commits_end(outcome)
    library.run(30_000)
    assert library.span() == (10, 10)


def test_it_goes_on_after_a_restart() -> None:
    library = Library()
    library.fill(25)
    library.crash(library.orders)
    library.broker.journal_limits = JournalLimits(size_bytes=10 * ROW)
    library.run(5_000)
    assert library.span() == (15, 25)


def test_an_entity_that_is_captured_no_more_is_trimmed_all_the_same() -> None:
    library = Library(retention_ms=60_000)
    library.fill(10)
    library.update(library.orders, capture=False)
    library.run(70_000)
    assert library.span() == (10, 10)


class TestLimitsOfAnEntity:
    """An entity may have its own of each, in the place of the server's (D-31)."""

    def test_it_keeps_less_than_the_server_would(self) -> None:
        library = Library(retention_ms=10 * HOUR_MS)
        library.fill(10)
        library.update(library.orders, capture_limits=OwnLimits(retention_ms=60_000))
        library.run(70_000)
        assert library.span() == (10, 10)

    def test_it_keeps_more_than_the_server_would(self) -> None:
        library = Library(retention_ms=60_000, size_bytes=5 * ROW)
        library.update(
            library.orders, capture_limits=OwnLimits(retention_ms=HOUR_MS, size_bytes=20 * ROW)
        )
        library.fill(10)
        library.run(70_000)
        assert library.span() == (0, 10)

    def test_what_it_does_not_say_is_the_servers(self) -> None:
        library = Library(size_bytes=5 * ROW)
        library.update(library.orders, capture_limits=OwnLimits(retention_ms=HOUR_MS))
        library.fill(10)
        library.run(5_000)
        assert library.span() == (5, 10)

    def test_holds_have_its_cap(self) -> None:
        library = Library(size_bytes=2 * ROW)
        library.update(library.orders, capture_limits=OwnLimits(held_bytes=4 * ROW))
        library.hold("lake", 0)
        library.fill(10)
        library.run(5_000)
        assert library.span() == (6, 10)

    def test_a_change_counts_at_once_and_taken_back_it_is_over(self) -> None:
        library = Library()
        library.fill(10)
        library.run(5_000)
        library.update(library.orders, capture_limits=OwnLimits(size_bytes=4 * ROW))
        library.run(5_000)
        assert library.span() == (6, 10)
        library.update(library.orders, capture_limits=OwnLimits())
        library.fill(10)
        library.run(5_000)
        assert library.span() == (6, 20)


class TestAFullDisk:
    """D-9: a full broker can be drained, although a journal keeps what was completed."""

    def test_journals_give_way_when_a_disk_stays_full(self) -> None:
        library = Library()
        library.hold("lake", 0)
        library.fill(25)
        library.store_of(library.orders).free_bytes = 1_000
        library.receive(library.orders, delete=True)
        library.run(30_000)
        head = library.head()
        assert head.earliest == head.next_offset == 50
        assert library.store_of(library.orders).medium._copies == {}

    def test_not_when_it_is_full_for_a_moment(self) -> None:
        library = Library()
        library.fill(25)
        store = library.store_of(library.orders)
        store.free_bytes = 1_000
        library.receive(library.orders, 1, delete=True)
        library.run(5_000)
        store.free_bytes = None
        library.run(60_000)
        assert library.span() == (0, 26)
        library.fill(1)


class TestHolds:
    def test_a_hold_keeps_what_its_consumer_has_not_read(self) -> None:
        library = Library(size_bytes=10 * ROW)
        assert library.hold("lake", 8) == "held"
        library.fill(25)
        library.run(5_000)
        assert library.span() == (8, 25)

    def test_it_moves_and_what_was_read_goes(self) -> None:
        library = Library(retention_ms=60_000)
        library.hold("lake", 0)
        library.fill(25)
        library.run(70_000)
        assert library.span() == (0, 25)
        library.hold("lake", 20)
        library.run(5_000)
        assert library.span() == (20, 25)

    def test_the_slowest_consumer_decides(self) -> None:
        library = Library(retention_ms=60_000)
        library.hold("fast", 20)
        library.hold("slow", 4)
        library.fill(25)
        library.run(70_000)
        assert library.span() == (4, 25)
        library.hold("slow", None)
        library.run(5_000)
        assert library.span() == (20, 25)

    def test_beyond_the_cap_the_oldest_goes_and_the_broker_does_not_stop(self) -> None:
        library = Library(size_bytes=10 * ROW, held_bytes=20 * ROW)
        library.hold("lost", 0)
        library.fill(50)
        library.run(5_000)
        assert library.span() == (30, 50)
        library.fill(1)

    def test_a_hold_that_nobody_moves_ends(self) -> None:
        library = Library(retention_ms=60_000)
        library.hold("lost", 0, for_ms=90_000)
        library.fill(5)
        library.run(80_000)
        assert library.span() == (0, 5)
        library.run(15_000)
        assert library.span() == (5, 5)
        handle = library.store_of(library.orders).medium.journal_handle()
        assert handle.holds(key_of(library.orders)) == []

    def test_it_outlives_a_crash(self) -> None:
        library = Library(retention_ms=60_000)
        library.hold("lake", 3)
        library.fill(5)
        library.crash(library.orders)
        library.broker.journal_limits = JournalLimits(retention_ms=60_000)
        library.run(70_000)
        assert library.span() == (3, 5)

    def test_a_hold_of_a_deleted_entity_is_not_found(self) -> None:
        library = Library()
        library.delete(library.orders)
        assert library.hold("lake", 3) == "MessagingEntityNotFound"

    def test_a_hold_while_the_store_is_ill_is_refused(self) -> None:
        library = Library()
        library.store_of(library.orders).crash(finish_commit=False)
        library.store_of(library.orders).restart()
        assert library.hold("lake", 3) == "ServerBusy"
