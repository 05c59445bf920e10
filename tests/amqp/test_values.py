"""The type system of AMQP 1.0 (part 1), the same sentences for both codecs."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.errors import DECODE_ERROR, ProtocolError
from busway.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.amqp.codecs_at_hand import each_codec, octets, typed, values

pytestmark = each_codec

SHORTEST = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(255), "50 ff"),
    (UShort(513), "60 02 01"),
    (UInt(0), "43"),
    (UInt(255), "52 ff"),
    (UInt(256), "70 00 00 01 00"),
    (ULong(0), "44"),
    (ULong(255), "53 ff"),
    (ULong(256), "80 00 00 00 00 00 00 01 00"),
    (Byte(-1), "51 ff"),
    (Short(-2), "61 ff fe"),
    (Int(-128), "54 80"),
    (Int(128), "71 00 00 00 80"),
    (-128, "55 80"),
    (128, "81 00 00 00 00 00 00 00 80"),
    (Float(1.5), "72 3f c0 00 00"),
    (1.5, "82 3f f8 00 00 00 00 00 00"),
    (Char("€"), "73 00 00 20 ac"),
    (Timestamp(-1), "83 ff ff ff ff ff ff ff ff"),
    (Decimal32(b"1234"), "74 '1234'"),
    (Decimal64(b"12345678"), "84 '12345678'"),
    (Decimal128(b"0123456789abcdef"), "94 '0123456789abcdef'"),
    (UUID("00112233-4455-6677-8899-aabbccddeeff"), "98 00112233445566778899aabbccddeeff"),
    (b"ab", "a0 02 'ab'"),
    (b"x" * 256, "b0 00 00 01 00" + "78" * 256),
    ("é", "a1 02 c3 a9"),
    ("x" * 256, "b1 00 00 01 00" + "78" * 256),
    (Symbol("ab"), "a3 02 'ab'"),
    (Symbol("x" * 256), "b3 00 00 01 00" + "78" * 256),
    ([], "45"),
    ([None, UInt(0)], "c0 03 02 40 43"),
    ([None] * 255, "d0 00 00 01 03 00 00 00 ff" + "40" * 255),
    ({}, "c1 01 00"),
    ({Symbol("a"): "b"}, "c1 07 02 a3 01 'a' a1 01 'b'"),
    ({"a": b"x" * 255}, "d1 00 00 01 08 00 00 00 02 a1 01 'a' a0 ff" + "78" * 255),
    (Array([Symbol("a"), Symbol("bc")]), "e0 07 02 a3 01 'a' 02 'bc'"),
    (Array([], Symbol), "e0 02 00 a3"),
    (Array([UInt(1), UInt(2)]), "e0 0a 02 70 00 00 00 01 00 00 00 02"),
    (Array([True, False]), "e0 04 02 56 01 00"),
    (Array([["a"]]), "e0 0d 01 d0 00 00 00 07 00 00 00 01 a1 01 'a'"),
    (Array([Array([Byte(1)])]), "e0 0c 01 f0 00 00 00 06 00 00 00 01 51 01"),
    (Array([Described(ULong(1), "a")], str, (ULong(1),)), "e0 07 01 00 53 01 a1 01 'a'"),
    (Described(ULong(0x24), []), "00 53 24 45"),
    (Described(Symbol("d"), Described(ULong(1), 2)), "00 a3 01 'd' 00 53 01 55 02"),
]

OTHER_ENCODINGS = [
    (True, "56 01"),
    (False, "56 00"),
    (UInt(0), "52 00"),
    (UInt(7), "70 00 00 00 07"),
    (ULong(0), "53 00"),
    (ULong(7), "80 00 00 00 00 00 00 00 07"),
    (Int(7), "71 00 00 00 07"),
    (7, "81 00 00 00 00 00 00 00 07"),
    (b"ab", "b0 00 00 00 02 'ab'"),
    ("ab", "b1 00 00 00 02 'ab'"),
    (Symbol("ab"), "b3 00 00 00 02 'ab'"),
    (Symbol("é"), "a3 02 c3 a9"),
    ([], "c0 01 00"),
    ([], "d0 00 00 00 04 00 00 00 00"),
    ([None], "d0 00 00 00 05 00 00 00 01 40"),
    ({}, "d1 00 00 00 04 00 00 00 00"),
    (Array([UInt(1)], UInt), "e0 03 01 52 01"),
    (Array([UInt(1)], UInt), "f0 00 00 00 06 00 00 00 01 52 01"),
    (Array([UInt(0)], UInt), "e0 02 01 43"),
    (Array([True], bool), "e0 02 01 41"),
]


@pytest.mark.parametrize(("value", "encoded"), SHORTEST, ids=[form[:20] for _, form in SHORTEST])
def test_a_value_is_written_in_its_shortest_encoding(
    codec: ModuleType, value: Any, encoded: str
) -> None:
    assert codec.encode_value(value) == octets(encoded)


@pytest.mark.parametrize(
    ("value", "encoded"),
    SHORTEST + OTHER_ENCODINGS,
    ids=[form[:20] for _, form in SHORTEST + OTHER_ENCODINGS],
)
def test_a_value_is_read_from_every_encoding_with_its_type(
    codec: ModuleType, value: Any, encoded: str
) -> None:
    data = octets(encoded)
    read, end = codec.decode_value(b"\xff" + data + b"\xff", 1)
    assert end == 1 + len(data)
    assert typed(read) == typed(value)


@given(value=values)
def test_what_is_written_is_read_again_with_all_its_types(codec: ModuleType, value: Any) -> None:
    data = codec.encode_value(value)
    read, end = codec.decode_value(data)
    assert end == len(data)
    assert typed(read) == typed(value)


@given(value=values)
def test_a_value_cut_short_anywhere_is_an_error(codec: ModuleType, value: Any) -> None:
    data = codec.encode_value(value)
    for end in range(len(data)):
        with pytest.raises(ProtocolError) as caught:
            codec.decode_value(data[:end])
        assert caught.value.condition == DECODE_ERROR


@given(data=st.binary(max_size=64))
def test_garbage_is_a_value_or_a_protocol_error(codec: ModuleType, data: bytes) -> None:
    with suppress(ProtocolError):
        codec.decode_value(data)


MALFORMED = {
    "a format code that does not exist": "46",
    "a boolean that is neither": "56 02",
    "a string that is not UTF-8": "a1 01 ff",
    "a string with half a character": "a1 03 ed a0 80",
    "a char beyond Unicode": "73 00 11 00 00",
    "a char that is half of one": "73 00 00 d8 00",
    "a size larger than the data": "a0 05 'abcd'",
    "a size of four gigabytes": "b0 ff ff ff ff 'abcd'",
    "a list of four billion items": "d0 00 00 00 04 ff ff ff ff",
    "a list with more items than bytes": "c0 02 02 40",
    "a list with fewer items than bytes": "c0 03 01 40 40",
    "a list without room for its count": "c0 00",
    "an item that reaches beyond its list": "c0 03 01 a0 01 'x'",
    "a map with a key and no value": "c1 02 01 40",
    "a map with a key twice": "c1 09 04 a1 01 'a' 40 a1 01 'a' 40",
    "a map whose key is a list": "c1 03 02 45 40",
    "an array without a constructor": "e0 01 01",
    "an array of four billion nulls": "f0 00 00 00 05 ff ff ff ff 40",
    "an array of a code that does not exist": "e0 02 00 46",
    "a described value without its value": "00 53 01",
}


@pytest.mark.parametrize("encoded", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_data_is_a_decode_error(codec: ModuleType, encoded: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        codec.decode_value(octets(encoded))
    assert caught.value.condition == DECODE_ERROR


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: b"\xd0" + (len(inner) + 4).to_bytes(4, "big") + b"\0\0\0\x01" + inner,
        lambda inner: b"\xd1" + (len(inner) + 5).to_bytes(4, "big") + b"\0\0\0\x02\x43" + inner,
        lambda inner: b"\x00" + inner + b"\x40",
        lambda inner: b"\x00\x53\x01" + inner,
    ],
    ids=["lists", "maps", "descriptors", "described values"],
)
def test_nesting_is_bounded(codec: ModuleType, wrap: Any) -> None:
    data = b"\x40"
    for _ in range(32):
        data = wrap(data)
    codec.decode_value(data)
    with pytest.raises(ProtocolError):
        codec.decode_value(wrap(data))
    for _ in range(2000):
        data = wrap(data)
    with pytest.raises(ProtocolError):
        codec.decode_value(data)


@pytest.mark.parametrize(
    "value",
    [UByte(256), UInt(-1), UInt(1 << 32), ULong(1 << 64), Int(1 << 31), 1 << 63, Float(1e300)],
)
def test_a_number_that_does_not_fit_its_type_is_not_written(codec: ModuleType, value: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        codec.encode_value(value)


def test_a_class_without_an_amqp_type_is_not_written(codec: ModuleType) -> None:
    with pytest.raises(TypeError, match="object"):
        codec.encode_value([object()])


def test_any_bytes_like_object_can_be_read(codec: ModuleType) -> None:
    assert codec.decode_value(bytearray(b"\xa0\x01x")) == (b"x", 3)
    assert codec.decode_value(memoryview(b"\xa0\x01x")) == (b"x", 3)


def test_an_offset_behind_the_end_is_an_error(codec: ModuleType) -> None:
    with pytest.raises(ProtocolError):
        codec.decode_value(b"\x40", 2)
    with pytest.raises(ValueError, match="offset"):
        codec.decode_value(b"\x40", -1)
