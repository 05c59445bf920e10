"""The checker of quotas, told in events alone (LIM-4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from busway.broker.seams import SettlementKind
from busway.model.entities import Queue
from busway.sim.checkers.quotas import Quotas
from busway.sim.history import (
    Answer,
    Event,
    QueueCreated,
    SendEnded,
    SendStarted,
    SettleEnded,
    SettleStarted,
    Violation,
)
from busway.store.base import SubQueueKey, SubQueueKind
from tests.sim.test_checkers import at, tell

QUEUE = Queue(path="small", incarnation=1, placement=("a",))
KEY = SubQueueKey(1, 0, SubQueueKind.MAIN)
HALF = QUEUE.max_size_bytes // 2
DONE, REFUSED, UNKNOWN = Answer.DONE, Answer.REFUSED, Answer.UNKNOWN


def send(number: int, size: int, answer: Answer) -> tuple[Event, Event]:
    """A message whose body is the number of its send."""
    started = SendStarted(number, 1, (number,), (size,), None, None)
    return started, SendEnded(number, answer, is_over_quota=answer is REFUSED)


def complete(body: int, answer: Answer) -> tuple[Event, Event]:
    started = SettleStarted(body + 100, KEY, body, bytes(16), SettlementKind.COMPLETE)
    return started, SettleEnded(body + 100, answer)


def judge(*events: Event) -> Quotas:
    quotas = Quotas("small")
    tell(quotas, *at(0, QueueCreated(QUEUE), *events))
    return quotas


def test_what_fits_is_taken_and_what_does_not_is_refused() -> None:
    quotas = judge(*send(1, HALF, DONE), *send(2, HALF, DONE), *send(3, 1, REFUSED))
    assert quotas.refused == 1


def test_taken_although_it_is_full() -> None:
    with pytest.raises(Violation, match="took"):
        judge(*send(1, HALF, DONE), *send(2, HALF, DONE), *send(3, 1, DONE))


def test_refused_although_it_fits() -> None:
    with pytest.raises(Violation, match="refused"):
        judge(*send(1, HALF, DONE), *send(2, HALF, REFUSED))


def test_drained_it_takes_messages_again() -> None:
    full = (*send(1, HALF, DONE), *send(2, HALF, DONE), *send(3, 1, REFUSED))
    quotas = judge(*full, *complete(1, DONE), *send(4, HALF, DONE))
    assert quotas.taken_again == 1
    with pytest.raises(Violation, match="refused"):
        judge(*full, *complete(1, DONE), *send(4, HALF, REFUSED))


@pytest.mark.parametrize("answer", [DONE, REFUSED])
def test_what_nobody_knows_speaks_for_nothing(answer: Answer) -> None:
    judge(*send(1, HALF, UNKNOWN), *send(2, HALF, DONE), *send(3, 1, answer))
    judge(*send(1, HALF, DONE), *complete(1, UNKNOWN), *send(2, HALF, DONE), *send(3, 1, answer))


@pytest.mark.parametrize("answer", [DONE, REFUSED])
def test_neither_does_what_is_under_way(answer: Answer) -> None:
    (other, other_ends), (third, third_ends) = send(2, HALF, DONE), send(3, 1, answer)
    judge(*send(1, HALF, DONE), other, third, third_ends)
    removal, _ = complete(1, DONE)
    judge(*send(1, HALF, DONE), other, other_ends, third, removal, third_ends)


def test_refused_for_another_reason_is_not_its_business() -> None:
    started, ended = send(1, 1, REFUSED)
    assert isinstance(ended, SendEnded)
    judge(started, replace(ended, is_over_quota=False))
