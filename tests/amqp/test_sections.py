"""Messages taken apart and put together (amqp.md, sections 12 and 13)."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    Sections,
    apply_changes,
    drop_body,
    encode_message,
    merge_changes,
    pack_header,
    read_application_properties,
    read_properties,
    replace_properties,
    unpack_header,
    with_message_id,
)
from busway.amqp.types import Described, Int, Short, Symbol, Timestamp, UInt, ULong
from tests.amqp.codecs_at_hand import CODECS, both_codecs, each_codec, octets, typed, values

TOKEN = UUID("00112233-4455-6677-8899-aabbccddeeff")
PURE = CODECS["pure"]


def annotations(pairs: dict[str, Any]) -> bytes:
    return octets("00 53 72") + PURE.encode_value({Symbol(key): pairs[key] for key in pairs})


HEADER = PURE.encode_value(Header(True, 3, 5000, False, 9))
DELIVERY_ANNOTATIONS = octets("00 53 71 c1 01 00")
ANNOTATIONS = annotations({"x-opt-partition-key": "key", "mine": [1, 2]})
PROPERTIES = encode_message(
    properties=Properties(message_id="id", group_id="session", absolute_expiry_time=77)
)
APPLICATION_PROPERTIES = encode_message(application_properties={"a": UInt(1)})
DATA = octets("00 53 75 a0 05 'hello'")
FOOTER = octets("00 53 78 c1 01 00")
BARE = PROPERTIES + APPLICATION_PROPERTIES + DATA + FOOTER
MESSAGE = HEADER + DELIVERY_ANNOTATIONS + ANNOTATIONS + BARE


@each_codec
def test_a_scan_finds_what_a_broker_must_know(codec: ModuleType) -> None:
    assert codec.scan_message(MESSAGE) == Sections(
        header=pack_header(True, False, 3),
        ttl_ms=5000,
        annotations=ANNOTATIONS[6:],
        annotation_items=4,
        partition_key="key",
        via_partition_key=None,
        scheduled_ms=None,
        message_id="id",
        group_id="session",
        absolute_expiry_ms=77,
        bare=BARE,
        application_properties=APPLICATION_PROPERTIES[3:],
    )


@each_codec
def test_a_message_may_have_no_sections_and_no_body(codec: ModuleType) -> None:
    empty = codec.scan_message(b"")
    assert (empty.bare, empty.header, empty.ttl_ms) == (b"", 0, None)
    assert codec.scan_message(PROPERTIES).bare == PROPERTIES


@each_codec
@given(
    durable=st.none() | st.booleans(),
    first_acquirer=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
)
def test_a_header_is_one_integer(
    codec: ModuleType, durable: bool | None, first_acquirer: bool | None, priority: int | None
) -> None:
    packed = pack_header(durable, first_acquirer, priority)
    assert unpack_header(packed) == (durable, first_acquirer, priority)
    encoded = codec.encode_value(Header(durable, priority, None, first_acquirer))
    assert codec.scan_message(encoded).header == packed
    assert codec.scan_message(b"").header == pack_header(None, None, None) == 0


@each_codec
def test_delivery_annotations_may_come_last_as_the_python_sdk_writes_them(
    codec: ModuleType,
) -> None:
    found = codec.scan_message(HEADER + ANNOTATIONS + BARE + DELIVERY_ANNOTATIONS)
    assert found == codec.scan_message(MESSAGE)


@each_codec
@given(order=st.permutations([HEADER, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA]))
def test_sections_in_any_order_come_out_in_the_order_of_the_standard(
    codec: ModuleType, order: list[bytes]
) -> None:
    found = codec.scan_message(b"".join(order))
    assert found.bare == PROPERTIES + APPLICATION_PROPERTIES + DATA
    assert found.partition_key == "key"


@each_codec
@pytest.mark.parametrize("descriptor", ["80 00 00 00 00 00 00 00 75", "a3 10 'amqp:data:binary'"])
def test_descriptors_of_sections_come_out_small_e2(codec: ModuleType, descriptor: str) -> None:
    sent = PROPERTIES + octets("00" + descriptor + "a0 05 'hello'")
    assert codec.scan_message(sent).bare == PROPERTIES + DATA


@each_codec
@pytest.mark.parametrize(
    "body",
    [
        "00 53 75 b0 00 00 00 01 'x'",
        "00 53 75 a0 01 'x' 00 53 75 a0 00",
        "00 53 76 45 00 53 76 c0 02 01 40",
        "00 53 77 40",
        "00 53 77 00 a3 01 'd' a1 01 'x'",
        "00 53 77 c0 03 01 ff ff",
    ],
    ids=["data", "much data", "sequences", "null", "described", "never decoded"],
)
def test_a_body_is_kept_as_it_came(codec: ModuleType, body: str) -> None:
    assert codec.scan_message(HEADER + octets(body)).bare == octets(body)


@each_codec
@pytest.mark.parametrize(
    "name",
    [
        "x-opt-enqueued-time",
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
        "x-opt-lock-token",
    ],
)
def test_annotations_of_the_broker_are_ignored_on_the_way_in(codec: ModuleType, name: str) -> None:
    kept = {"first": 1, "x-opt-other": 2, "last": 3}
    sent = annotations({"first": 1, name: "forged", "x-opt-other": 2, "last": 3})
    found = codec.scan_message(sent)
    assert found.annotations == annotations(kept)[6:]
    assert found.annotation_items == 6
    assert codec.scan_message(annotations({name: "forged"})).annotations == b""


@each_codec
def test_annotations_that_decide_about_a_message_are_read(codec: ModuleType) -> None:
    pairs = {
        "x-opt-partition-key": "p",
        "x-opt-via-partition-key": "v",
        "x-opt-scheduled-enqueue-time": Timestamp(1_700_000_000_000),
    }
    found = codec.scan_message(annotations(pairs))
    assert found.partition_key == "p"
    assert found.via_partition_key == "v"
    assert found.scheduled_ms == 1_700_000_000_000
    assert found.annotation_items == 6


@each_codec
def test_a_null_among_them_is_as_good_as_none(codec: ModuleType) -> None:
    found = codec.scan_message(
        annotations({"x-opt-partition-key": None, "x-opt-scheduled-enqueue-time": None})
    )
    assert (found.partition_key, found.scheduled_ms) == (None, None)
    # A null time must not come out again: it makes the Go SDK panic.
    assert found.annotation_items == 2


@each_codec
@pytest.mark.parametrize("message_id", ["text", ULong(7), TOKEN, b"\x00\xff", b"\x01", None])
def test_a_message_id_keeps_the_type_that_its_sender_chose(
    codec: ModuleType, message_id: Any
) -> None:
    sent = encode_message(properties=Properties(message_id=message_id))
    assert typed(codec.scan_message(sent).message_id) == typed(message_id)


TEXTS = {
    "message_id": "an id",
    "to": "there",
    "subject": "s\u00fcbject",
    "reply_to": "here",
    "correlation_id": "another id",
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "group_id": "session " + "x" * 300,
    "reply_to_group_id": "answers",
}
SYMBOLS = ("content_type", "content_encoding")


@each_codec
@pytest.mark.parametrize("written_as", [bytes, Symbol, str])
def test_texts_of_another_type_are_taken_as_texts(codec: ModuleType, written_as: type) -> None:
    """The Python SDK writes binaries where it has received texts."""
    fields: list[Any] = [None] * 13
    for name, text in TEXTS.items():
        place = [field.name for field in Properties.FIELDS].index(name)
        fields[place] = text.encode() if written_as is bytes else written_as(text)
    if written_as is Symbol:
        fields[3] = TEXTS["subject"]  # symbols are ASCII
    keys = {Symbol("x-opt-partition-key"): b"session", Symbol("x-opt-via-partition-key"): b"via"}
    payload = octets("00 53 72") + PURE.encode_value(keys)
    payload += octets("00 53 73") + PURE.encode_value(fields) + DATA
    found = codec.scan_message(payload)
    assert found.message_id == "an id"
    assert found.group_id == TEXTS["group_id"]
    assert (found.partition_key, found.via_partition_key) == ("session", "via")
    expected = {name: Symbol(text) if name in SYMBOLS else text for name, text in TEXTS.items()}
    sent = codec.decode_value(found.bare)[0].value
    kept = {field.name: value for field, value in zip(Properties.FIELDS, sent, strict=True)}
    assert typed({name: kept[name] for name in TEXTS}) == typed(expected)
    assert b"\xa1\x07session" in found.annotations


@each_codec
def test_binary_that_is_no_text_stays_what_it_is(codec: ModuleType) -> None:
    ids = Properties(message_id=b"\xff\xfe", correlation_id=b"\x00\x01", user_id=b"me")
    sent = encode_message(properties=ids, data=b"x")
    assert codec.scan_message(sent).bare == sent


@each_codec
def test_a_group_id_that_is_no_text_is_refused(codec: ModuleType) -> None:
    fields: list[Any] = [None] * 10 + [b"\xff"]
    with pytest.raises(ProtocolError):
        codec.scan_message(octets("00 53 73") + PURE.encode_value(fields))


MALFORMED = {
    "a section that does not exist": "00 53 79 40",
    "no descriptor": "a0 01 'x'",
    "data that is text": "00 53 75 a1 01 'x'",
    "annotations in a list": "00 53 72 45",
    "properties in a map": "00 53 73 c1 01 00",
    "a message id that is a list": "00 53 73 c0 02 01 45",
    "a group id that is a number": "00 53 73 c0 0c 0b 40 40 40 40 40 40 40 40 40 40 43",
    "a header with a text for its time to live": "00 53 70 c0 06 03 40 40 a1 01 'x'",
    "too many properties": "00 53 73 c0 0f 0e" + "40" * 14,
    "too many fields in a header": "00 53 70 c0 07 06" + "40" * 6,
    "two headers": "00 53 70 45 00 53 70 45",
    "two application properties": "00 53 74 c1 01 00 00 53 74 c1 01 00",
    "two values": "00 53 77 40 00 53 77 40",
    "two kinds of body": "00 53 75 a0 00 00 53 77 40",
    "an odd map": "00 53 72 c1 02 01 40",
    "a map that is not filled": "00 53 72 c1 04 02 40 40 40",
    "a partition key that is a number": "00 53 72 c1 17 02 a3 13 'x-opt-partition-key' 43",
    "a time that is a text": "00 53 72 c1 22 02 a3 1c 'x-opt-scheduled-enqueue-time' a1 01 'x'",
}


@each_codec
@pytest.mark.parametrize("encoded", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_message_that_is_not_one_is_refused(codec: ModuleType, encoded: str) -> None:
    with pytest.raises(ProtocolError):
        codec.scan_message(octets(encoded))


@each_codec
def test_a_message_cut_short_is_refused_or_ends_between_sections(codec: ModuleType) -> None:
    borders = {0}
    for section in (HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES):
        borders.add(max(borders) + len(section))
    borders.add(max(borders) + len(DATA))
    for end in range(len(MESSAGE)):
        if end in borders:
            codec.scan_message(MESSAGE[:end])
        else:
            with pytest.raises(ProtocolError):
                codec.scan_message(MESSAGE[:end])


# On the way out


def deliver(codec: ModuleType, **changed: Any) -> bytes:
    found = codec.scan_message(MESSAGE)
    given: dict[str, Any] = {
        "header": found.header,
        "ttl_ms": found.ttl_ms,
        "delivery_count": 0,
        "lock_token": None,
        "number": 5,
        "enqueued_ms": 6,
        "locked_until_ms": None,
        "state": 0,
        "partition": None,
        "annotations": found.annotations,
        "annotation_items": found.annotation_items,
        "bare": found.bare,
    }
    return bytes(codec.encode_delivery(**{**given, **changed}))


@each_codec
def test_a_delivery_carries_what_the_broker_knows_with_its_exact_types(codec: ModuleType) -> None:
    delivery = deliver(codec, delivery_count=2, locked_until_ms=7, partition=3, state=1)
    header, after = codec.decode_composite(delivery)
    assert header == Header(True, 3, 5000, False, 2)
    _, after = codec.decode_value(delivery, after)
    section, after = codec.decode_value(delivery, after)
    assert section.descriptor == ULong(0x72)
    assert typed(section.value) == typed(
        {
            Symbol("x-opt-sequence-number"): 5,
            Symbol("x-opt-enqueued-time"): Timestamp(6),
            Symbol("x-opt-message-state"): Int(1),
            Symbol("x-opt-enqueue-sequence-number"): 0,
            Symbol("x-opt-locked-until"): Timestamp(7),
            Symbol("x-opt-partition-id"): Short(3),
            Symbol("x-opt-partition-key"): "key",
            Symbol("mine"): [1, 2],
        }
    )
    assert delivery[after:] == BARE


@each_codec
def test_a_message_of_a_topic_tells_the_number_that_it_had_there(codec: ModuleType) -> None:
    """SEQ-6, RUL-3."""
    delivery = deliver(codec, locked_until_ms=7, enqueued_number=1 << 50)
    _, after = codec.decode_composite(delivery)
    _, after = codec.decode_value(delivery, after)
    section, after = codec.decode_value(delivery, after)
    assert section.value[Symbol("x-opt-enqueue-sequence-number")] == 1 << 50
    assert section.value[Symbol("x-opt-locked-until")] == Timestamp(7)
    assert delivery[after:] == BARE


@each_codec
@pytest.mark.parametrize("source", ["orders", "x" * 300, "Bestellungen-\u00fc"])
def test_a_forwarded_dead_letter_says_where_it_comes_from(codec: ModuleType, source: str) -> None:
    """DLQ-4: a string; the sender's own annotations stay as they are."""
    delivery = deliver(codec, dead_letter_source=source, partition=3, enqueued_number=9)
    _, after = codec.decode_composite(delivery)
    _, after = codec.decode_value(delivery, after)
    section, after = codec.decode_value(delivery, after)
    assert typed(section.value[Symbol("x-opt-deadletter-source")]) == typed(source)
    assert section.value[Symbol("x-opt-partition-key")] == "key"
    assert section.value[Symbol("mine")] == [1, 2]
    assert delivery[after:] == BARE


@each_codec
def test_what_is_read_where_it_was_dead_lettered_has_no_source(codec: ModuleType) -> None:
    """DLQ-5."""
    assert b"deadletter-source" not in deliver(codec)


@each_codec
def test_a_delivery_always_has_a_header_with_a_delivery_count(codec: ModuleType) -> None:
    delivery = deliver(codec, header=0, ttl_ms=None)
    assert delivery.startswith(octets("00 53 70 c0 06 05 40 40 40 40 43"))


@each_codec
def test_a_message_without_a_lock_says_nothing_of_it(codec: ModuleType) -> None:
    delivery = deliver(codec)
    assert b"locked-until" not in delivery
    assert b"lock-token" not in delivery
    assert b"partition-id" not in delivery


@each_codec
def test_a_lock_token_is_a_uuid_among_the_delivery_annotations(codec: ModuleType) -> None:
    delivery = deliver(codec, lock_token=TOKEN.bytes_le)
    assert delivery_annotations(codec, delivery) == {Symbol("x-opt-lock-token"): TOKEN}


def delivery_annotations(codec: ModuleType, delivery: bytes) -> Any:
    _, after = codec.decode_composite(delivery)
    section, _ = codec.decode_value(delivery, after)
    assert section.descriptor == ULong(0x71)
    return section.value


@each_codec
def test_a_delivery_without_delivery_annotations_has_an_empty_map(codec: ModuleType) -> None:
    """N-8."""
    assert delivery_annotations(codec, deliver(codec)) == {}


@each_codec
@pytest.mark.parametrize("token", [None, TOKEN])
def test_the_senders_delivery_annotations_come_back(codec: ModuleType, token: UUID | None) -> None:
    """N-8: null values, too, and wherever in the message they were written."""
    own = {Symbol("x-opt-mine"): "kept", Symbol("empty"): None, Symbol("many"): [1] * 300}
    section = b"\x00\x53\x71" + codec.encode_value(own)
    for payload in (section + BARE, BARE + section):
        kept = codec.scan_message(payload).bare
        delivery = deliver(codec, bare=kept, lock_token=token and token.bytes_le)
        expected = own if token is None else {Symbol("x-opt-lock-token"): token} | own
        assert typed(delivery_annotations(codec, delivery)) == typed(expected)
        assert delivery.endswith(BARE)
        assert delivery.count(b"x-opt-mine") == 1


@each_codec
def test_the_token_of_an_old_lock_is_not_kept(codec: ModuleType) -> None:
    """A received message that is sent again."""
    again = deliver(codec, lock_token=TOKEN.bytes_le)
    assert codec.scan_message(again).bare == BARE


@pytest.mark.parametrize("bare", [BARE, DATA, b""])
def test_editing_leaves_delivery_annotations_in_front(bare: bytes) -> None:
    codec = CODECS["pure"]
    front = b"\x00\x53\x71" + codec.encode_value({Symbol("x-opt-mine"): 1})
    kept = codec.scan_message(front + bare).bare
    changes = merge_changes(None, {"reason": "because"})
    assert apply_changes(kept, changes) == front + apply_changes(bare, changes)
    assert replace_properties(kept, {3: "s"}) == front + replace_properties(bare, {3: "s"})
    if bare != BARE:
        assert with_message_id(kept, "id") == front + with_message_id(bare, "id")
    assert drop_body(kept) == front + drop_body(bare)


@both_codecs
@given(
    header=st.builds(
        pack_header,
        st.none() | st.booleans(),
        st.none() | st.booleans(),
        st.none() | st.integers(0, 255),
    ),
    ttl_ms=st.none() | st.integers(0, 0xFFFFFFFF),
    delivery_count=st.integers(0, 0xFFFFFFFF),
    lock_token=st.none() | st.binary(min_size=16, max_size=16),
    number=st.integers(0, (1 << 63) - 1),
    enqueued_ms=st.integers(-62135596800000, 1 << 50),
    locked_until_ms=st.none() | st.integers(0, 1 << 50),
    state=st.integers(0, 2),
    partition=st.none() | st.integers(0, 100),
    annotations=st.binary(max_size=400),
    annotation_items=st.integers(0, 40),
    bare=st.builds(
        bytes.__add__,
        st.sampled_from([b"", b"\x00\x53\x71\xc1\x05\x02\xa3\x01x\x40"]),
        st.binary(max_size=40),
    ),
    enqueued_number=st.integers(0, (1 << 63) - 1),
    dead_letter_source=st.none() | st.text(max_size=400),
)
def test_both_codecs_write_the_same_delivery(**given: Any) -> None:
    first, second = (codec.encode_delivery(**given) for codec in CODECS.values())
    assert first == second


@each_codec
def test_a_delivery_that_expires_says_when_among_its_properties(codec: ModuleType) -> None:
    """TTL-3: every other property keeps its bytes."""
    delivery = deliver(codec, creation_ms=100, expiry_ms=300)
    found, expected = read_properties(delivery), read_properties(MESSAGE)
    assert found == replace(expected, creation_time=100, absolute_expiry_time=300)
    assert delivery.endswith(BARE[len(PROPERTIES) :])


@each_codec
@pytest.mark.parametrize("bare", [b"", DATA, octets("00 53 73 45") + DATA])
def test_a_delivery_that_expires_gets_properties_if_it_has_none(
    codec: ModuleType, bare: bytes
) -> None:
    delivery = deliver(codec, bare=bare, creation_ms=-1, expiry_ms=1 << 40)
    times = Properties(creation_time=-1, absolute_expiry_time=1 << 40)
    assert read_properties(delivery) == times
    assert delivery.endswith(bare.removeprefix(octets("00 53 73 45")))


@both_codecs
@given(
    items=st.lists(values | st.none(), max_size=13),
    rest=st.sampled_from([b"", DATA, DATA + FOOTER]),
    creation_ms=st.integers(-62135596800000, 1 << 50),
    expiry_ms=st.integers(-62135596800000, 1 << 50),
)
def test_both_codecs_write_the_same_times(
    items: list[Any], rest: bytes, creation_ms: int, expiry_ms: int
) -> None:
    bare = PURE.encode_value(Described(ULong(0x73), items)) + rest
    times = {"bare": bare, "creation_ms": creation_ms, "expiry_ms": expiry_ms}
    first, second = (deliver(codec, **times) for codec in CODECS.values())
    assert first == second


def asking(ttl_ms: int | None, creation_ms: Any, expiry_ms: int | None) -> bytes:
    properties: list[Any] = [None] * 8
    properties += [None if expiry_ms is None else Timestamp(expiry_ms), creation_ms]
    header = b"" if ttl_ms is None else encode_message(header=Header(ttl=ttl_ms))
    return header + bytes(PURE.encode_value(Described(ULong(0x73), properties)))


LONGEST = 0xFFFFFFFF


@each_codec
@pytest.mark.parametrize(
    ("ttl_ms", "creation_ms", "expiry_ms", "found_ms"),
    [
        (LONGEST, Timestamp(10), 10 + 2 * LONGEST, 2 * LONGEST),
        (LONGEST, Timestamp(10), 11, LONGEST),
        (LONGEST, None, 2 * LONGEST, LONGEST),
        (LONGEST, Timestamp(10), None, LONGEST),
        (LONGEST, "no time", 2 * LONGEST, LONGEST),
        (LONGEST, Timestamp(-(1 << 63)), (1 << 63) - 1, 253_402_300_799_999),
        (5, Timestamp(10), 10 + 2 * LONGEST, 5),
        (None, Timestamp(10), 10 + 2 * LONGEST, None),
    ],
)
def test_a_time_to_live_above_32_bits_is_the_difference_of_two_times(
    codec: ModuleType, ttl_ms: int | None, creation_ms: Any, expiry_ms: int, found_ms: int | None
) -> None:
    """TTL-1."""
    assert codec.scan_message(asking(ttl_ms, creation_ms, expiry_ms)).ttl_ms == found_ms


# Batches


@each_codec
def test_a_batch_is_the_messages_in_its_data_sections(codec: ModuleType) -> None:
    long = encode_message(data=b"x" * 300)
    batch = MESSAGE[: -len(DATA + FOOTER)] + b"".join(
        encode_message(data=inner) for inner in (MESSAGE, long, b"")
    )
    assert codec.split_batch(batch) == [MESSAGE, long, b""]


@each_codec
def test_a_batch_of_values_is_refused(codec: ModuleType) -> None:
    with pytest.raises(ProtocolError):
        codec.split_batch(encode_message(body="x"))
    with pytest.raises(ProtocolError):
        codec.split_batch(DATA[:-1])


# What settlements change


def test_changes_are_merged_and_the_newer_wins() -> None:
    first = merge_changes(None, {"a": 1, "b": UInt(2)})
    second = merge_changes(first, {"a": "new", Symbol("c"): None})
    read, _ = PURE.decode_value(second)
    assert typed(read) == typed({"b": UInt(2), "a": "new", "c": None})


def test_changed_properties_leave_all_others_as_they_are() -> None:
    described = Described(Symbol("com.microsoft:timespan"), 5)
    bare = encode_message(
        properties=Properties("id"),
        application_properties={"a": UInt(1), "b": Short(2), "c": described},
        data=b"body",
    )
    changed = apply_changes(bare, merge_changes(None, {"b": "new", "d": True}))
    assert typed(read_application_properties(changed)) == typed(
        {"a": UInt(1), "c": described, "b": "new", "d": True}
    )
    assert drop_body(changed) + bare[-9:] == changed
    assert read_properties(changed) == Properties("id")


@given(pairs=st.dictionaries(st.text(max_size=200), values, max_size=5))
def test_changes_apply_to_whatever_properties_there_are(pairs: dict[str, Any]) -> None:
    bare = encode_message(application_properties=pairs, body=1)
    changed = apply_changes(bare, merge_changes(None, {"DeadLetterReason": "x" * 200}))
    expected = {key: item for key, item in pairs.items() if key != "DeadLetterReason"}
    expected["DeadLetterReason"] = "x" * 200
    assert typed(read_application_properties(changed)) == typed(expected)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b""), (PROPERTIES, b""), (PROPERTIES, DATA), (b"", DATA + FOOTER), (b"", FOOTER)],
)
def test_application_properties_are_made_before_the_body(before: bytes, after: bytes) -> None:
    changes = merge_changes(None, {"a": 1})
    section = encode_message(application_properties={"a": 1})
    assert apply_changes(before + after, changes) == before + section + after


def test_a_body_can_be_left_out() -> None:
    assert drop_body(BARE) == PROPERTIES + APPLICATION_PROPERTIES + FOOTER
    assert drop_body(DATA + DATA) == b""


def test_properties_are_read_where_there_are_any() -> None:
    assert read_properties(BARE).group_id == "session"
    assert read_properties(DATA) == Properties()
    assert read_application_properties(BARE) == {"a": 1}
    assert read_application_properties(DATA) == {}


def test_a_message_of_the_broker_has_the_body_that_it_was_given() -> None:
    assert encode_message() == b""
    assert encode_message(body=None) == octets("00 53 77 40")
    assert encode_message(data=b"x") == octets("00 53 75 a0 01 'x'")
    assert encode_message(application_properties={"status-code": Int(200)}, body={}) == octets(
        "00 53 74 c1 13 02 a1 0b 'status-code' 71 00 00 00 c8 00 53 77 c1 01 00"
    )


@both_codecs
@given(data=st.binary(max_size=60), section=st.sampled_from([0x70, 0x72, 0x73, 0x74, 0x75, 0x77]))
def test_both_codecs_agree_on_garbage_in_a_section(data: bytes, section: int) -> None:
    seen = []
    for codec in CODECS.values():
        try:
            seen.append(typed(codec.scan_message(bytes((0, 0x53, section)) + data)))
        except ProtocolError:
            seen.append(ProtocolError)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "properties",
    [None, Properties(), Properties(subject="s"), Properties(subject="x" * 300, group_id="g")],
    ids=["none", "empty", "small", "large"],
)
def test_a_message_without_an_id_can_be_given_one(properties: Properties | None) -> None:
    bare = encode_message(properties=properties, application_properties={"a": 1}, data=b"body")
    named = with_message_id(bare, "0123456789abcdef")
    expected = Properties() if properties is None else replace(properties)
    expected.message_id = "0123456789abcdef"
    assert read_properties(named) == expected
    assert read_application_properties(named) == {"a": 1}
    assert named.endswith(encode_message(application_properties={"a": 1}, data=b"body"))
