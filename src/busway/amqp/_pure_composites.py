"""Composites in pure Python: reading and writing by the tables of `performatives.py`.

Written to the letter of the encoding profile (amqp.md, section 3): small-ulong descriptors (E2,
E3), every field present, with explicit trailing nulls (E4, E5). Read with tolerance: short lists,
integers of any width, symbols for strings and the reverse, numeric and symbolic descriptors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from busway.amqp import _pure_encoding as encoding
from busway.amqp._pure_decoding import (
    compound_extent,
    decode_within,
    deeper,
    malformed,
    truncated,
    variable_extent,
)
from busway.amqp.errors import DECODE_ERROR, INVALID_FIELD, ProtocolError
from busway.amqp.performatives import BY_CODE, BY_SYMBOL, NESTED, Composite, Field, Kind
from busway.amqp.types import Array, Symbol

Reader = Callable[[bytes, int, int, int], tuple[Any, int]]


# Reading


def decode_composite(data: bytes, offset: int = 0) -> tuple[Composite, int]:
    """The composite at `offset`, and the offset after it."""
    return read_composite(data, offset, len(data), 0)


def read_composite(data: bytes, offset: int, end: int, depth: int) -> tuple[Composite, int]:
    code, offset = read_descriptor(data, offset, end)
    cls = BY_CODE.get(code)
    if cls is None:
        raise ProtocolError(DECODE_ERROR, f"There is no type with the descriptor 0x{code:x}.")
    depth = deeper(depth)
    count, offset, stop = read_list_extent(data, offset, end)
    fields = READERS[code]
    if count > len(fields):
        raise malformed(f"{cls.SYMBOL} has {len(fields)} fields, not {count}.")
    values = []
    for field, read in fields[:count]:
        # Most fields of most composites are null.
        if offset < stop and data[offset] == 0x40:
            value = None
            offset += 1
        else:
            value, offset = read(data, offset, stop, depth)
        if value is None:
            if field.mandatory:
                raise missing(cls, field)
            value = field.default
        values.append(value)
    if offset != stop:
        raise malformed("The items of a list, map or array do not fill its size.")
    if count < len(fields):
        for field, _ in fields[count:]:
            if field.mandatory:
                raise missing(cls, field)
            values.append(field.default)
    return cls(*values), stop


def missing(cls: type[Composite], field: Field) -> ProtocolError:
    return ProtocolError(INVALID_FIELD, f"{cls.SYMBOL} lacks its mandatory field {field.name}.")


def read_descriptor(
    data: bytes, offset: int, end: int, symbols: dict[bytes, int] = BY_SYMBOL
) -> tuple[int, int]:
    """A numeric descriptor, or the number of a symbolic one; and the offset after it."""
    if data[offset : offset + 2] == b"\x00\x53" and offset + 2 < end:
        return data[offset + 2], offset + 3
    if offset + 2 > end:
        raise truncated()
    if data[offset] != 0x00:
        raise malformed("A described value was expected.")
    code = data[offset + 1]
    offset += 2
    if code == 0x53:
        raise truncated()
    if code == 0x80:
        if offset + 8 > end:
            raise truncated()
        return int.from_bytes(data[offset : offset + 8], "big"), offset + 8
    if code in (0xA3, 0xB3):
        start, stop = variable_extent(data, offset, end, code == 0xB3)
        number = symbols.get(data[start:stop])
        if number is None:
            raise malformed("A symbolic descriptor names no type of AMQP.")
        return number, stop
    raise malformed("A descriptor is neither an unsigned long nor a symbol.")


def read_list_extent(data: bytes, offset: int, end: int) -> tuple[int, int, int]:
    """Count of items, where they begin and where they end."""
    if offset >= end:
        raise truncated()
    code = data[offset]
    if code == 0xC0:
        return compound_extent(data, offset + 1, end, False)
    if code == 0xD0:
        return compound_extent(data, offset + 1, end, True)
    if code == 0x45:
        return 0, offset + 1, offset + 1
    raise malformed("A list was expected.")


_INTEGERS = {
    0x50: struct.Struct(">B"),
    0x51: struct.Struct(">b"),
    0x52: struct.Struct(">B"),
    0x53: struct.Struct(">B"),
    0x54: struct.Struct(">b"),
    0x55: struct.Struct(">b"),
    0x60: struct.Struct(">H"),
    0x61: struct.Struct(">h"),
    0x70: struct.Struct(">I"),
    0x71: struct.Struct(">i"),
    0x80: struct.Struct(">Q"),
    0x81: struct.Struct(">q"),
    0x83: struct.Struct(">q"),
}


def _integer(kind: Kind, least: int, most: int) -> Reader:
    def read(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        if offset >= end:
            raise truncated()
        code = data[offset]
        offset += 1
        if code == 0x52 and offset < end and most >= 0xFF:
            return data[offset], offset + 1
        if code == 0x40:
            return None, offset
        if code in (0x43, 0x44):
            return 0, offset
        form = _INTEGERS.get(code)
        if form is None:
            raise wrong(kind, code)
        stop = offset + form.size
        if stop > end:
            raise truncated()
        value = form.unpack_from(data, offset)[0]
        if not least <= value <= most:
            raise ProtocolError(INVALID_FIELD, f"{value} is not a {kind.value}.")
        return value, stop

    return read


def wrong(kind: Kind, code: int) -> ProtocolError:
    return ProtocolError(INVALID_FIELD, f"A {kind.value} cannot have the format code 0x{code:02x}.")


_BOOLEANS = {0x40: None, 0x41: True, 0x42: False}


def _read_boolean(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    if offset >= end:
        raise truncated()
    code = data[offset]
    if code in _BOOLEANS:
        return _BOOLEANS[code], offset + 1
    if code != 0x56:
        raise wrong(Kind.BOOLEAN, code)
    return decode_within(data, offset, end, depth)


def _read_text(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    octets, stop = _read_octets(data, offset, end, (0xA1, 0xA3), Kind.STRING)
    if octets is None:
        return None, stop
    try:
        return octets.decode(), stop
    except UnicodeDecodeError:
        raise malformed("A string is not UTF-8.") from None


def _read_binary(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    return _read_octets(data, offset, end, (0xA0, 0xA1, 0xA3), Kind.BINARY)


def _read_octets(
    data: bytes, offset: int, end: int, codes: tuple[int, ...], kind: Kind
) -> tuple[bytes | None, int]:
    if offset >= end:
        raise truncated()
    code = data[offset]
    if code == 0x40:
        return None, offset + 1
    if code & 0xEF not in codes:
        raise wrong(kind, code)
    start, stop = variable_extent(data, offset + 1, end, bool(code & 0x10))
    return data[start:stop], stop


def _read_symbols(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    """`multiple`: null, one symbol, or an array of them (section 1.4)."""
    value, stop = decode_within(data, offset, end, depth)
    if value is None:
        return None, stop
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise wrong(Kind.SYMBOLS, data[offset])
    return [str(name) for name in names], stop


def _read_map(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
    value, stop = decode_within(data, offset, end, depth)
    if value is not None and not isinstance(value, dict):
        raise wrong(Kind.MAP, data[offset])
    return value, stop


def _nested(kind: Kind) -> Reader:
    allowed = NESTED[kind]

    def read(data: bytes, offset: int, end: int, depth: int) -> tuple[Any, int]:
        if offset >= end:
            raise truncated()
        if data[offset] == 0x40:
            return None, offset + 1
        value, stop = read_composite(data, offset, end, depth)
        if value.CODE not in allowed:
            raise ProtocolError(INVALID_FIELD, f"{value.SYMBOL} is not a {kind.value}.")
        return value, stop

    return read


READ: dict[Kind, Reader] = {
    Kind.BOOLEAN: _read_boolean,
    Kind.UBYTE: _integer(Kind.UBYTE, 0, 0xFF),
    Kind.USHORT: _integer(Kind.USHORT, 0, 0xFFFF),
    Kind.UINT: _integer(Kind.UINT, 0, 0xFFFFFFFF),
    Kind.ULONG: _integer(Kind.ULONG, 0, 0xFFFFFFFFFFFFFFFF),
    Kind.TIMESTAMP: _integer(Kind.TIMESTAMP, -(1 << 63), (1 << 63) - 1),
    Kind.BINARY: _read_binary,
    Kind.STRING: _read_text,
    Kind.SYMBOL: _read_text,
    Kind.SYMBOLS: _read_symbols,
    Kind.FIELDS: _read_map,
    Kind.MAP: _read_map,
    Kind.ANY: decode_within,
    **{kind: _nested(kind) for kind in NESTED},
}

READERS: dict[int, list[tuple[Field, Reader]]] = {
    code: [(field, READ[field.kind]) for field in cls.FIELDS] for code, cls in BY_CODE.items()
}


# Writing


def encode_composite(out: bytearray, value: Composite) -> None:
    cls = type(value)
    fields = WRITERS[cls.CODE]
    out += bytes((0x00, 0x53, cls.CODE))
    if not fields:
        out.append(0x45)
        return
    items = bytearray()
    for field, write in fields:
        content = getattr(value, field.name)
        if content is not None:
            write(items, content)
        elif field.mandatory:
            raise missing(cls, field)
        else:
            items.append(0x40)
    encoding.append_compound(out, 0xC0, len(fields), items)


def _write_symbols(out: bytearray, names: list[str]) -> None:
    encoding.encode_array(out, Array(names, Symbol))


_WRITE: dict[Kind, encoding.Encoder] = {
    Kind.BOOLEAN: encoding.encode_boolean,
    Kind.UBYTE: encoding.encode_ubyte,
    Kind.USHORT: encoding.encode_ushort,
    Kind.UINT: encoding.encode_uint,
    Kind.ULONG: encoding.encode_ulong,
    Kind.TIMESTAMP: encoding.encode_timestamp,
    Kind.BINARY: encoding.encode_binary,
    Kind.STRING: encoding.encode_string,
    Kind.SYMBOL: encoding.encode_symbol,
    Kind.SYMBOLS: _write_symbols,
    Kind.FIELDS: encoding.encode_fields,
    Kind.MAP: encoding.encode_map,
    Kind.ANY: encoding.encode_into,
    **dict.fromkeys(NESTED, encode_composite),
}

WRITERS: dict[int, list[tuple[Field, encoding.Encoder]]] = {
    code: [(field, _WRITE[field.kind]) for field in cls.FIELDS] for code, cls in BY_CODE.items()
}

encoding.ENCODERS[Composite] = encode_composite
