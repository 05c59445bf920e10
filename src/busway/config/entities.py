"""The entities that a configuration file declares, in our TOML or in the emulator's JSON.

Both are read by the table of `model/properties.py`: TOML by its names in snake case, JSON by the
service's own. A property that is not stated has its default when the entity is made, and stays as
it is when the entity exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from busway.config.errors import ConfigError, shown, unknown_key, wrong_value
from busway.model import release
from busway.model.durations import parse_duration, parse_iso
from busway.model.entities import EntityStatus, Queue
from busway.model.errors import BusError
from busway.model.names import name_key
from busway.model.properties import Kind, Property, properties_of, validate

QUEUE_ROWS = properties_of(Queue)
TOML_ROWS = {name: row for row in QUEUE_ROWS for name in row.names}
EMULATOR_ROWS = {row.wire: row for row in QUEUE_ROWS}

TOML_KEYS = ("serve", "queues", "topics")
EMULATOR_KEYS = ("UserConfig",)
USER_CONFIG_KEYS = ("Namespaces", "Logging")
NAMESPACE_KEYS = ("Name", "Queues", "Topics")
EMULATOR_ENTITY_KEYS = ("Name", "Properties")


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue of a configuration file, and what the file says about it."""

    where: str
    """File and entity, to begin an error with."""
    path: str
    stated: Mapping[str, Any]
    """Fields of `Queue` with their values; only what the file states."""

    @property
    def queue(self) -> Queue:
        """With defaults for the rest."""
        return Queue(path=self.path, **self.stated)


def read_entities(document: Mapping[str, Any], file: str) -> tuple[DeclaredQueue, ...]:
    """Raises `ConfigError` for whatever is wrong, unknown, or not in this release."""
    if "UserConfig" in document:
        declared = tuple(_emulator_queues(document, file))
    else:
        declared = tuple(_toml_queues(document, file))
    seen: dict[str, DeclaredQueue] = {}
    for each in declared:
        if (twin := seen.get(name_key(each.path))) is not None:
            raise ConfigError(
                f"{each.where}: is declared twice; the other one is '{twin.path}'. Names of "
                "entities are the same in upper and lower case."
            )
        seen[name_key(each.path)] = each
        _check(each)
    return declared


def _check(declared: DeclaredQueue) -> None:
    queue = declared.queue
    try:
        validate(queue)
    except BusError as error:
        raise ConfigError(f"{declared.where}: {error.text}") from error
    if (missing := release.not_yet(queue)) is not None:
        raise ConfigError(
            f"{declared.where}: {missing.wire} asks for {missing.what}, which this release does "
            "not have yet. Leave it out."
        )


def _refuse_topics(where: str, names: Iterable[object]) -> None:
    listed = ", ".join(f"'{name}'" for name in names)
    raise ConfigError(
        f"{where}: topics are declared ({listed}), which this release does not have yet. "
        "Leave them out."
    )


# --- Our TOML ------------------------------------------------------------------------------------


def _toml_queues(document: Mapping[str, Any], file: str) -> Iterable[DeclaredQueue]:
    _check_keys(file, document, TOML_KEYS)
    topics = _tables(document.get("topics", []), file, "topics", "[[topics]]")
    if topics and not release.TOPICS:
        _refuse_topics(file, (topic.get("name") for topic in topics))
    for number, table in enumerate(
        _tables(document.get("queues", []), file, "queues", "[[queues]]")
    ):
        path = _name(table.get("name"), f"{file}: queue {number + 1}", "name")
        where = f"{file}: queue '{path}'"
        _check_keys(where, table, ("name", *TOML_ROWS))
        stated: dict[str, Any] = {}
        for key, value in table.items():
            if key == "name":
                continue
            row = TOML_ROWS[key]
            if row.field in stated:
                raise ConfigError(f"{where}: {' and '.join(row.names)} are the same; give one.")
            stated[row.field] = _value(row, value, where, key, parse_duration, '"1m" or "PT1M"')
        yield DeclaredQueue(where, path, stated)


# --- The JSON of Microsoft's emulator ------------------------------------------------------------


def _emulator_queues(document: Mapping[str, Any], file: str) -> Iterable[DeclaredQueue]:
    _check_keys(file, document, EMULATOR_KEYS)
    user_config = _table(document["UserConfig"], file, "UserConfig")
    _check_keys(f"{file}: UserConfig", user_config, USER_CONFIG_KEYS)
    namespaces = _tables(user_config.get("Namespaces", []), file, "Namespaces", "a list of objects")
    if len(namespaces) > 1:
        raise ConfigError(
            f"{file}: {len(namespaces)} namespaces are declared, and there is one. Put their "
            "entities together."
        )
    for namespace in namespaces:
        _check_keys(f"{file}: namespace", namespace, NAMESPACE_KEYS)
        topics = _tables(namespace.get("Topics") or [], file, "Topics", "a list of objects")
        if topics and not release.TOPICS:
            _refuse_topics(file, (topic.get("Name") for topic in topics))
        queues = _tables(namespace.get("Queues") or [], file, "Queues", "a list of objects")
        for number, table in enumerate(queues):
            path = _name(table.get("Name"), f"{file}: queue {number + 1}", "Name")
            where = f"{file}: queue '{path}'"
            _check_keys(where, table, EMULATOR_ENTITY_KEYS)
            properties = _table(table.get("Properties") or {}, where, "Properties")
            _check_keys(where, properties, EMULATOR_ROWS)
            stated = {
                EMULATOR_ROWS[key].field: _value(
                    EMULATOR_ROWS[key], value, where, key, parse_iso, '"PT1M"'
                )
                for key, value in properties.items()
            }
            yield DeclaredQueue(where, path, stated)


# --- Values --------------------------------------------------------------------------------------


def _value(
    row: Property,
    value: object,
    where: str,
    key: str,
    parse_span: Any,
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


def _check_keys(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise unknown_key(where, key, known)


def _name(value: object, where: str, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: has no {key}.")
    return value


def _table(value: object, where: str, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {key} is {shown(value)}, and must be an object.")
    return value


def _tables(value: object, file: str, key: str, form: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ConfigError(f"{file}: {key} is {shown(value)}, and must be {form}.")
    return value
