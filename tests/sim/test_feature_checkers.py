"""The checkers of sessions, schedules, forwarding and transactions, told in events alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.sim.checkers.delivery_counts import DeliveryCounts
from busway.sim.checkers.journeys import Journeys
from busway.sim.checkers.order import Numbers
from busway.sim.checkers.presence import Presence
from busway.sim.checkers.session_states import SessionStates
from busway.sim.checkers.sessions import Sessions
from busway.sim.checkers.transactions import Transactions
from busway.sim.history import (
    Answer,
    CancelEnded,
    CancelStarted,
    Delivered,
    Event,
    QueueCreated,
    SendEnded,
    SendStarted,
    SessionAccepted,
    SessionLeft,
    SessionLost,
    SettleEnded,
    SettleStarted,
    StateRead,
    StateReadStarted,
    StateSetEnded,
    StateSetStarted,
    TransactionEnded,
    TransactionStarted,
    Violation,
)
from busway.store.base import SubQueueKey, SubQueueKind
from tests.sim.test_checkers import at, tell

END = Queue(path="end", incarnation=1, placement=("a",), lock_duration_ms=5_000)
SOURCE = Queue(path="source", incarnation=2, placement=("b",), forward_to="end")
ENTITIES = (QueueCreated(END), QueueCreated(SOURCE))
KEY = SubQueueKey(1, 0, SubQueueKind.MAIN)

SENT = SendStarted(10, 1, (100, 101), (1, 1), None, None, session_id="s")
ACCEPTED = SendEnded(10, Answer.DONE)
SLACK_MS = 1_000
"""What may be under way, over a network."""
BEGIN = (*ENTITIES, SENT, ACCEPTED)


def delivered(body: int, number: int, holding: int, token: int, count: int = 0) -> Delivered:
    lock = bytes(15) + bytes([token])
    return Delivered(
        "r", KEY, body, number, count, 0, lock, 5_000, 1, 0, deferred=False, holding=holding
    )


def held(holding: int, until_ms: int = 5_000) -> SessionAccepted:
    return SessionAccepted(holding, f"holder-{holding}", KEY, "s", until_ms, 1, 0)


def abandon(body: int, token: int) -> tuple[Event, Event]:
    lock = bytes(15) + bytes([token])
    started = SettleStarted(20, KEY, body, lock, SettlementKind.ABANDON)
    return started, SettleEnded(20, Answer.DONE)


# --- Sessions ------------------------------------------------------------------------------------


def test_two_holders_of_a_session() -> None:
    with pytest.raises(Violation, match="while holder-1 holds it"):
        tell(Sessions(), *at(0, *BEGIN, held(1)), *at(4_999, held(2)))


@pytest.mark.parametrize("end", [SessionLeft(1), SessionLost(1, 1)])
def test_a_second_holder_when_the_first_is_gone_is_fine(end: Event) -> None:
    tell(Sessions(), *at(0, *BEGIN, held(1)), *at(1, end, held(2)))


def test_a_session_lost_before_its_time() -> None:
    with pytest.raises(Violation, match="before its time"):
        tell(Sessions(), *at(0, *BEGIN, held(1)), *at(4_999, SessionLost(1, 0)))


def test_delivered_to_a_holder_who_has_left() -> None:
    with pytest.raises(Violation, match="has left"):
        tell(Sessions(), *at(0, *BEGIN, held(1), SessionLeft(1), delivered(100, 1, 1, 1)))


def test_over_a_network_two_holders_are_seen_unless_memory_was_lost() -> None:
    second = held(2)
    with pytest.raises(Violation, match="while holder-1 holds it"):
        tell(Sessions(SLACK_MS), *at(0, *BEGIN, held(1)), *at(1, second))
    tell(Sessions(SLACK_MS), *at(0, *BEGIN, held(1)), *at(1, replace(second, disturbances=1)))


def test_over_a_network_what_was_under_way_to_the_last_holder_is_nobody_s() -> None:
    late = delivered(101, 2, 1, 1)
    begin = (*at(0, *BEGIN, held(1)), *at(5_000, held(2, 10_000)))
    tell(Sessions(SLACK_MS), *begin, *at(5_001, late, delivered(100, 1, 2, 2)))
    with pytest.raises(Violation, match="who has left"):
        tell(Sessions(), *begin, *at(5_001, late))


def test_over_a_network_there_is_an_end_to_what_is_under_way() -> None:
    begin = at(0, *BEGIN, held(1))
    tell(Sessions(SLACK_MS), *begin, *at(5_000 + SLACK_MS - 1, delivered(100, 1, 1, 1)))
    with pytest.raises(Violation, match="after its session's lock ran out"):
        tell(Sessions(SLACK_MS), *begin, *at(5_000 + SLACK_MS, delivered(100, 1, 1, 1)))


def test_delivered_in_another_session() -> None:
    other = replace(held(1), session_id="t")
    with pytest.raises(Violation, match="of s was delivered in"):
        tell(Sessions(), *at(0, *BEGIN, other, delivered(100, 1, 1, 1)))


def test_out_of_order_in_a_session() -> None:
    with pytest.raises(Violation, match="SES-4"):
        tell(
            Sessions(),
            *at(0, *BEGIN, held(1), delivered(101, 2, 1, 1), delivered(100, 1, 1, 2)),
        )


def test_overtaking_what_was_given_back() -> None:
    with pytest.raises(Violation, match="overtook"):
        tell(
            Sessions(),
            *at(0, *BEGIN, held(1), delivered(100, 1, 1, 1), *abandon(100, 1)),
            *at(1, delivered(101, 2, 1, 2)),
        )


def test_overtaking_what_the_last_holder_had() -> None:
    with pytest.raises(Violation, match="overtook"):
        tell(
            Sessions(),
            *at(0, *BEGIN, held(1), delivered(100, 1, 1, 1), SessionLeft(1)),
            *at(1, held(2), delivered(101, 2, 2, 2)),
        )


def test_what_was_given_back_comes_first() -> None:
    tell(
        Sessions(),
        *at(0, *BEGIN, held(1), delivered(100, 1, 1, 1), *abandon(100, 1)),
        *at(1, delivered(100, 1, 1, 2, count=1), delivered(101, 2, 1, 3)),
    )


@pytest.mark.parametrize(
    ("end", "now_ms", "right", "wrong"),
    [(SessionLeft(1), 1, 0, 1), (SessionLost(1, 0), 5_000, 1, 0)],
)
def test_leaving_counts_nothing_and_losing_does(
    end: Event, now_ms: int, right: int, wrong: int
) -> None:
    before = (*at(0, *BEGIN, delivered(100, 1, 1, 1)), *at(now_ms, end))
    tell(DeliveryCounts(), *before, *at(now_ms, delivered(100, 1, 2, 2, count=right)))
    with pytest.raises(Violation, match="has the count"):
        tell(DeliveryCounts(), *before, *at(now_ms, delivered(100, 1, 2, 2, count=wrong)))


def test_a_state_that_nobody_set() -> None:
    done = (StateSetStarted(1, 1, b"new"), StateSetEnded(1, Answer.DONE))
    with pytest.raises(Violation, match="none of"):
        tell(SessionStates(), *at(0, held(1), *done, StateReadStarted(2, 1), StateRead(2, None)))


@pytest.mark.parametrize("state", [None, b"new"])
def test_a_state_that_nobody_knows(state: bytes | None) -> None:
    unknown = (StateSetStarted(1, 1, b"new"), StateSetEnded(1, Answer.UNKNOWN))
    tell(SessionStates(), *at(0, held(1), *unknown, StateReadStarted(2, 1), StateRead(2, state)))


# --- Schedules and duplicates --------------------------------------------------------------------


def test_before_its_time() -> None:
    with pytest.raises(Violation, match="5 ms before"):
        tell(
            Journeys(), *at(0, *ENTITIES, replace(SENT, due_ms=10)), *at(5, delivered(100, 1, 1, 1))
        )


def test_delivered_although_it_was_cancelled() -> None:
    cancelled = (CancelStarted(30, (100,)), CancelEnded(30, Answer.DONE))
    with pytest.raises(Violation, match="gone"):
        tell(Presence(), *at(0, *BEGIN, *cancelled, delivered(100, 1, 1, 1)))


def test_a_cancel_that_nobody_knows_of_allows_both() -> None:
    cancelled = (CancelStarted(30, (100,)), CancelEnded(30, Answer.UNKNOWN))
    tell(Presence(), *at(0, *BEGIN, *cancelled, delivered(100, 1, 1, 1)))
    presence = Presence()
    tell(presence, *at(0, *BEGIN, *cancelled))
    presence.check_found({101: KEY}, 1)


def test_sent_again_and_accepted_it_must_be_there() -> None:
    again = (replace(SENT, send=11), SendEnded(11, Answer.DONE))
    presence = Presence()
    tell(presence, *at(0, *ENTITIES, SENT, SendEnded(10, Answer.REFUSED), *again))
    with pytest.raises(Violation, match="lost"):
        presence.check_found({}, 1)


def test_a_duplicate_has_a_number_of_its_own() -> None:
    with pytest.raises(Violation, match="had the number"):
        tell(
            Numbers(),
            *at(0, *BEGIN, replace(SENT, send=11), delivered(100, 1, 1, 1)),
            *at(1, delivered(100, 5, 1, 2)),
        )


# --- Forwarding ----------------------------------------------------------------------------------


def test_forwarded_is_there_and_back_is_not_the_way() -> None:
    sent = replace(SENT, incarnation=2)
    there = delivered(100, 7, 1, 1)
    back = replace(there, key=KEY._replace(incarnation=2), number=1)
    tell(Journeys(), *at(0, *ENTITIES, sent, back, there))
    with pytest.raises(Violation, match="went back"):
        tell(Journeys(), *at(0, *ENTITIES, sent, there, back))


def test_from_a_queue_that_nothing_forwards_to() -> None:
    back = replace(delivered(100, 1, 1, 1), key=KEY._replace(incarnation=2))
    with pytest.raises(Violation, match="another queue"):
        tell(Presence(), *at(0, *BEGIN, back))


# --- Transactions --------------------------------------------------------------------------------

OTHER = SendStarted(12, 1, (200,), (1,), None, None)
COMPLETED = SettleStarted(21, KEY, 100, bytes(15) + b"\x01", SettlementKind.COMPLETE)
IN_DOUBT = (
    OTHER,
    TransactionStarted(40, (12,), (21,)),
    COMPLETED,
    SendEnded(12, Answer.UNKNOWN),
    SettleEnded(21, Answer.UNKNOWN),
    TransactionEnded(40, Answer.UNKNOWN),
)


@pytest.mark.parametrize("bodies", [(100, 200), (200, 100)])
def test_half_a_transaction(bodies: tuple[int, int]) -> None:
    presence = Presence()
    transactions = Transactions(presence)
    events = at(0, *BEGIN, *IN_DOUBT)
    tell(presence, *events)
    with pytest.raises(Violation, match="was not removed"):
        tell(transactions, *events, *at(1, *(delivered(body, body, 1, body) for body in bodies)))


def test_one_message_of_a_transaction_speaks_for_all() -> None:
    two = replace(OTHER, bodies=(200, 201), sizes=(1, 1))
    presence = Presence()
    transactions = Transactions(presence)
    events = at(0, *BEGIN, *(two if event is OTHER else event for event in IN_DOUBT))
    tell(presence, *events)
    tell(transactions, *events)
    found = {101: KEY, 200: KEY}
    transactions.check_found(found)
    with pytest.raises(Violation, match=r"lost: \[201\]"):
        presence.check_found(found, 1)
