"""The Python class of every AMQP type (AMQP 1.0, section 1.6).

Decoding gives these classes and encoding looks at them, so a value that is read can be written
again with its type. What Python has is used as it is: None, bool, `int` for long, `float` for
double, `bytes` for binary, `str` for string, `uuid.UUID`, `list` and `dict`.

Numbers and texts compare and hash like the plain Python ones: `Symbol("a") == "a"`. A map with two
keys that Python takes for equal is therefore not readable; no client writes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class UByte(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class UShort(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class UInt(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class ULong(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Byte(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Short(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int(int):
    """Signed, 32 bits. (A plain `int` is a long: signed, 64 bits.)"""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970, signed, 64 bits."""

    __slots__ = ()


class Float(float):
    """IEEE 754, 32 bits. (A plain `float` is a double.)"""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal, 4 bytes as they are on the wire: a broker does not calculate with it."""

    __slots__ = ()


class Decimal64(bytes):
    """IEEE 754 decimal, 8 bytes as they are on the wire."""

    __slots__ = ()


class Decimal128(bytes):
    """IEEE 754 decimal, 16 bytes as they are on the wire."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that gives it a meaning (section 1.2)."""

    descriptor: Any
    value: Any


class Array(list[Any]):
    """Values of one type that share their constructor (section 1.6.24).

    `element` is their class, `descriptors` what describes each of them, outermost first; the
    elements are then `Described`. Without `element` the first item decides; an empty array needs
    it to keep its type.
    """

    __slots__ = ("descriptors", "element")

    def __init__(
        self,
        items: Iterable[Any] = (),
        element: type | None = None,
        descriptors: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(items)
        self.element = element
        self.descriptors = descriptors

    def __repr__(self) -> str:
        return f"Array({list.__repr__(self)})"
