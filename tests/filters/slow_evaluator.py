"""A second evaluator: walks the tree, slowly, by the letter of the rules SQL-3 to SQL-10.

It shares the tree's classes and the kinds of values with the real one, and nothing else. Truth is
a number, as Kleene has it: 0 is false, 1 is true, and unknown lies between them, so AND is the
least, OR the greatest, and NOT is one minus it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import copysign
from typing import Any
from uuid import UUID

from busway.filters.syntax import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    NamedProperty,
    Not,
    Or,
    Property,
    Sign,
)
from busway.filters.values import DateTime, TimeSpan

FALSE, UNKNOWN, TRUE = Fraction(0), Fraction(1, 2), Fraction(1)

MISSING = object()


class UndecidedError(Exception):
    """The filter cannot be decided (RUL-4)."""


@dataclass
class World:
    user: Mapping[str, Any]
    system: Mapping[str, Any]

    def look_up(self, scope: str, name: str) -> Any:
        chosen = self.user if scope == "user" else self.system
        for known, value in chosen.items():
            if known.lower() == name.lower():
                return value
        if scope == "sys":
            raise UndecidedError(name)
        return MISSING

    # Predicates

    def truth(self, node: Any) -> Fraction:
        if isinstance(node, And):
            least = TRUE
            for operand in node.operands:
                least = min(least, self.truth(operand))
                if least == FALSE:
                    return FALSE
            return least
        if isinstance(node, Or):
            most = FALSE
            for operand in node.operands:
                most = max(most, self.truth(operand))
                if most == TRUE:
                    return TRUE
            return most
        if isinstance(node, Not):
            return 1 - self.truth(node.operand)
        if isinstance(node, Comparison):
            left, right = self.value(node.left), self.value(node.right)
            return compare(node.operator, left, right)
        if isinstance(node, IsNull):
            value = self.look_up(node.property.scope, node.property.name)
            answer = TRUE if value is MISSING or value is None else FALSE
            return 1 - answer if node.negated else answer
        if isinstance(node, Exists):
            value = self.look_up(node.property.scope, node.property.name)
            if node.property.scope == "sys":
                return FALSE if value is None else TRUE
            return FALSE if value is MISSING else TRUE
        if isinstance(node, In):
            value = self.value(node.operand)
            if value is MISSING or value is None:
                return UNKNOWN
            answer = FALSE
            for option in node.options:
                answer = max(answer, compare("=", value, self.value(option)))
                if answer == TRUE:
                    break
            return 1 - answer if node.negated else answer
        if isinstance(node, Like):
            answer = self.like(node)
            return 1 - answer if node.negated else answer
        raise AssertionError(node)

    def like(self, node: Like) -> Fraction:
        text, pattern = self.value(node.operand), self.value(node.pattern)
        escape = "" if node.escape is None else self.value(node.escape)
        if pattern is not MISSING and pattern is not None and not isinstance(pattern, str):
            raise UndecidedError("pattern")
        if isinstance(pattern, str):
            symbols = symbols_of(pattern, escape)
        if pattern is MISSING or pattern is None or text is MISSING or text is None:
            return UNKNOWN
        if not isinstance(text, str):
            raise UndecidedError("text")
        return TRUE if naive_like(text, symbols) else FALSE

    # Expressions

    def value(self, node: Any) -> Any:
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Property):
            return self.look_up(node.scope, node.name)
        if isinstance(node, NamedProperty):
            name = self.value(node.name)
            if name is MISSING or name is None:
                return MISSING
            if not isinstance(name, str):
                raise UndecidedError("name")
            scope, dot, rest = name.partition(".")
            if dot and scope.lower() in ("sys", "user"):
                return self.look_up(scope.lower(), rest)
            return self.look_up("user", name)
        if isinstance(node, Sign):
            return signed(node.operator, self.value(node.operand))
        if isinstance(node, Arithmetic):
            result = self.value(node.first)
            for operator, operand in node.rest:
                result = calculated(operator, result, self.value(operand))
            return result
        raise AssertionError(node)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return is_integer(value) or isinstance(value, float)


def compare(operator: str, left: Any, right: Any) -> Fraction:
    if left is MISSING or right is MISSING or left is None or right is None:
        return UNKNOWN
    if is_number(left) and is_number(right):
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
    elif type(left) is not type(right):
        raise UndecidedError("kinds")
    elif isinstance(left, bool | UUID | bytes) and operator not in ("=", "<>"):
        raise UndecidedError("order")
    if operator in ("=", "<>"):
        return Fraction(int((left == right) == (operator == "=")))
    less, equal = left < right, left == right
    more = left > right
    return Fraction(int({"<": less, "<=": less or equal, ">": more, ">=": more or equal}[operator]))


def within_int64(number: int) -> int:
    if number.bit_length() > 63 and number != -(2**63):
        raise UndecidedError("overflow")
    return number


def signed(operator: str, value: Any) -> Any:
    if value is MISSING or value is None:
        return value
    if is_integer(value):
        return within_int64(-value) if operator == "-" else value
    if isinstance(value, float):
        return -value if operator == "-" else value
    if isinstance(value, TimeSpan):
        return TimeSpan(within_int64(-value.ticks)) if operator == "-" else value
    raise UndecidedError("sign")


def calculated(operator: str, left: Any, right: Any) -> Any:
    if left is MISSING or right is MISSING:
        return MISSING
    if left is None or right is None:
        return None
    if is_integer(left) and is_integer(right):
        return integers(operator, left, right)
    if is_number(left) and is_number(right):
        return floats(operator, float(left), float(right))
    if isinstance(left, str) and isinstance(right, str) and operator == "+":
        return left + right
    times = (DateTime, TimeSpan)
    if isinstance(left, times) and isinstance(right, times) and operator in ("+", "-"):
        return moments(operator, left, right)
    raise UndecidedError("kinds")


def integers(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise UndecidedError("zero")
        quotient = int(Fraction(left, right))  # int() of a fraction cuts toward zero
        return within_int64(quotient if operator == "/" else left - quotient * right)
    return within_int64({"+": left + right, "-": left - right, "*": left * right}[operator])


def floats(operator: str, left: float, right: float) -> float:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if right == 0:
        raise UndecidedError("zero")
    if operator == "/":
        return left / right
    if abs(left) == float("inf"):
        return float("nan")
    if abs(right) == float("inf"):
        return left
    exact = Fraction(left) - int(Fraction(left) / Fraction(right)) * Fraction(right)
    return copysign(float(exact), left)  # a remainder of zero has a sign, too


def moments(operator: str, left: Any, right: Any) -> Any:
    ticks = left.ticks + right.ticks if operator == "+" else left.ticks - right.ticks
    kinds = type(left), type(right)
    if kinds == (DateTime, DateTime) and operator == "-":
        return TimeSpan(within_int64(ticks))
    if kinds == (TimeSpan, TimeSpan):
        return TimeSpan(within_int64(ticks))
    if kinds == (DateTime, TimeSpan):
        if not 0 <= ticks <= Decimal("3155378975999999999"):
            raise UndecidedError("calendar")
        return DateTime(ticks)
    raise UndecidedError("kinds")


def symbols_of(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """Characters of a pattern, each with whether it is a wildcard."""
    symbols = []
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            if at == len(pattern):
                raise UndecidedError("escape")
            symbols.append((pattern[at], False))
        else:
            symbols.append((pattern[at], pattern[at] in "%_"))
        at += 1
    return symbols


def naive_like(text: str, symbols: list[tuple[str, bool]]) -> bool:
    """All prefixes of the text that the symbols so far can stand for."""
    reached = {0}
    for symbol, wild in symbols:
        if wild and symbol == "%":
            reached = {later for at in reached for later in range(at, len(text) + 1)}
        else:
            reached = {
                at + 1
                for at in reached
                if at < len(text) and ((wild and symbol == "_") or text[at] == symbol)
            }
    return len(text) in reached
