"""Composites by the tables of the standard, written by the profile of amqp.md, section 3."""

from __future__ import annotations

from types import ModuleType

import pytest

from busway.amqp.errors import DECODE_ERROR, INVALID_FIELD, ProtocolError
from busway.amqp.performatives import (
    BY_CODE,
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Properties,
    Received,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from busway.amqp.types import Described, Symbol, UInt, ULong
from tests.amqp.codecs_at_hand import each_codec, octets

pytestmark = each_codec

GOLDEN: list[tuple[Composite, str]] = [
    (
        Open("c", max_frame_size=65536, channel_max=255, idle_time_out=120000),
        "00 53 10 c0 17 0a a1 01 'c' 40 70 00 01 00 00 60 00 ff 70 00 01 d4 c0 40 40 40 40 40",
    ),
    (
        Begin(1, 0, 5000, 100, 255),
        "00 53 11 c0 11 08 60 00 01 43 70 00 00 13 88 52 64 52 ff 40 40 40",
    ),
    (
        Attach("l", 0, True, 0, 1),
        "00 53 12 c0 13 0e a1 01 'l' 43 41 50 00 50 01 40 40 40 42 40 40 40 40 40",
    ),
    (
        Flow(1, 5000, 2, 100, 0, 7, 10),
        "00 53 13 c0 15 0b 52 01 70 00 00 13 88 52 02 52 64 43 52 07 52 0a 40 42 42 40",
    ),
    (
        Transfer(0, 3, b"tag!", 0, False),
        "00 53 14 c0 12 0b 43 52 03 a0 04 'tag!' 43 42 42 40 40 42 42 42",
    ),
    (
        Disposition(True, 1, None, True, Accepted()),
        "00 53 15 c0 0b 06 41 52 01 40 41 00 53 24 45 42",
    ),
    (
        Detach(0, True, Error("amqp:not-found", "no")),
        "00 53 16 c0 1e 03 43 41 00 53 1d c0 16 03 a3 0e 'amqp:not-found' a1 02 'no' 40",
    ),
    (End(), "00 53 17 c0 02 01 40"),
    (Close(), "00 53 18 c0 02 01 40"),
    (Received(1, 2), "00 53 23 c0 05 02 52 01 53 02"),
    (Accepted(), "00 53 24 45"),
    (Rejected(), "00 53 25 c0 02 01 40"),
    (Released(), "00 53 26 45"),
    (Modified(True, False), "00 53 27 c0 04 03 41 42 40"),
    (
        Source("q"),
        "00 53 28 c0 1a 0b a1 01 'q' 43 a3 0b 'session-end' 43 42 40 40 40 40 40 40",
    ),
    (Target("q"), "00 53 29 c0 16 07 a1 01 'q' 43 a3 0b 'session-end' 43 42 40 40"),
    (Coordinator(), "00 53 30 c0 02 01 40"),
    (Declare(), "00 53 31 c0 02 01 40"),
    (Discharge(b"t"), "00 53 32 c0 05 02 a0 01 't' 42"),
    (Declared(b"t"), "00 53 33 c0 04 01 a0 01 't'"),
    (
        TransactionalState(b"t", Accepted()),
        "00 53 34 c0 08 02 a0 01 't' 00 53 24 45",
    ),
    (SaslMechanisms(["A", "B"]), "00 53 40 c0 09 01 e0 06 02 a3 01 'A' 01 'B'"),
    (SaslInit("A", b""), "00 53 41 c0 07 03 a3 01 'A' a0 00 40"),
    (SaslOutcome(0), "00 53 44 c0 04 02 50 00 40"),
]


@pytest.mark.parametrize(
    ("composite", "encoded"), GOLDEN, ids=[type(composite).__name__ for composite, _ in GOLDEN]
)
def test_a_composite_is_written_to_the_letter_of_the_profile(
    codec: ModuleType, composite: Composite, encoded: str
) -> None:
    assert codec.encode_value(composite).hex(" ") == octets(encoded).hex(" ")
    assert codec.decode_composite(octets(encoded)) == (composite, len(octets(encoded)))


@pytest.mark.parametrize(
    ("code", "count"),
    {
        0x10: 10,
        0x11: 8,
        0x12: 14,
        0x13: 11,
        0x14: 11,
        0x15: 6,
        0x16: 3,
        0x17: 1,
        0x18: 1,
        0x1D: 3,
        0x28: 11,
        0x29: 7,
        0x70: 5,
        0x73: 13,
    }.items(),
)
def test_the_number_of_fields_is_that_of_the_standard_e4_e5(
    codec: ModuleType, code: int, count: int
) -> None:
    assert len(BY_CODE[code].FIELDS) == count


def test_an_error_always_has_three_elements_e5(codec: ModuleType) -> None:
    assert codec.encode_value(Error("a:b")) == octets("00 53 1d c0 08 03 a3 03 'a:b' 40 40")


def test_fields_that_a_peer_leaves_out_have_the_defaults_of_the_standard(codec: ModuleType) -> None:
    read, _ = codec.decode_composite(octets("00 53 10 c0 04 01 a1 01 'c'"))
    assert read == Open("c")
    assert (read.max_frame_size, read.channel_max, read.idle_time_out) == (4294967295, 65535, None)
    nulls, _ = codec.decode_composite(octets("00 53 10 c0 06 03 a1 01 'c' 40 40"))
    assert nulls == read


@pytest.mark.parametrize(
    "descriptor",
    ["53 17", "80 00 00 00 00 00 00 00 17", "a3 0d 'amqp:end:list'", "b3 0000000d 'amqp:end:list'"],
)
def test_descriptors_are_read_in_every_form(codec: ModuleType, descriptor: str) -> None:
    read, _ = codec.decode_composite(octets("00" + descriptor + "45"))
    assert read == End()


@pytest.mark.parametrize(
    "number",
    [
        "50 07",
        "51 07",
        "52 07",
        "53 07",
        "54 07",
        "55 07",
        "60 0007",
        "61 0007",
        "70 00000007",
        "71 00000007",
        "80 0000000000000007",
        "81 0000000000000007",
    ],
)
def test_integers_are_read_in_every_width(codec: ModuleType, number: str) -> None:
    fields = octets(number)
    for head, name in ((b"\x00\x53\x16", "handle"), (b"\x00\x53\x14", "handle")):
        body = head + bytes((0xC0, len(fields) + 1, 1)) + fields
        frame = (8 + len(body)).to_bytes(4, "big") + octets("02 00 00 00") + body
        ((_, _, read, _),), _ = codec.decode_frames(frame, 0, 512)
        assert getattr(read, name) == 7
        assert type(getattr(read, name)) is int


def test_symbols_and_strings_stand_for_each_other(codec: ModuleType) -> None:
    read, _ = codec.decode_composite(octets("00 53 1d c0 0a 02 a1 01 'c' b3 00000001 'd'"))
    assert read == Error("c", "d")


def test_one_symbol_stands_for_many(codec: ModuleType) -> None:
    read, _ = codec.decode_composite(octets("00 53 40 c0 04 01 a3 01 'A'"))
    assert read == SaslMechanisms(["A"])


def test_maps_keep_their_types_so_that_they_can_be_echoed(codec: ModuleType) -> None:
    source = Source("q", filter={Symbol("f"): Described(ULong(0x137000000C), "s")})
    read, _ = codec.decode_composite(codec.encode_value(source))
    assert type(next(iter(read.filter))) is Symbol
    assert read.filter["f"] == Described(ULong(0x137000000C), "s")


def test_keys_of_properties_are_written_as_symbols(codec: ModuleType) -> None:
    written = codec.encode_value(Begin(None, 0, 0, 0, properties={"a": UInt(1)}))
    assert written.endswith(octets("c1 06 02 a3 01 'a' 52 01"))


REFUSED = {
    "a mandatory field that is null": ("00 53 16 c0 02 01 40", INVALID_FIELD),
    "a mandatory field that is missing": ("00 53 14 45", INVALID_FIELD),
    "more fields than the type has": ("00 53 17 c0 03 02 40 40", DECODE_ERROR),
    "a number out of range": ("00 53 16 c0 0a 01 80 0000000100000000", INVALID_FIELD),
    "a negative number": ("00 53 16 c0 03 01 54 ff", INVALID_FIELD),
    "a text for a number": ("00 53 16 c0 04 01 a1 01 'x'", INVALID_FIELD),
    "a number for a flag": ("00 53 16 c0 03 02 43 43", INVALID_FIELD),
    "a list for properties": ("00 53 11 c0 09 08 40 43 43 43 40 40 40 45", INVALID_FIELD),
    "an outcome for an error": ("00 53 18 c0 05 01 00 53 24 45", INVALID_FIELD),
    "a source for a delivery state": ("00 53 15 c0 09 05 41 43 40 42 00 53 28 45", INVALID_FIELD),
    "a type that does not exist": ("00 53 99 45", DECODE_ERROR),
    "a symbol that names nothing": ("00 a3 01 'x' 45", DECODE_ERROR),
    "a map for a list": ("00 53 17 c1 01 00", DECODE_ERROR),
    "no descriptor": ("45", DECODE_ERROR),
}


@pytest.mark.parametrize(("encoded", "condition"), REFUSED.values(), ids=REFUSED.keys())
def test_a_composite_that_is_not_one_is_refused(
    codec: ModuleType, encoded: str, condition: str
) -> None:
    body = octets(encoded)
    with pytest.raises(ProtocolError) as caught:
        codec.decode_composite(body)
    assert caught.value.condition == condition
    frame = (8 + len(body)).to_bytes(4, "big") + octets("02 00 00 00") + body
    with pytest.raises(ProtocolError):
        codec.decode_frames(frame, 0, 512)


def test_a_mandatory_field_must_be_given_to_be_written(codec: ModuleType) -> None:
    with pytest.raises(ProtocolError, match="container_id"):
        codec.encode_value(Open())


def test_a_message_id_keeps_its_type(codec: ModuleType) -> None:
    properties = Properties(message_id=ULong(7), correlation_id=b"x", content_type="text/plain")
    read, _ = codec.decode_composite(codec.encode_value(properties))
    assert read == properties
    assert type(read.message_id) is ULong


def test_a_composite_shows_what_it_says(codec: ModuleType) -> None:
    assert repr(Detach(3, True)) == "Detach(handle=3, closed=True)"
