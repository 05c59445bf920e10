"""The values of filter properties and parameters: `KeyValueOfstringanyType`, both ways (http.md 7).

Read into the types of AMQP, so that a rule is the same whether it came over HTTP or AMQP. A time
without a zone is kept apart from one in UTC, because Python's client compares it with what it sent
and JavaScript's takes it for local time: it is the AMQP type of ticks, the other one is that of
milliseconds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from xml.etree.ElementTree import Element

from busway.amqp.types import (
    Byte,
    Char,
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
from busway.filters.values import (
    DATETIME_OFFSET_SYMBOL,
    EPOCH_TICKS,
    TICKS_PER_MS,
    TIMESPAN_SYMBOL,
    UTC_TICKS_SYMBOL,
)
from busway.http.atom.instants import of_ticks, ticks_of
from busway.http.atom.markup import SCHEMA, SERIALIZATION, Markup, element
from busway.http.atom.reading import bad, children, local_name, text_of, type_of
from busway.model.durations import SECOND_MS, UNLIMITED_MS, format_iso, parse_iso

ITEM = "KeyValueOfstringanyType"
PREFIX = "d6p1"
"""Four characters: JavaScript's client cuts five off the type, with its colon."""

_WHOLE = re.compile(r"[+-]?\d{1,20}")
_FRACTION = re.compile(r"[.,](\d+)")
_EPOCH = datetime(1970, 1, 1)
TICKS_PER_SECOND = 10_000_000

# --- In ------------------------------------------------------------------------------------------


def read_values(parent: Element) -> dict[str, object]:
    """What `Properties` or `Parameters` hold."""
    values: dict[str, object] = {}
    for item in parent:
        if local_name(item) != ITEM:
            continue
        parts = children(item)
        key = text_of(parts["Key"]) if "Key" in parts else ""
        if not key or key in values:
            raise bad(f"A {ITEM} has no Key, or the same one as another: '{key}'.")
        values[key] = _read_value(key, parts.get("Value"))
    return values


def _read_value(key: str, value: Element | None) -> object:
    if value is None:
        return None  # `i:nil`, or left out
    kind = type_of(value) or "string"
    read = READERS.get(kind)
    if read is None:
        raise bad(f"The value of '{key}' has the type '{kind}'. Known are {', '.join(READERS)}.")
    text = text_of(value)
    try:
        return read(text if kind == "string" else text.strip())
    except (ValueError, OverflowError):
        raise bad(f"The value of '{key}' cannot be read as {kind}: '{text[:80]}'.") from None


def _whole(kind: type[int], bits: int, *, signed: bool = True) -> Callable[[str], int]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def read(text: str) -> int:
        if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
            raise ValueError(text)
        return kind(text)

    return read


def _floating(kind: type[float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        if "_" in text:
            raise ValueError(text)  # Python would read it
        return kind(text)

    return read


def read_flag(text: str) -> bool:
    match text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
    raise ValueError(text)


def _date_time(text: str) -> object:
    moment = datetime.fromisoformat(text).replace(microsecond=0)
    naive = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    seconds = (naive - _EPOCH) // timedelta(seconds=1)
    ticks = EPOCH_TICKS + seconds * TICKS_PER_SECOND + _fraction(text)
    if moment.tzinfo is None:
        return Described(Symbol(DATETIME_OFFSET_SYMBOL), ticks)
    if ticks % TICKS_PER_MS:
        return Described(Symbol(UTC_TICKS_SYMBOL), ticks)
    return Timestamp((ticks - EPOCH_TICKS) // TICKS_PER_MS)


def _duration(text: str) -> object:
    span_ms = parse_iso(text.removeprefix("-"))
    if span_ms is None:
        ticks = UNLIMITED_MS * TICKS_PER_MS
    else:
        ticks = span_ms * TICKS_PER_MS + _fraction(text) % TICKS_PER_MS
    return Described(Symbol(TIMESPAN_SYMBOL), -ticks if text.startswith("-") else ticks)


def _fraction(text: str) -> int:
    """The fraction of a second in ticks of 100 ns, of which .NET writes seven digits."""
    found = _FRACTION.search(text)
    return 0 if found is None else int(found[1][:7].ljust(7, "0"))


def _span(ticks: int) -> str:
    """`format_iso` with what is below a millisecond."""
    text = format_iso(ticks // TICKS_PER_SECOND * SECOND_MS)
    fraction = ticks % TICKS_PER_SECOND
    if not fraction:
        return text
    digits = f".{fraction:07d}".rstrip("0")
    if text.endswith("S"):
        return f"{text[:-1]}{digits}S"
    return f"{text}{'' if 'T' in text else 'T'}0{digits}S"


def _character(text: str) -> object:
    return Char(chr(_whole(int, 32, signed=False)(text)))  # a number, as .NET writes it


READERS: dict[str, Callable[[str], object]] = {
    "string": str,
    "int": _whole(Int, 32),
    "long": _whole(int, 64),
    "double": _floating(float),
    "boolean": read_flag,
    "dateTime": _date_time,
    "duration": _duration,
    # What client libraries of today do not send, and a rule that came over AMQP may have.
    "byte": _whole(Byte, 8),
    "short": _whole(Short, 16),
    "unsignedByte": _whole(UByte, 8, signed=False),
    "unsignedShort": _whole(UShort, 16, signed=False),
    "unsignedInt": _whole(UInt, 32, signed=False),
    "unsignedLong": _whole(ULong, 64, signed=False),
    "float": _floating(Float),
    "decimal": _floating(float),
    "guid": UUID,
    "char": _character,
    "base64Binary": lambda text: base64.b64decode(text, validate=True),
}

# --- Out -----------------------------------------------------------------------------------------


def write_values(name: str, values: Mapping[str, object]) -> Markup:
    return element(name, [_item(key, value) for key, value in values.items()])


def _item(key: str, value: object) -> Markup:
    return element(ITEM, [element("Key", key), _value(value)])


def _value(value: object) -> Markup:
    if value is None:
        return element("Value", "", {"i:nil": "true"})
    kind, text = _kind_and_text(value)
    namespace = SERIALIZATION if kind in OF_SERIALIZATION else SCHEMA
    return element("Value", text, {"i:type": f"{PREFIX}:{kind}", f"xmlns:{PREFIX}": namespace})


OF_SERIALIZATION = frozenset({"duration", "guid", "char"})


def _kind_and_text(value: Any) -> tuple[str, str]:
    match value:
        case Timestamp():
            return "dateTime", f"{of_ticks(ticks_of(value))}Z"
        case Described(descriptor="com.microsoft:datetime-offset", value=int() as ticks):
            return "dateTime", of_ticks(ticks)
        case Described(descriptor="busway:utc-ticks", value=int() as ticks):
            return "dateTime", f"{of_ticks(ticks)}Z"
        case Described(descriptor="com.microsoft:timespan", value=int() as ticks):
            span = _span(abs(ticks))
            return "duration", f"-{span}" if ticks < 0 else span
        case bytes():
            return "base64Binary", base64.b64encode(value).decode()
        case Char():
            return "char", str(ord(value))
    write = KINDS.get(type(value))
    return ("string", str(value)) if write is None else (write, _plain(value))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(text := repr(float(value)), text)
    return str(value)


KINDS: dict[type, str] = {
    bool: "boolean",
    Int: "int",
    int: "long",
    float: "double",
    Float: "float",
    Byte: "byte",
    Short: "short",
    UByte: "unsignedByte",
    UShort: "unsignedShort",
    UInt: "unsignedInt",
    ULong: "unsignedLong",
    UUID: "guid",
}
"""A value of another class, and a text, is a string."""
