"""Random batches against a dictionary that does what the contract says, with reopening between."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.model.message import Message, MessageState
from busway.store.base import Counters, Delete, Expiring, Move, Update
from tests.store.places import DEAD, MAIN, PLACES, Owner, facts, message, number, two_sub_queues

SLOTS = (MAIN, DEAD)
STATES = st.sampled_from(MessageState)
TIMES = st.none() | st.integers(0, 20)
CHANGES = st.none() | st.binary(max_size=8)


class Oracle:
    """The rows by (slot, number), and how a batch changes them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Message] = {}
        self.next_counter = 1

    def page(self, slot: int, after: int, state: MessageState | None) -> list[tuple[object, ...]]:
        return [
            facts(row)
            for (its_slot, its_number), row in sorted(self.rows.items(), key=lambda item: item[0])
            if its_slot == slot and its_number > after and state in (None, row.state)
        ]

    def expiring(self, until_ms: int) -> list[Expiring]:
        return sorted(
            Expiring(row.expires_ms, slot, row.number)
            for (slot, _), row in self.rows.items()
            if row.expires_ms is not None and row.expires_ms <= until_ms
        )

    def next_expiry(self, until_ms: int) -> int | None:
        later = [row.expires_ms for row in self.rows.values() if row.expires_ms is not None]
        return min((each for each in later if each > until_ms), default=None)


def draw_batch(data: st.DataObject, oracle: Oracle) -> dict[str, Any]:
    """A batch that names no message twice, applied to the oracle as it is drawn."""
    named = sorted(oracle.rows)
    chosen = data.draw(st.lists(st.sampled_from(named), unique=True, max_size=6)) if named else []
    batch: dict[str, Any] = {"deletes": [], "updates": [], "moves": [], "puts": []}
    for slot, its_number in chosen:
        row = oracle.rows.pop((slot, its_number))
        kind = data.draw(st.sampled_from(["delete", "update", "move"]))
        if kind == "delete":
            batch["deletes"].append(Delete(slot, its_number))
            continue
        row.state = data.draw(STATES)
        row.delivery_count += 1
        row.expires_ms = data.draw(TIMES)
        row.changes = data.draw(CHANGES)
        change = (row.state, row.delivery_count)
        if kind == "update":
            oracle.rows[slot, its_number] = row
            batch["updates"].append(Update(slot, its_number, *change, row.expires_ms, row.changes))
            continue
        to_slot = DEAD if slot == MAIN else MAIN
        row.number = number(oracle.next_counter)
        row.enqueued_ms += 1
        oracle.next_counter += 1
        oracle.rows[to_slot, row.number] = row
        batch["moves"].append(
            Move(
                slot, its_number, to_slot, row.number, *change,
                row.enqueued_ms, row.expires_ms, row.changes,
            )
        )  # fmt: skip
    for _ in range(data.draw(st.integers(0, 5))):
        slot = data.draw(st.sampled_from(SLOTS))
        fields = {
            "bare": data.draw(st.binary(max_size=20)),
            "size": data.draw(st.integers(0, 50)),
            "state": data.draw(STATES),
            "expires_ms": data.draw(TIMES),
            "session_id": data.draw(st.none() | st.text(max_size=5)),
        }
        counter = oracle.next_counter
        oracle.next_counter += 1
        oracle.rows[slot, number(counter)] = message(counter, **fields)
        batch["puts"].append((slot, message(counter, **fields)))
    return batch


@pytest.mark.parametrize("place", ["sqlite", "memory"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_store_is_its_oracle_after_any_batches_and_reopenings(
    place: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        new_handle = PLACES[place](Path(directory))
        owner, oracle = Owner(new_handle()), Oracle()
        owner.commit(**two_sub_queues())
        for _ in range(data.draw(st.integers(1, 8))):
            batch = draw_batch(data, oracle)
            counters = Counters(oracle.next_counter, active=len(oracle.rows))
            owner.commit(**batch, counters={MAIN: counters})
            if data.draw(st.booleans()):
                committed = owner.next_number - 1
                owner = Owner(new_handle())
                assert owner.opened.commit_number == committed
                assert owner.opened.sub_queues[0].counters == counters
            slot, state = data.draw(st.sampled_from(SLOTS)), data.draw(st.none() | STATES)
            after = number(data.draw(st.integers(0, oracle.next_counter)))
            rows = data.draw(st.integers(1, 10))
            page = owner.store.read_page(slot, after, state=state, rows=rows)
            assert [facts(row) for row in page] == oracle.page(slot, after, state)[:rows]
            until_ms = data.draw(st.integers(-1, 20))
            due = owner.store.read_expiring(None, until_ms)
            assert list(due.rows) == oracle.expiring(until_ms)
            assert due.next_expires_ms == oracle.next_expiry(until_ms)
        owner.store.close()
