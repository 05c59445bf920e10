"""Writes trees as texts that read back as the same trees."""

from __future__ import annotations

from busway.filters.lexer import is_regular_name
from busway.filters.syntax import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    NamedProperty,
    NewId,
    Not,
    Or,
    Parameter,
    Predicate,
    Property,
    Remove,
    Sign,
    Statement,
)


def write(node: Predicate | Expression) -> str:
    match node:
        case Constant(value):
            return write_constant(value)
        case Parameter(name):
            return f"@{name}"
        case Property():
            return write_property(node)
        case NamedProperty(name):
            return f"property({write(name)})"
        case NewId():
            return "newid()"
        case Sign(operator, operand):
            return f"{operator}({write(operand)})"
        case Arithmetic(first, rest):
            return f"({write(first)})" + "".join(f" {op} ({write(x)})" for op, x in rest)
        case Comparison(operator, left, right):
            return f"({write(left)}) {operator} ({write(right)})"
        case IsNull(target, negated):
            return f"{write_property(target)} IS {'NOT ' * negated}NULL"
        case In(operand, options, negated):
            listed = ", ".join(write(option) for option in options)
            return f"({write(operand)}) {'NOT ' * negated}IN ({listed})"
        case Like(operand, pattern, escape, negated):
            tail = "" if escape is None else f" ESCAPE ({write(escape)})"
            return f"({write(operand)}) {'NOT ' * negated}LIKE ({write(pattern)}){tail}"
        case Exists(target):
            return f"EXISTS ({write_property(target)})"
        case Not(operand):
            return f"NOT ({write(operand)})"
        case And(operands):
            return " AND ".join(f"({write(operand)})" for operand in operands)
        case Or(operands):
            return " OR ".join(f"({write(operand)})" for operand in operands)


def write_constant(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).upper().replace("NONE", "NULL")
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def write_property(target: Property) -> str:
    name = target.name if is_regular_name(target.name) else f"[{target.name.replace(']', ']]')}]"
    return f"{target.scope}.{name}"


def write_action(statements: tuple[Statement, ...]) -> str:
    return "; ".join(
        f"REMOVE {write_property(statement.property)}"
        if isinstance(statement, Remove)
        else f"SET {write_property(statement.property)} = {write(statement.value)}"
        for statement in statements
    )
