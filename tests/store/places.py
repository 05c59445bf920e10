"""Places where a store's data live, each able to give any number of handles on it; and messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from busway.model.message import Message, sequence_number
from busway.store.base import (
    Batch,
    Counters,
    MessagingStore,
    Opened,
    SubQueueKey,
    SubQueueKind,
)
from busway.store.faults import FaultyStore
from busway.store.memory import MemoryDisk, MemoryStore
from busway.store.sqlite import SqliteStore

PARTITION = 3
MAIN = 1
DEAD = 2
MAIN_KEY = SubQueueKey(7, PARTITION, SubQueueKind.MAIN)
DEAD_KEY = SubQueueKey(7, PARTITION, SubQueueKind.DEAD_LETTER)

NewHandle = Callable[[], MessagingStore]


def sqlite_place(directory: Path) -> NewHandle:
    return lambda: SqliteStore(directory / "store.db", create=True)


def memory_place(_: Path) -> NewHandle:
    disk = MemoryDisk()
    return lambda: MemoryStore(disk)


def faulty_sqlite_place(directory: Path) -> NewHandle:
    new_handle = sqlite_place(directory)
    return lambda: FaultyStore(new_handle())


def faulty_memory_place(directory: Path) -> NewHandle:
    new_handle = memory_place(directory)
    return lambda: FaultyStore(new_handle())


PLACES = {
    "sqlite": sqlite_place,
    "memory": memory_place,
    "faulty-sqlite": faulty_sqlite_place,
    "faulty-memory": faulty_memory_place,
}


class Owner:
    """A handle and the number of its next batch: what a broker keeps of its store."""

    def __init__(self, store: MessagingStore) -> None:
        self.store = store
        self.opened: Opened = store.open()
        self.next_number = self.opened.commit_number + 1

    def batch(self, **content: object) -> Batch:
        return Batch(self.next_number, **content)  # type: ignore[arg-type]

    def commit(self, **content: object) -> None:
        self.store.commit(self.batch(**content))
        self.next_number += 1

    def numbers(self, slot: int = MAIN, after: int = 0, **how: object) -> list[int]:
        page = self.store.read_page(slot, after, **how)  # type: ignore[arg-type]
        return [message.number for message in page]


def number(counter: int) -> int:
    return sequence_number(PARTITION, counter)


def message(counter: int, **fields: object) -> Message:
    defaults: dict[str, object] = {"bare": b"body", "size": 100, "number": number(counter)}
    return Message(**{**defaults, **fields})  # type: ignore[arg-type]


def facts(message: Message) -> tuple[object, ...]:
    """Every stored field, to compare messages by."""
    return (
        message.bare,
        message.size,
        message.header,
        message.ttl_ms,
        message.annotations,
        message.annotation_items,
        message.session_id,
        message.number,
        message.enqueued_ms,
        message.expires_ms,
        message.delivery_count,
        message.state,
        message.changes,
        message.enqueued_number,
        message.body_id,
        message.hops,
        message.dead_letter_source,
        message.destination,
    )


def two_sub_queues() -> dict[str, object]:
    """The content of a first batch: a main queue and its dead-letter queue."""
    return {
        "sub_queues": [(MAIN, MAIN_KEY), (DEAD, DEAD_KEY)],
        "counters": {MAIN: Counters(), DEAD: Counters()},
    }
