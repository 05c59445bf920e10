"""The contract of stores about journals: what a batch says of them, and how they are read (D-31).

A journal is named by the slot of its partition's main sub-queue. Its owner gives the offsets, dense
from the last committed one; a store keeps the rows, and forgets the oldest when it is told to. The
message that a row carries is stored once: the row counts as one more copy of its body (D-30), which
is forgotten when messages and rows have all let go of it.

Reading is not the owner's: a `JournalHandle` is a second, read-only way to the same data, for any
other thread, and its reads disturb no commit. It sees committed rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from busway.model.journal import JournalEvent
from busway.model.names import SubQueueKind

if TYPE_CHECKING:
    from busway.store.base import SubQueueKey

JOURNAL_ROW_BYTES = 64
"""What a row counts for besides the size of the message that it carries."""

TRIM_ROWS = 1_000
"""A commit forgets at most so many rows of a journal."""


class JournalContent(NamedTuple):
    """The message that a row carries, but for its body, which has an id."""

    body_id: int
    size: int
    header: int
    ttl_ms: int | None
    annotations: bytes
    annotation_items: int
    session_id: str | None
    enqueued_ms: int
    expires_ms: int | None
    """Of one that is scheduled: when it becomes active."""
    enqueued_number: int
    changes: bytes | None
    dead_letter_source: str | None
    destination: str | None


class JournalRecord(NamedTuple):
    """One event, as a batch brings it and as it is read."""

    slot: int
    offset: int
    event: JournalEvent
    time_ms: int
    """Never less than that of the row before."""
    kind: SubQueueKind
    """Where the message is once this has happened; where it was, if it is gone."""
    number: int
    """0 for a duplicate that was dropped: it never got one."""
    delivery_count: int = 0
    lock_token: bytes | None = None
    related_number: int = 0
    reason: str | None = None
    description: str | None = None
    content: JournalContent | None = None

    @property
    def bytes(self) -> int:
        """What it counts for against a journal's size."""
        return JOURNAL_ROW_BYTES + (0 if self.content is None else self.content.size)


class JournalRow(NamedTuple):
    """One event as it is read, with the body if that was asked for."""

    record: JournalRecord
    bare: bytes | None


# --- pages ---------------------------------------------------------------------------------------

BARE: Final = "bare"
OF_RECORD: Final = (
    "time_ms", "event", "kind", "number", "delivery_count", "lock_token", "related_number",
    "reason", "description",
)  # fmt: skip
OF_CONTENT: Final = JournalContent._fields
FIELDS: Final = (*OF_RECORD, *OF_CONTENT, BARE)
"""What a row has, besides its offset: dense offsets need not be read."""
ZERO_IS_NONE: Final = ("related_number", "enqueued_number", "annotations")
"""Fields that are zero or empty in a record, and None in a page, if there is nothing."""


@dataclass(slots=True)
class JournalPage:
    """Rows as they are read in bulk: field by field, because a reader wants few of many fields, and
    an object for each row and its content would cost more than reading them."""

    slot: int = 0
    first: int = 0
    """The offset of the first row; the others follow without a gap."""
    count: int = 0
    fields: dict[str, Sequence[Any] | None] | None = None
    """Of those that were asked for: a value for each row, or None if no row has one."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, field: str) -> Sequence[Any] | None:
        return None if self.fields is None else self.fields[field]

    def column(self, field: str) -> Sequence[Any]:
        values = self[field]
        return [None] * self.count if values is None else values

    @classmethod
    def of(cls, rows: Sequence[JournalRow], fields: Sequence[str] = FIELDS) -> JournalPage:
        if not rows:
            return cls()
        found = {field: [_FIELD_OF[field](row) for row in rows] for field in fields}
        record = rows[0].record
        return cls(record.slot, record.offset, len(rows), dict(found))

    def rows(self) -> list[JournalRow]:
        """The same as objects, for those who want every field."""
        records = zip(*map(self.column, OF_RECORD), strict=True)
        contents = zip(*map(self.column, OF_CONTENT), strict=True)
        return [
            JournalRow(_record(self.slot, self.first + index, record, content), bare)
            for index, (record, content, bare) in enumerate(
                zip(records, contents, self.column(BARE), strict=True)
            )
        ]


def _record(
    slot: int, offset: int, fields: tuple[Any, ...], content: tuple[Any, ...]
) -> JournalRecord:
    time_ms, event, kind, number, delivery_count, token, related, reason, description = fields
    carried = None if content[0] is None else JournalContent(*content)
    if carried is not None:
        carried = carried._replace(
            annotations=carried.annotations or b"", enqueued_number=carried.enqueued_number or 0
        )
    return JournalRecord(
        slot,
        offset,
        JournalEvent(event),
        time_ms,
        SubQueueKind(kind),
        number,
        delivery_count,
        token,
        related or 0,
        reason,
        description,
        carried,
    )


def _field_of(field: str) -> Callable[[JournalRow], Any]:
    if field == BARE:
        return attrgetter(BARE)

    def value_of(row: JournalRow) -> Any:
        source = row.record if field in OF_RECORD else row.record.content
        value = None if source is None else getattr(source, field)
        return value or None if field in ZERO_IS_NONE else value

    return value_of


_FIELD_OF: Final = {field: _field_of(field) for field in FIELDS}


@dataclass(slots=True)
class JournalHead:
    """What is in a journal; a row of its own, updated in each commit, as counters are (D-13)."""

    earliest: int = 0
    """The offset of the oldest row that is there."""
    next_offset: int = 0
    bytes: int = 0
    earliest_ms: int = 0
    last_ms: int = 0
    """The times of the oldest row, and of the newest that ever was."""

    def copy(self) -> JournalHead:
        return JournalHead(
            self.earliest, self.next_offset, self.bytes, self.earliest_ms, self.last_ms
        )


class JournalTrim(NamedTuple):
    """Forget the rows before an offset: at most `TRIM_ROWS` of them."""

    slot: int
    before: int


class JournalHold(NamedTuple):
    """A named consumer that has read up to an offset, and asks that what follows be kept."""

    slot: int
    name: str
    offset: int | None
    """The next that it will read; None ends the hold."""
    until_ms: int
    """When it is forgotten unless it moves."""


class JournalSize(NamedTuple):
    """What trimming has to know of a row."""

    offset: int
    time_ms: int
    bytes: int


class JournalDamaged(Exception):  # noqa: N818
    """The row at an offset is not what was written. Its arguments are its own, so that it can go
    from one process to another."""

    def __init__(self, offset: int, next_offset: int) -> None:
        super().__init__(offset, next_offset)
        self.offset = offset
        self.next_offset = next_offset
        """Where reading can go on: the rows before it are damaged, too."""

    def __str__(self) -> str:
        return f"the journal's rows from offset {self.offset} to {self.next_offset - 1} are damaged"


class JournalHandle(Protocol):
    """A read-only way to the journals of a store. Each call is one short transaction (D-11).

    Used by one thread at a time. All of them raise `StoreUnavailable` if the store cannot be read.
    """

    def head(self, key: SubQueueKey) -> JournalHead | None:
        """Of the journal of this partition's main sub-queue; None if it never had a row."""

    def read(
        self,
        key: SubQueueKey,
        first: int,
        stop: int,
        fields: Sequence[str] = FIELDS,
        *,
        rows: int = 1_000,
        size: int = 4 * 1024 * 1024,
    ) -> JournalPage:
        """Rows of offsets from `first` up to `stop`, ascending, without a gap between them; none if
        `first` is forgotten already. They end in front of a damaged one; raises `JournalDamaged` if
        that is the first.

        At most `rows`, and no more once `size` bytes are reached, but always one if there is one.
        Bodies are read, and counted, only if `bare` is among the fields.
        """

    def sizes(self, key: SubQueueKey, first: int, rows: int = TRIM_ROWS) -> list[JournalSize]:
        """The same for planning: what each row counts for."""

    def offset_at(self, key: SubQueueKey, time_ms: int) -> int:
        """The first offset whose event happened at that time or later; else the next one."""

    def holds(self, key: SubQueueKey) -> Sequence[JournalHold]: ...

    def close(self) -> None:
        """Never raises."""
