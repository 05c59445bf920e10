"""Writing values in pure Python: each class of `types.py` in its shortest encoding.

A value that does not fit its type is a mistake of this program, not of a peer, so it raises
ValueError or TypeError, never `ProtocolError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

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

Encoder = Callable[[bytearray, Any], None]


def encode_value(value: Any) -> bytes:
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Any) -> None:
    encoder = ENCODERS.get(type(value))
    if encoder is None:
        encoder = _encoder_by_base(type(value))
    encoder(out, value)


def _encoder_by_base(kind: type) -> Encoder:
    for base in kind.__mro__:
        if base in ENCODERS:
            return ENCODERS[base]
    raise TypeError(f"AMQP has no type for {kind.__name__}")


def _pack(form: struct.Struct, *values: Any) -> bytes:
    try:
        return form.pack(*values)
    except (struct.error, OverflowError) as problem:
        raise ValueError(f"{values[-1]!r} does not fit its AMQP type: {problem}") from None


# Numbers

_CODE_AND_OCTET = struct.Struct(">BB")
_CODE_AND_UINT = struct.Struct(">BI")
_CODE_AND_ULONG = struct.Struct(">BQ")
_CODE_AND_SIGNED_OCTET = struct.Struct(">Bb")
_CODE_AND_INT = struct.Struct(">Bi")
_CODE_AND_LONG = struct.Struct(">Bq")


def encode_null(out: bytearray, value: Any = None) -> None:
    out.append(0x40)


def encode_boolean(out: bytearray, value: bool) -> None:
    out.append(0x41 if value else 0x42)


def encode_uint(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x43)
    elif 0 < value < 256:
        out += _CODE_AND_OCTET.pack(0x52, value)
    else:
        out += _pack(_CODE_AND_UINT, 0x70, value)


def encode_ulong(out: bytearray, value: int) -> None:
    if value == 0:
        out.append(0x44)
    elif 0 < value < 256:
        out += _CODE_AND_OCTET.pack(0x53, value)
    else:
        out += _pack(_CODE_AND_ULONG, 0x80, value)


def encode_int(out: bytearray, value: int) -> None:
    if -128 <= value < 128:
        out += _CODE_AND_SIGNED_OCTET.pack(0x54, value)
    else:
        out += _pack(_CODE_AND_INT, 0x71, value)


def encode_long(out: bytearray, value: int) -> None:
    if -128 <= value < 128:
        out += _CODE_AND_SIGNED_OCTET.pack(0x55, value)
    else:
        out += _pack(_CODE_AND_LONG, 0x81, value)


def _fixed(code: int, layout: str) -> Encoder:
    form = struct.Struct(">B" + layout)

    def encode(out: bytearray, value: Any) -> None:
        out += _pack(form, code, value)

    return encode


encode_ubyte = _fixed(0x50, "B")
encode_ushort = _fixed(0x60, "H")
encode_timestamp = _fixed(0x83, "q")


def _octets(code: int, size: int) -> Encoder:
    def encode(out: bytearray, value: bytes) -> None:
        out.append(code)
        out += _sized(value, size)

    return encode


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"{type(value).__name__} has {size} bytes, not {len(value)}")
    return value


def encode_char(out: bytearray, value: str) -> None:
    out.append(0x73)
    out += _point(value)


def _point(value: str) -> bytes:
    # Refuses surrogates, and is the code point of anything else (section 1.6.16).
    octets = value.encode("utf-32-be")
    if len(octets) != 4:
        raise ValueError(f"a char is one character, not {value!r}")
    return octets


def encode_uuid(out: bytearray, value: UUID) -> None:
    out.append(0x98)
    out += value.bytes


# Octets and texts


def encode_binary(out: bytearray, value: bytes) -> None:
    _append_variable(out, 0xA0, value)


def encode_string(out: bytearray, value: str) -> None:
    _append_variable(out, 0xA1, value.encode())


def encode_symbol(out: bytearray, value: str) -> None:
    _append_variable(out, 0xA3, value.encode())


def _append_variable(out: bytearray, code: int, octets: bytes) -> None:
    size = len(octets)
    if size < 256:
        out += _CODE_AND_OCTET.pack(code, size)
    else:
        out += _pack(_CODE_AND_UINT, code | 0x10, size)
    out += octets


# Lists, maps, arrays, descriptions

_NARROW = struct.Struct(">BBB")
_WIDE = struct.Struct(">BII")
_SIZE_AND_COUNT = struct.Struct(">II")


def append_compound(out: bytearray, code: int, count: int, items: bytes | bytearray) -> None:
    """A list (0xC0), map (0xC1) or array (0xE0) around items that are encoded already."""
    size = len(items) + 1
    if size < 256 and count < 256:
        out += _NARROW.pack(code, size, count)
    else:
        out += _pack(_WIDE, code | 0x10, size + 3, count)
    out += items


def encode_list(out: bytearray, value: list[Any] | tuple[Any, ...]) -> None:
    if not value:
        out.append(0x45)
        return
    items = bytearray()
    for item in value:
        encode_into(items, item)
    append_compound(out, 0xC0, len(value), items)


def encode_map(out: bytearray, value: dict[Any, Any]) -> None:
    append_compound(out, 0xC1, 2 * len(value), _pairs(value, encode_into))


def encode_fields(out: bytearray, value: dict[Any, Any]) -> None:
    """A map whose texts among the keys are symbols (section 2.8.13)."""
    append_compound(out, 0xC1, 2 * len(value), _pairs(value, _encode_field_key))


def _encode_field_key(out: bytearray, key: Any) -> None:
    if isinstance(key, str):
        encode_symbol(out, key)
    else:
        encode_into(out, key)


def _pairs(value: dict[Any, Any], encode_key: Encoder) -> bytearray:
    pairs = bytearray()
    for key, item in value.items():
        encode_key(pairs, key)
        encode_into(pairs, item)
    return pairs


def encode_described(out: bytearray, value: Described) -> None:
    out.append(0x00)
    encode_into(out, value.descriptor)
    encode_into(out, value.value)


def encode_array(out: bytearray, value: Array) -> None:
    append_compound(out, 0xE0, len(value), _elements(value))


def _elements(array: Array) -> bytearray:
    """The constructor that all elements share, and the elements without theirs."""
    out = bytearray()
    items: list[Any] = list(array)
    for descriptor in array.descriptors:
        out.append(0x00)
        encode_into(out, descriptor)
        items = [_undescribe(item, descriptor) for item in items]
    element = array.element or (type(items[0]) if items else type(None))
    if element in (bytes, str, Symbol):
        _append_variable_elements(out, element, items)
        return out
    try:
        code, encode = _ELEMENTS[element]
    except KeyError:
        raise TypeError(f"AMQP has no arrays of {element.__name__}") from None
    out.append(code)
    for item in items:
        out += encode(item)
    return out


def _undescribe(item: Any, descriptor: Any) -> Any:
    if not isinstance(item, Described) or (
        # Identity first: a descriptor may be a number that does not equal itself.
        item.descriptor is not descriptor and item.descriptor != descriptor
    ):
        raise ValueError(f"{item!r} is not described by {descriptor!r}, as its array says")
    return item.value


def _append_variable_elements(out: bytearray, element: type, items: list[Any]) -> None:
    code = 0xA0 if element is bytes else 0xA3 if element is Symbol else 0xA1
    octets = [bytes(item) if element is bytes else item.encode() for item in items]
    if all(len(item) < 256 for item in octets):
        out.append(code)
        for item in octets:
            out.append(len(item))
            out += item
    else:
        out.append(code | 0x10)
        for item in octets:
            out += len(item).to_bytes(4, "big")
            out += item


def _wide_body(count: int, items: bytearray) -> bytes:
    return _pack(_SIZE_AND_COUNT, len(items) + 4, count) + items


def _list_body(value: list[Any]) -> bytes:
    items = bytearray()
    for item in value:
        encode_into(items, item)
    return _wide_body(len(value), items)


def _map_body(value: dict[Any, Any]) -> bytes:
    return _wide_body(2 * len(value), _pairs(value, encode_into))


def _array_body(value: Array) -> bytes:
    return _wide_body(len(value), _elements(value))


def _fixed_body(layout: str) -> Callable[[Any], bytes]:
    form = struct.Struct(">" + layout)
    return lambda value: _pack(form, value)


_ELEMENTS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    type(None): (0x40, lambda value: b""),
    bool: (0x56, lambda value: b"\x01" if value else b"\x00"),
    UByte: (0x50, _fixed_body("B")),
    Byte: (0x51, _fixed_body("b")),
    UShort: (0x60, _fixed_body("H")),
    Short: (0x61, _fixed_body("h")),
    UInt: (0x70, _fixed_body("I")),
    Int: (0x71, _fixed_body("i")),
    ULong: (0x80, _fixed_body("Q")),
    int: (0x81, _fixed_body("q")),
    Float: (0x72, _fixed_body("f")),
    float: (0x82, _fixed_body("d")),
    Char: (0x73, _point),
    Timestamp: (0x83, _fixed_body("q")),
    Decimal32: (0x74, lambda value: _sized(value, 4)),
    Decimal64: (0x84, lambda value: _sized(value, 8)),
    Decimal128: (0x94, lambda value: _sized(value, 16)),
    UUID: (0x98, lambda value: bytes(value.bytes)),
    list: (0xD0, _list_body),
    dict: (0xD1, _map_body),
    Array: (0xF0, _array_body),
}

ENCODERS: dict[type, Encoder] = {
    type(None): encode_null,
    bool: encode_boolean,
    UByte: encode_ubyte,
    UShort: encode_ushort,
    UInt: encode_uint,
    ULong: encode_ulong,
    Byte: _fixed(0x51, "b"),
    Short: _fixed(0x61, "h"),
    Int: encode_int,
    int: encode_long,
    Float: _fixed(0x72, "f"),
    float: _fixed(0x82, "d"),
    Char: encode_char,
    Timestamp: encode_timestamp,
    Decimal32: _octets(0x74, 4),
    Decimal64: _octets(0x84, 8),
    Decimal128: _octets(0x94, 16),
    UUID: encode_uuid,
    bytes: encode_binary,
    bytearray: encode_binary,
    memoryview: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: encode_list,
    tuple: encode_list,
    dict: encode_map,
    Array: encode_array,
    Described: encode_described,
}
"""By class; a subclass that is not here is written as its nearest base."""
