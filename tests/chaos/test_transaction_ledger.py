"""The ledger of transactions sees what it is there to see."""

from __future__ import annotations

import pytest

from tests.chaos.transaction_ledger import Outcome, TransactionLedger


def ledger_with(outcome: Outcome) -> TransactionLedger:
    """One transaction that takes `a` and `b`, and puts `c` and `d`."""
    ledger = TransactionLedger()
    ledger.seeds.update("ab")
    for each in "ab":
        ledger.deliver(each)
    record = ledger.begin("ab", "cd")
    if outcome is not Outcome.NOT_ASKED:
        ledger.ask(record)
        record.outcome = outcome
    return ledger


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (Outcome.DONE, "cd"),
        (Outcome.UNKNOWN, "cd"),
        (Outcome.UNKNOWN, "ab"),
        (Outcome.NOT_ASKED, "ab"),
        (Outcome.REFUSED, "ab"),
    ],
)
def test_all_or_nothing_is_fine(outcome: Outcome, found: str) -> None:
    ledger_with(outcome).judge(list(found))


@pytest.mark.parametrize(
    ("outcome", "found", "complaint"),
    [
        (Outcome.DONE, "ab", "not gone"),
        (Outcome.DONE, "acd", "not gone"),
        (Outcome.DONE, "c", "lost"),
        (Outcome.DONE, "", "lost"),
        (Outcome.UNKNOWN, "abcd", "half of"),
        (Outcome.UNKNOWN, "bc", "half of"),
        (Outcome.UNKNOWN, "c", "lost"),
        (Outcome.UNKNOWN, "a", "lost"),
        (Outcome.UNKNOWN, "", "lost"),
        (Outcome.NOT_ASKED, "abc", "came of it"),
        (Outcome.NOT_ASKED, "a", "lost"),
        (Outcome.REFUSED, "cd", "came of it"),
        (Outcome.DONE, "cde", "never sent"),
        (Outcome.DONE, "ccd", "there twice"),
    ],
)
def test_what_is_not(outcome: Outcome, found: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        ledger_with(outcome).judge(list(found))


def test_what_was_taken_out_and_came_again_was_not_taken_out() -> None:
    """A second transaction takes `a` and `b`, because the first did not happen."""
    ledger = ledger_with(Outcome.UNKNOWN)
    for each in "ab":
        ledger.deliver(each)
    second = ledger.begin("ab", "ef")
    ledger.ask(second)
    second.outcome = Outcome.DONE
    ledger.judge(list("ef"))
    with pytest.raises(AssertionError, match="half of"):
        ledger.judge(list("cdef"))


def test_acknowledged_and_its_messages_came_again() -> None:
    ledger = ledger_with(Outcome.DONE)
    ledger.deliver("a")
    with pytest.raises(AssertionError, match="not gone"):
        ledger.judge(list("cd"))
