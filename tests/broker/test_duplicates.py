"""DUP: message ids that a queue or topic has accepted lately."""

from __future__ import annotations

import pytest

from busway.model.entities import Queue
from busway.store.faults import CommitOutcome
from tests.broker.several_entities import SeveralEntities, message, texts
from tests.broker.single_queue import ACCEPTED, COMPLETE

MINUTE_MS = 60_000


@pytest.fixture
def queue(house: SeveralEntities) -> Queue:
    return house.queue(requires_duplicate_detection=True)


def test_dup_3_a_duplicate_is_accepted_and_dropped(house: SeveralEntities, queue: Queue) -> None:
    house.send(queue, "first", message_id="1")
    house.send(queue, "again", message_id="1")
    house.send(queue, "other", message_id="2")
    assert texts(house.receive(queue)) == ["first", "other"]


def test_dup_2_the_id_counts_whatever_the_session(house: SeveralEntities) -> None:
    queue = house.queue(requires_duplicate_detection=True, requires_session=True)
    house.send(queue, "first", message_id="1", session_id="a")
    house.send(queue, "again", message_id="1", session_id="b")
    assert texts(house.peek(queue)) == ["first"]


def test_dup_1_after_the_window_an_id_is_new(house: SeveralEntities, queue: Queue) -> None:
    house.send(queue, "first", message_id="1")
    house.run(10 * MINUTE_MS - 1_000)
    house.send(queue, "within", message_id="1")
    house.run(2_000)
    house.send(queue, "after", message_id="1")
    assert texts(house.receive(queue)) == ["first", "after"]


def test_dup_3_a_duplicate_does_not_begin_the_window_anew(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(queue, "first", message_id="1")
    house.run(9 * MINUTE_MS)
    house.send(queue, "within", message_id="1")
    house.run(2 * MINUTE_MS)
    house.send(queue, "after", message_id="1")
    assert texts(house.receive(queue)) == ["first", "after"]


def test_dup_1_a_shorter_window_holds_for_what_comes_next(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(queue, "long", message_id="long")
    house.update(queue, duplicate_window_ms=20_000)
    house.send(queue, "short", message_id="short")
    house.run(30_000)
    house.send(queue, "short again", message_id="short")
    house.send(queue, "long again", message_id="long")
    assert texts(house.receive(queue)) == ["long", "short", "short again"]


def test_dup_4_messages_without_an_id_are_never_duplicates(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(queue, "a")
    house.send(queue, "b")
    assert texts(house.receive(queue)) == ["a", "b"]


def test_dup_3_of_a_batch_the_first_of_each_id_stays(house: SeveralEntities, queue: Queue) -> None:
    house.send(queue, "old", message_id="0")
    house.send(
        queue,
        message("a", message_id="1"),
        message("a again", message_id="1"),
        message("old again", message_id="0"),
        message("b", message_id="2"),
    )
    delivered = house.receive(queue)
    assert texts(delivered) == ["old", "a", "b"]
    assert [each.number for each in delivered] == [1, 2, 3]


def test_dup_5_completing_does_not_clear_the_history(house: SeveralEntities, queue: Queue) -> None:
    house.send(queue, "first", message_id="1")
    house.settle(queue, house.receive_one(queue), COMPLETE)
    house.send(queue, "again", message_id="1")
    assert house.receive(queue) == []


def test_dup_5_scheduled_and_immediate_messages_share_it(
    house: SeveralEntities, queue: Queue
) -> None:
    """SCH-6: a scheduled message counts from when it was sent; cancelling does not clear it."""
    house.send(queue, "later", message_id="1", at_ms=house.now_ms() + MINUTE_MS)
    house.send(queue, "now", message_id="1")
    assert house.receive(queue) == []
    (scheduled,) = house.peek(queue)
    assert house.cancel(queue, scheduled.number) == ACCEPTED
    house.send(queue, "still", message_id="1")
    assert house.peek(queue) == []


def test_dup_5_an_activated_message_is_no_duplicate_of_itself(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(queue, "later", message_id="1", at_ms=house.now_ms() + 1_000)
    house.run(2_000)
    assert texts(house.receive(queue)) == ["later"]


def test_dup_1_the_history_survives_a_crash(house: SeveralEntities, queue: Queue) -> None:
    house.send(queue, "first", message_id="1")
    house.run(5 * MINUTE_MS)
    house.crash(queue)
    house.send(queue, "again", message_id="1")
    house.run(5 * MINUTE_MS)
    house.send(queue, "after", message_id="1")
    assert texts(house.receive(queue)) == ["first", "after"]


def test_d_13_a_history_of_many_pages_is_read_before_the_first_send(
    house: SeveralEntities, queue: Queue
) -> None:
    for start in range(0, 2_500, 500):
        house.send(
            queue,
            *(
                message("x", message_id=str(number), size=10)
                for number in range(start, start + 500)
            ),
        )
    house.crash(queue)
    commands = [
        house.start_send(queue, "again", message_id=str(number)) for number in range(0, 2_500, 100)
    ]
    fresh = house.start_send(queue, "fresh", message_id="new")
    house.run()
    assert {command.outcome for command in commands} == {ACCEPTED}
    assert fresh.outcome == ACCEPTED
    assert house.counters(queue).active == 2_501


def test_d_1_a_second_copy_waits_for_the_outcome_of_the_first(
    house: SeveralEntities, queue: Queue
) -> None:
    first = house.start_send(queue, "first", message_id="1")
    second = house.start_send(queue, "second", message_id="1")
    assert second.outcome is None, "accepted before the first was durable"
    house.run()
    assert (first.outcome, second.outcome) == (ACCEPTED, ACCEPTED)
    assert texts(house.receive(queue)) == ["first"]


def test_d_1_if_the_first_was_refused_the_second_is_not_a_duplicate(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(queue, "before", message_id="0")
    house.store_of(queue).next_commits_end(CommitOutcome.REFUSED)
    first = house.start_send(queue, "first", message_id="1")
    second = house.start_send(queue, "second", message_id="1")
    house.run(2_000)
    assert first.outcome == "ServerBusy"
    if second.outcome != ACCEPTED:
        house.send(queue, "second", message_id="1")
    assert texts(house.receive(queue)) == ["before", "second"]


@pytest.mark.parametrize(
    ("outcome", "answer", "expected"),
    [
        (CommitOutcome.REFUSED, "ServerBusy", ["again"]),
        (CommitOutcome.UNKNOWN_NOT_DONE, "ServerBusy", ["again"]),
        (CommitOutcome.UNKNOWN_DONE, ACCEPTED, ["first"]),
    ],
)
def test_dup_7_history_and_message_are_one_commit(
    house: SeveralEntities, queue: Queue, outcome: CommitOutcome, answer: str, expected: list[str]
) -> None:
    house.store_of(queue).next_commits_end(outcome)
    first = house.start_send(queue, "first", message_id="1")
    house.run(2_000)
    assert first.outcome == answer
    house.send(queue, "again", message_id="1")
    assert texts(house.receive(queue)) == expected


def test_dup_7_a_send_that_was_refused_for_its_size_leaves_no_history(
    house: SeveralEntities, queue: Queue
) -> None:
    too_much = house.start_send(queue, message("big", message_id="1", size=2 << 30))
    house.run()
    assert too_much.outcome == "QuotaExceeded"
    house.send(queue, "small", message_id="1")
    assert texts(house.receive(queue)) == ["small"]


def test_dup_1_on_a_topic_before_the_fan_out(house: SeveralEntities) -> None:
    topic = house.topic(requires_duplicate_detection=True)
    subscription = house.subscription(topic, "all")
    house.send(topic, "first", message_id="1")
    house.send(topic, "again", message_id="1")
    house.crash(topic)
    house.send(topic, "and again", message_id="1")
    assert texts(house.receive(subscription)) == ["first"]


def test_dup_1_a_topic_without_subscriptions_remembers_too(house: SeveralEntities) -> None:
    topic = house.topic(requires_duplicate_detection=True)
    house.send(topic, "nobody's", message_id="1")
    subscription = house.subscription(topic, "late")
    house.crash(topic)
    house.send(topic, "again", message_id="1")
    house.send(topic, "new", message_id="2")
    assert texts(house.receive(subscription)) == ["new"]


def test_d_13_a_send_that_waits_for_the_history_of_a_lost_store_is_answered_once(
    house: SeveralEntities, queue: Queue
) -> None:
    house.send(queue, "first", message_id="1")
    house.crash(queue)
    other = house.queue("other")
    house.store_of(queue).next_commits_end(CommitOutcome.UNKNOWN_NOT_DONE)
    lost = house.start_send(other, "lost")
    house.run(0)
    waiting = house.start_send(queue, "again", message_id="1")  # reads behind that commit
    house.run(5_000)
    assert (lost.outcome, waiting.outcome) == ("ServerBusy", "ServerBusy")
