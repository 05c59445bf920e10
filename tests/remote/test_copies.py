"""A copy is what its sender sent, to the byte, but for what cannot stay as it was."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from busway.amqp.codec import encode_delivery, encode_value, scan_message
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import encode_message, read_application_properties, read_properties
from busway.amqp.types import Described, Int, Symbol, Timestamp, ULong
from busway.remote.wire.copies import ORIGINAL_ID, copy_of

NOW_MS = 1_000_000
BODIES = {
    "data": encode_message(data=b"body"),
    "wide data": bytes.fromhex("005375b000000001") + b"x",
    "two data": encode_message(data=b"a") + encode_message(data=b"b"),
    "sequences": encode_value(Described(ULong(0x76), [1, "a"])) * 2,
    "value": encode_message(body={"a": [Int(1), None]}),
    "null": encode_message(body=None),
    "nothing": b"",
}
FOOTER = bytes.fromhex("005378c10100")
FRONT = encode_message(
    header=Header(True, 7, 60_000, True, None),
    annotations={
        Symbol("x-opt-partition-key"): "k",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(5),
        Symbol("mine"): [Int(1)],
    },
)
PROPERTIES = Properties(
    message_id=UUID(int=7),
    user_id=b"me",
    content_encoding="gzip",
    absolute_expiry_time=NOW_MS + 1,
    creation_time=NOW_MS - 1,
    group_id="s",
    group_sequence=3,
)


def sent(body: bytes, properties: Properties = PROPERTIES, **user: Any) -> bytes:
    """As a sender encodes it, and as `raw` tells it."""
    found = scan_message(
        FRONT + encode_message(properties=properties, application_properties=user or None) + body
    )
    return copy_of(FRONT + found.bare, NOW_MS)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_nothing_changes_unless_it_must(body: bytes) -> None:
    raw = sent(body + FOOTER, n=Int(1))
    assert scan_message(raw).bare.endswith(body + FOOTER)
    assert copy_of(raw, NOW_MS) == raw
    seen = scan_message(raw)
    assert (seen.header, seen.ttl_ms) == (scan_message(FRONT).header, 60_000)
    assert seen.annotations == scan_message(FRONT).annotations


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_a_broker_wrote_on_it_is_left_out(body: bytes) -> None:
    raw = sent(body, n=Int(1))
    seen = scan_message(raw)
    delivered = encode_delivery(
        header=seen.header,
        ttl_ms=seen.ttl_ms,
        delivery_count=3,
        lock_token=UUID(int=1).bytes_le,
        number=9,
        enqueued_ms=NOW_MS,
        locked_until_ms=NOW_MS,
        state=0,
        partition=2,
        annotations=seen.annotations,
        annotation_items=seen.annotation_items,
        bare=seen.bare,
        dead_letter_source="x",
    )
    assert copy_of(delivered, NOW_MS) == raw


def test_another_id_leaves_the_rest() -> None:
    raw = sent(BODIES["sequences"], n=Int(1))
    copy = copy_of(raw, NOW_MS, message_id="new")
    properties = read_properties(scan_message(copy).bare)
    assert properties.message_id == "new"
    properties.message_id = PROPERTIES.message_id
    assert properties == PROPERTIES
    user = read_application_properties(scan_message(copy).bare)
    assert user == {"n": 1, ORIGINAL_ID: str(UUID(int=7))}
    assert type(user["n"]) is Int
    again = copy_of(copy, NOW_MS, message_id="newer")
    assert read_application_properties(scan_message(again).bare) == user  # of the first copy


def test_an_expiry_that_has_passed_is_left_out() -> None:
    raw = sent(BODIES["data"])
    later = read_properties(scan_message(copy_of(raw, NOW_MS + 1)).bare)
    assert later.absolute_expiry_time is None
    assert later.creation_time == PROPERTIES.creation_time


def test_a_time_to_live_above_49_days_begins_anew() -> None:
    """TTL-1: a header has no room for it, and the two times that say it are of another day."""
    times = Properties(creation_time=1, absolute_expiry_time=1 + 100 * 86_400_000)
    raw = encode_message(header=Header(ttl=0xFFFFFFFF), properties=times, data=b"")
    seen = scan_message(copy_of(raw, NOW_MS))
    assert (seen.ttl_ms, seen.absolute_expiry_ms) == (
        100 * 86_400_000,
        NOW_MS + 100 * 86_400_000,
    )


def test_the_key_of_another_way_is_left_out() -> None:
    """TXN-5: it chose a partition of the entity that the first one was sent by way of."""
    annotations = {Symbol("x-opt-via-partition-key"): "v", Symbol("mine"): "m"}
    raw = encode_message(annotations=annotations, data=b"")
    copy = scan_message(copy_of(raw, NOW_MS))
    assert copy.via_partition_key is None
    assert copy.annotation_items == 2


def test_properties_are_taken_away_and_given() -> None:
    raw = sent(BODIES["value"], PROPERTIES, a=1, b="x")
    copy = copy_of(raw, NOW_MS, without=["a", "c"], more={"d": True})
    assert read_application_properties(scan_message(copy).bare) == {"b": "x", "d": True}
    plain = encode_message(application_properties={"a": 1}, data=b"x")
    assert copy_of(plain, NOW_MS, without=["a"]) == encode_message(data=b"x")
    empty = scan_message(copy_of(b"", NOW_MS, message_id="new", more={"d": 1})).bare
    assert read_properties(empty) == Properties(message_id="new")
    assert read_application_properties(empty) == {"d": 1}
