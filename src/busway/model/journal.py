"""What a journal tells: the events of a message's life, and the columns in which they are read.

A journal belongs to one partition of one incarnation of an entity. It is an append-only log with
dense offsets, written in the commit of each change (D-31). The words and columns here are what
readers build on for years: new ones may be added, none is changed or removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from busway.model.durations import DAY_MS
from busway.model.entities import Entity
from busway.model.retention import OwnLimits

SCHEMA_VERSION = 2
"""Raised when a column is added."""


class JournalEvent(IntEnum):
    """What happened. The numbers are stored; the words, in lower case, are what readers see."""

    ENQUEUED = 1
    """It is there for receivers; carries the message."""
    SCHEDULED = 2
    """It waits for its time; carries the message (SCH-1)."""
    CANCELLED = 3
    DELIVERED = 4
    """Locked for a receiver. The only event that a crash may cut off (D-31)."""
    ABANDONED = 5
    """Given back, or its lock ran out: the delivery counts."""
    DEFERRED = 6
    COMPLETED = 7
    """Removed by its receiver, or given to one that receives and deletes."""
    DEAD_LETTERED = 8
    EXPIRED = 9
    """Its time to live is over, and it was dropped."""
    DUPLICATE_DROPPED = 10
    FORWARDED = 11
    """Its destination has it, and it is gone from here (D-27)."""
    PURGED = 12
    """Deleted by a command for many."""
    MOVED = 13
    """Its twin has it, and it is gone from here; carries the message. The reason is its state."""

    @property
    def word(self) -> str:
        return self.name.lower()


CARRYING = frozenset({JournalEvent.ENQUEUED, JournalEvent.SCHEDULED, JournalEvent.MOVED})
"""Events that carry the whole message; the others name it by its number."""

LOCK_EXPIRED = "LockExpired"
"""The reason of an `abandoned` that no receiver asked for (LOCK-4)."""
MIGRATED = "Migrated"
"""The reason of an arrival that was moved here; its related number is the one it had before."""


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """How much of an entity's journal is kept. Each partition has its even share of the sizes."""

    retention_ms: int = 7 * DAY_MS
    size_bytes: int = 1 << 30
    held_bytes: int = 4 << 30
    """The most that holds keep beyond the other limits; then the oldest goes all the same."""
    hold_ms: int = 7 * DAY_MS
    """How long a hold lasts that nobody moves, if its reader does not say."""

    def of(self, own: OwnLimits) -> JournalLimits:
        """With what an entity says itself in the place of these."""
        return replace(self, **own.stated()) if own else self


class ColumnKind(Enum):
    TEXT = "string"
    COUNT = "int64"
    SMALL = "int32"
    TIME = "timestamp[us, UTC]"
    BINARY = "binary"
    TEXT_MAP = "map<string, string>"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: ColumnKind
    of_message: bool = False
    """Read from the sections of the message, so it costs decoding them."""


_TEXT, _COUNT, _SMALL, _TIME, _BINARY = (
    ColumnKind.TEXT,
    ColumnKind.COUNT,
    ColumnKind.SMALL,
    ColumnKind.TIME,
    ColumnKind.BINARY,
)

COLUMNS = (
    Column("entity", _TEXT),
    Column("subscription", _TEXT),
    Column("partition", _SMALL),
    Column("journal_offset", _COUNT),
    Column("event", _TEXT),
    Column("event_time", _TIME),
    Column("sub_queue", _TEXT),
    Column("sequence_number", _COUNT),
    Column("related_sequence_number", _COUNT),
    Column("enqueued_sequence_number", _COUNT),
    Column("enqueued_time", _TIME),
    Column("scheduled_time", _TIME),
    Column("expires_at", _TIME),
    Column("message_id", _TEXT, of_message=True),
    Column("session_id", _TEXT),
    Column("partition_key", _TEXT, of_message=True),
    Column("correlation_id", _TEXT, of_message=True),
    Column("subject", _TEXT, of_message=True),
    Column("content_type", _TEXT, of_message=True),
    Column("reply_to", _TEXT, of_message=True),
    Column("reply_to_session_id", _TEXT, of_message=True),
    Column("to", _TEXT, of_message=True),
    Column("delivery_count", _SMALL),
    Column("lock_token", _TEXT),
    Column("dead_letter_reason", _TEXT),
    Column("dead_letter_description", _TEXT),
    Column("dead_letter_source", _TEXT),
    Column("destination", _TEXT),
    Column("application_properties", ColumnKind.TEXT_MAP, of_message=True),
    Column("typed_properties", _TEXT, of_message=True),
    Column("body", _BINARY, of_message=True),
    Column("body_type", _TEXT, of_message=True),
    Column("body_size", _COUNT, of_message=True),
    Column("message_size", _COUNT),
    Column("schema_version", _SMALL),
    Column("envelope", _BINARY, of_message=True),
)

RAW = Column("raw", _BINARY, of_message=True)
"""The encoded message as the sender sent it; only for those who ask for it."""

BY_NAME = {column.name: column for column in (*COLUMNS, RAW)}


def columns_named(names: list[str] | None) -> tuple[Column, ...]:
    """The columns asked for, in the order of the table; all but `raw` for None.

    Raises `KeyError` with the first name that is none.
    """
    if names is None:
        return COLUMNS
    for name in names:
        BY_NAME[name]
    return tuple(column for column in (*COLUMNS, RAW) if column.name in names)


def epoch_of(entity: Entity) -> str:
    """The name of one incarnation's journal: a catalog may count from one again, when all of it was
    thrown away, but not at the same time."""
    return f"{entity.incarnation}-{entity.created_ms:x}"
