"""What a filter calculates with: the kinds of values, and how AMQP's types become them (SQL-7).

A value of a filter is None (NULL), `UNKNOWN` (a user property that is not there, SQL-3), `bool`,
`int`, `float`, `str`, `UUID`, `bytes`, `DateTime` or `TimeSpan`, always of exactly that class, so
that operators can be chosen by `type(value)`. Integers of every width are one kind, and so are all
floating ones; decimals are read as doubles. Anything else (lists, maps, arrays) is `Opaque`: it is
there, but nothing can be compared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from busway.amqp.types import (
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

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

TICKS_PER_MS = 10_000
TICKS_PER_US = 10
EPOCH_TICKS = 621_355_968_000_000_000
"""1970 in the ticks of a DateTime: 100 ns each since the year 1."""
DATETIME_MAX_TICKS = 3_155_378_975_999_999_999
"""The last tick of the year 9999."""

TIMESPAN_SYMBOL = "com.microsoft:timespan"
DATETIME_OFFSET_SYMBOL = "com.microsoft:datetime-offset"
URI_SYMBOL = "com.microsoft:uri"


class Unknown:
    """The value of a user property that a message does not have (SQL-3)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Unknown()

UTC_TICKS_SYMBOL: Final = "busway:utc-ticks"
"""Describes an instant of a filter, over HTTP, that has more digits than a timestamp of AMQP."""


@dataclass(frozen=True, slots=True, order=True)
class DateTime:
    """An instant, UTC."""

    ticks: int

    @classmethod
    def of_ms(cls, ms: int) -> DateTime:
        """From milliseconds since 1970; what the calendar does not reach is its first or last."""
        return cls(min(max(ms * TICKS_PER_MS + EPOCH_TICKS, 0), DATETIME_MAX_TICKS))

    @property
    def ms(self) -> int:
        return (self.ticks - EPOCH_TICKS) // TICKS_PER_MS

    def __str__(self) -> str:
        moment = datetime(1, 1, 1) + timedelta(microseconds=self.ticks // TICKS_PER_US)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{self.ticks % 10_000_000:07d}Z"


@dataclass(frozen=True, slots=True, order=True)
class TimeSpan:
    """A length of time."""

    ticks: int

    @classmethod
    def of_ms(cls, ms: int) -> TimeSpan:
        return cls(ms * TICKS_PER_MS)

    @property
    def ms(self) -> int:
        return self.ticks // TICKS_PER_MS

    def __str__(self) -> str:
        seconds, fraction = divmod(abs(self.ticks), 10_000_000)
        days, seconds = divmod(seconds, 86_400)
        sign = "-" if self.ticks < 0 else ""
        whole = f"{days}." if days else ""
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        return f"{sign}{whole}{clock}" + (f".{fraction:07d}" if fraction else "")


@dataclass(frozen=True, slots=True)
class Opaque:
    """A list, map, array or foreign described value."""

    amqp: Any


Value = Any
"""One of the kinds above. Not spelled as a union: operators look at the class, not at the hint."""

KIND_NAMES: dict[type, str] = {
    type(None): "NULL",
    Unknown: "unknown",
    bool: "Boolean",
    int: "Int64",
    float: "Double",
    str: "String",
    UUID: "Guid",
    bytes: "Binary",
    DateTime: "DateTime",
    TimeSpan: "TimeSpan",
    Opaque: "Object",
}
"""The service's words for the kinds, for texts of errors."""


def kind_name(value: Value) -> str:
    return KIND_NAMES[type(value)]


# From AMQP


def _same(value: Any) -> Value:
    return value


def _datetime(value: datetime) -> DateTime:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return DateTime(since // timedelta(microseconds=1) * TICKS_PER_US + EPOCH_TICKS)


def _timedelta(value: timedelta) -> TimeSpan:
    return TimeSpan(value // timedelta(microseconds=1) * TICKS_PER_US)


def _decimal(bits: int, bias: int, digits_max: int) -> Callable[[bytes], float]:
    """Reads an IEEE 754 decimal in binary integer encoding, as AMQP has it (section 1.6.13)."""
    exponent_bits = {32: 8, 64: 10, 128: 14}[bits]
    coefficient_bits = bits - 1 - exponent_bits

    def read(octets: bytes) -> float:
        word = int.from_bytes(octets, "big")
        sign = -1.0 if word >> (bits - 1) else 1.0
        if word >> (bits - 5) & 0xF == 0xF:
            return math.nan if word >> (bits - 6) & 1 else sign * math.inf
        if word >> (bits - 3) & 3 == 3:
            shift = coefficient_bits - 2
            coefficient = (word & ((1 << shift) - 1)) | 0b100 << shift
        else:
            shift = coefficient_bits
            coefficient = word & ((1 << shift) - 1)
        exponent = (word >> shift & ((1 << exponent_bits) - 1)) - bias
        if coefficient >= 10**digits_max:
            coefficient = 0  # not canonical: the standard reads it as zero
        return sign * float(f"{coefficient}e{exponent}")

    return read


def _described(value: Described) -> Value:
    """The described types of client libraries (amqp.md, section 14): ticks and addresses."""
    match value:
        case Described(descriptor="com.microsoft:timespan", value=int() as ticks):
            return TimeSpan(int(ticks))
        case Described(descriptor="com.microsoft:datetime-offset", value=int() as ticks):
            return DateTime(min(max(int(ticks), 0), DATETIME_MAX_TICKS))
        case Described(descriptor="busway:utc-ticks", value=int() as ticks):
            # It is compared with timestamps of AMQP, which have milliseconds.
            return DateTime(int(ticks) - int(ticks) % TICKS_PER_MS)
        case Described(descriptor="com.microsoft:uri", value=str() as address):
            return str(address)
    return Opaque(value)


FROM_AMQP: dict[type, Callable[[Any], Value]] = {
    **dict.fromkeys((type(None), bool, int, float, str, bytes, UUID, DateTime, TimeSpan), _same),
    **dict.fromkeys((UByte, UShort, UInt, ULong, Byte, Short, Int), int),
    **dict.fromkeys((Symbol, Char), str),
    Float: float,
    Timestamp: DateTime.of_ms,
    Decimal32: _decimal(32, 101, 7),
    Decimal64: _decimal(64, 398, 16),
    Decimal128: _decimal(128, 6176, 34),
    Described: _described,
    # What the HTTP face reads from XML.
    datetime: _datetime,
    timedelta: _timedelta,
}


def from_amqp(value: Any) -> Value:
    reader = FROM_AMQP.get(type(value))
    return Opaque(value) if reader is None else reader(value)


# To AMQP


def on_the_wire(given: Any) -> Any:
    """A filter's value as a message or a client has it: an instant has milliseconds there."""
    match given:
        case Described(descriptor="busway:utc-ticks"):
            return to_amqp(from_amqp(given))
        case datetime() | timedelta():
            return to_amqp(from_amqp(given))
    return given


def to_amqp(value: Value) -> Any:
    """The type that a property gets which did not exist before."""
    match value:
        case DateTime():
            return Timestamp(value.ms)
        case TimeSpan():
            return Described(Symbol(TIMESPAN_SYMBOL), value.ticks)
        case Opaque():
            return value.amqp
    return value


def text_of(value: Value) -> str:
    """As .NET writes it: how a value becomes a property that is a text (ACT-3).

    Raises ValueError for what has no text.
    """
    if type(value) is bool:
        return "True" if value else "False"
    if type(value) is bytes:
        return value.hex()
    if type(value) is Opaque:
        raise ValueError("a list or map has no text")
    return str(value)
