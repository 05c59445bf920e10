"""Each checker sees what it is there to see, told in events alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.sim.checkers.dead_letters import DeadLetters
from busway.sim.checkers.delivery_counts import DeliveryCounts
from busway.sim.checkers.holders import Holders
from busway.sim.checkers.order import Numbers, Order
from busway.sim.checkers.presence import Presence
from busway.sim.history import (
    Answer,
    Checker,
    Delivered,
    Event,
    History,
    QueueCreated,
    SendEnded,
    SendStarted,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.store.base import SubQueueKey, SubQueueKind

QUEUE = Queue(path="orders", incarnation=1, placement=("a",), lock_duration_ms=5_000)
KEY = SubQueueKey(1, 0, SubQueueKind.MAIN)
DLQ = SubQueueKey(1, 0, SubQueueKind.DEAD_LETTER)
TOKEN = bytes(16)
OTHER_TOKEN = bytes(15) + b"\x01"

SENT = SendStarted(10, 1, (100, 101), (1, 1), None, None)
ACCEPTED = SendEnded(10, Answer.DONE)
FIRST = Delivered("r", KEY, 100, 1, 0, 0, TOKEN, 5_000, 1, 0, False)
AGAIN = replace(FIRST, token=OTHER_TOKEN, locked_until_ms=10_000)
BEGIN = (QueueCreated(QUEUE), SENT, ACCEPTED)


def settle(kind: SettlementKind, answer: Answer) -> tuple[Event, Event]:
    return SettleStarted(20, KEY, 100, TOKEN, kind), SettleEnded(20, answer)


def tell(checker: Checker, *events: tuple[int, Event]) -> None:
    now = 0
    history = History(lambda: now, [checker])
    for now, event in events:  # noqa: B007 (the clock reads it)
        history.record(event)


def at(now_ms: int, *events: Event) -> list[tuple[int, Event]]:
    return [(now_ms, event) for event in events]


def test_lost() -> None:
    presence = Presence()
    tell(presence, *at(0, *BEGIN))
    with pytest.raises(Violation, match="lost"):
        presence.check_found({100: KEY}, 1)


def test_unexpected() -> None:
    refused = SendEnded(10, Answer.REFUSED)
    with pytest.raises(Violation, match="refused"):
        tell(Presence(), *at(0, QueueCreated(QUEUE), SENT, refused, FIRST))


def test_a_send_without_an_answer_may_be_there_or_not() -> None:
    unknown = SendEnded(10, Answer.UNKNOWN)
    for found in ({}, {100: KEY, 101: KEY}):
        presence = Presence()
        tell(presence, *at(0, QueueCreated(QUEUE), SENT, unknown))
        presence.check_found(found, 1)


def test_delivered_after_it_was_completed() -> None:
    with pytest.raises(Violation, match="gone"):
        tell(
            Presence(),
            *at(0, *BEGIN, FIRST, *settle(SettlementKind.COMPLETE, Answer.DONE), AGAIN),
        )


def test_delivered_after_a_completion_that_was_refused_is_fine() -> None:
    tell(Presence(), *at(0, *BEGIN, FIRST, *settle(SettlementKind.COMPLETE, Answer.REFUSED), AGAIN))


def test_received_and_deleted_twice() -> None:
    removed = replace(FIRST, token=None)
    with pytest.raises(Violation, match="gone"):
        tell(Presence(), *at(0, *BEGIN, removed, removed))


def test_two_holders() -> None:
    with pytest.raises(Violation, match="holds it"):
        tell(Holders(), *at(0, *BEGIN, FIRST), *at(4_999, AGAIN))


def test_a_second_holder_after_the_lock_ran_out_is_fine() -> None:
    tell(Holders(), *at(0, *BEGIN, FIRST), *at(5_000, AGAIN))


def test_a_second_holder_after_memory_was_lost_is_fine() -> None:
    tell(
        Holders(), *at(0, *BEGIN, FIRST), *at(4_000, replace(AGAIN, epoch=2, locked_until_ms=9_000))
    )


def test_settled_after_the_lock_ran_out() -> None:
    late = settle(SettlementKind.COMPLETE, Answer.DONE)
    with pytest.raises(Violation, match="run out"):
        tell(Holders(), *at(0, *BEGIN, FIRST), *at(5_000, *late))


def test_first_deliveries_out_of_order() -> None:
    second = replace(FIRST, body=101, number=2, token=OTHER_TOKEN)
    with pytest.raises(Violation, match="after number 2"):
        tell(Order(), *at(0, *BEGIN, second, FIRST))


def test_a_number_given_twice() -> None:
    with pytest.raises(Violation, match="was given to"):
        tell(Numbers(), *at(0, *BEGIN, FIRST, replace(FIRST, body=101)))


def test_a_batch_with_a_gap() -> None:
    with pytest.raises(Violation, match="its order"):
        tell(Numbers(), *at(0, *BEGIN, FIRST, replace(FIRST, body=101, number=3)))


@pytest.mark.parametrize(
    ("kind", "count"),
    [(SettlementKind.ABANDON, 0), (SettlementKind.RELEASE, 1), (SettlementKind.ABANDON, 2)],
)
def test_a_wrong_count(kind: SettlementKind, count: int) -> None:
    with pytest.raises(Violation, match="has the count"):
        tell(
            DeliveryCounts(),
            *at(0, *BEGIN, FIRST, *settle(kind, Answer.DONE)),
            *at(1, replace(AGAIN, delivery_count=count)),
        )


@pytest.mark.parametrize("count", [0, 1])
def test_a_count_that_nobody_can_know(count: int) -> None:
    again = replace(AGAIN, delivery_count=count, epoch=2)
    unknown = settle(SettlementKind.ABANDON, Answer.UNKNOWN)
    tell(DeliveryCounts(), *at(0, *BEGIN, FIRST, *unknown), *at(1, again))


def test_delivered_too_often() -> None:
    with pytest.raises(Violation, match="maximum"):
        tell(DeadLetters(), *at(0, *BEGIN, replace(FIRST, delivery_count=10)))


def test_dead_by_nobody_s_wish() -> None:
    with pytest.raises(Violation, match="nobody"):
        tell(DeadLetters(), *at(0, *BEGIN, replace(FIRST, key=DLQ)))


def test_dead_by_expiry_in_a_queue_that_drops() -> None:
    reason = (("DeadLetterReason", "TTLExpiredException"),)
    text = (("DeadLetterErrorDescription", "The message expired and was dead lettered."),)
    with pytest.raises(Violation, match="drops"):
        tell(DeadLetters(), *at(0, *BEGIN, replace(FIRST, key=DLQ, properties=reason + text)))
