"""A journal as the contract says it is (`store/journal.py`), and random changes of it (D-31)."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from busway.model.journal import CARRYING, JournalEvent
from busway.store.base import SubQueueKind
from busway.store.journal import (
    BARE,
    FIELDS,
    JOURNAL_ROW_BYTES,
    JournalContent,
    JournalHead,
    JournalHold,
    JournalRecord,
    JournalRow,
    JournalSize,
    JournalTrim,
)
from tests.store.places import MAIN, MAIN_KEY, Owner, number

NAMES = ("lake", "audit", "é\x00")
A_TEXT = st.none() | st.text(max_size=4)
PLAIN_EVENTS = [event for event in JournalEvent if event not in CARRYING]


class JournalOracle:
    """The journal of the main sub-queue, by offset, with its head and holds."""

    def __init__(self) -> None:
        self.rows: dict[int, JournalRow] = {}
        self.head: JournalHead | None = None
        self.holds: dict[str, JournalHold] = {}

    def copy(self) -> JournalOracle:
        kept = JournalOracle()
        kept.rows, kept.holds = dict(self.rows), dict(self.holds)
        kept.head = None if self.head is None else self.head.copy()
        return kept

    @property
    def next_offset(self) -> int:
        return 0 if self.head is None else self.head.next_offset

    @property
    def body_ids(self) -> set[int]:
        """Of the bodies that rows keep (D-30)."""
        contents = [row.record.content for row in self.rows.values()]
        return {each.body_id for each in contents if each is not None}

    def page(self, first: int, stop: int, rows: int, size: int, bodies: bool) -> list[JournalRow]:
        found: list[JournalRow] = []
        while first < stop and first in self.rows and len(found) < rows and size > 0:
            row = self.rows[first]
            found.append(row if bodies else JournalRow(row.record, None))
            size -= row.record.bytes if bodies else JOURNAL_ROW_BYTES
            first += 1
        return found

    def sizes(self, first: int, rows: int) -> list[JournalSize]:
        records = [row.record for row in self.page(first, first + rows, rows, 1 << 40, False)]
        return [JournalSize(each.offset, each.time_ms, each.bytes) for each in records]

    def offset_at(self, time_ms: int) -> int:
        later = [offset for offset, row in self.rows.items() if row.record.time_ms >= time_ms]
        return min(later, default=self.next_offset)

    # --- changes ---------------------------------------------------------------------------------

    def draw(
        self, data: st.DataObject, batch: dict[str, Any], time_ms: int, bodies: dict[int, bytes]
    ) -> None:
        """Rows, a trim and holds, applied as they are drawn; `bodies` are those it may carry."""
        batch["journal"], batch["trims"], batch["holds"] = [], [], []
        trimmed = data.draw(st.integers(0, 4)) == 0 and bool(self.rows)
        if trimmed:
            before = data.draw(st.integers(min(self.rows), self.next_offset))
            batch["trims"].append(JournalTrim(MAIN, before))
            self.rows = {offset: row for offset, row in self.rows.items() if offset >= before}
        first = self.next_offset
        records = [
            draw_record(data, first + place, time_ms, bodies)
            for place in range(data.draw(st.integers(0, 4)))
        ]
        for record in records:
            bare = None if record.content is None else bodies[record.content.body_id]
            self.rows[record.offset] = JournalRow(record, bare)
        batch["journal"] = records
        if records or trimmed:
            self.head = self._head(first + len(records), time_ms)
            batch["journal_heads"] = {MAIN: self.head.copy()}
        for name in data.draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2)):
            self._draw_hold(data, batch, name)

    def _head(self, next_offset: int, time_ms: int) -> JournalHead:
        records = [row.record for row in self.rows.values()]
        return JournalHead(
            min(self.rows, default=next_offset),
            next_offset,
            sum(each.bytes for each in records),
            records[0].time_ms if records else time_ms,
            time_ms,
        )

    def _draw_hold(self, data: st.DataObject, batch: dict[str, Any], name: str) -> None:
        offset = data.draw(st.none() | st.integers(0, self.next_offset))
        hold = JournalHold(MAIN, name, offset, data.draw(st.integers(0, 20)))
        batch["holds"].append(hold)
        if offset is None:
            self.holds.pop(name, None)
        else:
            self.holds[name] = hold

    # --- what a store must say -------------------------------------------------------------------

    def check_reads(self, data: st.DataObject, owner: Owner) -> None:
        handle = owner.store.journal_handle()
        end = self.next_offset + 1
        first, stop = data.draw(st.integers(0, end)), data.draw(st.integers(0, end))
        rows, size = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 600))
        bodies = data.draw(st.booleans())
        fields = FIELDS if bodies else [field for field in FIELDS if field != BARE]
        page = handle.read(MAIN_KEY, first, stop, fields, rows=rows, size=size)
        if page.fields is not None:
            page.fields.setdefault(BARE, None)  # not asked for, and so not there
        assert page.rows() == self.page(first, stop, rows, size, bodies)
        assert handle.sizes(MAIN_KEY, first, rows) == self.sizes(first, rows)
        assert owner.store.read_journal_sizes(MAIN, first, rows) == self.sizes(first, rows)
        time_ms = data.draw(st.integers(0, 40))
        assert handle.offset_at(MAIN_KEY, time_ms) == self.offset_at(time_ms)
        handle.close()

    def check_everything(self, owner: Owner) -> None:
        handle = owner.store.journal_handle()
        assert handle.head(MAIN_KEY) == self.head
        page = handle.read(MAIN_KEY, min(self.rows, default=0), 1 << 40)
        assert page.rows() == list(self.rows.values())
        assert list(handle.holds(MAIN_KEY)) == self._held()
        handle.close()

    def check_opened(self, owner: Owner) -> None:
        heads = [] if self.head is None else [(MAIN, self.head)]
        assert list(owner.opened.journal_heads) == heads
        assert list(owner.opened.holds) == self._held()

    def _held(self) -> list[JournalHold]:
        return [self.holds[name] for name in sorted(self.holds)]


def draw_record(
    data: st.DataObject, offset: int, time_ms: int, bodies: dict[int, bytes]
) -> JournalRecord:
    carried = data.draw(st.sampled_from([None, *sorted(bodies)]))
    return JournalRecord(
        slot=MAIN,
        offset=offset,
        event=data.draw(st.sampled_from(PLAIN_EVENTS if carried is None else sorted(CARRYING))),
        time_ms=time_ms,
        kind=data.draw(st.sampled_from(SubQueueKind)),
        number=data.draw(st.sampled_from([0, number(offset + 1)])),
        delivery_count=data.draw(st.integers(0, 3)),
        lock_token=data.draw(st.none() | st.binary(min_size=16, max_size=16)),
        related_number=data.draw(st.sampled_from([0, number(1)])),
        reason=data.draw(A_TEXT),
        description=data.draw(A_TEXT),
        content=None if carried is None else draw_content(data, carried),
    )


def draw_content(data: st.DataObject, body_id: int) -> JournalContent:
    times = st.none() | st.integers(0, 20)
    return JournalContent(
        body_id=body_id,
        size=data.draw(st.integers(0, 300)),
        header=data.draw(st.integers(0, 9)),
        ttl_ms=data.draw(times),
        annotations=data.draw(st.binary(max_size=4)),
        annotation_items=data.draw(st.integers(0, 2)),
        session_id=data.draw(A_TEXT),
        enqueued_ms=data.draw(st.integers(0, 20)),
        expires_ms=data.draw(times),
        enqueued_number=data.draw(st.integers(0, 3)),
        changes=data.draw(st.none() | st.binary(max_size=4)),
        dead_letter_source=data.draw(A_TEXT),
        destination=data.draw(A_TEXT),
    )
