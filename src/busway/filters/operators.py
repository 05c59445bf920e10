"""What operators do with values: tables of kinds and functions (SQL-4, SQL-6 to SQL-10).

Three-valued logic has True, False and None for *unknown*. Numbers follow C#: integers are Int64 and
checked, because a sum that silently wraps would let the wrong messages through; an integer that
meets a double becomes one; division cuts toward zero and the remainder has the sign of the
dividend. What has no entry in a table is an error, which the subscription dead-letters (RUL-4).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any
from uuid import UUID

from busway.filters.errors import FilterError
from busway.filters.values import (
    DATETIME_MAX_TICKS,
    INT64_MAX,
    INT64_MIN,
    UNKNOWN,
    DateTime,
    TimeSpan,
    Unknown,
    Value,
    kind_name,
)
from busway.model.limits import PROPERTY_SIZE_MAX_BYTES

Truth = bool | None
"""None is *unknown*."""

# --- Logic (SQL-4) -------------------------------------------------------------------------------

AND: dict[Truth, dict[Truth, Truth]] = {
    True: {True: True, False: False, None: None},
    False: {True: False, False: False, None: False},
    None: {True: None, False: False, None: None},
}
OR: dict[Truth, dict[Truth, Truth]] = {
    True: {True: True, False: True, None: True},
    False: {True: True, False: False, None: None},
    None: {True: True, False: None, None: None},
}
NOT: dict[Truth, Truth] = {True: False, False: True, None: None}

# --- Comparison (SQL-6, SQL-7, SQL-10) -----------------------------------------------------------

ORDERED = frozenset({int, float, str, DateTime, TimeSpan})
EQUATED = ORDERED | {bool, UUID, bytes}
"""C# has no `<` for these three more."""

NUMBERS = frozenset({int, float})
NOTHING = frozenset({type(None), Unknown})

OPERATORS: dict[str, tuple[Callable[[Any, Any], bool], frozenset[type]]] = {
    "=": (operator.eq, EQUATED),
    "<>": (operator.ne, EQUATED),
    ">": (operator.gt, ORDERED),
    ">=": (operator.ge, ORDERED),
    "<": (operator.lt, ORDERED),
    "<=": (operator.le, ORDERED),
}
"""How each compares two values of one kind, and the kinds that it compares."""

Comparer = Callable[[Value, Value], Truth]


def _comparer(sign: str) -> Comparer:
    operate, kinds = OPERATORS[sign]

    def compare(left: Value, right: Value) -> Truth:
        kind, other = type(left), type(right)
        if kind is other and kind in kinds:
            return operate(left, right)
        if kind in NOTHING or other in NOTHING:
            return None
        if kind in NUMBERS and other in NUMBERS:
            return operate(float(left), float(right))
        raise FilterError(
            f"The operator '{sign}' cannot be applied to operands of type "
            f"{kind_name(left)} and {kind_name(right)}."
        )

    return compare


COMPARERS: dict[str, Comparer] = {sign: _comparer(sign) for sign in OPERATORS}

# --- Arithmetic (SQL-7, SQL-9) -------------------------------------------------------------------


def _int64(number: int) -> int:
    if not INT64_MIN <= number <= INT64_MAX:
        raise FilterError("Arithmetic operation resulted in an overflow.")
    return number


def _timespan(ticks: int) -> TimeSpan:
    return TimeSpan(_int64(ticks))


def _datetime(ticks: int) -> DateTime:
    if not 0 <= ticks <= DATETIME_MAX_TICKS:
        raise FilterError("The resulting DateTime is outside of the years 1 to 9999.")
    return DateTime(ticks)


def _by_zero(divisor: float) -> None:
    if divisor == 0:
        raise FilterError("Attempted to divide by zero.")


def _divide_integers(left: int, right: int) -> int:
    _by_zero(right)
    quotient = abs(left) // abs(right)
    return _int64(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder_of_integers(left: int, right: int) -> int:
    _by_zero(right)
    return _int64(abs(left) % abs(right) * (-1 if left < 0 else 1))


def _divide(left: float, right: float) -> float:
    _by_zero(right)
    return left / right


def _remainder(left: float, right: float) -> float:
    _by_zero(right)
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _concatenate(left: str, right: str) -> str:
    # Actions may double a text with every statement; no property can be longer than this (LIM-3).
    if len(left) + len(right) > PROPERTY_SIZE_MAX_BYTES:
        raise FilterError(f"A text of more than {PROPERTY_SIZE_MAX_BYTES} characters results.")
    return left + right


ARITHMETIC: dict[tuple[str, type, type], Callable[[Any, Any], Value]] = {
    ("+", int, int): lambda left, right: _int64(left + right),
    ("-", int, int): lambda left, right: _int64(left - right),
    ("*", int, int): lambda left, right: _int64(left * right),
    ("/", int, int): _divide_integers,
    ("%", int, int): _remainder_of_integers,
    ("+", float, float): operator.add,
    ("-", float, float): operator.sub,
    ("*", float, float): operator.mul,
    ("/", float, float): _divide,
    ("%", float, float): _remainder,
    ("+", str, str): _concatenate,
    ("-", DateTime, DateTime): lambda left, right: _timespan(left.ticks - right.ticks),
    ("+", DateTime, TimeSpan): lambda left, right: _datetime(left.ticks + right.ticks),
    ("-", DateTime, TimeSpan): lambda left, right: _datetime(left.ticks - right.ticks),
    ("+", TimeSpan, TimeSpan): lambda left, right: _timespan(left.ticks + right.ticks),
    ("-", TimeSpan, TimeSpan): lambda left, right: _timespan(left.ticks - right.ticks),
}

SIGNS: dict[tuple[str, type], Callable[[Any], Value]] = {
    ("+", int): operator.pos,
    ("-", int): lambda number: _int64(-number),
    ("+", float): operator.pos,
    ("-", float): operator.neg,
    ("+", TimeSpan): lambda span: span,
    ("-", TimeSpan): lambda span: _timespan(-span.ticks),
}


def calculate(sign: str, left: Value, right: Value) -> Value:
    """Unknown if an operand is (SQL-4), else NULL if an operand is, else what the table says."""
    kind, other = type(left), type(right)
    operate = ARITHMETIC.get((sign, kind, other))
    if operate is not None:
        return operate(left, right)
    if kind is Unknown or other is Unknown:
        return UNKNOWN
    if left is None or right is None:
        return None
    if kind in NUMBERS and other in NUMBERS:
        return ARITHMETIC[sign, float, float](float(left), float(right))
    raise FilterError(
        f"The operator '{sign}' cannot be applied to operands of type "
        f"{kind_name(left)} and {kind_name(right)}."
    )


def apply_sign(sign: str, value: Value) -> Value:
    operate = SIGNS.get((sign, type(value)))
    if operate is not None:
        return operate(value)
    if type(value) in NOTHING:
        return value
    raise FilterError(
        f"The operator '{sign}' cannot be applied to an operand of type {kind_name(value)}."
    )
