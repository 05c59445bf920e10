"""How the records of the catalog become rows, and rows records again (D-16).

A description is JSON. What JSON cannot say (the AMQP types of a filter's values) is in it as the
hexadecimal digits of an encoded AMQP map.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from sys import intern
from typing import Any

from busway.model.entities import (
    AuthorizationRule,
    CorrelationFilter,
    Course,
    Entity,
    EntityStatus,
    FalseFilter,
    Migration,
    Namespace,
    Queue,
    Rule,
    RuleFilter,
    SqlFilter,
    Subscription,
    Topic,
    TrueFilter,
)
from busway.model.limits import Tier
from busway.model.retention import OwnLimits

KINDS: dict[str, type[Queue] | type[Topic] | type[Subscription]] = {
    "queue": Queue,
    "topic": Topic,
    "subscription": Subscription,
}
IN_COLUMNS = ("path", "incarnation", "version")
"""Fields of an entity that have a column of their own; the rest is its description."""


def kind_of(entity: Entity) -> str:
    return entity.entity_type.lower()


# Entities and namespaces


def description_of(record: Entity | Namespace) -> str:
    values: dict[str, object] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, EntityStatus | Tier):
            value = value.value
        elif isinstance(value, Migration):
            value = [
                value.source,
                value.twin,
                value.status.value,
                value.captured,
                value.course.value,
            ]
        elif isinstance(value, OwnLimits):
            value = value.stated()
        elif each.name == "authorization_rules":
            value = [
                [
                    rule.name,
                    rule.rights,
                    rule.primary_key,
                    rule.secondary_key,
                    rule.created_ms,
                    rule.updated_ms,
                ]
                for rule in value
            ]
        values[each.name] = value
    for name in ("name",) if isinstance(record, Namespace) else IN_COLUMNS:
        values.pop(name, None)
    return json.dumps(values, separators=(",", ":"))


def entity_of_row(kind: str, path: str, incarnation: int, version: int, description: str) -> Entity:
    values = json.loads(description)
    values["placement"] = tuple(map(intern, values["placement"]))  # shared by ten thousand
    values["status"] = EntityStatus(values["status"])
    if "authorization_rules" in values:
        values["authorization_rules"] = _access_rules(values["authorization_rules"])
    if values.get("migration") is not None:
        source, twin, status, captured, *course = values["migration"]
        values["migration"] = Migration(
            source, twin, EntityStatus(status), captured, *map(Course, course)
        )
    if own_limits := values.pop("capture_limits", None):
        values["capture_limits"] = OwnLimits(**own_limits)
    entity_class = KINDS[kind]
    if entity_class is not Subscription:
        values["path"] = path
    return entity_class(incarnation=incarnation, version=version, **values)


def namespace_of_row(name: str, description: str) -> Namespace:
    values = json.loads(description)
    values["tier"] = Tier(values["tier"])
    values["authorization_rules"] = _access_rules(values["authorization_rules"])
    return Namespace(name=name, **values)


def _access_rules(rows: list[list[Any]]) -> tuple[AuthorizationRule, ...]:
    """Rows of older versions have no times."""
    return tuple(AuthorizationRule(name, tuple(rights), *rest) for name, rights, *rest in rows)


# Rules of subscriptions


def description_of_rule(rule: Rule) -> str:
    values: dict[str, object] = {
        "name": rule.name,
        "action": rule.action,
        "created_ms": rule.created_ms,
    }
    if rule.action_parameters:
        values["action_parameters"] = _packed(rule.action_parameters)
    match rule.filter:
        case CorrelationFilter() as correlation:
            conditions = {
                each.name: getattr(correlation, each.name) for each in fields(correlation)
            }
            conditions["properties"] = _packed(correlation.properties)
            values["correlation"] = conditions
        case SqlFilter(expression, parameters):
            values["filter"] = "sql"
            values["expression"] = expression
            values["parameters"] = _packed(parameters)
        case TrueFilter():
            values["filter"] = "true"
        case FalseFilter():
            values["filter"] = "false"
    return json.dumps(values, separators=(",", ":"))


def rule_of_row(description: str) -> Rule:
    values = json.loads(description)
    wanted: RuleFilter
    if "correlation" in values:
        conditions = values["correlation"]
        conditions["properties"] = _unpacked(conditions["properties"])
        wanted = CorrelationFilter(**conditions)
    elif values["filter"] == "sql":
        wanted = SqlFilter(values["expression"], _unpacked(values["parameters"]))
    else:
        wanted = TrueFilter() if values["filter"] == "true" else FalseFilter()
    return Rule(
        name=values["name"],
        filter=wanted,
        action=values["action"],
        action_parameters=_unpacked(values.get("action_parameters", "")),
        created_ms=values["created_ms"],
    )


def _packed(values: Mapping[str, object]) -> str:
    if not values:
        return ""
    from busway.amqp.codec import encode_value

    return encode_value(dict(values)).hex()


def _unpacked(digits: str) -> dict[str, object]:
    if not digits:
        return {}
    from busway.amqp.codec import decode_value

    values, _ = decode_value(bytes.fromhex(digits))
    return {str(name): value for name, value in values.items()}
