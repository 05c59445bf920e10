"""`$management` operations on the rules of a subscription (management-amqp.md 6).

Rules come as maps and go as described lists, whose codes are the service's: their numbers of
digits differ, and are meant to.
"""

from __future__ import annotations

from typing import Any

from busway.amqp.types import Described, Timestamp, ULong
from busway.filters.values import on_the_wire
from busway.gateway.calls import Call
from busway.model.entities import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    RuleFilter,
    SqlFilter,
    Subscription,
    TrueFilter,
)
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    INVALID_OPERATION,
    NOT_FOUND,
    BusError,
)
from busway.model.names import name_key

RULE_DESCRIPTION = ULong(0x0000013700000004)
EMPTY_ACTION = ULong(0x0000013700000005)
SQL_ACTION = ULong(0x0000013700000006)
SQL_FILTER = ULong(0x000001370000006)
TRUE_FILTER = ULong(0x000001370000007)
FALSE_FILTER = ULong(0x000001370000008)
CORRELATION_FILTER = ULong(0x000001370000009)

CORRELATION_FIELDS = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
"""In the order of the described list."""


def add_rule(call: Call) -> None:
    subscription = _subscription(call)
    rule = _read_rule(call)
    if call.transaction is not None:
        call.transaction.add_rule(subscription, rule)
    else:
        call.gateway.catalog.add_rule(subscription, rule, call.gateway.host.now_ms())
    call.succeed({})


def remove_rule(call: Call) -> None:
    subscription, name = _subscription(call), call.required_text("rule-name")
    if call.transaction is not None:
        call.transaction.remove_rule(subscription, name)
    else:
        call.gateway.catalog.remove_rule(subscription, name, call.gateway.host.now_ms())
    call.succeed({})


def enumerate_rules(call: Call) -> None:
    subscription = _subscription(call)
    skip, top = call.integer("skip", 0), call.integer("top", 100)
    if skip < 0 or top <= 0:
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'skip' or 'top' is out of range.")
    in_order = sorted(
        call.gateway.catalog.rules(subscription), key=lambda rule: name_key(rule.name)
    )
    rules = in_order[skip : skip + top]
    if rules:
        call.succeed({"rules": [{"rule-description": describe(rule)} for rule in rules]})
    else:
        call.succeed({}, 204)


def _subscription(call: Call) -> Subscription:
    if not isinstance(call.entity, Subscription):
        raise BusError(
            INVALID_OPERATION,
            detail=f"'{call.entity.path}' has no rules: they belong to subscriptions.",
        )
    newest = call.gateway.catalog.get(call.entity.incarnation)
    if not isinstance(newest, Subscription):
        raise BusError(NOT_FOUND, uri=call.entity.path)
    return newest


# --- In ------------------------------------------------------------------------------------------


def _read_rule(call: Call) -> Rule:
    name = call.required_text("rule-name")
    description = call.arguments.get("rule-description")
    if not isinstance(description, dict):
        raise BusError(ARGUMENT_ERROR, detail="'rule-description' is missing or not a map.")
    given = {str(key): value for key, value in description.items() if value is not None}
    sql, correlation = given.get("sql-filter"), given.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise BusError(
            ARGUMENT_ERROR, detail="A rule has exactly one filter, by SQL or by correlation."
        )
    action = given.get("sql-rule-action")
    return Rule(
        name=name,
        filter=_read_correlation(correlation) if sql is None else SqlFilter(_expression(sql)),
        action=None if action is None else _expression(action) or None,
    )


def _expression(value: Any) -> str:
    expression = value.get("expression") if isinstance(value, dict) else value
    if not isinstance(expression, str):
        raise BusError(ARGUMENT_ERROR, detail="A filter or action has no 'expression'.")
    return str(expression)


def _read_correlation(value: Any) -> RuleFilter:
    if not isinstance(value, dict):
        raise BusError(ARGUMENT_ERROR, detail="'correlation-filter' is not a map.")
    conditions: dict[str, str] = {}
    properties: dict[str, object] = {}
    for key, condition in value.items():
        if condition is None:
            continue  # not set
        if str(key) == "properties":
            if not isinstance(condition, dict):
                raise BusError(ARGUMENT_ERROR, detail="'properties' of a filter is not a map.")
            properties = {str(name): each for name, each in condition.items()}
        elif str(key) in CORRELATION_FIELDS:
            conditions[CORRELATION_FIELDS[str(key)]] = str(condition)
        else:
            raise BusError(ARGUMENT_ERROR, detail=f"A filter has no condition '{key}'.")
    return CorrelationFilter(**conditions, properties=properties)


# --- Out -----------------------------------------------------------------------------------------


def describe(rule: Rule) -> Described:
    """6.3. An action is never null: JS looks into it without asking."""
    action = (
        Described(EMPTY_ACTION, []) if rule.action is None else Described(SQL_ACTION, [rule.action])
    )
    return Described(
        RULE_DESCRIPTION, [_describe_filter(rule.filter), action, rule.name, _created(rule)]
    )


def _created(rule: Rule) -> Timestamp:
    return Timestamp(rule.created_ms)


def _describe_filter(condition: RuleFilter) -> Described:
    match condition:
        case TrueFilter():
            return Described(TRUE_FILTER, [])
        case FalseFilter():
            return Described(FALSE_FILTER, [])
        case SqlFilter(expression):
            return Described(SQL_FILTER, [expression])
        case CorrelationFilter():
            fields = [getattr(condition, name) for name in CORRELATION_FIELDS.values()]
            properties = {name: on_the_wire(each) for name, each in condition.properties.items()}
            return Described(CORRELATION_FILTER, [*fields, properties])
