"""Why a rule takes a message or not, for people who try rules out.

A filter is asked as routing asks it. Where it does not match, the parts that decided so are named:
each operand of an AND, each condition of a correlation filter, with the values that were found.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from busway.filters.correlation import FIELDS, conditions_of
from busway.filters.errors import FilterError, FilterSyntaxError, RuleActionError
from busway.filters.evaluator import Compiler, ParameterError
from busway.filters.facts import MessageFacts, property_key
from busway.filters.parser import parse_filter
from busway.filters.rules import compile_rule
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
    Sign,
)
from busway.filters.values import UNKNOWN, from_amqp
from busway.model.entities import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter
from busway.model.errors import BusError
from busway.model.message import Message

MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Part:
    """One condition of a filter, and what became of it."""

    text: str
    outcome: str
    """`true`, `false`, `unknown` (a property is missing or null) or the text of an error."""
    found: str | None = None
    """The value that the message has there, where the condition is about one property."""


@dataclass(frozen=True, slots=True)
class Explanation:
    rule: str
    matches: bool
    error: str | None
    """Why the filter or the action fails for this message."""
    parts: tuple[Part, ...] = ()
    action: str | None = None


def explain(rule: Rule, message: Message) -> Explanation:
    facts = MessageFacts(message)
    try:
        compiled = compile_rule(rule, new_id=lambda: UUID(int=0))
        parts = _parts(rule, facts)
        matches = all(part.outcome == "true" for part in parts)
    except (BusError, FilterError, RuleActionError) as problem:
        return Explanation(rule.name, False, str(problem), action=rule.action)
    errors = [part.outcome for part in parts if part.outcome.startswith("error: ")]
    error = None
    if compiled.decide is not None:
        # Not the parts decide but the whole, as for every message: it stops where it may.
        try:
            matches = compiled.decide(facts) is True
        except FilterError as problem:
            matches, error = False, str(problem)
    elif errors:
        error = errors[0].removeprefix("error: ")
    return Explanation(rule.name, matches, error, parts, rule.action)


def _parts(rule: Rule, facts: MessageFacts) -> tuple[Part, ...]:
    match rule.filter:
        case TrueFilter():
            return (Part("every message", "true"),)
        case FalseFilter():
            return (Part("no message", "false"),)
        case CorrelationFilter():
            return _conditions(rule.filter, facts)
        case SqlFilter(expression, parameters):
            compiler = Compiler(lambda: UUID(int=0), parameters)
            predicate = parse_filter(expression)
            operands = predicate.operands if isinstance(predicate, And) else (predicate,)
            return tuple(_part(each, compiler, facts) for each in operands)


def _part(predicate: Predicate, compiler: Compiler, facts: MessageFacts) -> Part:
    try:
        truth = compiler.predicate(predicate)(facts)
        outcome = "unknown" if truth is None else str(truth).lower()
    except (FilterError, ParameterError, FilterSyntaxError) as problem:
        outcome = f"error: {problem}"
    return Part(written(predicate), outcome, _found(predicate, compiler, facts))


def _found(predicate: Predicate, compiler: Compiler, facts: MessageFacts) -> str | None:
    """The value of the one property that a condition is about."""
    target: Expression | None = None
    match predicate:
        case Comparison(_, Property() as left, _):
            target = left
        case IsNull(asked) | Exists(asked):
            target = asked
        case In(Property() as operand) | Like(Property() as operand):
            target = operand
        case Not(operand):
            return _found(operand, compiler, facts)
    if target is None:
        return None
    try:
        value = compiler.expression(target)(facts)
    except FilterError as problem:
        return str(problem)
    return MISSING if value is UNKNOWN else _literal(value)


def _conditions(wanted: CorrelationFilter, facts: MessageFacts) -> tuple[Part, ...]:
    correlated = facts.correlated
    parts = []
    for field, key in conditions_of(wanted).items():
        is_met = key is not None and field in correlated and correlated[field] == key
        parts.append(
            Part(
                f"{field} = {_wanted(wanted, field)}",
                "true" if is_met else "false",
                _literal(correlated[field]) if field in correlated else MISSING,
            )
        )
    return tuple(parts)


def _wanted(wanted: CorrelationFilter, field: str) -> str:
    for attribute, system in FIELDS.items():
        if system == field:
            return _literal(getattr(wanted, attribute))
    for name, value in wanted.properties.items():
        if f"user.{property_key(name)}" == field:
            return _literal(from_amqp(value))
    raise AssertionError(f"the filter has no condition on {field}")


# --- As it would be written -----------------------------------------------------------------------


def written(node: Predicate | Expression) -> str:
    match node:
        case And(operands):
            return " AND ".join(_grouped(each, And) for each in operands)
        case Or(operands):
            return " OR ".join(_grouped(each, Or) for each in operands)
        case Not(operand):
            return f"NOT ({written(operand)})"
        case Comparison(operator, left, right):
            return f"{written(left)} {operator} {written(right)}"
        case IsNull(target, negated):
            return f"{written(target)} IS {'NOT ' if negated else ''}NULL"
        case Exists(target):
            return f"EXISTS({written(target)})"
        case In(operand, options, negated):
            listed = ", ".join(written(each) for each in options)
            return f"{written(operand)} {'NOT ' if negated else ''}IN ({listed})"
        case Like(operand, pattern, escape, negated):
            ending = "" if escape is None else f" ESCAPE {written(escape)}"
            negation = "NOT " if negated else ""
            return f"{written(operand)} {negation}LIKE {written(pattern)}{ending}"
        case Constant(value):
            return _literal(value)
        case Parameter(name):
            return f"@{name}"
        case Property(scope, name):
            return f"sys.{name}" if scope == "sys" else name
        case NamedProperty(name):
            return f"property({written(name)})"
        case NewId():
            return "newid()"
        case Sign(operator, operand):
            return f"{operator}{written(operand)}"
        case Arithmetic(first, rest):
            steps = "".join(f" {operator} {written(operand)}" for operator, operand in rest)
            return f"({written(first)}{steps})"


def _grouped(node: Predicate, within: type[And] | type[Or]) -> str:
    is_other = isinstance(node, And | Or) and not isinstance(node, within)
    return f"({written(node)})" if is_other else written(node)


def _literal(value: object) -> str:
    if isinstance(value, tuple):  # as `equality_key` writes null and booleans
        value = value[1] if len(value) > 1 else None
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
