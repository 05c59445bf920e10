"""Reading values in pure Python: the reference for the type system of AMQP 1.0 (part 1).

Owns the format codes: how each is read and skipped. Every length is checked against the
data at hand before it is used, nesting is bounded, and counts that the wire declares never reserve
memory, so whatever a stranger sends costs no more than its own bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

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

MAX_DEPTH = 32
"""Levels of lists, maps, arrays and descriptions; no client comes near it."""

Decoder = Callable[[bytes, int, int, int], tuple[Any, int]]
"""`(data, offset after the format code, end, depth) -> (value, offset after it)`"""


def truncated() -> ProtocolError:
    return ProtocolError(DECODE_ERROR, "The data ends within a value.")


def malformed(what: str) -> ProtocolError:
    return ProtocolError(DECODE_ERROR, what)


# Reading


def decode_value(data: bytes, offset: int = 0) -> tuple[Any, int]:
    """The value at `offset`, and the offset after it."""
    if offset < 0:
        raise ValueError("an offset is not negative")
    if type(data) is not bytes:
        data = bytes(data)
    return decode_within(data, offset, len(data), 0)


def decode_within(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    """The value at `offset`, which may use the data up to `end` and no more."""
    if offset >= end:
        raise truncated()
    code = data[offset]
    decoder = DECODERS.get(code)
    if decoder is None:
        raise malformed(f"There is no format code 0x{code:02x}.")
    return decoder(data, offset + 1, end, depth)


def _constant(value: Any) -> Decoder:
    return lambda data, offset, end, depth: (value, offset)


def _fixed(kind: Callable[[Any], Any], layout: str) -> Decoder:
    form = struct.Struct(">" + layout)
    size = form.size
    unpack = form.unpack_from

    def decode(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        if offset + size > end:
            raise truncated()
        return kind(unpack(data, offset)[0]), offset + size

    return decode


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise malformed("A boolean is 0 or 1.")
    return octet == 1


def _char(point: int) -> Char:
    # Surrogates are halves of characters, not characters (section 1.6.16).
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise malformed(f"There is no character 0x{point:x}.")
    return Char(chr(point))


def _uuid(octets: bytes) -> UUID:
    return UUID(bytes=octets)


def _plain(value: Any) -> Any:
    return value


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise malformed("A string is not UTF-8.") from None


def _symbol(octets: bytes) -> Symbol:
    # The standard says ASCII; Python clients write the names of application properties that a
    # settlement changes as symbols, whatever letters they have, so UTF-8 must be readable.
    return Symbol(_text(octets))


def variable_extent(data: bytes, offset: int, end: int, wide: bool) -> tuple[int, int]:
    """Where the octets after a size of one or four bytes begin and end."""
    if wide:
        start = offset + 4
        if start > end:
            raise truncated()
        stop = start + int.from_bytes(data[offset:start], "big")
    else:
        start = offset + 1
        if start > end:
            raise truncated()
        stop = start + data[offset]
    if stop > end:
        raise truncated()
    return start, stop


def _variable(kind: Callable[[bytes], Any], *, wide: bool) -> Decoder:
    def decode(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        start, stop = variable_extent(data, offset, end, wide)
        return kind(data[start:stop]), stop

    return decode


def compound_extent(data: bytes, offset: int, end: int, wide: bool) -> tuple[int, int, int]:
    """Count of items, where they begin and where they end, of a list, map or array."""
    start, stop = variable_extent(data, offset, end, wide)
    items = start + (4 if wide else 1)
    if items > stop:
        raise truncated()
    return int.from_bytes(data[start:items], "big"), items, stop


def deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise malformed(f"Values are nested deeper than {MAX_DEPTH} levels.")
    return depth + 1


def _ends_at(offset: int, stop: int) -> int:
    if offset != stop:
        raise malformed("The items of a list, map or array do not fill its size.")
    return stop


def _list(*, wide: bool) -> Decoder:
    def decode(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        depth = deeper(depth)
        count, offset, stop = compound_extent(data, offset, end, wide)
        items = []
        for _ in range(count):
            item, offset = decode_within(data, offset, stop, depth)
            items.append(item)
        return items, _ends_at(offset, stop)

    return decode


def _map(*, wide: bool) -> Decoder:
    def decode(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        depth = deeper(depth)
        count, offset, stop = compound_extent(data, offset, end, wide)
        if count % 2:
            raise malformed("A map has a key without a value.")
        pairs: dict[Any, Any] = {}
        for _ in range(count // 2):
            key, offset = decode_within(data, offset, stop, depth)
            value, offset = decode_within(data, offset, stop, depth)
            try:
                if key in pairs:
                    raise malformed("A map has a key twice.")
            except TypeError:
                raise malformed("A key of a map is a list, map or array.") from None
            pairs[key] = value
        return pairs, _ends_at(offset, stop)

    return decode


def _array(*, wide: bool) -> Decoder:
    def decode(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        depth = deeper(depth)
        count, start, stop = compound_extent(data, offset, end, wide)
        descriptors = []
        offset = start
        while offset < stop and data[offset] == 0x00:
            depth = deeper(depth)
            descriptor, offset = decode_within(data, offset + 1, stop, depth)
            descriptors.append(descriptor)
        if offset >= stop:
            raise truncated()
        code = data[offset]
        decoder = DECODERS.get(code)
        if decoder is None:
            raise malformed(f"There is no format code 0x{code:02x}.")
        offset += 1
        # Elements without octets would let a count alone reserve memory.
        if code < 0x50 and count > stop - start:
            raise malformed("An array has more empty elements than it has bytes.")
        items = []
        for _ in range(count):
            item, offset = decoder(data, offset, stop, depth)
            for descriptor in reversed(descriptors):
                item = Described(descriptor, item)
            items.append(item)
        return Array(items, ELEMENTS[code], tuple(descriptors)), _ends_at(offset, stop)

    return decode


def _described(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    depth = deeper(depth)
    descriptor, offset = decode_within(data, offset, end, depth)
    value, offset = decode_within(data, offset, end, depth)
    return Described(descriptor, value), offset


def _empty_list(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    deeper(depth)
    return [], offset


DECODERS: dict[int, Decoder] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: _empty_list,
    0x50: _fixed(UByte, "B"),
    0x51: _fixed(Byte, "b"),
    0x52: _fixed(UInt, "B"),
    0x53: _fixed(ULong, "B"),
    0x54: _fixed(Int, "b"),
    0x55: _fixed(_plain, "b"),
    0x56: _fixed(_boolean, "B"),
    0x60: _fixed(UShort, "H"),
    0x61: _fixed(Short, "h"),
    0x70: _fixed(UInt, "I"),
    0x71: _fixed(Int, "i"),
    0x72: _fixed(Float, "f"),
    0x73: _fixed(_char, "I"),
    0x74: _fixed(Decimal32, "4s"),
    0x80: _fixed(ULong, "Q"),
    0x81: _fixed(_plain, "q"),
    0x82: _fixed(_plain, "d"),
    0x83: _fixed(Timestamp, "q"),
    0x84: _fixed(Decimal64, "8s"),
    0x94: _fixed(Decimal128, "16s"),
    0x98: _fixed(_uuid, "16s"),
    0xA0: _variable(_plain, wide=False),
    0xA1: _variable(_text, wide=False),
    0xA3: _variable(_symbol, wide=False),
    0xB0: _variable(_plain, wide=True),
    0xB1: _variable(_text, wide=True),
    0xB3: _variable(_symbol, wide=True),
    0xC0: _list(wide=False),
    0xC1: _map(wide=False),
    0xD0: _list(wide=True),
    0xD1: _map(wide=True),
    0xE0: _array(wide=False),
    0xF0: _array(wide=True),
}

ELEMENTS: dict[int, type] = {
    code: kind
    for kind, codes in (
        (type(None), (0x40,)),
        (bool, (0x41, 0x42, 0x56)),
        (UByte, (0x50,)),
        (UShort, (0x60,)),
        (UInt, (0x43, 0x52, 0x70)),
        (ULong, (0x44, 0x53, 0x80)),
        (Byte, (0x51,)),
        (Short, (0x61,)),
        (Int, (0x54, 0x71)),
        (int, (0x55, 0x81)),
        (Float, (0x72,)),
        (float, (0x82,)),
        (Char, (0x73,)),
        (Timestamp, (0x83,)),
        (Decimal32, (0x74,)),
        (Decimal64, (0x84,)),
        (Decimal128, (0x94,)),
        (UUID, (0x98,)),
        (bytes, (0xA0, 0xB0)),
        (str, (0xA1, 0xB1)),
        (Symbol, (0xA3, 0xB3)),
        (list, (0x45, 0xC0, 0xD0)),
        (dict, (0xC1, 0xD1)),
        (Array, (0xE0, 0xF0)),
    )
    for code in codes
}
"""The class that an array's elements have, by their format code."""


# Skipping

_FIXED_WIDTHS = (0, 1, 2, 4, 8, 16)
_NARROW, _WIDE, _DESCRIBED, _UNKNOWN = -1, -2, -3, -4


def _step(code: int) -> int:
    """Octets after a format code of fixed width, by its high half (section 1.2), or its form."""
    if code not in DECODERS:
        return _UNKNOWN
    if code == 0x00:
        return _DESCRIBED
    if code < 0xA0:
        return _FIXED_WIDTHS[(code >> 4) - 4]
    return _WIDE if code & 0x10 else _NARROW


_STEPS = [_step(code) for code in range(256)]


def skip(data: bytes, offset: int, end: int, depth: int = 0) -> int:
    """The offset after the value at `offset`: lengths are checked, what they contain is not."""
    if offset >= end:
        raise truncated()
    step = _STEPS[data[offset]]
    stop = offset + 1 + step
    if step < 0:
        if step == _NARROW:
            stop = offset + 2 + (data[offset + 1] if offset + 1 < end else end)
        elif step == _WIDE:
            _, stop = variable_extent(data, offset + 1, end, True)
        elif step == _DESCRIBED:
            depth = deeper(depth)
            stop = skip(data, skip(data, offset + 1, end, depth), end, depth)
        else:
            raise malformed(f"There is no format code 0x{data[offset]:02x}.")
    if stop > end:
        raise truncated()
    return stop
