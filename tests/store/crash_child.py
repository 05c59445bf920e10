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
    Move,
    SubQueueKey,
    SubQueueKind,
    Update,
)
from busway.store.sqlite import SqliteStore

PARTITION = 5
SLOTS = {0: SubQueueKind.MAIN, 1: SubQueueKind.DEAD_LETTER}
BATCH_MESSAGES_MAX = 40
BODY_BYTES_MAX = 4_000
CHECKPOINT_PAGES = 64
"""Few, so that many kills hit the copying of the log into the database."""


class Plan:
    """What is in the store after each batch: `next_batch` is the only way forward."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.number = 0
        self.rows: dict[tuple[int, int], Message] = {}
        self.counters = {slot: Counters() for slot in SLOTS}

    def next_batch(self) -> Batch:
        self.number += 1
        batch = Batch(self.number, time_ms=1_000 + self.number)
        if self.number == 1:
            batch.sub_queues = [
                (slot, SubQueueKey(1, PARTITION, kind)) for slot, kind in SLOTS.items()
            ]
        there = self._random.sample(sorted(self.rows), len(self.rows) // 3)
        for slot, number in there:
            self._change(batch, slot, number)
        for _ in range(self._random.randint(1, BATCH_MESSAGES_MAX)):
            self._put(batch)
        batch.counters = {slot: counters.copy() for slot, counters in self.counters.items()}
        return batch

    def _put(self, batch: Batch) -> None:
        counters = self.counters[0]
        body = self._random.randbytes(self._random.randint(0, BODY_BYTES_MAX))
        expires_ms = self._random.choice([None, self._random.randint(1, 1_000_000)])
        number = sequence_number(PARTITION, counters.next_counter)
        counters.next_counter += 1
        self._count(0, len(body), +1)
        self.rows[0, number] = Message(
            bare=body, size=len(body), number=number, expires_ms=expires_ms
        )
        batch.puts.append((0, self.rows[0, number]))

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
        self._count(slot, row.size, -1)
        if kind == "delete":
            batch.deletes.append(Delete(slot, number))
            return
        row.expires_ms = None
        row.enqueued_ms += 1
        self.rows[1, number] = row
        self._count(1, row.size, +1)
        batch.moves.append(
            Move(
                0, number, 1, number, MessageState.ACTIVE,
                row.delivery_count, row.enqueued_ms, None, row.changes,
            )
        )  # fmt: skip

    def _count(self, slot: int, size: int, sign: int) -> None:
        self.counters[slot].active += sign
        self.counters[slot].bytes += sign * size


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
