"""From trees to functions: a filter is compiled once, then called for every message (SQL-3 to 10).

Each node becomes a closure over the closures of its parts. AND, OR and IN look at their operands
from left to right and stop when the rest cannot change the result, so an operand that is not
looked at raises nothing. What is the same for every message (constants, parameters, patterns) is
worked out when the filter is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from busway.filters.errors import FilterError
from busway.filters.facts import (
    SYSTEM_BY_KEY,
    MessageFacts,
    property_key,
    unknown_system_property,
)
from busway.filters.like import Matcher, PatternError, compile_like
from busway.filters.operators import (
    AND,
    COMPARERS,
    NOT,
    NOTHING,
    OPERATORS,
    OR,
    Truth,
    apply_sign,
    calculate,
)
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
from busway.filters.values import UNKNOWN, Value, from_amqp, kind_name

Evaluate = Callable[[MessageFacts], Value]
Decide = Callable[[MessageFacts], Truth]
NewIdSource = Callable[[], UUID]


class ParameterError(ValueError):
    """A parameter that the filter uses and was not given."""


class Compiler:
    """Compiles trees; holds what their leaves need: parameters, and where new ids come from."""

    def __init__(self, new_id: NewIdSource, parameters: Mapping[str, object] | None = None) -> None:
        self.new_id = new_id
        self.given = {
            property_key(name.removeprefix("@")): value
            for name, value in (parameters or {}).items()
        }
        """Parameters with the AMQP types that they were given in."""
        self.parameters = {key: from_amqp(value) for key, value in self.given.items()}

    def predicate(self, node: Predicate) -> Decide:
        """True only for messages that match (SQL-4)."""
        match node:
            case And(operands):
                return self._junction(operands, AND, decided=False)
            case Or(operands):
                return self._junction(operands, OR, decided=True)
            case Not(operand):
                return _negated(self.predicate(operand))
            case Comparison():
                return self._comparison(node)
            case IsNull(target, negated):
                # Before any comparison: here a property that is missing is no unknown (SQL-5).
                value = self._property(target)
                return lambda facts: (type(value(facts)) in NOTHING) is not negated
            case Exists(target):
                return self._exists(target)
            case In():
                return self._in(node)
            case Like():
                return self._like(node)

    def expression(self, node: Expression) -> Evaluate:
        match node:
            case Constant() | Parameter():
                value = self._constant(node)
                return lambda facts: value
            case Property():
                return self._property(node)
            case NamedProperty(name):
                return self._named_property(self.expression(name))
            case NewId():
                new_id = self.new_id
                return lambda facts: new_id()
            case Sign(sign, operand):
                value_of = self.expression(operand)
                return lambda facts: apply_sign(sign, value_of(facts))
            case Arithmetic():
                return self._arithmetic(node)

    # Predicates

    def _junction(
        self, nodes: tuple[Predicate, ...], table: dict[Truth, dict[Truth, Truth]], decided: bool
    ) -> Decide:
        operands = tuple(self.predicate(node) for node in nodes)

        def decide(facts: MessageFacts) -> Truth:
            result: Truth = not decided
            for operand in operands:
                result = table[result][operand(facts)]
                if result is decided:
                    break
            return result

        return decide

    def _comparison(self, node: Comparison) -> Decide:
        compare = COMPARERS[node.operator]
        left, right = self.expression(node.left), self.expression(node.right)
        if not isinstance(node.right, Constant | Parameter):
            return lambda facts: compare(left(facts), right(facts))
        constant = self._constant(node.right)
        operate, kinds = OPERATORS[node.operator]
        kind = type(constant)
        if kind not in kinds:
            return lambda facts: compare(left(facts), constant)
        # By far the most frequent comparison is that of a property with a constant of its own
        # kind, so it gets by with few calls.
        if isinstance(node.left, Property) and node.left.scope == "user":
            key = property_key(node.left.name)

            def decide_user(facts: MessageFacts) -> Truth:
                value = facts.user.get(key, UNKNOWN)
                return operate(value, constant) if type(value) is kind else compare(value, constant)

            return decide_user

        def decide(facts: MessageFacts) -> Truth:
            value = left(facts)
            return operate(value, constant) if type(value) is kind else compare(value, constant)

        return decide

    def _exists(self, target: Property) -> Decide:
        if target.scope == "user":
            key = property_key(target.name)
            return lambda facts: key in facts.user
        value = self._property(target)
        return lambda facts: value(facts) is not None

    def _in(self, node: In) -> Decide:
        equal = COMPARERS["="]
        operand = self.expression(node.operand)
        options = tuple(self.expression(option) for option in node.options)

        def decide(facts: MessageFacts) -> Truth:
            value = operand(facts)
            if type(value) in NOTHING:
                return None
            result: Truth = False
            for option in options:
                result = OR[result][equal(value, option(facts))]
                if result is True:
                    break
            return result

        return _negated(decide) if node.negated else decide

    def _like(self, node: Like) -> Decide:
        operand = self.expression(node.operand)
        matcher = self._matcher(node)

        def decide(facts: MessageFacts) -> Truth:
            text = operand(facts)
            matches = matcher(facts)
            if matches is None or type(text) in NOTHING:
                return None
            if type(text) is not str:
                raise FilterError(
                    f"LIKE cannot be applied to an operand of type {kind_name(text)}."
                )
            return matches(text)

        return _negated(decide) if node.negated else decide

    def _matcher(self, node: Like) -> Callable[[MessageFacts], Matcher | None]:
        """What compares a text with the pattern; None where pattern or escape are unknown."""
        parts = (node.pattern,) if node.escape is None else (node.pattern, node.escape)
        constants = tuple(self._constant(p) for p in parts if isinstance(p, Constant | Parameter))
        if len(constants) == len(parts):
            matcher = _like_matcher(*constants)
            return lambda facts: matcher
        values = tuple(self.expression(part) for part in parts)
        return lambda facts: _like_matcher(*(value(facts) for value in values))

    # Expressions

    def _constant(self, node: Constant | Parameter) -> Value:
        if isinstance(node, Constant):
            return node.value
        try:
            return self.parameters[property_key(node.name)]
        except KeyError:
            raise ParameterError(f"The parameter @{node.name} has no value") from None

    def _property(self, node: Property) -> Evaluate:
        key = property_key(node.name)
        if node.scope == "user":
            return lambda facts: facts.user.get(key, UNKNOWN)
        read = SYSTEM_BY_KEY.get(key)
        if read is not None:
            return read

        def missing(facts: MessageFacts) -> Value:
            raise unknown_system_property(node.name)

        return missing

    def _named_property(self, name: Evaluate) -> Evaluate:
        def evaluate(facts: MessageFacts) -> Value:
            text = name(facts)
            if type(text) in NOTHING:
                return UNKNOWN
            if type(text) is not str:
                raise FilterError(f"property() takes a String, not {kind_name(text)}.")
            key = property_key(text)
            if not key.startswith("sys."):
                return facts.user.get(key.removeprefix("user."), UNKNOWN)
            read = SYSTEM_BY_KEY.get(key.removeprefix("sys."))
            if read is None:
                raise unknown_system_property(text[len("sys.") :])
            return read(facts)

        return evaluate

    def _arithmetic(self, node: Arithmetic) -> Evaluate:
        first = self.expression(node.first)
        rest = tuple((sign, self.expression(operand)) for sign, operand in node.rest)

        def evaluate(facts: MessageFacts) -> Value:
            value = first(facts)
            for sign, operand in rest:
                value = calculate(sign, value, operand(facts))
            return value

        return evaluate


def _negated(decide: Decide) -> Decide:
    return lambda facts: NOT[decide(facts)]


def _like_matcher(pattern: Value, *escape: Value) -> Matcher | None:
    for text in (pattern, *escape):
        if type(text) in NOTHING:
            return None
        if type(text) is not str:
            raise FilterError(f"LIKE cannot use a pattern of type {kind_name(text)}.")
    try:
        return compile_like(pattern, *escape)
    except PatternError as problem:
        raise FilterError(f"LIKE cannot be applied: {problem}.") from None
