"""The checker of journals sees what it is there to see (D-31, D-35)."""

from __future__ import annotations

import pytest

from busway.model.journal import JournalEvent
from busway.sim.checkers.journal import Replay
from busway.sim.history import Violation
from busway.store.base import SubQueueKey, SubQueueKind
from busway.store.journal import JournalRecord, JournalRow

KEY = SubQueueKey(1, 0, SubQueueKind.MAIN)
DLQ = SubQueueKind.DEAD_LETTER
TOKEN = bytes(16)
Told = tuple[str, dict[str, object]]


def row(offset: int, word: str, fields: dict[str, object]) -> JournalRow:
    event = JournalEvent[word.upper()]
    record = JournalRecord(1, offset, event, offset, SubQueueKind.MAIN, 7)
    return JournalRow(record._replace(**fields), b"")  # type: ignore[arg-type]


def play(*told: Told, keeps: bool = True) -> Replay:
    replay = Replay(KEY, keeps=keeps)
    for offset, (word, fields) in enumerate(told):
        replay.play(row(offset, word, fields))
    return replay


ENQUEUED: Told = ("enqueued", {})
SCHEDULED: Told = ("scheduled", {})
DELIVERED: Told = ("delivered", {"lock_token": TOKEN})
COMPLETED: Told = ("completed", {"lock_token": TOKEN})
ABANDONED: Told = ("abandoned", {"lock_token": TOKEN, "delivery_count": 1})


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ([ENQUEUED], {7}),
        ([ENQUEUED, DELIVERED], {7}),
        ([ENQUEUED, DELIVERED, COMPLETED], set()),
        ([ENQUEUED, ("completed", {})], set()),
        ([ENQUEUED, DELIVERED, ABANDONED, ("expired", {"delivery_count": 1})], set()),
        ([ENQUEUED, ("deferred", {}), ("completed", {})], set()),
        ([SCHEDULED, ("cancelled", {})], set()),
        ([SCHEDULED, ("enqueued", {"number": 8, "related_number": 7})], {8}),
        ([ENQUEUED, ("dead_lettered", {"kind": DLQ}), ("completed", {"kind": DLQ})], set()),
        ([ENQUEUED, ("dead_lettered", {"kind": DLQ, "related_number": 9})], {9}),
        ([ENQUEUED, ("purged", {})], set()),
        ([ENQUEUED, ("duplicate_dropped", {"number": 0})], {7}),
    ],
)
def test_a_legal_life(told: list[Told], left: set[int]) -> None:
    assert set(play(*told).lives) == left


@pytest.mark.parametrize(
    "told",
    [
        [COMPLETED],
        [DELIVERED],
        [ENQUEUED, ENQUEUED],
        [ENQUEUED, COMPLETED],
        [ENQUEUED, DELIVERED, COMPLETED, COMPLETED],
        [ENQUEUED, DELIVERED, COMPLETED, DELIVERED],
        [ENQUEUED, DELIVERED, ("completed", {"lock_token": bytes(15) + b"x"})],
        [ENQUEUED, DELIVERED, ("abandoned", {"lock_token": TOKEN})],
        [ENQUEUED, DELIVERED, ABANDONED, DELIVERED],
        [ENQUEUED, ("cancelled", {})],
        [SCHEDULED, ("expired", {})],
        [ENQUEUED, ("enqueued", {"number": 8, "related_number": 7})],
        [ENQUEUED, ("completed", {"kind": DLQ})],
    ],
)
def test_an_illegal_one(told: list[Told]) -> None:
    with pytest.raises(Violation, match="journal"):
        play(*told)


def test_what_arrives_at_a_topic_does_not_stay_there() -> None:
    replay = play(ENQUEUED, keeps=False)
    assert (len(replay.arrived), replay.lives) == (1, {})
