"""MSG-1, LOCK-2, DLV-7, SEQ, LIM-4: states, numbers and sizes as clients see them."""

from __future__ import annotations

from busway.model.message import MessageState
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import SeveralEntities, message, texts
from tests.broker.single_queue import (
    ABANDON,
    ACCEPTED,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    Hand,
)


def test_msg_1_three_states_are_told(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "locked", "deferred", "active")
    house.send(queue, "scheduled", at_ms=house.now_ms() + 60_000)
    _, second = house.receive(queue, 2)
    house.settle(queue, second, DEFER)
    states = {each.text: each.state for each in house.peek(queue)}
    assert states == {
        "locked": MessageState.ACTIVE,
        "deferred": MessageState.DEFERRED,
        "active": MessageState.ACTIVE,
        "scheduled": MessageState.SCHEDULED,
    }
    assert [state.value for state in MessageState] == [0, 1, 2]


def test_lock_2_the_time_of_a_lock_begins_at_the_broker(house: SeveralEntities) -> None:
    queue, hand = house.queue(), Hand()
    house.send(queue, "1")
    acquired_ms = house.now_ms()
    house.grant(queue, hand)
    house.run(30_000)
    (delivered,) = hand.delivered
    assert delivered.locked_until_ms == acquired_ms + 60_000


def test_dlv_7_receive_and_delete_shows_the_count_as_it_is(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    house.settle(queue, house.receive_one(queue), ABANDON)
    (delivered,) = house.receive(queue, delete=True)
    assert delivered.delivery_count == 1
    assert house.peek(queue) == []


def test_seq_4_what_was_not_committed_may_leave_a_gap(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1")
    house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
    house.start_send(queue, "refused")
    house.run(2_000)
    house.send(queue, "2")
    first, second = (each.number for each in house.peek(queue))
    assert first == 1
    assert second > first


def test_seq_5_dead_letters_keep_their_number(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "1", "2")
    _, second = house.receive(queue)
    house.settle(queue, second, DEAD_LETTER)
    (dead,) = house.dead_letters(queue)
    assert dead.number == second.number


def test_seq_5_forwarded_and_activated_messages_get_new_ones(house: SeveralEntities) -> None:
    destination = house.queue("destination")
    source = house.queue("source", forward_to="destination")
    house.send(destination, "own")
    house.send(source, "forwarded")
    house.send(destination, "scheduled", at_ms=house.now_ms() + 1_000)
    house.run(2_000)
    got = [(each.text, each.number) for each in house.peek(destination)]
    assert [text for text, _ in got] == ["own", "forwarded", "scheduled"]
    assert [number for _, number in got] == [1, 2, 4]


def test_lim_4_a_full_entity_takes_messages_again_when_it_was_drained(
    house: SeveralEntities,
) -> None:
    queue = house.queue()
    half = queue.max_size_bytes // 2
    for body in ("1", "2"):
        house.send(queue, message(body, size=half))
    refused = house.start_send(queue, "3")
    house.run()
    assert refused.outcome == "QuotaExceeded"
    assert house.settle(queue, house.receive_one(queue), COMPLETE) == ACCEPTED
    house.send(queue, "3")
    assert texts(house.receive(queue)) == ["2", "3"]


def test_lim_4_dead_letters_count_too(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, message("1", size=queue.max_size_bytes))
    house.settle(queue, house.receive_one(queue), DEAD_LETTER)
    refused = house.start_send(queue, "2")
    house.run()
    assert refused.outcome == "QuotaExceeded"
