"""Random batches against a dictionary that does what the contract says, with reopening between."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busway.model.message import Message, MessageState
from busway.store.base import (
    CommitRefused,
    Counters,
    Delete,
    DuplicateMark,
    Expiring,
    Move,
    SessionCount,
    SessionRecord,
    SessionState,
    TransactionMark,
    TransferMark,
    Update,
)
from busway.store.journal import JournalHead, JournalTrim
from busway.store.memory import MemoryDisk, MemoryStore, stored_copy
from busway.store.sqlite import SqliteStore
from tests.store.journal_oracle import JournalOracle
from tests.store.places import DEAD, MAIN, PLACES, Owner, facts, message, number, two_sub_queues

SLOTS = (MAIN, DEAD)
A_SLOT = st.sampled_from(SLOTS)
STATES = st.sampled_from(MessageState)
TIMES = st.none() | st.integers(0, 20)
CHANGES = st.none() | st.binary(max_size=8)
SESSION_IDS = st.sampled_from(["", "a", "b", "\x00é"])
DIGESTS = st.integers(0, 9).map(lambda value: value.to_bytes(16, "big"))
TEXTS = st.none() | st.text(max_size=5)


class Oracle:
    """All that is stored, and what reads of it must give."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Message] = {}
        self.next_counter = 1
        self.next_body = 1
        self.time_ms = 0
        self.active: dict[tuple[int, str], int] = {}
        self.states: dict[tuple[int, str], tuple[bytes, int]] = {}
        self.duplicates: dict[tuple[int, bytes], int] = {}
        self.transfers: dict[tuple[int, int, int], int] = {}
        self.transactions: dict[bytes, TransactionMark] = {}
        self.journal = JournalOracle()

    def shared_bodies(self) -> dict[int, bytes]:
        """By id: those that some message has (D-30)."""
        return {row.body_id: row.bare for row in self.rows.values() if row.body_id is not None}

    def page(
        self, slot: int, after: int, state: MessageState | None, session_id: str | None
    ) -> list[tuple[object, ...]]:
        return [
            facts(row)
            for (its_slot, its_number), row in sorted(self.rows.items(), key=lambda item: item[0])
            if its_slot == slot
            and its_number > after
            and state in (None, row.state)
            and session_id in (None, row.session_id)
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

    def session_records(self) -> list[SessionRecord]:
        records = []
        for slot, session_id in sorted(self.active.keys() | self.states.keys(), key=self._age):
            state = self.states.get((slot, session_id))
            active = self.active.get((slot, session_id), 0)
            if active or state:
                updated_ms, size = (state[1], len(state[0])) if state else (None, 0)
                records.append(SessionRecord(slot, session_id, active, updated_ms, size))
        return records

    def _age(self, session: tuple[int, str]) -> tuple[int, float, str]:
        slot, session_id = session
        numbers = [
            row.number
            for (its_slot, _), row in self.rows.items()
            if (its_slot, row.session_id, row.state) == (slot, session_id, MessageState.ACTIVE)
        ]
        return slot, min(numbers, default=float("inf")), session_id

    def duplicate_marks(self, slot: int, after: bytes, now_ms: int) -> list[DuplicateMark]:
        return sorted(
            DuplicateMark(slot, digest, until_ms)
            for (its_slot, digest), until_ms in self.duplicates.items()
            if its_slot == slot and digest > after and until_ms > now_ms
        )

    def transaction_marks(self) -> list[TransactionMark]:
        return sorted(
            mark
            for mark in self.transactions.values()
            if mark.until_ms > self.time_ms or mark.orders is not None
        )


def draw_batch(data: st.DataObject, oracle: Oracle) -> dict[str, Any]:
    """A batch that names no message twice, applied to the oracle as it is drawn."""
    oracle.time_ms += data.draw(st.integers(0, 4))
    batch: dict[str, Any] = {"deletes": [], "updates": [], "moves": [], "puts": [], "bodies": []}
    batch["time_ms"] = oracle.time_ms
    named = sorted(oracle.rows)
    chosen = data.draw(st.lists(st.sampled_from(named), unique=True, max_size=6)) if named else []
    for slot, its_number in chosen:
        draw_change(data, oracle, batch, slot, its_number)
    for _ in range(data.draw(st.integers(0, 4))):
        draw_put(data, oracle, batch, data.draw(A_SLOT), {"bare": data.draw(st.binary(max_size=9))})
    for _ in range(data.draw(st.integers(0, 2))):
        draw_shared_body(data, oracle, batch)
    draw_sessions(data, oracle, batch)
    draw_marks(data, oracle, batch)
    bodies = oracle.shared_bodies() | dict(batch["bodies"])
    oracle.journal.draw(data, batch, oracle.time_ms, bodies)
    return batch


def draw_change(
    data: st.DataObject, oracle: Oracle, batch: dict[str, Any], slot: int, its_number: int
) -> None:
    row = oracle.rows.pop((slot, its_number))
    kind = data.draw(st.sampled_from(["delete", "update", "move"]))
    if kind == "delete":
        batch["deletes"].append(Delete(slot, its_number))
        return
    row.state = data.draw(STATES)
    row.delivery_count += 1
    row.expires_ms = data.draw(TIMES)
    row.changes = data.draw(CHANGES)
    if kind == "update":
        oracle.rows[slot, its_number] = row
        change = (row.state, row.delivery_count, row.expires_ms, row.changes)
        batch["updates"].append(Update(slot, its_number, *change))
        return
    to_slot = data.draw(A_SLOT)
    row.number = number(oracle.next_counter)
    oracle.next_counter += 1
    row.enqueued_ms += 1
    row.hops += 1
    row.enqueued_number = data.draw(st.sampled_from([0, its_number]))
    row.dead_letter_source = data.draw(TEXTS)
    row.destination = data.draw(TEXTS)
    oracle.rows[to_slot, row.number] = row
    batch["moves"].append(Move(slot, its_number, to_slot, stored_copy(row)))


def draw_put(
    data: st.DataObject, oracle: Oracle, batch: dict[str, Any], slot: int, body: dict[str, Any]
) -> None:
    row = message(
        oracle.next_counter,
        **body,
        size=data.draw(st.integers(0, 50)),
        state=data.draw(STATES),
        expires_ms=data.draw(TIMES),
        session_id=data.draw(st.none() | SESSION_IDS),
        changes=data.draw(CHANGES),
        hops=data.draw(st.integers(0, 1)),
        destination=data.draw(TEXTS),
    )
    oracle.next_counter += 1
    oracle.rows[slot, row.number] = row
    batch["puts"].append((slot, stored_copy(row)))


def draw_shared_body(data: st.DataObject, oracle: Oracle, batch: dict[str, Any]) -> None:
    """A body that some messages share, or just one has, or none."""
    body = {"body_id": oracle.next_body, "bare": data.draw(st.binary(max_size=9))}
    oracle.next_body += 1
    batch["bodies"].append((body["body_id"], body["bare"]))
    for _ in range(data.draw(st.integers(0, 3))):
        draw_put(data, oracle, batch, data.draw(A_SLOT), body)


def draw_sessions(data: st.DataObject, oracle: Oracle, batch: dict[str, Any]) -> None:
    sessions = st.lists(st.tuples(A_SLOT, SESSION_IDS), unique=True, max_size=3)
    batch["session_counts"] = []
    for slot, session_id in data.draw(sessions):
        active = data.draw(st.integers(0, 2))
        oracle.active[slot, session_id] = active
        batch["session_counts"].append(SessionCount(slot, session_id, active))
    batch["session_states"] = []
    for slot, session_id in data.draw(sessions):
        state = data.draw(st.none() | st.binary(max_size=3))
        if state is None:
            oracle.states.pop((slot, session_id), None)
        else:
            oracle.states[slot, session_id] = (state, oracle.time_ms)
        batch["session_states"].append(SessionState(slot, session_id, state, oracle.time_ms))


def draw_marks(data: st.DataObject, oracle: Oracle, batch: dict[str, Any]) -> None:
    untils = st.integers(-2, 8).map(lambda after: oracle.time_ms + after)
    marks = data.draw(st.lists(st.builds(DuplicateMark, A_SLOT, DIGESTS, untils), max_size=5))
    oracle.duplicates.update({(slot, digest): until for slot, digest, until in marks})
    batch["duplicates"] = marks
    small = st.integers(0, 2)
    transfers = data.draw(st.lists(st.builds(TransferMark, A_SLOT, small, small, small)))
    oracle.transfers.update({mark[:3]: mark.number for mark in transfers})
    batch["transfers"] = transfers
    ids = st.binary(min_size=1, max_size=1)
    orders = st.none() | st.binary(max_size=3)
    transactions = data.draw(st.lists(st.builds(TransactionMark, ids, untils, orders), max_size=3))
    oracle.transactions.update({mark.transaction_id: mark for mark in transactions})
    batch["transactions"] = transactions


def check_reads(data: st.DataObject, owner: Owner, oracle: Oracle) -> None:
    store = owner.store
    slot, state = data.draw(A_SLOT), data.draw(st.none() | STATES)
    session_id = data.draw(st.none() | SESSION_IDS)
    after = number(data.draw(st.integers(0, oracle.next_counter)))
    rows = data.draw(st.integers(1, 10))
    page = store.read_page(slot, after, state=state, session_id=session_id, rows=rows)
    assert [facts(row) for row in page] == oracle.page(slot, after, state, session_id)[:rows]
    until_ms = data.draw(st.integers(-1, 20))
    due = store.read_expiring(None, until_ms)
    assert list(due.rows) == oracle.expiring(until_ms)
    assert due.next_expires_ms == oracle.next_expiry(until_ms)
    if due.rows:
        index = data.draw(st.integers(0, len(due.rows) - 1))
        behind = store.read_expiring(due.rows[index], until_ms, rows)
        assert list(behind.rows) == list(due.rows[index + 1 :])[:rows]
    for session in SLOTS:
        for each in ("", "a", "b", "\x00é", "c"):
            kept = oracle.states.get((session, each))
            assert store.read_session_state(session, each) == (kept[0] if kept else None)
    after_digest = data.draw(st.just(b"") | DIGESTS)
    now_ms = oracle.time_ms + data.draw(st.integers(0, 3))
    marks = store.read_duplicates(slot, after_digest, now_ms, rows)
    assert marks == oracle.duplicate_marks(slot, after_digest, now_ms)[:rows]
    asked = data.draw(st.lists(DIGESTS, unique=True, max_size=5))
    expected = {mark.digest: mark for mark in oracle.duplicate_marks(slot, b"", now_ms)}
    found = store.find_duplicates(slot, asked, now_ms)
    assert found == [expected[digest] for digest in asked if digest in expected]
    oracle.journal.check_reads(data, owner)


def check_opened(owner: Owner, oracle: Oracle, committed: int, counters: Counters) -> None:
    opened = owner.opened
    assert opened.commit_number == committed
    assert opened.time_ms == oracle.time_ms
    assert opened.sub_queues[0].counters == counters
    assert list(opened.sessions) == oracle.session_records()
    assert sorted(opened.transfers) == sorted(
        TransferMark(*key, last) for key, last in oracle.transfers.items()
    )
    assert list(opened.transactions) == oracle.transaction_marks()
    oracle.journal.check_opened(owner)


def check_everything(owner: Owner, oracle: Oracle) -> None:
    """Every message with every field, in every order there is."""
    for slot in SLOTS:
        for state in (None, *MessageState):
            for session_id in (None, "", "a", "b", "\x00é"):
                page = owner.store.read_page(slot, 0, state=state, session_id=session_id)
                expected = oracle.page(slot, 0, state, session_id)
                assert [facts(row) for row in page] == expected
        marks = owner.store.read_duplicates(slot, b"", oracle.time_ms)
        assert marks == oracle.duplicate_marks(slot, b"", oracle.time_ms)
    assert list(owner.store.read_expiring(None, 99).rows) == oracle.expiring(99)
    oracle.journal.check_everything(owner)


def reuse_bodies(owner: Owner, ids: list[int]) -> None:
    """The ids of bodies that are forgotten can be given to others."""
    owner.commit(
        bodies=[(body_id, b"") for body_id in ids],
        puts=[(MAIN, message(1_000 + n, body_id=n)) for n in ids],
    )


@pytest.mark.parametrize("place", ["sqlite", "memory"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
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
                owner, committed = Owner(new_handle()), owner.next_number - 1
                check_opened(owner, oracle, committed, counters)
            check_reads(data, owner, oracle)
        check_everything(owner, oracle)
        owner.commit(deletes=[Delete(*key) for key in oracle.rows])
        # Every shared body is forgotten with its last message or row: its id is free (D-31).
        kept = oracle.journal.body_ids
        reuse_bodies(owner, [each for each in range(1, oracle.next_body) if each not in kept])
        if kept:
            with pytest.raises(CommitRefused):
                reuse_bodies(owner, [min(kept)])
            end = oracle.journal.next_offset
            heads = {MAIN: JournalHead(end, end)}
            owner.commit(trims=[JournalTrim(MAIN, end)], journal_heads=heads)
            reuse_bodies(owner, sorted(kept))
        owner.store.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_crash_of_a_memory_disk_takes_back_whole_commits_of_any_kind(data: st.DataObject) -> None:
    disk = MemoryDisk(sync_each_commit=False)
    owner, oracle = Owner(MemoryStore(disk)), Oracle()
    owner.commit(**two_sub_queues())
    counters = Counters()
    for _ in range(data.draw(st.integers(0, 3))):
        owner.commit(**draw_batch(data, oracle))
    owner.commit(counters={MAIN: counters})
    disk.sync()
    synced, kept = owner.next_number - 1, data_of(oracle)
    for _ in range(data.draw(st.integers(1, 3))):
        owner.commit(**draw_batch(data, oracle))
    if data.draw(st.booleans()):
        owner.commit(purges=[MAIN, DEAD])
    disk.crash()
    again = Owner(MemoryStore(disk))
    check_opened(again, kept, synced, counters)
    check_everything(again, kept)


def data_of(oracle: Oracle) -> Oracle:
    """A copy that later batches leave alone."""
    kept = Oracle()
    kept.rows = {key: stored_copy(row) for key, row in oracle.rows.items()}
    kept.next_counter, kept.next_body = oracle.next_counter, oracle.next_body
    kept.time_ms = oracle.time_ms
    kept.active, kept.states = dict(oracle.active), dict(oracle.states)
    kept.duplicates, kept.transfers = dict(oracle.duplicates), dict(oracle.transfers)
    kept.transactions = dict(oracle.transactions)
    kept.journal = oracle.journal.copy()
    return kept


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_crash_of_a_file_leaves_whole_commits(data: st.DataObject) -> None:
    """A log that ends anywhere, as a crash may leave it: what is there is a commit's oracle."""
    with tempfile.TemporaryDirectory() as directory:
        file, log = Path(directory, "store.db"), Path(directory, "store.db-wal")
        owner, oracle = Owner(SqliteStore(file, create=True)), Oracle()
        owner.commit(**two_sub_queues(), journal_heads={}, time_ms=0)
        least = log.stat().st_size
        states = {owner.next_number - 1: (data_of(oracle), Counters())}
        for _ in range(data.draw(st.integers(1, 6))):
            batch = draw_batch(data, oracle)
            counters = Counters(oracle.next_counter, active=len(oracle.rows))
            owner.commit(**batch, counters={MAIN: counters})
            states[owner.next_number - 1] = (data_of(oracle), counters)
        left = Path(directory, "left.db")
        left.write_bytes(file.read_bytes())
        end = data.draw(st.integers(least, log.stat().st_size))
        Path(directory, "left.db-wal").write_bytes(log.read_bytes()[:end])
        again = Owner(SqliteStore(left, create=False))
        committed = again.opened.commit_number
        if end == log.stat().st_size:
            assert committed == max(states)
        kept, counters = states[committed]
        check_opened(again, kept, committed, counters)
        check_everything(again, kept)
        again.store.close()
        owner.store.close()
