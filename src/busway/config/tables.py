"""Reading the tables of a configuration file: which keys they have, and of what kind values are.

Whatever is not as it should be raises `ConfigError` with the place that the caller names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from busway.config.errors import ConfigError, shown, unknown_key, wrong_value
from busway.model.entities import EntityStatus
from busway.model.properties import Kind, Property


def check_keys(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise unknown_key(where, key, known)


def name_in(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: has no {key}.")
    return value


def text_in(table: Mapping[str, Any], key: str, where: str) -> str | None:
    """A text, or None where there is none; the emulator writes "" and null for that."""
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong_value(where, key, value, "text")
    return value or None


def table_in(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """A table, empty where there is none."""
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {key} is {shown(value)}, and must be an object.")
    return value


def tables_in(table: Mapping[str, Any], key: str, where: str, form: str) -> list[dict[str, Any]]:
    """A list of tables, empty where there is none; `form` is how a person would write it."""
    value = table.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConfigError(f"{where}: {key} is {shown(value)}, and must be {form}.")
    return value


def property_value(
    row: Property,
    value: object,
    where: str,
    key: str,
    parse_span: Callable[[str], int | None],
    span_example: str,
) -> object:
    """A value of the file as the entities keep it."""
    match row.kind:
        case Kind.FLAG if isinstance(value, bool):
            return value
        case Kind.COUNT if isinstance(value, int) and not isinstance(value, bool):
            return value
        case Kind.SPAN if isinstance(value, str):
            try:
                return parse_span(value)
            except ValueError:
                pass
        case Kind.STATUS if isinstance(value, str):
            for status in EntityStatus:
                if status.value.lower() == value.lower():
                    return status
        case Kind.TEXT | Kind.PATH if isinstance(value, str):
            return value or None  # The emulator writes "" for none.
    allowed = {
        Kind.SPAN: f"a duration such as {span_example}",
        Kind.STATUS: f"one of {', '.join(status.value for status in EntityStatus)}",
    }.get(row.kind, row.kind.value)
    raise wrong_value(where, key, value, allowed)
