"""What a filter or action says, as a tree (SQL-1, ACT-1). Only data; frozen, so it can be compared.

Runs of operators of one level are one node (`a + b - c`, `x AND y AND z`): the height of a tree is
bounded by how deep its text is nested, not by how long it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from busway.filters.values import Value

Scope = Literal["sys", "user"]
Comparator = Literal["=", "<>", ">", ">=", "<", "<="]
ArithmeticOperator = Literal["+", "-", "*", "/", "%"]


# Expressions: what has a value


@dataclass(frozen=True, slots=True)
class Constant:
    """NULL, TRUE, FALSE, an integer, a double or a string."""

    value: Value


@dataclass(frozen=True, slots=True)
class Parameter:
    """`@name`: a value that comes with the filter."""

    name: str


@dataclass(frozen=True, slots=True)
class Property:
    scope: Scope
    name: str
    """As it was written. Names that differ only by case are the same (SQL-2)."""


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """`property(expr)`: the property whose name is calculated."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`"""


@dataclass(frozen=True, slots=True)
class Sign:
    operator: Literal["+", "-"]
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`first op operand op operand ...`, from left to right, all of one level."""

    first: Expression
    rest: tuple[tuple[ArithmeticOperator, Expression], ...]


Expression = Constant | Parameter | Property | NamedProperty | NewId | Sign | Arithmetic


# Predicates: what is true, false or unknown


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: Comparator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    property: Property
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In:
    operand: Expression
    options: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Exists:
    property: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Predicate, ...]


Predicate = Comparison | IsNull | In | Like | Exists | Not | And | Or


# Actions


@dataclass(frozen=True, slots=True)
class Set:
    property: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    property: Property


Statement = Set | Remove
