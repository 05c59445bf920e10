"""The entities that a configuration file declares, in our TOML or in the emulator's JSON.

Both are read by the table of `model/properties.py`: TOML by its names in snake case, JSON by the
service's own. A property that is not stated has its default when the entity is made, and stays as
it is when the entity exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from busway.config import emulator
from busway.config.errors import ConfigError
from busway.config.journal import read_capture
from busway.config.rules import emulator_rule, toml_rule
from busway.config.tables import (
    check_keys,
    name_in,
    property_value,
    table_in,
    tables_in,
)
from busway.model.durations import parse_duration, parse_iso
from busway.model.entities import Entity, Queue, Rule, Subscription, Topic
from busway.model.errors import BusError
from busway.model.limits import DEFAULT_TIER, Tier
from busway.model.names import name_key
from busway.model.properties import (
    CAPTURE,
    Property,
    normalise,
    own_properties_of,
    properties_of,
    validate,
)

TOML_TABLES = ("queues", "topics")
EMULATOR_KEYS = ("UserConfig",)
USER_CONFIG_KEYS = ("Namespaces", "Logging")
NAMESPACE_KEYS = ("Name", "Queues", "Topics")

Rows = dict[str, Property]
Table = Mapping[str, Any]


def toml_rows(entity_class: type[Entity]) -> Rows:
    """By the names that our files may call them."""
    rows = (*properties_of(entity_class), *own_properties_of(entity_class))
    return {name: row for row in rows for name in row.names}


def emulator_rows(entity_class: type[Entity]) -> Rows:
    return {row.wire: row for row in properties_of(entity_class)}


@dataclass(frozen=True, slots=True)
class Declared:
    """An entity of a configuration file, and what the file says about it."""

    where: str
    """File and entity, to begin an error with."""
    entity: Entity
    """With defaults for what is not stated."""
    stated: Mapping[str, Any]
    """Fields of the entity with their values; only what the file states."""
    rules: tuple[Rule, ...] | None = None
    """Of a subscription; None if the file states none."""

    @property
    def path(self) -> str:
        return self.entity.path


def read_toml_entities(
    table: Table, where: str, tier: Tier | None, prefix: str = ""
) -> tuple[Declared, ...]:
    """Queues, topics, and behind each topic its subscriptions.

    `prefix` goes before the names of tables where a person is told of them. Raises `ConfigError`
    for whatever is wrong or unknown; what a tier does not allow, if the tier is known.
    """
    queues = tables_in(table, "queues", where, f"[[{prefix}queues]]")
    topics = tables_in(table, "topics", where, f"[[{prefix}topics]]")
    return _checked(_declared(queues, topics, where, TOML), tier)


def read_emulator_entities(
    table: Table, where: str, tier: Tier | None, *, own_defaults: bool = False
) -> tuple[Declared, ...]:
    """`own_defaults`: what is not stated is as in the emulator, and not as in the service."""
    queues = tables_in(table, "Queues", where, "a list of objects")
    topics = tables_in(table, "Topics", where, "a list of objects")
    form = replace(EMULATOR, defaults=emulator.DEFAULTS) if own_defaults else EMULATOR
    return _checked(_declared(queues, topics, where, form), tier)


def _checked(declared: Iterator[Declared], tier: Tier | None) -> tuple[Declared, ...]:
    seen: dict[str, Declared] = {}
    for each in declared:
        if (twin := seen.get(each.entity.key)) is not None:
            raise ConfigError(
                f"{each.where}: is declared twice; the other one is '{twin.path}'. Names of "
                "entities are the same in upper and lower case."
            )
        seen[each.entity.key] = each
        _check(each, tier)
    return tuple(seen.values())


def _check(declared: Declared, tier: Tier | None) -> None:
    """Against its tier; if only the catalog knows that, against the one that forgives most."""
    try:
        validate(declared.entity, tier or DEFAULT_TIER)
    except BusError as error:
        if tier is None:
            try:
                validate(declared.entity, Tier.PREMIUM)
            except BusError:
                pass
            else:
                return
        raise ConfigError(f"{declared.where}: {error.text}") from error


@dataclass(frozen=True, slots=True)
class _Form:
    """What is different between the two kinds of files."""

    name: str
    subscriptions: str
    rules: str
    list_of: Callable[[str], str]
    """How a person would write a list of tables."""
    stated: Callable[[type[Entity], Table, str, tuple[str, ...]], dict[str, Any]]
    """The properties of an entity; the last argument has the keys that are none."""
    rule: Callable[[str, Table, str], Rule]
    defaults: Mapping[type[Entity], Mapping[str, Any]] = field(default_factory=dict)
    """Of properties that are not stated, where they differ from the service's."""

    def completed(self, entity_class: type[Entity], stated: dict[str, Any]) -> dict[str, Any]:
        return {**self.defaults.get(entity_class, {}), **stated}


def _declared(
    queues: list[dict[str, Any]], topics: list[dict[str, Any]], file: str, form: _Form
) -> Iterator[Declared]:
    for number, table in enumerate(queues):
        path = name_in(table, form.name, f"{file}: queue {number + 1}")
        where = f"{file}: queue '{path}'"
        stated = form.stated(Queue, table, where, (form.name,))
        yield Declared(where, normalise(Queue(path=path, **form.completed(Queue, stated))), stated)
    for number, table in enumerate(topics):
        path = name_in(table, form.name, f"{file}: topic {number + 1}")
        where = f"{file}: topic '{path}'"
        stated = form.stated(Topic, table, where, (form.name, form.subscriptions))
        yield Declared(where, normalise(Topic(path=path, **form.completed(Topic, stated))), stated)
        listed = form.list_of(f"topics.{form.subscriptions}")
        subscriptions = tables_in(table, form.subscriptions, where, listed)
        for place, each in enumerate(subscriptions):
            name = name_in(each, form.name, f"{where}, subscription {place + 1}")
            yield _subscription(path, name, each, f"{where}, subscription '{name}'", form)


def _subscription(topic: str, name: str, table: Table, where: str, form: _Form) -> Declared:
    stated = form.stated(Subscription, table, where, (form.name, form.rules))
    rules: list[Rule] = []
    listed = form.list_of(f"topics.{form.subscriptions}.{form.rules}")
    for number, each in enumerate(tables_in(table, form.rules, where, listed)):
        rule_name = name_in(each, form.name, f"{where}, rule {number + 1}")
        rule_where = f"{where}, rule '{rule_name}'"
        if any(name_key(rule_name) == name_key(rule.name) for rule in rules):
            raise ConfigError(f"{rule_where}: is declared twice.")
        rules.append(form.rule(rule_name, each, rule_where))
    completed = form.completed(Subscription, stated)
    entity = normalise(Subscription(topic=topic, name=name, **completed))
    return Declared(where, entity, stated, tuple(rules) or None)


# --- Our TOML ------------------------------------------------------------------------------------


def _toml_stated(
    entity_class: type[Entity], table: Table, where: str, others: tuple[str, ...]
) -> dict[str, Any]:
    rows = toml_rows(entity_class)
    check_keys(where, table, (*others, *rows))
    stated: dict[str, Any] = {}
    for key, value in table.items():
        if key in others:
            continue
        row = rows[key]
        if row.field in stated:
            raise ConfigError(f"{where}: {' and '.join(row.names)} are the same; give one.")
        if row is CAPTURE:
            stated |= read_capture(value, where)
        else:
            stated[row.field] = property_value(
                row, value, where, key, parse_duration, '"1m" or "PT1M"'
            )
    return stated


TOML = _Form(
    name="name",
    subscriptions="subscriptions",
    rules="rules",
    list_of=lambda key: f"[[{key}]]",
    stated=_toml_stated,
    rule=toml_rule,
)


# --- The JSON of Microsoft's emulator ------------------------------------------------------------


def _emulator_stated(
    entity_class: type[Entity], table: Table, where: str, others: tuple[str, ...]
) -> dict[str, Any]:
    check_keys(where, table, (*others, "Properties"))
    properties = table_in(table, "Properties", where)
    rows = emulator_rows(entity_class)
    check_keys(where, properties, rows)
    return {
        rows[key].field: property_value(rows[key], value, where, key, parse_iso, '"PT1M"')
        for key, value in properties.items()
    }


EMULATOR = _Form(
    name="Name",
    subscriptions="Subscriptions",
    rules="Rules",
    list_of=lambda key: "a list of objects",
    stated=_emulator_stated,
    rule=emulator_rule,
)
