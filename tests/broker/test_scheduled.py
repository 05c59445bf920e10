"""SCH: messages that become active later."""

from __future__ import annotations

import pytest

from busway.model.entities import EntityStatus
from busway.model.message import MessageState
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import SeveralEntities, key_of, message, texts
from tests.broker.single_queue import ACCEPTED, COMPLETE, DEFER, Hand

HOUR_MS = 3_600_000
NOT_FOUND = "ScheduledMessageNotFound"


def test_sch_1_a_scheduled_message_is_not_delivered_before_its_time(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "later", at_ms=house.now_ms() + HOUR_MS)
    assert house.receive(queue) == []
    assert (house.counters(queue).scheduled, house.counters(queue).active) == (1, 0)
    house.run(HOUR_MS)
    assert texts(house.receive(queue)) == ["later"]
    assert house.counters(queue).scheduled == 0


def test_sch_1_whoever_waits_gets_it_at_its_time(house: SeveralEntities) -> None:
    queue, hand = house.queue(), Hand()
    due_ms = house.now_ms() + HOUR_MS
    house.send(queue, "later", at_ms=due_ms)
    house.broker_of(queue).watch(key_of(queue), hand)
    house.world.run_until(lambda: hand.ready_calls > 0, HOUR_MS + 1_000)
    assert due_ms <= house.now_ms() <= due_ms + 100


def test_sch_1_a_time_that_is_over_means_now(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "now", at_ms=house.now_ms())
    house.send(queue, "then", at_ms=house.now_ms() - HOUR_MS)
    delivered = house.receive(queue)
    assert texts(delivered) == ["now", "then"]
    assert [each.number for each in delivered] == [1, 2]
    assert [each.expires_ms for each in delivered] == [None, None]


def test_sch_2_the_number_cancels_it(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "a", "b", at_ms=house.now_ms() + HOUR_MS)
    first, second = (each.number for each in house.peek(queue))
    assert house.cancel(queue, first) == ACCEPTED
    assert house.cancel(queue, first) == NOT_FOUND
    assert texts(house.peek(queue)) == ["b"]
    house.run(HOUR_MS)
    assert texts(house.receive(queue)) == ["b"]
    assert house.cancel(queue, second) == NOT_FOUND


def test_sch_2_all_of_the_numbers_or_none(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "a", at_ms=house.now_ms() + HOUR_MS)
    (only,) = (each.number for each in house.peek(queue))
    assert house.cancel(queue, only, 99) == NOT_FOUND
    assert texts(house.peek(queue)) == ["a"]


def test_sch_2_only_scheduled_messages_can_be_cancelled(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "active", "deferred")
    _, second = house.receive(queue)
    house.settle(queue, second, DEFER)
    assert house.cancel(queue, 1) == NOT_FOUND
    assert house.cancel(queue, 2) == NOT_FOUND


def test_sch_2_a_cancellation_that_meets_the_activation_waits_for_its_outcome(
    house: SeveralEntities,
) -> None:
    queue = house.queue()
    due_ms = house.now_ms() + 1_000
    house.send(queue, "a", at_ms=due_ms)
    outcomes: list[object] = []
    for early_ms in range(12):
        house.world.scheduler.at(
            due_ms + early_ms,
            lambda: house.broker_of(queue).cancel_scheduled(key_of(queue), [1], outcomes.append),
        )
    house.run(2_000)
    cancelled = outcomes.count(None)
    assert len(outcomes) == 12
    assert cancelled + len(house.receive(queue)) == 1


def test_sch_3_it_gets_a_new_number_and_time_when_it_becomes_active(house: SeveralEntities) -> None:
    queue = house.queue()
    due_ms = house.now_ms() + HOUR_MS
    house.send(queue, "later", at_ms=due_ms)
    house.send(queue, "now")
    house.run(HOUR_MS)
    now, later = house.receive(queue)
    assert (now.text, now.number) == ("now", 2)
    assert (later.text, later.number) == ("later", 3)
    assert due_ms <= later.enqueued_ms <= due_ms + 100


def test_sch_5_peek_shows_it_as_scheduled(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "later", at_ms=house.now_ms() + HOUR_MS)
    (peeked,) = house.peek(queue)
    assert peeked.state is MessageState.SCHEDULED


def test_sch_7_once_active_it_is_shown_as_active(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "later", at_ms=house.now_ms() + 1_000)
    house.run(1_100)
    (peeked,) = house.peek(queue)
    assert peeked.state is MessageState.ACTIVE


def test_sch_8_a_disabled_entity_still_activates(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "later", at_ms=house.now_ms() + 1_000)
    house.update(queue, status=EntityStatus.DISABLED)
    house.run(2_000)
    assert house.counters(queue).active == 1


def test_ttl_3_its_time_to_live_begins_when_it_becomes_active(house: SeveralEntities) -> None:
    queue = house.queue(dead_lettering_on_expiration=True)
    due_ms = house.now_ms() + HOUR_MS
    house.send(queue, "later", at_ms=due_ms, ttl_ms=10_000)
    house.run(HOUR_MS + 5_000)
    (active,) = house.peek(queue)
    assert active.expires_ms == active.enqueued_ms + 10_000
    house.run(6_000)
    assert texts(house.dead_letters(queue)) == ["later"]


def test_sch_1_scheduled_messages_survive_a_crash(house: SeveralEntities) -> None:
    queue = house.queue()
    house.send(queue, "soon", at_ms=house.now_ms() + 60_000)
    house.send(queue, "late", at_ms=house.now_ms() + HOUR_MS)
    house.crash(queue)
    house.run(60_000)
    assert texts(house.receive(queue)) == ["soon"]
    house.run(HOUR_MS)
    assert house.counters(queue).scheduled == 0


def test_sch_1_what_fell_due_while_nobody_was_there_is_active_at_once(
    house: SeveralEntities,
) -> None:
    queue = house.queue()
    house.send(queue, "due", at_ms=house.now_ms() + 60_000)
    store = house.store_of(queue)
    store.crash(finish_commit=False)
    house.run(HOUR_MS)
    store.restart()
    house.run(1_000)
    assert texts(house.receive(queue)) == ["due"]


@pytest.mark.parametrize("outcome", list(CommitOutcome))
def test_sch_3_an_activation_happens_once_however_its_commit_ends(
    house: SeveralEntities, outcome: CommitOutcome
) -> None:
    queue = house.queue()
    house.send(queue, "later", at_ms=house.now_ms() + 10_000)
    house.run(9_000)
    house.store_of(queue).next_commits_end(outcome)
    house.run(10_000)
    assert texts(house.receive(queue)) == ["later"]
    assert (house.counters(queue).scheduled, house.counters(queue).active) == (0, 1)


def test_sch_1_many_at_once_become_active_in_their_order(house: SeveralEntities) -> None:
    queue = house.queue()
    due_ms = house.now_ms() + HOUR_MS
    expected = [str(number) for number in range(1_500)]
    for start in range(0, 1_500, 500):
        house.send(
            queue, *(message(body, at_ms=due_ms, size=10) for body in expected[start : start + 500])
        )
    assert house.counters(queue).scheduled == 1_500
    house.run(HOUR_MS + 10_000)
    assert house.counters(queue).active == 1_500
    got = texts(house.receive(queue, 2_000))
    assert got == expected


def test_sch_1_other_work_goes_on_while_many_become_active(house: SeveralEntities) -> None:
    queue, other = house.queue(), house.queue("other")
    due_ms = house.now_ms() + 60_000
    for _ in range(4):
        house.send(queue, *(message("x", at_ms=due_ms, size=10) for _ in range(500)))
    house.run(60_050)
    command = house.start_send(other, "hello")
    house.run(50)
    assert command.outcome == ACCEPTED


def test_sch_1_a_scheduled_message_of_a_session_belongs_to_it_when_it_is_active(
    house: SeveralEntities,
) -> None:
    queue = house.queue(requires_session=True)
    house.send(queue, "later", session_id="a", at_ms=house.now_ms() + 60_000)
    assert house.accept(queue) is None
    assert house.sessions(queue) == []
    house.run(61_000)
    holder = house.hold(queue)
    assert holder.session_id == "a"
    delivered = house.receive_one(queue, holder=holder)
    assert house.settle(queue, delivered, COMPLETE) == ACCEPTED
    house.leave(queue, holder)
    assert house.sessions(queue) == []
