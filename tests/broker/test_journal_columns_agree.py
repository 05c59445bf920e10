"""Whatever messages a journal has: many rows at once give what one value at a time gives."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from busway.amqp import types as amqp
from busway.amqp.codec import encode_value
from busway.amqp.sections import merge_changes
from busway.broker.journal_arrow import to_arrow
from busway.broker.journal_columns import fields_for, to_columns
from busway.model.entities import Queue, Subscription
from busway.model.journal import COLUMNS, RAW, JournalEvent
from busway.model.names import SubQueueKind
from busway.store.journal import JournalPage, JournalRecord, JournalRow
from tests.amqp.bare_messages import damaged, section, whole
from tests.amqp.codecs_at_hand import scalars, texts
from tests.broker.obvious_columns import obvious_columns
from tests.store.test_contract_journal import content as journal_content

ALL = (*COLUMNS, RAW)
QUEUE = Queue(path="orders", incarnation=3, created_ms=77)
ENTITIES = (QUEUE, Subscription(topic="news", name="all"))

pairs_of_annotations = st.dictionaries(
    st.sampled_from(["x-opt-partition-key", "x-opt-via-partition-key", "mine"]), texts, max_size=3
)


@st.composite
def rows(draw: st.DrawFn, offset: int = 5) -> JournalRow:
    event = draw(st.sampled_from(list(JournalEvent)))
    carried, bare = None, None
    if draw(st.booleans()):
        bare = draw(whole | damaged())
        pairs = draw(pairs_of_annotations)
        encoded = b"".join(
            encode_value(amqp.Symbol(key)) + encode_value(value) for key, value in pairs.items()
        )
        changed = draw(st.none() | st.dictionaries(texts, scalars, min_size=1, max_size=2))
        carried = journal_content(
            size=draw(st.integers(0, 1 << 20)),
            header=draw(st.integers(0, 3)),
            ttl_ms=draw(st.none() | st.integers(0, 1 << 40)),
            annotations=encoded,
            annotation_items=2 * len(pairs),
            session_id=draw(st.none() | texts),
            enqueued_ms=draw(st.integers(0, 1 << 40)),
            expires_ms=draw(st.none() | st.integers(0, 1 << 40)),
            enqueued_number=draw(st.integers(0, 3)),
            changes=None if changed is None else merge_changes(None, changed),
            dead_letter_source=draw(st.none() | texts),
            destination=draw(st.none() | texts),
        )
    record = JournalRecord(
        1,
        offset,
        event,
        draw(st.integers(0, 1 << 40)),
        draw(st.sampled_from(list(SubQueueKind))),
        draw(st.integers(0, 3)),
        draw(st.integers(0, 3)),
        draw(st.none() | st.binary(min_size=16, max_size=16)),
        draw(st.integers(0, 3)),
        draw(st.none() | st.just("scheduled") | texts),
        draw(st.none() | texts),
        carried,
    )
    return JournalRow(record, bare)


def arrival(bare: bytes) -> JournalRow:
    record = JournalRecord(1, 5, JournalEvent.ENQUEUED, 1, SubQueueKind.MAIN, 1)
    return JournalRow(record._replace(content=journal_content()), bare)


@given(
    st.lists(rows(), min_size=1, max_size=4),
    st.just(ALL) | st.sets(st.sampled_from(ALL), min_size=1),
    st.sampled_from(ENTITIES),
)
@example([arrival(section(0x73, [None, None, None, 1.5, None, [1]]))], ALL, QUEUE)
@example([arrival(section(0x74, {"t": amqp.Timestamp(1 << 62)}))], ALL, QUEUE)
def test_many_rows_at_once_give_what_one_value_at_a_time_gives(
    drawn: list[JournalRow], chosen: Any, entity: Any
) -> None:
    found = [
        JournalRow(row.record._replace(offset=5 + index), row.bare)
        for index, row in enumerate(drawn)
    ]
    columns = tuple(column for column in ALL if column in chosen)
    page = JournalPage.of(found, fields_for(columns))
    made = to_columns(entity, 2, page, columns)
    expected = obvious_columns(entity, 2, found, columns)
    assert {name: list(cells) for name, cells in made.items()} == expected
    batch = to_arrow(columns, made)
    for column in columns:
        cells = batch[column.name]
        if column.name.endswith(("time", "expires_at")):
            told: list[Any] = [each and each // 1_000 for each in cells.cast("int64").to_pylist()]
        else:
            told = cells.to_pylist()
        assert told == expected[column.name], column.name
