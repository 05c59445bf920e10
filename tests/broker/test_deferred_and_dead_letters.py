"""DEF, DLQ, PEEK: messages set aside, and looking without touching."""

from __future__ import annotations

from busway.broker.seams import Settlement, SettlementKind
from busway.model.message import MessageState
from busway.store.base import SubQueueKind
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Delivered,
    SingleQueue,
)

NOT_FOUND = "MessageNotFound"
DLQ = SubQueueKind.DEAD_LETTER


def deferred_one(orders: SingleQueue, text: str = "a") -> Delivered:
    orders.send(text)
    delivered = orders.receive_one()
    assert orders.settle(delivered, DEFER) == ACCEPTED
    return delivered


def test_def_1_a_deferred_message_is_not_delivered(orders: SingleQueue) -> None:
    deferred_one(orders)
    assert orders.receive() == []
    assert orders.counters().deferred == 1
    assert orders.counters().active == 0


def test_def_2_its_number_brings_it_back_locked(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    before_ms = orders.now_ms()
    delivered = orders.lock_deferred(number)
    assert delivered.text == "a"
    assert delivered.locked_until_ms >= before_ms + 60_000
    assert orders.settle(delivered, COMPLETE) == ACCEPTED
    assert orders.counters().deferred == 0


def test_def_2_abandoned_it_is_deferred_still_and_counted(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    orders.settle(orders.lock_deferred(number), ABANDON)
    assert orders.receive() == []
    assert orders.lock_deferred(number).delivery_count == 2


def test_def_2_when_its_lock_runs_out_it_is_deferred_still_and_counted(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    orders.lock_deferred(number)
    orders.run(61_000)
    assert orders.receive() == []
    assert orders.lock_deferred(number).delivery_count == 2


def test_def_2_released_it_is_deferred_still_and_not_counted(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    orders.settle(orders.lock_deferred(number), RELEASE)
    assert orders.receive() == []
    assert orders.lock_deferred(number).delivery_count == 1


def test_def_2_it_can_be_deferred_again(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    assert orders.settle(orders.lock_deferred(number), DEFER) == ACCEPTED
    assert orders.counters().deferred == 1


def test_def_2_it_can_be_dead_lettered(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    orders.settle(orders.lock_deferred(number), DEAD_LETTER)
    assert orders.counters().deferred == 0
    assert [each.text for each in orders.dead_letters()] == ["a"]


def test_def_3_received_and_deleted_it_is_gone(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    found = orders.receive_deferred(number, delete=True)
    assert [each.text for each in found if not isinstance(each, str)] == ["a"]
    assert orders.peek() == []
    assert orders.counters().bytes == 0


def test_def_4_an_unknown_number_fails_the_whole_request(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    assert orders.receive_deferred(number, 99) == NOT_FOUND
    assert orders.lock_deferred(number).text == "a"


def test_def_4_a_number_that_is_not_deferred_is_not_found(orders: SingleQueue) -> None:
    orders.send("a")
    assert orders.receive_deferred(1) == NOT_FOUND


def test_def_4_one_that_is_locked_is_not_found(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    orders.lock_deferred(number)
    assert orders.receive_deferred(number) == NOT_FOUND


def test_def_4_the_same_number_twice_is_not_found(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    assert orders.receive_deferred(number, number) == NOT_FOUND


def test_d_1_receiving_what_is_being_deferred_waits_for_that_commit(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.start_settle(delivered, DEFER)
    assert orders.lock_deferred(delivered.number).text == "a"


def test_d_5_deferred_messages_survive_a_crash(orders: SingleQueue) -> None:
    number = deferred_one(orders).number
    orders.crash()
    assert orders.lock_deferred(number).text == "a"


def test_dlq_2_a_dead_letter_keeps_number_time_and_count(orders: SingleQueue) -> None:
    orders.send("a")
    delivered = orders.receive_one()
    orders.run(5_000)
    orders.settle(delivered, DEAD_LETTER)
    (dead,) = orders.dead_letters()
    assert (dead.text, dead.number) == ("a", delivered.number)
    assert dead.enqueued_ms == delivered.enqueued_ms
    assert dead.delivery_count == 0


def test_dlq_2_the_client_s_reason_is_among_its_properties(orders: SingleQueue) -> None:
    orders.send("a")
    why = {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very bad", "seen": 1}
    orders.settle(orders.receive_one(), Settlement(SettlementKind.DEAD_LETTER, why))
    (dead,) = orders.dead_letters()
    assert dead.properties == why


def test_dlq_2_the_move_is_one_commit_in_both_counts(orders: SingleQueue) -> None:
    orders.send("a", size=300)
    orders.settle(orders.receive_one(), DEAD_LETTER)
    assert (orders.counters().active, orders.counters().bytes) == (0, 0)
    assert (orders.counters(DLQ).active, orders.counters(DLQ).bytes) == (1, 300)


def test_dlq_1_a_dead_letter_cannot_be_dead_lettered_again(orders: SingleQueue) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), DEAD_LETTER)
    (dead,) = orders.dead_letters()
    assert orders.settle(dead, DEAD_LETTER, DLQ) == "DeadLetterTwice"
    assert orders.settle(dead, COMPLETE, DLQ) == ACCEPTED


def test_dlq_1_a_dead_letter_can_be_deferred(orders: SingleQueue) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), DEAD_LETTER)
    (dead,) = orders.dead_letters()
    assert orders.settle(dead, DEFER, DLQ) == ACCEPTED
    assert orders.counters(DLQ).deferred == 1


def test_properties_changed_by_settlements_add_up(orders: SingleQueue) -> None:
    orders.send("a")
    for name in ("first", "second"):
        changes = Settlement(SettlementKind.ABANDON, {name: True, "last": name})
        orders.settle(orders.receive_one(), changes)
    assert orders.receive_one().properties == {"first": True, "second": True, "last": "second"}


def test_peek_1_shows_every_state_in_order_and_locks_nothing(orders: SingleQueue) -> None:
    orders.send("active", "locked", "deferred")
    for delivered in orders.receive(3):
        if delivered.text == "deferred":
            orders.settle(delivered, DEFER)
        elif delivered.text == "active":
            orders.settle(delivered, RELEASE)
    seen = orders.peek()
    assert [each.text for each in seen] == ["active", "locked", "deferred"]
    assert seen[2].state is MessageState.DEFERRED
    assert [each.text for each in orders.receive()] == ["active"]


def test_peek_1_starts_at_a_number_inclusive(orders: SingleQueue) -> None:
    orders.send("a", "b", "c")
    assert [each.number for each in orders.peek(2)] == [2, 3]


def test_peek_2_is_bounded_by_count_and_size_but_shows_one(orders: SingleQueue) -> None:
    orders.send("a", "b", "c", size=1_000)
    assert len(orders.peek(count=2)) == 2
    assert len(orders.peek(size=1)) == 1


def test_peek_3_works_on_the_dead_letter_queue(orders: SingleQueue) -> None:
    orders.send("a")
    orders.settle(orders.receive_one(), DEAD_LETTER)
    assert [each.text for each in orders.peek(kind=DLQ)] == ["a"]
    assert orders.peek() == []


def test_peek_of_a_queue_that_was_never_used_shows_nothing(orders: SingleQueue) -> None:
    assert orders.peek() == []
