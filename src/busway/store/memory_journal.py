"""Journals of the memory store: rows by offset, a head, holds; and the handle that reads them.

Rows are in a dictionary, so that a reader in another thread sees each of them or not, while the
owner adds at one end and forgets at the other. Every change says how it is taken back, as all
changes of a memory disk do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from busway.store.base import READ_BYTES_MAX, READ_ROWS_MAX, Batch, CommitRefused, SubQueueKey
from busway.store.journal import (
    BARE,
    FIELDS,
    JOURNAL_ROW_BYTES,
    TRIM_ROWS,
    JournalHead,
    JournalHold,
    JournalPage,
    JournalRow,
    JournalSize,
)

Undo = Callable[[], object]


class StoredJournal:
    __slots__ = ("head", "holds", "rows")

    def __init__(self) -> None:
        self.head: JournalHead | None = None
        """None before the first commit that says one: a hold may be there sooner."""
        self.rows: dict[int, JournalRow] = {}
        self.holds: dict[str, JournalHold] = {}

    def page(self, first: int, stop: int, rows: int, size: int, bodies: bool) -> list[JournalRow]:
        found: list[JournalRow] = []
        for offset in range(first, min(stop, first + rows)):
            row = self.rows.get(offset)
            if row is None:
                break
            found.append(row)
            size -= row.record.bytes if bodies else JOURNAL_ROW_BYTES
            if size <= 0:
                break
        return found

    def sizes(self, first: int, rows: int) -> list[JournalSize]:
        limit = min(rows, TRIM_ROWS)
        found = self.page(first, first + limit, limit, READ_BYTES_MAX, bodies=False)
        records = [row.record for row in found]
        return [JournalSize(each.offset, each.time_ms, each.bytes) for each in records]

    def offset_at(self, time_ms: int) -> int:
        head = self.head or JournalHead()
        low, high = head.earliest, head.next_offset
        while low < high:
            middle = (low + high) // 2
            row = self.rows.get(middle)
            if row is None or row.record.time_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        return low


class StoredJournals:
    """All journals of a disk. `bodies` are those that messages and rows share, `count_copy` is how
    one more or less of them has a body."""

    def __init__(
        self, bodies: Mapping[int, bytes], count_copy: Callable[[int, int, bytes], None]
    ) -> None:
        self.by_slot: dict[int, StoredJournal] = {}
        self._bodies = bodies
        self._count_copy = count_copy

    def heads(self) -> list[tuple[int, JournalHead]]:
        found = [(slot, each.head) for slot, each in sorted(self.by_slot.items())]
        return [(slot, head.copy()) for slot, head in found if head is not None]

    def holds(self) -> list[JournalHold]:
        journals = [journal for _, journal in sorted(self.by_slot.items())]
        return [hold for each in journals for _, hold in sorted(each.holds.items())]

    def sizes(self, slot: int, first: int, rows: int) -> list[JournalSize]:
        journal = self.by_slot.get(slot)
        return [] if journal is None else journal.sizes(first, rows)

    def apply(self, batch: Batch, undo: list[Undo]) -> None:
        for trim in batch.trims:
            journal = self._journal(trim.slot, undo)
            first = next(iter(journal.rows), trim.before)
            for offset in range(first, min(trim.before, first + TRIM_ROWS)):
                self._forget(journal, offset, undo)
        bodies = dict(batch.bodies)
        for record in batch.journal:
            bare = None
            if record.content is not None:
                body_id = record.content.body_id
                bare = bodies.get(body_id, self._bodies.get(body_id))
                if bare is None:
                    raise CommitRefused(f"body {body_id} is neither in the batch nor in the store")
            self._add(self._journal(record.slot, undo), JournalRow(record, bare), undo)
        for slot, head in batch.journal_heads.items():
            journal = self._journal(slot, undo)
            undo.append(partial(setattr, journal, "head", journal.head))
            journal.head = head.copy()
        for hold in batch.holds:
            self._hold(self._journal(hold.slot, undo), hold, undo)

    def purge(self, slot: int, rows: int, undo: list[Undo]) -> bool:
        """Forget up to so many rows of a deleted incarnation; True if none is left (D-16)."""
        journal = self.by_slot.get(slot)
        if journal is None:
            return True
        for offset in list(islice(journal.rows, rows)):
            self._forget(journal, offset, undo)
        if journal.rows:
            return False
        undo.append(partial(self.by_slot.__setitem__, slot, self.by_slot.pop(slot)))
        return True

    def _journal(self, slot: int, undo: list[Undo]) -> StoredJournal:
        journal = self.by_slot.get(slot)
        if journal is None:
            journal = self.by_slot[slot] = StoredJournal()
            undo.append(partial(self.by_slot.__delitem__, slot))
        return journal

    def _add(self, journal: StoredJournal, row: JournalRow, undo: list[Undo]) -> None:
        offset, content = row.record.offset, row.record.content
        if offset in journal.rows:
            raise CommitRefused(f"offset {offset} is in the journal already")
        journal.rows[offset] = row
        if content is not None and row.bare is not None:
            self._count_copy(content.body_id, +1, row.bare)
        undo.append(partial(self._forget, journal, offset, []))

    def _forget(self, journal: StoredJournal, offset: int, undo: list[Undo]) -> None:
        row = journal.rows.pop(offset)
        content = row.record.content
        if content is not None and row.bare is not None:
            self._count_copy(content.body_id, -1, row.bare)
        undo.append(partial(self._bring_back, journal, row))

    def _bring_back(self, journal: StoredJournal, row: JournalRow) -> None:
        self._add(journal, row, [])
        journal.rows = dict(sorted(journal.rows.items()))  # the oldest are looked for first

    def _hold(self, journal: StoredJournal, hold: JournalHold, undo: list[Undo]) -> None:
        before = journal.holds.get(hold.name)
        if before is not None:
            undo.append(partial(journal.holds.__setitem__, hold.name, before))
        elif hold.offset is not None:
            undo.append(partial(journal.holds.__delitem__, hold.name))
        if hold.offset is not None:
            journal.holds[hold.name] = hold
        elif before is not None:
            del journal.holds[hold.name]


class MemoryJournalHandle:
    """A `JournalHandle`. `slots` and `journals` are the disk's own."""

    def __init__(
        self, slots: Mapping[SubQueueKey, int], journals: Mapping[int, StoredJournal]
    ) -> None:
        self._slots = slots
        self._journals = journals

    def _journal(self, key: SubQueueKey) -> StoredJournal | None:
        return self._journals.get(self._slots.get(key, -1))

    def head(self, key: SubQueueKey) -> JournalHead | None:
        journal = self._journal(key)
        return None if journal is None or journal.head is None else journal.head.copy()

    def read(
        self,
        key: SubQueueKey,
        first: int,
        stop: int,
        fields: Sequence[str] = FIELDS,
        *,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> JournalPage:
        journal = self._journal(key)
        if journal is None:
            return JournalPage()
        limit = min(rows, READ_ROWS_MAX)
        return JournalPage.of(journal.page(first, stop, limit, size, BARE in fields), fields)

    def sizes(self, key: SubQueueKey, first: int, rows: int = TRIM_ROWS) -> list[JournalSize]:
        journal = self._journal(key)
        return [] if journal is None else journal.sizes(first, rows)

    def offset_at(self, key: SubQueueKey, time_ms: int) -> int:
        journal = self._journal(key)
        return 0 if journal is None else journal.offset_at(time_ms)

    def holds(self, key: SubQueueKey) -> list[JournalHold]:
        journal = self._journal(key)
        found = {} if journal is None else dict(journal.holds)
        return [found[name] for name in sorted(found)]

    def close(self) -> None:
        """There is nothing to close."""
