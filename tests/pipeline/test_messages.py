"""Messages to columns and back (P-47): a journal's rows can be sent again, section by section."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp import types as amqp
from busway.amqp.codec import decode_value, encode_value, scan_message
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    encode_message,
    read_annotations,
    read_application_properties,
    read_properties,
)
from busway.broker.journal_columns import to_columns
from busway.model.entities import Queue
from busway.model.journal import JournalEvent, columns_named
from busway.model.names import SubQueueKind
from busway.pipeline.wire.messages import MessageError, encode
from busway.store.journal import JournalPage, JournalRecord, JournalRow
from tests.store.test_contract_journal import content

PARTS = [
    "message_id", "session_id", "partition_key", "correlation_id", "subject", "content_type",
    "reply_to", "reply_to_session_id", "to", "application_properties", "typed_properties", "body",
    "body_type",
]  # fmt: skip
PARTITION_KEY = amqp.Symbol("x-opt-partition-key")


def columns_of(message: bytes) -> dict[str, Any]:
    """As a journal tells a message that a broker has taken."""
    seen = scan_message(message)
    carried = content(
        session_id=seen.group_id,
        annotations=seen.annotations,
        annotation_items=seen.annotation_items,
    )
    record = JournalRecord(1, 5, JournalEvent.ENQUEUED, 1_000, SubQueueKind.MAIN, 42)
    row = JournalRow(record._replace(content=carried), seen.bare)
    queue, page = Queue(path="q", incarnation=1, created_ms=1), JournalPage.of([row])
    found = to_columns(queue, 0, page, columns_named(PARTS))
    return {name: cells[0] for name, cells in found.items()}


def body_of(message: bytes) -> list[tuple[int, bytes]]:
    """The sections of the body, encoded: equal bytes are equal types."""
    sections, offset = [], 0
    while offset < len(message):
        section, offset = decode_value(message, offset)
        if int(section.descriptor) in (DATA, AMQP_SEQUENCE, AMQP_VALUE):
            sections.append((int(section.descriptor), encode_value(section.value)))
    return sections


text = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    text,
    st.binary(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 255).map(amqp.UByte),
    st.integers(0, 2**16 - 1).map(amqp.UShort),
    st.integers(0, 2**32 - 1).map(amqp.UInt),
    st.integers(0, 2**64 - 1).map(amqp.ULong),
    st.integers(-128, 127).map(amqp.Byte),
    st.integers(-(2**15), 2**15 - 1).map(amqp.Short),
    st.integers(-(2**31), 2**31 - 1).map(amqp.Int),
    st.integers(-(2**50), 2**50).map(amqp.Timestamp),
    st.floats(),
    st.floats(width=32).map(amqp.Float),
    st.binary(min_size=4, max_size=4).map(amqp.Decimal32),
    st.binary(min_size=8, max_size=8).map(amqp.Decimal64),
    st.binary(min_size=16, max_size=16).map(amqp.Decimal128),
    st.characters(codec="utf-8").map(amqp.Char),
    st.text(st.characters(codec="ascii"), max_size=10).map(amqp.Symbol),
    st.uuids(),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
)
bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=40).map(lambda data: encode_message(data=data)),
    values.map(lambda value: encode_message(body=value)),
    st.lists(st.lists(scalars, max_size=3), min_size=1, max_size=3).map(
        lambda lists: b"".join(
            encode_value(amqp.Described(amqp.ULong(AMQP_SEQUENCE), each)) for each in lists
        )
    ),
)
maybe = st.none() | text
properties = st.builds(
    Properties,
    message_id=maybe,
    to=maybe,
    subject=maybe,
    reply_to=maybe,
    correlation_id=maybe,
    content_type=st.none() | st.text(st.characters(codec="ascii"), max_size=10),
    group_id=maybe,
    reply_to_group_id=maybe,
)


@given(
    properties=properties,
    key=maybe,
    user=st.dictionaries(text, values, max_size=4),
    body=bodies,
)
def test_a_message_comes_back_from_its_columns(
    properties: Properties, key: str | None, user: dict[str, Any], body: bytes
) -> None:
    sent = (
        encode_message(
            annotations=None if key is None else {PARTITION_KEY: key},
            properties=properties,
            application_properties=user,
        )
        + body
    )
    again = encode(columns_of(sent))
    before, after = scan_message(sent), scan_message(again)
    assert read_properties(after.bare) == properties
    assert read_annotations(after.annotations) == read_annotations(before.annotations)
    told = read_application_properties(after.bare)
    assert {name: encode_value(value) for name, value in told.items()} == {
        name: encode_value(value) for name, value in user.items()
    }
    assert body_of(again) == body_of(sent)
    assert encode(columns_of(again)) == again


@pytest.mark.parametrize(
    "message_id", [UUID(int=7), amqp.ULong(7), b"\x01\x02"], ids=["uuid", "ulong", "binary"]
)
def test_ids_of_other_types_come_back_as_the_text_that_brokers_compare(message_id: Any) -> None:
    sent = encode_message(properties=Properties(message_id=message_id), data=b"")
    first = columns_of(sent)
    assert columns_of(encode(first)) == first  # D-15


def test_data_in_several_sections_comes_back_as_one() -> None:
    sent = encode_message(data=b"ab") + encode_message(data=b"cd")
    assert body_of(encode(columns_of(sent))) == [(DATA, encode_value(b"abcd"))]


def test_times_become_a_header_and_an_annotation() -> None:
    when = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
    for time_to_live in (timedelta(seconds=90), 90_000):
        row = {"time_to_live": time_to_live, "scheduled_time": when, "body": "x"}
        seen = scan_message(encode(row))
        assert seen.ttl_ms == 90_000
        assert seen.scheduled_ms == int(when.timestamp() * 1000)
    long = encode({"time_to_live": timedelta(days=365), "body": b""})
    assert scan_message(long).ttl_ms == 365 * 86_400_000
    section, _ = decode_value(long)
    assert section.value[2] == 0xFFFFFFFF  # as long as a header can say
    assert Header(ttl=0xFFFFFFFF).ttl == section.value[2]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"body": b"x", "body_type": "json"}, "must be one of data, string"),
        ({"body": b"x", "body_type": "undecodable"}, "cannot be sent as another"),
        ({"body": b"\xff", "body_type": "string"}, "no UTF-8"),
        ({"body": b"\x01", "body_type": "value"}, "not AMQP's encoding"),
        ({"body": encode_value("x"), "body_type": "sequence"}, "not AMQP's encoding"),
        ({"body": b"", "typed_properties": "[]"}, "must be like"),
        ({"body": b"", "typed_properties": '{"n": ["integer", 1]}'}, "types of AMQP"),
        ({"body": b"", "typed_properties": '{"n": ["ubyte", 300]}'}, "cannot be written in AMQP"),
        ({"body": b"", "subject": "\ud800"}, "cannot be written in AMQP"),
        ({"body": b"", "time_to_live": 0}, "above zero"),
    ],
)
def test_a_row_that_is_no_message_is_refused(row: dict[str, Any], text: str) -> None:
    with pytest.raises(MessageError, match=text):
        encode(row)
