"""The codecs that this machine has, and values to feed them."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st

from busway.amqp import _pure
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

CODECS: dict[str, ModuleType] = {"pure": _pure}
try:
    from busway.amqp import _fast

    CODECS["cython"] = _fast
except ImportError:
    pass

each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
both_codecs = pytest.mark.skipif(len(CODECS) < 2, reason="the compiled codec is not built")


def octets(text: str) -> bytes:
    """Hexadecimal digits, with spaces and quoted ASCII as they are easiest to read."""
    parts = text.split("'")
    return b"".join(
        part.encode() if index % 2 else bytes.fromhex(part) for index, part in enumerate(parts)
    )


def _integers(kind: type, bits: int, signed: bool) -> st.SearchStrategy[Any]:
    least = -(1 << (bits - 1)) if signed else 0
    most = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
    edges = st.sampled_from([0, 1, 127, most, least, max(least, -128)])
    return (edges | st.integers(least, most)).map(kind)


def _octets(kind: type, size: int) -> st.SearchStrategy[Any]:
    return st.binary(min_size=size, max_size=size).map(kind)


texts = st.text(max_size=40) | st.text(alphabet="xé", min_size=120, max_size=300)
symbols = texts.map(Symbol)
floats = st.floats(width=32, allow_nan=False).map(Float)
binaries = st.binary(max_size=40) | st.binary(min_size=250, max_size=260)
chars = st.characters(exclude_categories=["Cs"]).map(Char)

by_class: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    UByte: _integers(UByte, 8, False),
    UShort: _integers(UShort, 16, False),
    UInt: _integers(UInt, 32, False),
    ULong: _integers(ULong, 64, False),
    Byte: _integers(Byte, 8, True),
    Short: _integers(Short, 16, True),
    Int: _integers(Int, 32, True),
    int: _integers(int, 64, True),
    Timestamp: _integers(Timestamp, 64, True),
    Float: floats,
    float: st.floats(allow_nan=False),
    Char: chars,
    Decimal32: _octets(Decimal32, 4),
    Decimal64: _octets(Decimal64, 8),
    Decimal128: _octets(Decimal128, 16),
    bytes: binaries,
    str: texts,
    Symbol: symbols,
}
scalars = st.none() | st.uuids() | st.one_of(*by_class.values())
keys = symbols | texts | by_class[ULong] | st.uuids() | binaries

arrays = st.one_of(
    *(
        st.lists(items, max_size=4).map(lambda items, kind=kind: Array(items, kind))
        for kind, items in by_class.items()
    ),
    st.lists(st.lists(by_class[int], max_size=2).map(lambda i: Array(i, int)), max_size=3).map(
        lambda items: Array(items, Array)
    ),
    st.lists(texts, max_size=3).map(
        lambda items: Array([Described(ULong(7), item) for item in items], str, (ULong(7),))
    ),
    st.lists(st.lists(texts, max_size=2), max_size=3).map(lambda items: Array(items, list)),
)

values = st.recursive(
    scalars | arrays,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(Described, symbols | by_class[ULong], inner)
    ),
    max_leaves=12,
)


def typed(value: Any) -> Any:
    """The value with the class of everything in it: equal only if the types are."""
    if isinstance(value, Array):
        element = value.element or (type(value[0]) if value else type(None))
        return Array, element, [typed(item) for item in value]
    if isinstance(value, list):
        return list, [typed(item) for item in value]
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, Described):
        return Described, typed(value.descriptor), typed(value.value)
    if isinstance(value, float):
        return type(value), struct.pack(">d", value)
    return type(value), value
