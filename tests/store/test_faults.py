"""A store that is told to be slow, ill or gone, and scripted ends of commits (D-8, D-35)."""

from __future__ import annotations

import pytest

from busway.store.base import CommitRefused, CommitUnknown, StoreUnavailable
from busway.store.faults import CommitOutcome, Fault, FaultyStore
from busway.store.memory import MemoryDisk, MemoryStore
from tests.store.places import MAIN, Owner, message, number, two_sub_queues


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def store(pauses: list[float]) -> FaultyStore:
    return FaultyStore(MemoryStore(MemoryDisk()), pause=pauses.append)


@pytest.fixture
def owner(store: FaultyStore) -> Owner:
    owner = Owner(store)
    owner.commit(**two_sub_queues())
    return owner


def put(owner: Owner, counter: int) -> None:
    owner.commit(puts=[(MAIN, message(counter))])


class TestSlow:
    def test_every_call_waits(self, store: FaultyStore, owner: Owner, pauses: list[float]) -> None:
        store.be(Fault.SLOW, delay_s=0.25)
        put(owner, 1)
        assert owner.numbers() == [number(1)]
        store.read_numbers(MAIN, [])
        store.read_expiring(None, 0)
        store.read_session_state(MAIN, "s")
        store.read_duplicates(MAIN, b"", 0)
        store.find_duplicates(MAIN, [], 0)
        store.free_bytes()
        store.open()
        assert pauses == [0.25] * 9

    def test_a_store_that_is_not_slow_any_more_does_not_wait(
        self, store: FaultyStore, owner: Owner, pauses: list[float]
    ) -> None:
        store.be(Fault.SLOW, delay_s=1)
        store.be(Fault.NONE)
        put(owner, 1)
        assert pauses == []

    def test_without_a_way_to_wait_it_cannot_be_slow(self) -> None:
        with pytest.raises(ValueError, match="cannot be slow"):
            FaultyStore(MemoryStore()).be(Fault.SLOW, delay_s=1)


class TestIll:
    def test_commits_are_refused_and_reads_unavailable(
        self, store: FaultyStore, owner: Owner
    ) -> None:
        store.be(Fault.ILL)
        with pytest.raises(CommitRefused):
            put(owner, 1)
        with pytest.raises(StoreUnavailable):
            owner.numbers()
        with pytest.raises(StoreUnavailable):
            store.read_session_state(MAIN, "s")
        with pytest.raises(StoreUnavailable):
            store.read_duplicates(MAIN, b"", 0)
        with pytest.raises(StoreUnavailable):
            store.find_duplicates(MAIN, [], 0)
        with pytest.raises(StoreUnavailable):
            store.free_bytes()

    def test_it_gets_well_without_being_opened(self, store: FaultyStore, owner: Owner) -> None:
        store.be(Fault.ILL)
        with pytest.raises(CommitRefused):
            put(owner, 1)
        store.be(Fault.NONE)
        put(owner, 1)
        assert owner.numbers() == [number(1)]


class TestGone:
    def test_every_call_fails_also_open(self, store: FaultyStore, owner: Owner) -> None:
        store.be(Fault.GONE)
        with pytest.raises(StoreUnavailable):
            owner.numbers()
        with pytest.raises(StoreUnavailable):
            store.open()
        with pytest.raises(StoreUnavailable):
            store.read_expiring(None, 0)
        store.close()

    def test_a_commit_is_unknown_and_the_handle_lost(
        self, store: FaultyStore, owner: Owner
    ) -> None:
        store.be(Fault.GONE)
        with pytest.raises(CommitUnknown):
            put(owner, 1)
        store.be(Fault.NONE)
        with pytest.raises(StoreUnavailable):
            put(owner, 1)
        with pytest.raises(StoreUnavailable):
            owner.numbers()
        assert Owner(store).opened.commit_number == 1

    def test_a_commit_under_way_becomes_unknown(self) -> None:
        class LeavesMeanwhile(MemoryStore):
            def commit(self, batch: object) -> None:
                super().commit(batch)  # type: ignore[arg-type]
                faulty.be(Fault.GONE)

        faulty = FaultyStore(LeavesMeanwhile())
        owner = Owner(faulty)
        with pytest.raises(CommitUnknown):
            owner.commit(**two_sub_queues())
        faulty.be(Fault.NONE)
        assert faulty.open().commit_number == 1

    def test_one_that_leaves_while_it_is_slow_is_unknown_too(self) -> None:
        faulty = FaultyStore(MemoryStore(), pause=lambda _: faulty.be(Fault.GONE))
        owner = Owner(faulty)
        faulty.be(Fault.SLOW, delay_s=1)
        with pytest.raises(CommitUnknown):
            owner.commit(**two_sub_queues())
        faulty.be(Fault.NONE)
        assert faulty.open().commit_number == 0


class TestScripted:
    def test_refused_is_not_there_and_the_handle_goes_on(
        self, store: FaultyStore, owner: Owner
    ) -> None:
        store.script(CommitOutcome.REFUSED)
        with pytest.raises(CommitRefused):
            put(owner, 1)
        assert owner.numbers() == []
        put(owner, 1)

    @pytest.mark.parametrize(
        ("outcome", "commit_number", "there"),
        [
            (CommitOutcome.UNKNOWN_DONE, 2, [number(1)]),
            (CommitOutcome.UNKNOWN_NOT_DONE, 1, []),
        ],
    )
    def test_unknown_is_settled_by_the_commit_number(
        self,
        store: FaultyStore,
        owner: Owner,
        outcome: CommitOutcome,
        commit_number: int,
        there: list[int],
    ) -> None:
        store.script(outcome)
        with pytest.raises(CommitUnknown):
            put(owner, 1)
        with pytest.raises(StoreUnavailable):
            owner.numbers()
        again = Owner(store)
        assert again.opened.commit_number == commit_number
        assert again.numbers() == there

    def test_each_outcome_is_used_once_in_order(self, store: FaultyStore, owner: Owner) -> None:
        store.script(CommitOutcome.REFUSED, CommitOutcome.UNKNOWN_DONE)
        with pytest.raises(CommitRefused):
            put(owner, 1)
        with pytest.raises(CommitUnknown):
            put(owner, 1)
        put(Owner(store), 2)
