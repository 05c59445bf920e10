"""The rules of subscriptions that a configuration file declares (RUL-1, COR-1, SQL-11).

TOML has `sql_filter` or `correlation_filter` and `action` in the rule itself; the emulator's JSON
has `FilterType`, and each of them in a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from busway.config.errors import ConfigError, wrong_value
from busway.config.tables import check_keys, table_in, text_in
from busway.model.entities import CorrelationFilter, Rule, RuleFilter, SqlFilter, TrueFilter
from busway.model.errors import BusError

TOML_KEYS = ("name", "sql_filter", "correlation_filter", "action")
TOML_CONDITIONS = {
    each.name: each.name for each in fields(CorrelationFilter) if each.name != "properties"
}

EMULATOR_KEYS = ("Name", "Properties")
EMULATOR_PROPERTIES = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
EMULATOR_CONDITIONS = {
    "".join(word.capitalize() for word in name.split("_")): name for name in TOML_CONDITIONS
}
EMULATOR_SQL_KEYS = ("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing")
"""The last two are of the service's own templates, and say nothing here."""
FILTER_TYPES = {"Sql": "SqlFilter", "Correlation": "CorrelationFilter"}


def toml_rule(name: str, table: Mapping[str, Any], where: str) -> Rule:
    check_keys(where, table, TOML_KEYS)
    wanted: RuleFilter = TrueFilter()
    expression = text_in(table, "sql_filter", where)
    if expression is not None:
        wanted = SqlFilter(expression)
    if "correlation_filter" in table:
        if expression is not None:
            raise ConfigError(f"{where}: has sql_filter and correlation_filter; give one.")
        conditions = table_in(table, "correlation_filter", where)
        wanted = _correlation(conditions, TOML_CONDITIONS, "properties", where)
    return _checked(Rule(name=name, filter=wanted, action=text_in(table, "action", where)), where)


def emulator_rule(name: str, table: Mapping[str, Any], where: str) -> Rule:
    check_keys(where, table, EMULATOR_KEYS)
    properties = table_in(table, "Properties", where)
    check_keys(where, properties, EMULATOR_PROPERTIES)
    kind = _filter_kind(properties, where)
    wanted: RuleFilter = TrueFilter()
    if kind == "SqlFilter":
        wanted = SqlFilter(_expression(properties, kind, where) or "")
    elif kind == "CorrelationFilter":
        conditions = table_in(properties, kind, where)
        wanted = _correlation(conditions, EMULATOR_CONDITIONS, "Properties", where)
    action = _expression(properties, "Action", where)
    return _checked(Rule(name=name, filter=wanted, action=action), where)


def _filter_kind(properties: Mapping[str, Any], where: str) -> str | None:
    """The key of the filter that counts; None if there is none."""
    stated = text_in(properties, "FilterType", where)
    given = [key for key in FILTER_TYPES.values() if properties.get(key) is not None]
    if stated is None:
        if len(given) > 1:
            raise ConfigError(f"{where}: has {' and '.join(given)}; say which by FilterType.")
        return given[0] if given else None
    for word, key in FILTER_TYPES.items():
        if word.lower() == stated.lower():
            if key not in given:
                raise ConfigError(f"{where}: FilterType is {word}, and {key} is missing.")
            return key
    raise wrong_value(where, "FilterType", stated, "Sql or Correlation")


def _expression(properties: Mapping[str, Any], key: str, where: str) -> str | None:
    table = table_in(properties, key, where)
    check_keys(f"{where}: {key}", table, EMULATOR_SQL_KEYS)
    return text_in(table, "SqlExpression", f"{where}: {key}")


def _correlation(
    table: Mapping[str, Any], names: Mapping[str, str], properties: str, where: str
) -> CorrelationFilter:
    """`names` are the keys that a file has, with the fields of the filter."""
    check_keys(where, table, (*names, properties))
    conditions = {field: text_in(table, key, where) for key, field in names.items()}
    values = {
        name: _value(value, where, f"{properties}.{name}")
        for name, value in table_in(table, properties, where).items()
    }
    return CorrelationFilter(**conditions, properties=values)


def _value(value: object, where: str, key: str) -> object:
    """As an application property of a message would have it."""
    if isinstance(value, datetime):
        from busway.filters.values import from_amqp, to_amqp

        return to_amqp(from_amqp(value))
    if not isinstance(value, str | bool | int | float):
        raise wrong_value(where, key, value, "a text, a number, true, false or a date and time")
    return value


def _checked(rule: Rule, where: str) -> Rule:
    from busway.filters.rules import check_rule

    try:
        check_rule(rule)
    except BusError as error:
        raise ConfigError(f"{where}: {error.text}") from error
    return rule
