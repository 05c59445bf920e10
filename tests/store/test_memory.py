"""What the memory store adds: a disk that can lose what was not synced, at any size."""

from __future__ import annotations

import pytest

from busway.model.message import MessageState
from busway.store.base import Counters, Delete, Move, StoreUnavailable, Update
from busway.store.memory import MemoryDisk, MemoryStore
from busway.store.ordered import OrderedKeys
from tests.store.places import DEAD, MAIN, Owner, facts, message, number, two_sub_queues


def owner_of(disk: MemoryDisk) -> Owner:
    owner = Owner(MemoryStore(disk))
    owner.commit(**two_sub_queues())
    disk.sync()
    return owner


def test_a_commit_survives_a_crash_by_default() -> None:
    disk = MemoryDisk()
    owner = owner_of(disk)
    owner.commit(puts=[(MAIN, message(1))])
    disk.crash()
    assert Owner(MemoryStore(disk)).numbers() == [number(1)]


def test_a_crash_forgets_what_was_not_synced() -> None:
    disk = MemoryDisk(sync_each_commit=False)
    owner = owner_of(disk)
    owner.commit(puts=[(MAIN, message(1))])
    disk.sync()
    owner.commit(puts=[(MAIN, message(2))])
    disk.crash()
    after = Owner(MemoryStore(disk))
    assert after.opened.commit_number == 2
    assert after.numbers() == [number(1)]


@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_a_crash_may_keep_the_first_of_the_unsynced_commits(keep: int) -> None:
    disk = MemoryDisk(sync_each_commit=False)
    owner = owner_of(disk)
    for counter in (1, 2, 3):
        owner.commit(puts=[(MAIN, message(counter))])
    assert disk.unsynced == 3
    disk.crash(keep)
    after = Owner(MemoryStore(disk))
    assert after.opened.commit_number == 1 + keep
    assert after.numbers() == [number(counter) for counter in (1, 2, 3)[:keep]]


def test_every_kind_of_change_is_forgotten_whole() -> None:
    disk = MemoryDisk(sync_each_commit=False)
    owner = owner_of(disk)
    kept = [message(1, expires_ms=5), message(2, expires_ms=6), message(3), message(4)]
    owner.commit(puts=[(MAIN, each) for each in kept], counters={MAIN: Counters(5, 4)})
    disk.sync()
    owner.commit(
        time_ms=99,
        deletes=[Delete(MAIN, number(1))],
        moves=[Move(MAIN, number(2), DEAD, message(2, delivery_count=1, changes=b""))],
        updates=[Update(MAIN, number(3), MessageState.DEFERRED, 1, None, None)],
        counters={MAIN: Counters(9, 9)},
    )
    owner.commit(purges=[MAIN, DEAD])
    disk.crash()
    after = Owner(MemoryStore(disk))
    assert after.opened.time_ms == 0
    assert [record.slot for record in after.opened.sub_queues] == [MAIN, DEAD]
    assert after.opened.sub_queues[0].counters == Counters(5, 4)
    read = after.store.read_page(MAIN, 0, state=None)
    assert [facts(each) for each in read] == [facts(each) for each in kept]
    assert after.numbers(DEAD) == []
    assert after.numbers(state=MessageState.DEFERRED) == []
    assert [row.expires_ms for row in after.store.read_expiring(None, 9).rows] == [5, 6]


def test_a_handle_from_before_the_crash_must_be_opened_again() -> None:
    disk = MemoryDisk()
    owner = owner_of(disk)
    disk.crash()
    with pytest.raises(StoreUnavailable):
        owner.store.read_page(MAIN, 0)
    with pytest.raises(StoreUnavailable):
        owner.store.commit(owner.batch())
    assert Owner(owner.store).opened.epoch == 2


def test_opening_syncs_what_came_before() -> None:
    disk = MemoryDisk(sync_each_commit=False)
    owner = owner_of(disk)
    owner.commit(puts=[(MAIN, message(1))])
    MemoryStore(disk).open()
    disk.crash()
    assert Owner(MemoryStore(disk)).numbers() == [number(1)]


class TestOrderedKeys:
    def test_keys_ascend_and_dead_ones_are_skipped(self) -> None:
        keys: OrderedKeys[int] = OrderedKeys()
        for key in (5, 1, 3, 9):
            keys.add(key)
        keys.discard(3)
        assert list(keys.after(None)) == [1, 5, 9]
        assert list(keys.after(1)) == [5, 9]

    def test_a_dead_key_can_come_back(self) -> None:
        keys: OrderedKeys[int] = OrderedKeys()
        for key in (1, 2, 3):
            keys.add(key)
        keys.discard(2)
        keys.add(2)
        keys.add(2)
        assert list(keys.after(None)) == [1, 2, 3]
        assert len(keys) == 3

    def test_dead_keys_do_not_pile_up(self) -> None:
        keys: OrderedKeys[int] = OrderedKeys()
        for key in range(10_000):
            keys.add(key)
        for key in range(9_990):
            keys.discard(key)
        assert list(keys.after(None)) == list(range(9_990, 10_000))
        assert len(keys._keys) < 200
