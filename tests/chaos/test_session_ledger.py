"""The ledger of sessions sees what it is there to see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.chaos.session_ledger import Holding, SessionLedger


@dataclass
class Session:
    """As the SDK shows it."""

    session_id: str = "s"
    locked_until_utc: datetime = datetime.now(UTC) - timedelta(seconds=1)


def completing(ledger: SessionLedger, number: int) -> Holding:
    """A holder that has completed what is before, and is about to complete this one."""
    holding = ledger.accept(Session())
    for each in range(number + 1):
        holding.deliver(each)
        holding.completing = each
        if each < number:
            holding.complete(each)
    return holding


def test_in_order_and_once_is_fine() -> None:
    ledger = SessionLedger()
    holding = completing(ledger, 2)
    holding.complete(2)
    assert (ledger.problems, ledger.completed["s"]) == ([], 3)


def test_a_message_that_is_missing() -> None:
    ledger = SessionLedger()
    completing(ledger, 0).deliver(2)
    assert "2 came, and 1 was due" in ledger.problems[0]


def test_a_message_that_comes_twice() -> None:
    ledger = SessionLedger()
    first = completing(ledger, 0)
    first.complete(0)
    first.let_go()
    ledger.accept(Session()).deliver(0)
    assert any("0 came, and 1 was due" in each for each in ledger.problems)
    assert any("came twice" in each for each in ledger.problems)


def test_two_holders_at_once() -> None:
    ledger = SessionLedger()
    locked = Session(locked_until_utc=datetime.now(UTC) + timedelta(minutes=1))
    ledger.accept(locked)
    ledger.accept(locked)
    assert "given to two at once" in ledger.problems[0]


def test_a_doubt_outlives_who_had_it() -> None:
    """Whether the next holder gets it again or the one after it, both are fine."""
    for number, completed in ((1, 1), (2, 2)):
        ledger = SessionLedger()
        completing(ledger, 1).let_go()
        ledger.accept(Session()).deliver(number)
        assert (ledger.problems, ledger.completed["s"]) == ([], completed)
        assert ledger.doubts == {}


def test_a_doubt_is_about_one_message_only() -> None:
    ledger = SessionLedger()
    completing(ledger, 1).let_go()
    ledger.accept(Session()).deliver(3)
    assert "3 came, and 1 was due" in ledger.problems[0]


def test_a_doubt_about_the_last_message_is_the_broker_s_to_resolve() -> None:
    """Nothing can come after it: whoever waited for that would wait for ever."""
    ledger = SessionLedger()
    completing(ledger, 1).let_go()
    assert ledger.last_doubts(per_session=3) == []
    assert ledger.last_doubts(per_session=2) == ["s"]
    ledger.is_empty("s")
    assert (ledger.completed["s"], ledger.doubts) == (2, {})


def test_nobody_is_asked_about_a_session_that_somebody_has() -> None:
    ledger = SessionLedger()
    completing(ledger, 1).let_go()
    ledger.accept(Session())
    assert ledger.last_doubts(per_session=2) == []


def test_an_answer_that_comes_late_ends_a_doubt() -> None:
    ledger = SessionLedger()
    holding = completing(ledger, 1)
    holding.let_go()
    holding.complete(1)
    assert (ledger.completed["s"], ledger.doubts) == (2, {})
