"""Rules as descriptions: filters and actions, told apart by their `type` (http.md 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.etree.ElementTree import Element

from busway.http.atom.instants import instant
from busway.http.atom.markup import Markup, element
from busway.http.atom.reading import bad, children, text_of, type_of
from busway.http.atom.typed_values import read_values, write_values
from busway.model.entities import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    RuleFilter,
    SqlFilter,
    TrueFilter,
)
from busway.model.names import DEFAULT_RULE

RULE = "RuleDescription"
DEFAULT_RULE_DESCRIPTION = "DefaultRuleDescription"
COMPATIBILITY_LEVEL = element("CompatibilityLevel", "20")

CONDITIONS = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
"""In the order of replies."""

# --- In ------------------------------------------------------------------------------------------


def read_rule(name: str, description: Element) -> Rule:
    """A rule that takes everything, if nothing else is said. The path names it, not the body."""
    parts = children(description)
    action, parameters = _read_action(parts.get("Action"))
    return Rule(
        name=name,
        filter=_read_filter(parts.get("Filter")),
        action=action,
        action_parameters=parameters,
    )


def read_default_rule(description: Element) -> Rule:
    """The first rule of a subscription, whose creator may name it (RUL-1)."""
    parts = children(description)
    name = text_of(parts["Name"]).strip() if "Name" in parts else ""
    return read_rule(name or DEFAULT_RULE, description)


def _read_filter(element: Element | None) -> RuleFilter:
    if element is None:
        return TrueFilter()
    parts = children(element)
    # Without a type, what is there tells; so does JavaScript's client with what it gets.
    kind = type_of(element) or ("SqlFilter" if "SqlExpression" in parts else "CorrelationFilter")
    read = FILTERS.get(kind)
    if read is None:
        raise bad(f"The type of a Filter is '{kind}'. Known are {', '.join(FILTERS)}.")
    return read(parts)


def _sql_filter(parts: Mapping[str, Element]) -> RuleFilter:
    return SqlFilter(_expression("Filter", parts), _values(parts, "Parameters"))


def _correlation_filter(parts: Mapping[str, Element]) -> RuleFilter:
    conditions = {
        field: text_of(parts[name]) for name, field in CONDITIONS.items() if name in parts
    }
    return CorrelationFilter(**conditions, properties=_values(parts, "Properties"))


FILTERS: dict[str, Callable[[Mapping[str, Element]], RuleFilter]] = {
    "SqlFilter": _sql_filter,
    "TrueFilter": lambda parts: TrueFilter(),
    "FalseFilter": lambda parts: FalseFilter(),
    "CorrelationFilter": _correlation_filter,
}


def _read_action(element: Element | None) -> tuple[str | None, dict[str, object]]:
    if element is None:
        return None, {}
    parts = children(element)
    match type_of(element) or ("SqlRuleAction" if "SqlExpression" in parts else "EmptyRuleAction"):
        case "EmptyRuleAction":
            return None, {}
        case "SqlRuleAction":
            return _expression("Action", parts), _values(parts, "Parameters")
        case kind:
            raise bad(
                f"The type of an Action is '{kind}'. Known are SqlRuleAction, EmptyRuleAction."
            )


def _expression(where: str, parts: Mapping[str, Element]) -> str:
    if "SqlExpression" not in parts:
        raise bad(f"The {where} of the rule has no SqlExpression.")
    return text_of(parts["SqlExpression"])


def _values(parts: Mapping[str, Element], name: str) -> dict[str, object]:
    return read_values(parts[name]) if name in parts else {}


# --- Out -----------------------------------------------------------------------------------------


def write_rule(rule: Rule) -> list[Markup]:
    """The children of a RuleDescription, in their order. Action is always there: JavaScript's
    client looks into it without asking."""
    return [
        _write_filter(rule.filter),
        _write_action(rule),
        element("CreatedAt", instant(rule.created_ms)),
        element("Name", rule.name),
    ]


def _write_filter(rule_filter: RuleFilter) -> Markup:
    kind = type(rule_filter).__name__
    match rule_filter:
        case CorrelationFilter():
            conditions = [
                element(name, value)
                for name, field in CONDITIONS.items()
                if (value := getattr(rule_filter, field)) is not None
            ]
            inner = [*conditions, *_write_values("Properties", rule_filter.properties)]
        case SqlFilter(expression, parameters):
            inner = _sql(expression, parameters)
        case TrueFilter() | FalseFilter():
            inner = _sql(rule_filter.expression, {})
    return element("Filter", inner, {"i:type": kind})


def _write_action(rule: Rule) -> Markup:
    if rule.action is None:
        return element("Action", "", {"i:type": "EmptyRuleAction"})
    inner = _sql(rule.action, rule.action_parameters)
    return element("Action", inner, {"i:type": "SqlRuleAction"})


def _sql(expression: str, parameters: Mapping[str, object]) -> list[Markup]:
    return [
        element("SqlExpression", expression),
        COMPATIBILITY_LEVEL,
        *_write_values("Parameters", parameters),
    ]


def _write_values(name: str, values: Mapping[str, object]) -> list[Markup]:
    """Nothing for none: JavaScript's client cannot read an empty list."""
    return [write_values(name, values)] if values else []
