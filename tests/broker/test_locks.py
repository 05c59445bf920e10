"""LOCK, DLV: what holds a message, for how long, and what it counts."""

from __future__ import annotations

import pytest

from busway.broker.locks import token_partition
from busway.model.errors import BusError
from busway.store.base import SubQueueKind
from busway.store.faults import CommitOutcome
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEFER,
    RELEASE,
    SingleQueue,
)

MINUTE_MS = 60_000


def test_lock_1_a_delivery_is_locked_for_the_lock_duration(orders: SingleQueue) -> None:
    orders.send("a")
    before_ms = orders.now_ms()
    delivered = orders.receive_one()
    assert delivered.locked_until_ms == before_ms + MINUTE_MS
    assert len(delivered.token) == 16
    assert token_partition(delivered.token) == 0


def test_lock_8_a_locked_message_is_invisible_to_others(orders: SingleQueue) -> None:
    orders.send("a")
    orders.receive_one()
    assert orders.receive() == []


def test_lock_3_renewing_counts_from_now(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.run(30_000)
    (until_ms,) = orders.broker.renew(orders.key(), [delivered.token])
    assert until_ms == orders.now_ms() + MINUTE_MS


def test_lock_3_a_renewed_lock_holds_past_its_first_expiry(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.run(50_000)
    orders.broker.renew(orders.key(), [delivered.token])
    orders.run(50_000)
    assert orders.receive() == []
    assert orders.settle(delivered) == ACCEPTED


def test_lock_3_an_expired_lock_cannot_be_renewed(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.run(MINUTE_MS)
    with pytest.raises(BusError) as caught:
        orders.broker.renew(orders.key(), [delivered.token])
    assert caught.value.kind.name == "MessageLockLost"


def test_lock_3_renewing_several_is_all_or_none(orders: SingleQueue) -> None:
    orders.send("a", "b")
    first, second = orders.receive(2)
    orders.settle(second)
    orders.run(30_000)
    with pytest.raises(BusError):
        orders.broker.renew(orders.key(), [first.token, second.token])
    orders.run(first.locked_until_ms - orders.now_ms() + 50)
    assert orders.receive_one().delivery_count == 1


def test_lock_4_after_expiry_it_is_delivered_again_and_counted(orders: SingleQueue) -> None:
    orders.send("a")
    assert orders.receive_one().delivery_count == 0
    orders.run(MINUTE_MS + 50)
    assert orders.receive_one().delivery_count == 1


def test_lock_5_settling_after_expiry_is_lock_lost(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.run(MINUTE_MS)
    assert orders.settle(delivered) == "MessageLockLost"


def test_lock_5_settling_twice_is_lock_lost_the_second_time(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    assert orders.settle(delivered) == ACCEPTED
    assert orders.settle(delivered) == "MessageLockLost"


def test_lock_5_a_token_of_another_sub_queue_is_lock_lost(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    assert orders.settle(delivered, COMPLETE, SubQueueKind.DEAD_LETTER) == "MessageLockLost"


def test_locks_that_run_out_in_another_order_than_they_were_taken() -> None:
    orders = SingleQueue(lock_duration_ms=10_000)
    orders.send("a", "b", "c")
    first, _second, third = orders.receive(3)
    orders.run(5_000)
    orders.broker.renew(orders.key(), [first.token])
    orders.run(5_100)
    assert [each.text for each in orders.receive()] == ["b", "c"]
    assert orders.settle(first) == ACCEPTED
    assert orders.settle(third) == "MessageLockLost"


def test_dlv_1_a_first_delivery_shows_none(orders: SingleQueue) -> None:
    orders.send("a")
    assert orders.receive_one().delivery_count == 0


def test_dlv_1_abandoning_counts(orders: SingleQueue) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    assert orders.receive_one().delivery_count == 1


def test_dlv_1_releasing_does_not_count(orders: SingleQueue) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), RELEASE)
    assert orders.receive_one().delivery_count == 0


def test_dlv_1_renewing_and_peeking_do_not_count(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.broker.renew(orders.key(), [delivered.token])
    orders.peek()
    orders.settle(delivered, RELEASE)
    assert orders.receive_one().delivery_count == 0


def test_dlv_1_deferring_counts_and_never_dead_letters() -> None:
    orders = SingleQueue(max_delivery_count=2)
    orders.send("a")
    delivered = orders.receive_one()
    number = delivered.number
    for count in (1, 2, 3):
        orders.settle(delivered, DEFER)
        delivered = orders.lock_deferred(number)
        assert delivered.delivery_count == count


def test_dlv_3_the_last_allowed_abandon_dead_letters() -> None:
    orders = SingleQueue(max_delivery_count=2)
    orders.send("a")
    for count in (0, 1):
        delivered = orders.receive_one()
        assert delivered.delivery_count == count
        orders.settle(delivered, ABANDON)
    assert orders.receive() == []
    assert [each.text for each in orders.dead_letters()] == ["a"]


def test_dlv_3_with_a_maximum_of_one_the_first_abandon_dead_letters() -> None:
    orders = SingleQueue(max_delivery_count=1)
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    assert [each.delivery_count for each in orders.dead_letters()] == [1]


def test_dlv_3_lock_expiry_counts_towards_the_maximum() -> None:
    orders = SingleQueue(max_delivery_count=1, lock_duration_ms=5_000)
    orders.send("a")
    orders.receive_one()
    orders.run(5_100)
    assert [each.text for each in orders.dead_letters()] == ["a"]


def test_dlv_5_the_reason_is_the_service_s() -> None:
    orders = SingleQueue(max_delivery_count=1)
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    (dead,) = orders.dead_letters()
    assert dead.properties == {
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 1 delivery attempts.",
    }


def test_dlv_6_dead_letters_go_on_counting_and_stay() -> None:
    orders = SingleQueue(max_delivery_count=1)
    orders.send("a")
    orders.settle(orders.receive_one(), ABANDON)
    for count in (1, 2, 3):
        (dead,) = orders.dead_letters()
        assert dead.delivery_count == count
        orders.settle(dead, ABANDON, SubQueueKind.DEAD_LETTER)
    assert orders.counters(SubQueueKind.DEAD_LETTER).active == 1


def test_a_lock_whose_settlement_was_refused_still_runs_out_once(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    assert orders.settle(delivered) == "ServerBusy"
    orders.run(MINUTE_MS)
    assert orders.receive_one().delivery_count == 1


def test_locks_whose_settlements_were_refused_late_run_out_at_once() -> None:
    """Each in its own time, though the store answered when one of them was over already."""
    orders = SingleQueue(lock_duration_ms=20_000)
    orders.send("a", "b")
    first = orders.receive_one()
    orders.run(first.locked_until_ms - orders.now_ms() - 2_000)
    second = orders.receive_one()
    orders.store.next_commits_end(CommitOutcome.REFUSED)
    orders.store.hang()
    orders.start_settle(first)
    orders.start_settle(second)
    orders.run(3_000)
    orders.store.recover()
    orders.run(1_000)
    assert [each.text for each in orders.receive()] == ["a"]
