"""What it costs to read a journal: CPU per row, from the rows of a SQLite store to Arrow.

    python bench/journal_read.py [--messages N] [--rounds N]

Two journals of messages of 1 KiB with a few properties: one has arrivals only, the other whole
lives (enqueued, delivered, completed). Each is read with all columns, without bodies, and with
three columns that need no message. CPU is that of this process, which is set up as those that
read for a broker are, the kernel's part included; wall time would measure the neighbours. The best
round counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from busway.amqp.performatives import Properties
from busway.amqp.sections import encode_message
from busway.broker.journal_arrow import to_arrow
from busway.broker.journal_reader import EntityJournal
from busway.model.entities import Queue
from busway.model.journal import COLUMNS, JournalEvent, columns_named
from busway.model.message import sequence_number
from busway.runtime.journal_worker import settle_in
from busway.store.base import Batch, SubQueueKey, SubQueueKind
from busway.store.journal import JournalContent, JournalHead, JournalRecord
from busway.store.sqlite import SqliteStore

BODY = os.urandom(1024)
SLOT = 1
BATCH_MESSAGES = 500
BODIES = {"body", "body_type", "body_size"}
CHOICES = {
    "all columns": COLUMNS,
    "all but bodies": tuple(each for each in COLUMNS if each.name not in BODIES),
    "three columns": columns_named(["journal_offset", "event", "event_time"]),
}
LIVES = {
    "arrivals": (JournalEvent.ENQUEUED,),
    "whole lives": (JournalEvent.ENQUEUED, JournalEvent.DELIVERED, JournalEvent.COMPLETED),
}


def bare_message(number: int) -> bytes:
    return encode_message(
        properties=Properties(
            message_id=f"0123456789abcdef-{number:012d}",
            subject="order",
            correlation_id=f"c-{number}",
            content_type="application/json",
        ),
        application_properties={"region": "eu", "number": number, "express": True},
        data=BODY,
    )


def records(number: int, events: tuple[JournalEvent, ...], offset: int) -> Iterator[JournalRecord]:
    for index, event in enumerate(events):
        content = token = None
        if event is JournalEvent.ENQUEUED:
            content = JournalContent(
                number, 1_300, 0, None, b"", 0, None, 1 << 40, None, 0, None, None, None
            )
        else:
            token = number.to_bytes(16, "big")
        yield JournalRecord(
            SLOT,
            offset + index,
            event,
            (1 << 40) + offset,
            SubQueueKind.MAIN,
            sequence_number(0, number),
            lock_token=token,
            content=content,
        )


def filled(path: Path, events: tuple[JournalEvent, ...], messages: int) -> SqliteStore:
    store = SqliteStore(path, create=True)
    commit = store.open().commit_number + 1
    key = SubQueueKey(1, 0, SubQueueKind.MAIN)
    store.commit(Batch(commit, sub_queues=[(SLOT, key)]))
    offset = 0
    for first in range(1, messages + 1, BATCH_MESSAGES):
        commit += 1
        numbers = range(first, min(first + BATCH_MESSAGES, messages + 1))
        rows = []
        for number in numbers:
            rows += records(number, events, offset)
            offset += len(events)
        head = JournalHead(0, offset, 0, 1 << 40, (1 << 40) + offset)
        bodies = [(number, bare_message(number)) for number in numbers]
        store.commit(Batch(commit, journal=rows, bodies=bodies, journal_heads={SLOT: head}))
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    settle_in()
    queue = Queue(path="bench", incarnation=1, placement=("s",), created_ms=1, capture=True)
    print("| journal | columns | CPU us/row | rows/s of one core | bytes/row |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="busway-journal-") as folder:
        for name, events in LIVES.items():
            store = filled(Path(folder) / f"{len(events)}.db", events, given.messages)
            journal = EntityJournal(queue, {"s": store.journal_handle()})
            rows = given.messages * len(events)
            for choice, columns in CHOICES.items():
                times = []
                for _ in range(given.rounds):
                    size, began = 0, time.process_time()
                    for values in journal.read(0, 0, rows, columns):
                        size += len(to_arrow(columns, values).serialize())
                    times.append((time.process_time() - began) / rows)
                cost = min(times)
                print(
                    f"| {name} | {choice} | {cost * 1e6:.2f} | {1 / cost:,.0f}"
                    f" | {size / rows:,.0f} |",
                    flush=True,
                )
            store.close()


if __name__ == "__main__":
    main()
