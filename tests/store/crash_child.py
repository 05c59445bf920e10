"""A process that commits as fast as it can, to be killed; and the plan of what it commits.

    python crash_child.py <store file> <seed>

Each batch follows from the seed and the batches before it, so whoever knows the commit number
knows what must be in the store. Every number that is written to standard output is durable.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from busway.model.message import Message, MessageState, sequence_number
from busway.store.base import (
    Batch,
    Counters,
    Delete,
    DuplicateMark,
    Move,
    SessionCount,
    SessionState,
    SubQueueKey,
    SubQueueKind,
    TransactionMark,
    TransferMark,
    Update,
)
from busway.store.memory import stored_copy
from busway.store.sqlite import SqliteStore

PARTITION = 5
SLOTS = {0: SubQueueKind.MAIN, 1: SubQueueKind.DEAD_LETTER}
BATCH_MESSAGES_MAX = 40
BODY_BYTES_MAX = 4_000
CHECKPOINT_PAGES = 64
"""Few, so that many kills hit the copying of the log into the database."""
SESSIONS = ("one", "two", "three")
LASTS_MS = 40
"""For how many batches marks count."""


class Plan:
    """What is in the store after each batch: `next_batch` is the only way forward."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.number = 0
        self.rows: dict[tuple[int, int], Message] = {}
        self.counters = {slot: Counters() for slot in SLOTS}
        self.states: dict[str, tuple[bytes, int]] = {}
        self.duplicates: dict[bytes, int] = {}
        self.transfers: dict[int, int] = {}
        self.transactions: dict[bytes, int] = {}
        self.next_body = 1

    @property
    def time_ms(self) -> int:
        return 1_000 + self.number

    def active_in(self, session_id: str) -> int:
        return sum(
            slot == 0 and row.session_id == session_id and row.state is MessageState.ACTIVE
            for (slot, _), row in self.rows.items()
        )

    def next_batch(self) -> Batch:
        self.number += 1
        batch = Batch(self.number, time_ms=self.time_ms)
        if self.number == 1:
            batch.sub_queues = [
                (slot, SubQueueKey(1, PARTITION, kind)) for slot, kind in SLOTS.items()
            ]
        there = self._random.sample(sorted(self.rows), len(self.rows) // 3)
        for slot, number in there:
            self._change(batch, slot, number)
        for _ in range(self._random.randint(1, BATCH_MESSAGES_MAX)):
            self._put(batch, self._body(), None)
        for _ in range(self._random.randint(0, 2)):
            body, body_id = self._body(), self.next_body
            self.next_body += 1
            batch.bodies.append((body_id, body))
            for _ in range(self._random.randint(0, 4)):
                self._put(batch, body, body_id)
        self._mark(batch)
        batch.counters = {slot: counters.copy() for slot, counters in self.counters.items()}
        return batch

    def _body(self) -> bytes:
        return self._random.randbytes(self._random.randint(0, BODY_BYTES_MAX))

    def _put(self, batch: Batch, body: bytes, body_id: int | None) -> None:
        counters = self.counters[0]
        number = sequence_number(PARTITION, counters.next_counter)
        counters.next_counter += 1
        row = Message(
            bare=body,
            size=len(body),
            number=number,
            expires_ms=self._random.choice([None, self._random.randint(1, 1_000_000)]),
            state=self._random.choice([MessageState.ACTIVE, *MessageState]),
            session_id=self._random.choice([None, *SESSIONS]),
            body_id=body_id,
        )
        self._count(0, row, +1)
        self.rows[0, number] = row
        batch.puts.append((0, row))

    def _mark(self, batch: Batch) -> None:
        """Of everything else a little."""
        batch.session_counts = [SessionCount(0, each, self.active_in(each)) for each in SESSIONS]
        session_id = self._random.choice(SESSIONS)
        state = self._random.choice([None, self._random.randbytes(30)])
        batch.session_states = [SessionState(0, session_id, state, self.time_ms)]
        if state is None:
            self.states.pop(session_id, None)
        else:
            self.states[session_id] = (state, self.time_ms)
        until_ms = self.time_ms + LASTS_MS
        batch.duplicates = [DuplicateMark(0, self._random.randbytes(16), until_ms) for _ in "123"]
        self.duplicates.update({mark.digest: until_ms for mark in batch.duplicates})
        source = self._random.randint(1, 3)
        self.transfers[source] = self.number
        batch.transfers = [TransferMark(0, source, PARTITION, self.number)]
        id_ = self._random.randbytes(4)
        self.transactions[id_] = until_ms
        batch.transactions = [TransactionMark(id_, until_ms)]

    def _change(self, batch: Batch, slot: int, number: int) -> None:
        row = self.rows[slot, number]
        kind = self._random.choice(["delete", "delete", "move", "update"])
        if kind == "update" or (kind == "move" and slot == 1):
            row.delivery_count += 1
            row.changes = self._random.randbytes(8)
            batch.updates.append(
                Update(slot, number, row.state, row.delivery_count, row.expires_ms, row.changes)
            )
            return
        del self.rows[slot, number]
        self._count(slot, row, -1)
        if kind == "delete":
            batch.deletes.append(Delete(slot, number))
            return
        moved = stored_copy(row)
        moved.state = MessageState.ACTIVE
        moved.expires_ms = None
        moved.enqueued_ms += 1
        moved.enqueued_number = number
        moved.dead_letter_source = "source"
        self.rows[1, number] = moved
        self._count(1, moved, +1)
        batch.moves.append(Move(0, number, 1, moved))

    def _count(self, slot: int, row: Message, sign: int) -> None:
        counters = self.counters[slot]
        counters.bytes += sign * row.size
        if row.state is MessageState.ACTIVE:
            counters.active += sign
        elif row.state is MessageState.DEFERRED:
            counters.deferred += sign
        else:
            counters.scheduled += sign


def main(path: Path, seed: int) -> None:
    store = SqliteStore(path, create=True, checkpoint_pages=CHECKPOINT_PAGES)
    committed = store.open().commit_number
    plan = Plan(seed)
    while plan.number < committed:
        plan.next_batch()
    while True:
        batch = plan.next_batch()
        store.commit(batch)
        os.write(sys.stdout.fileno(), b"%d\n" % batch.number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
