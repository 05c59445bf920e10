"""What readers see of a journal's rows: every column, with AMQP's types where they matter."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from busway.amqp import types as amqp
from busway.amqp.codec import decode_value, encode_value, scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import NO_BODY, encode_message, merge_changes, pack_header, put_body
from busway.broker.journal_columns import fields_for, to_columns
from busway.model.durations import DAY_MS
from busway.model.entities import Queue, Subscription
from busway.model.journal import BY_NAME, COLUMNS, RAW, JournalEvent, columns_named
from busway.model.names import SubQueueKind
from busway.store.journal import JournalContent, JournalPage, JournalRecord, JournalRow
from tests.store.test_contract_journal import content as journal_content

QUEUE = Queue(path="orders", incarnation=3, created_ms=77)
TOKEN = bytes(range(16))


def carrying(bare: bytes, event: JournalEvent = JournalEvent.ENQUEUED, **fields: Any) -> JournalRow:
    content: JournalContent = journal_content(**fields)
    record = JournalRecord(1, 5, event, 1_000, SubQueueKind.MAIN, 42, content=content)
    return JournalRow(record, bare)


def one(row: JournalRow, entity: Queue | Subscription = QUEUE) -> dict[str, Any]:
    found = to_columns(entity, 2, JournalPage.of([row]), (*COLUMNS, RAW))
    return {name: cells[0] for name, cells in found.items()}


def test_every_column_is_there_in_the_order_of_the_table() -> None:
    assert list(to_columns(QUEUE, 0, JournalPage(), COLUMNS)) == [column.name for column in COLUMNS]
    assert list(one(carrying(b""))) == list(BY_NAME)


def test_an_arrival_carries_its_properties() -> None:
    properties = Properties(
        message_id="m-1",
        to="there",
        subject="label",
        reply_to="back",
        correlation_id="c-1",
        content_type="application/json",
        group_id="s-1",
        reply_to_group_id="s-2",
    )
    bare = encode_message(properties=properties, data=b"hello")
    annotations = encode_value(amqp.Symbol("x-opt-partition-key")) + encode_value("key")
    found = one(
        carrying(
            bare,
            size=500,
            session_id="s-1",
            annotations=annotations,
            annotation_items=2,
            enqueued_ms=990,
            expires_ms=9_000,
            enqueued_number=17,
        )
    )
    expected = {
        "entity": "orders",
        "subscription": None,
        "partition": 2,
        "journal_offset": 5,
        "event": "enqueued",
        "event_time": 1_000,
        "sub_queue": "main",
        "sequence_number": 42,
        "related_sequence_number": None,
        "enqueued_sequence_number": 17,
        "enqueued_time": 990,
        "scheduled_time": None,
        "expires_at": 9_000,
        "message_id": "m-1",
        "session_id": "s-1",
        "partition_key": "key",
        "correlation_id": "c-1",
        "subject": "label",
        "content_type": "application/json",
        "reply_to": "back",
        "reply_to_session_id": "s-2",
        "to": "there",
        "delivery_count": 0,
        "lock_token": None,
        "dead_letter_reason": None,
        "dead_letter_description": None,
        "dead_letter_source": None,
        "destination": None,
        "application_properties": [],
        "typed_properties": None,
        "body": b"hello",
        "body_type": "data",
        "body_size": 5,
        "message_size": 500,
        "schema_version": 2,
    }
    beside = {name: value for name, value in found.items() if name not in ("raw", "envelope")}
    assert beside == expected


def test_an_event_that_carries_no_message_has_only_what_it_says() -> None:
    record = JournalRecord(
        1,
        6,
        JournalEvent.DEAD_LETTERED,
        2_000,
        SubQueueKind.DEAD_LETTER,
        42,
        delivery_count=3,
        lock_token=TOKEN,
        related_number=43,
        reason="why",
        description="because",
    )
    found = one(JournalRow(record, None))
    assert {name: value for name, value in found.items() if value is not None} == {
        "entity": "orders",
        "partition": 2,
        "journal_offset": 6,
        "event": "dead_lettered",
        "event_time": 2_000,
        "sub_queue": "dead_letter",
        "sequence_number": 42,
        "related_sequence_number": 43,
        "delivery_count": 3,
        "lock_token": str(UUID(bytes_le=TOKEN)),
        "dead_letter_reason": "why",
        "dead_letter_description": "because",
        "schema_version": 2,
    }


def test_a_scheduled_message_has_its_time() -> None:
    found = one(carrying(b"", JournalEvent.SCHEDULED, expires_ms=9_000, enqueued_ms=990))
    assert (found["scheduled_time"], found["expires_at"], found["enqueued_time"]) == (
        9_000,
        None,
        None,
    )


def test_where_a_forwarded_message_went() -> None:
    record = JournalRecord(
        1, 0, JournalEvent.FORWARDED, 1, SubQueueKind.TRANSFER, 42, description="target"
    )
    found = one(JournalRow(record, None))
    assert (found["destination"], found["dead_letter_description"]) == ("target", None)


def test_a_subscription_is_named_beside_its_topic() -> None:
    subscription = Subscription(topic="news", name="all")
    found = one(carrying(b""), subscription)
    assert (found["entity"], found["subscription"]) == ("news", "all")


@pytest.mark.parametrize(
    ("value", "text", "typed"),
    [
        (None, None, ["null", None]),
        (True, "true", ["boolean", True]),
        (amqp.UByte(5), "5", ["ubyte", 5]),
        (amqp.Int(-5), "-5", ["int", -5]),
        (1 << 60, str(1 << 60), ["long", 1 << 60]),
        (1.5, "1.5", ["double", "1.5"]),
        (float("inf"), "inf", ["double", "inf"]),
        (amqp.Float(0.5), "0.5", ["float", "0.5"]),
        ("text", "text", ["string", "text"]),
        (amqp.Symbol("s"), "s", ["symbol", "s"]),
        (amqp.Char("é"), "é", ["char", "é"]),
        (b"\x01\xff", "01ff", ["binary", "Af8="]),
        (UUID(int=7), str(UUID(int=7)), ["uuid", str(UUID(int=7))]),
        (amqp.Timestamp(1_500), "1970-01-01T00:00:01.500+00:00", ["timestamp", 1_500]),
        (amqp.Decimal32(b"abcd"), "61626364", ["decimal32", "YWJjZA=="]),
    ],
)
def test_application_properties_as_text_and_with_their_types(
    value: Any, text: str | None, typed: list[Any]
) -> None:
    found = one(carrying(encode_message(application_properties={"p": value}, data=b"")))
    assert found["application_properties"] == [("p", text)]
    assert json.loads(found["typed_properties"]) == {"p": typed}


def test_properties_that_a_settlement_set_are_among_them() -> None:
    changes = merge_changes(None, {"DeadLetterReason": "why", "a": "new"})
    bare = encode_message(application_properties={"a": "old", "b": "kept"}, data=b"")
    found = one(carrying(bare, changes=changes))
    assert dict(found["application_properties"]) == {
        "a": "new",
        "b": "kept",
        "DeadLetterReason": "why",
    }


@pytest.mark.parametrize(
    ("body", "kind", "data"),
    [
        ({"data": b"bytes"}, "data", b"bytes"),
        ({"body": "text é"}, "string", "text é".encode()),
        ({"body": b"bytes"}, "binary", b"bytes"),
        ({"body": {"a": 1}}, "value", encode_value({"a": 1})),
        ({"body": None}, "value", encode_value(None)),
        ({"body": NO_BODY}, None, None),
    ],
)
def test_bodies_by_their_kind(body: dict[str, Any], kind: str | None, data: bytes | None) -> None:
    found = one(carrying(encode_message(properties=Properties(), **body)))
    assert (found["body_type"], found["body"]) == (kind, data)
    assert found["body_size"] == (None if data is None else len(data))


def test_a_sequence_and_several_data_sections() -> None:
    sequence = encode_value(amqp.Described(amqp.ULong(0x76), [1, "two"]))
    assert one(carrying(sequence))["body"] == encode_value([1, "two"])
    data = b"".join(encode_value(amqp.Described(amqp.ULong(0x75), each)) for each in (b"a", b"b"))
    assert one(carrying(data))["body"] == b"ab"


def test_sections_with_other_forms_of_descriptors() -> None:
    long_form = b"\x00\x80" + (0x74).to_bytes(8, "big") + encode_value({"a": "1"})
    symbolic = encode_value(amqp.Described(amqp.Symbol("amqp:data:binary"), b"hello"))
    found = one(carrying(long_form + symbolic))
    assert (found["application_properties"], found["body"]) == ([("a", "1")], b"hello")


NARROW, WIDE = bytes.fromhex("005375a005") + b"hello", bytes.fromhex("005375b000000005") + b"hello"
FOOTER = bytes.fromhex("005378c10100")


@pytest.mark.parametrize(
    ("body", "is_left_out"),
    [
        (NARROW, True),
        (encode_message(data=b"x" * 256), True),
        (encode_message(body="text"), True),
        (encode_message(body=b"bytes"), True),
        (b"", True),
        (WIDE, False),
        (NARROW + NARROW, False),
        (encode_message(body=None), False),
        (encode_message(body={"a": 1}), False),
        (encode_value(amqp.Described(amqp.ULong(0x76), [1])), False),
    ],
)
@pytest.mark.parametrize("footer", [b"", FOOTER])
def test_an_envelope_and_a_body_make_the_raw_message(
    body: bytes, is_left_out: bool, footer: bytes
) -> None:
    front = encode_message(properties=Properties(message_id="m-1"))
    found = one(carrying(front + body + footer, header=pack_header(True, None, 3), ttl_ms=5))
    envelope = found["envelope"]
    assert (envelope == found["raw"].replace(body, b"")) is is_left_out
    assert put_body(envelope, body) == found["raw"]


def test_an_envelope_has_what_rules_have_set() -> None:
    """ACT-1: what a subscription holds is not what was sent to its topic."""
    changes = merge_changes(None, {"set": "by a rule"})
    found = one(carrying(encode_message(data=b"x"), changes=changes))
    assert found["envelope"] == encode_message(application_properties={"set": "by a rule"})


def test_what_cannot_be_read_has_no_envelope() -> None:
    found = one(carrying(b"\x00\x53\x75\xa0\xff"))
    assert (found["body_type"], found["envelope"]) == ("undecodable", None)
    assert one(JournalRow(JournalRecord(1, 5, JournalEvent.COMPLETED, 1, SubQueueKind.MAIN, 4),
                          None))["envelope"] is None  # fmt: skip


@pytest.mark.parametrize("said", [None, 40 * DAY_MS, 60 * DAY_MS])
def test_a_time_to_live_that_a_header_has_no_room_for_can_be_read_from_the_raw_message(
    said: int | None,
) -> None:
    """TTL-2: a topic's default of 60 days is not what the sender wrote, and is what counts."""
    times = Properties(creation_time=7, absolute_expiry_time=None if said is None else 7 + said)
    bare = encode_message(properties=times, data=b"body")
    raw = one(carrying(bare, ttl_ms=60 * DAY_MS))["raw"]
    assert scan_message(raw).ttl_ms == 60 * DAY_MS
    assert raw.endswith(bare) is (said == 60 * DAY_MS)


def test_the_raw_message_is_what_the_sender_sent() -> None:
    annotations = encode_value(amqp.Symbol("x-opt-partition-key")) + encode_value("key")
    bare = encode_message(properties=Properties(message_id="m-1"), data=b"hello")
    header = pack_header(True, None, 7)
    row = carrying(bare, header=header, ttl_ms=60_000, annotations=annotations, annotation_items=2)
    sections = scan_message(one(row)["raw"])
    assert sections.bare == bare
    assert (sections.header, sections.ttl_ms) == (header, 60_000)
    assert (sections.partition_key, sections.message_id) == ("key", "m-1")


def test_only_the_columns_that_are_asked_for() -> None:
    columns = columns_named(["event", "message_id", "journal_offset"])
    page = JournalPage.of([carrying(encode_message(data=b"x"))], fields_for(columns))
    found = to_columns(QUEUE, 0, page, columns)
    assert found == {"journal_offset": [5], "event": ["enqueued"], "message_id": [None]}
    with pytest.raises(KeyError, match="no_such"):
        columns_named(["event", "no_such"])


def test_ids_of_every_type_have_their_one_text() -> None:
    """D-15."""
    for message_id, text in (
        (UUID(int=5), str(UUID(int=5))),
        (amqp.ULong(9), "9"),
        (b"\x0a", "0a"),
    ):
        bare = encode_message(properties=Properties(message_id=message_id), data=b"")
        assert one(carrying(bare))["message_id"] == text


def test_a_dropped_duplicate_tells_whose_it_is_and_no_more() -> None:
    bare = encode_message(properties=Properties(message_id="m-1"))
    found = one(carrying(bare, JournalEvent.DUPLICATE_DROPPED))
    assert (found["message_id"], found["body"], found["raw"]) == ("m-1", None, None)


def test_a_message_that_cannot_be_read_does_not_end_a_scan() -> None:
    """A key without a value among the application properties, which a broker never looks at."""
    bare = b"\x00\x53\x74\xc1\x05\x01\xa1\x01a\x43" + encode_message(data=b"x")
    found = one(carrying(bare))
    assert (found["body_type"], found["body"]) == ("undecodable", bare)
    assert (found["message_id"], found["sequence_number"]) == (None, 42)


def test_decoding_is_lossless_for_replay() -> None:
    """What `raw` gives can be decoded again, section by section."""
    bare = encode_message(application_properties={"a": amqp.UShort(3)}, data=b"x")
    section, _ = decode_value(one(carrying(bare))["raw"])
    assert type(section.value["a"]) is amqp.UShort
