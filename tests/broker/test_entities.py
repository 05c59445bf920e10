"""D-16: entities that come, go and come again under the same name."""

from __future__ import annotations

import pytest

from busway.broker import window
from busway.broker.seams import Settlement
from busway.model.entities import Queue
from busway.sim.checkers.at_rest import check_at_rest
from busway.store.base import PURGE_ROWS, SubQueueKind
from busway.store.faults import CommitOutcome
from busway.store.memory import MemoryStore
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Hand,
    SingleQueue,
)


def delete(orders: SingleQueue) -> None:
    orders.world.delete_queue(orders.queue)


def rows_left(orders: SingleQueue) -> int:
    """Of all sub-queues, as the next owner of the store would find them."""
    store = MemoryStore(orders.store.medium)
    records = store.open().sub_queues
    return sum(len(store.read_page(each.slot, 0, state=None)) for each in records) + len(records)


def test_d_16_a_deleted_queue_takes_no_sends(orders: SingleQueue) -> None:
    orders.send("a")
    delete(orders)
    assert orders.start_send("b").outcome == "MessagingEntityNotFound"


def test_d_16_a_deleted_queue_gives_nothing(orders: SingleQueue) -> None:
    orders.send("a")
    delete(orders)
    hand = Hand()
    grant = orders.grant(hand)
    assert hand.texts == []
    assert hand.finished_grants == [grant]


def test_d_16_the_store_forgets_a_deleted_queue(orders: SingleQueue) -> None:
    orders.send("a", "b")
    orders.settle(orders.receive_one(), DEAD_LETTER)
    delete(orders)
    orders.run(5_000)
    assert orders.world.purges_under_way == set()
    assert rows_left(orders) == 0


def test_d_16_purging_goes_in_steps(orders: SingleQueue) -> None:
    for _ in range(3):
        orders.send(*(str(index) for index in range(PURGE_ROWS)))
    before = orders.store.medium.commit_number
    delete(orders)
    orders.run(5_000)
    assert orders.store.medium.commit_number - before >= 3
    assert rows_left(orders) == 0


@pytest.mark.parametrize("outcome", list(CommitOutcome))
@pytest.mark.parametrize("after_commits", [0, 1])
def test_d_16_a_purge_is_done_only_when_nothing_is_left(
    outcome: CommitOutcome, after_commits: int
) -> None:
    orders = SingleQueue()
    orders.send("a", "b")
    if after_commits == 0:
        orders.store.next_commits_end(outcome)
    delete(orders)
    if after_commits:
        before = orders.store.medium.commit_number
        orders.world.run_until(lambda: orders.store.medium.commit_number > before)
        orders.store.next_commits_end(outcome)
    orders.run(10_000)
    assert orders.world.purges_under_way == set()
    assert rows_left(orders) == 0


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_d_16_a_purge_behind_a_commit_that_failed_is_not_done(outcome: CommitOutcome) -> None:
    orders = SingleQueue()
    orders.send("a", "b")
    orders.store.hang()
    orders.start_send("c")
    orders.run(10)
    delete(orders)
    orders.store.next_commits_end(outcome)
    orders.store.recover()
    orders.run(10_000)
    assert orders.world.purges_under_way == set()
    assert rows_left(orders) == 0


def test_d_16_a_purge_goes_on_after_a_crash(orders: SingleQueue) -> None:
    for _ in range(3):
        orders.send(*(str(index) for index in range(PURGE_ROWS)))
    before = orders.store.medium.commit_number
    delete(orders)
    orders.world.run_until(lambda: orders.store.medium.commit_number > before + 1)
    orders.crash()
    orders.run(10_000)
    assert orders.world.purges_under_way == set()
    assert rows_left(orders) == 0


def test_d_16_recreated_it_is_empty_and_numbers_start_again(orders: SingleQueue) -> None:
    orders.send("old")
    old_key = orders.key()
    delete(orders)
    orders.queue = orders.world.create_queue(Queue(path="orders"))
    assert orders.key() != old_key
    orders.send("new")
    assert [(each.text, each.number) for each in orders.receive()] == [("new", 1)]


def test_d_16_a_token_of_the_old_queue_is_lost_in_the_new_one(orders: SingleQueue) -> None:
    orders.send("old")
    delivered = orders.receive_one()
    delete(orders)
    orders.queue = orders.world.create_queue(Queue(path="orders"))
    orders.send("new")
    assert orders.settle(delivered) == "MessageLockLost"
    assert [each.text for each in orders.receive()] == ["new"]


@pytest.mark.parametrize("settlement", [COMPLETE, ABANDON, DEFER, DEAD_LETTER, RELEASE])
@pytest.mark.parametrize("delay_ms", [0, 2, 5, 200])
def test_d_16_settling_what_is_being_purged_harms_nobody_else(
    settlement: Settlement, delay_ms: int
) -> None:
    """Its batch would be refused whole, other queues' messages with it."""
    orders = SingleQueue()
    other = orders.world.create_queue(Queue(path="other"))
    orders.send("a", "b", ttl_ms=1_000)
    delivered = orders.receive_one()
    orders.run(1_500)
    old_queue = orders.queue
    delete(orders)
    orders.run(delay_ms)
    settled = orders.start_settle(delivered, settlement)
    orders.queue = other
    sent = orders.start_send("innocent")
    orders.queue = old_queue
    orders.run(5_000)
    assert settled.outcome in ("MessagingEntityNotFound", "MessageLockLost")
    assert sent.outcome == ACCEPTED
    assert orders.world.purges_under_way == set()


def test_d_16_deleting_while_a_grant_waits_for_a_page_finishes_it(
    orders: SingleQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "WINDOW_MESSAGES", 2)
    orders.send(*"abcdef")
    hand = Hand()
    grant = orders.grant(hand, 100)
    assert hand.finished_grants == []
    delete(orders)
    orders.run(5_000)
    assert hand.finished_grants == [grant]
    assert rows_left(orders) == 0


def test_d_16_locks_of_a_deleted_queue_run_out_into_nothing(orders: SingleQueue) -> None:
    orders.send("a", "b", ttl_ms=90_000)
    orders.receive(1)
    orders.store.hang()
    delete(orders)
    orders.run(70_000)
    orders.store.recover()
    orders.run(100_000)
    assert orders.world.purges_under_way == set()


def test_d_16_an_update_holds_for_what_is_there_already(orders: SingleQueue) -> None:
    orders.send("a")
    changed = Queue(path="orders", lock_duration_ms=5_000, max_delivery_count=1)
    orders.world.catalog.update(changed, orders.now_ms())
    orders.receive_one()
    orders.run(5_100)
    assert orders.counters(SubQueueKind.DEAD_LETTER).active == 1


def test_d_16_a_purged_queue_gives_back_its_share_of_memory(orders: SingleQueue) -> None:
    orders.send("a", "b", "c")
    delete(orders)
    orders.run(5_000)
    check_at_rest(orders.store, lambda _, message: message.number)
