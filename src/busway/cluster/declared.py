"""Brings the catalog to what a configuration file declares (P-10).

Makes what is missing, changes what may change, and refuses the rest; entities that the file does
not mention are left alone. Topics come before their subscriptions, and a forward whose destination
is not there yet waits for a second pass, so a file may declare entities in any order (FWD-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from busway.cluster.admission import check_topics, completed
from busway.cluster.catalog import Catalog
from busway.config.entities import Declared
from busway.config.errors import ConfigError
from busway.model.entities import (
    AuthorizationRule,
    Entity,
    Queue,
    Rule,
    Subscription,
    Topic,
    stands_still,
)
from busway.model.errors import BusError
from busway.model.names import DEFAULT_RULE, name_key, resource_path
from busway.model.properties import FORWARDS, check_update, normalise, validate


class Outcome(Enum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Applied:
    path: str
    outcome: Outcome


def check(declared: Iterable[Declared], catalog: Catalog) -> None:
    """Raises `ConfigError` if an existing entity differs in what is fixed, a new one cannot be made
    in this namespace, or a message could be forwarded to nowhere."""
    declared = list(declared)
    known = {each.entity.key for each in declared if not isinstance(each.entity, Subscription)}
    for each in declared:
        _check(each, catalog)
        _check_destinations(each, known, catalog)


def apply(declared: Iterable[Declared], catalog: Catalog, now_ms: int = 0) -> list[Applied]:
    """Nothing is changed if `check` raises."""
    declared = sorted(declared, key=lambda each: isinstance(each.entity, Subscription))
    check(declared, catalog)
    applied = []
    for each in declared:
        with_rules = _apply_rules(each, catalog, now_ms)
        outcome = _apply_properties(each, catalog, now_ms)
        if outcome is Outcome.UNCHANGED and with_rules:
            outcome = Outcome.UPDATED
        applied.append(Applied(each.path, outcome))
    for each in declared:
        _apply_properties(each, catalog, now_ms)
    return applied


def apply_access(rules: Iterable[AuthorizationRule], catalog: Catalog, now_ms: int = 0) -> None:
    """Rules of the file that are new or say something new; others are left alone."""
    try:
        catalog.access.declare(tuple(rules), now_ms)
    except BusError as error:
        name = catalog.namespace.name
        raise ConfigError(f"namespace '{name}': {error.text}") from error


# --- Before anything is changed ------------------------------------------------------------------


def _check(declared: Declared, catalog: Catalog) -> None:
    old = _existing(declared, catalog)
    if old is None:
        try:
            if not isinstance(declared.entity, Queue):
                check_topics(catalog.namespace, declared.entity)
            new = completed(catalog.namespace, declared.entity)
            validate(normalise(new), catalog.namespace.tier)
        except BusError as error:
            raise ConfigError(f"{declared.where}: {error.text}") from error
        return
    if stands_still(old):
        return  # it is as the file says before its migration, or after it
    kind = old.entity_type.lower()
    if type(old) is not type(declared.entity):
        raise ConfigError(f"{declared.where}: there is a {kind} of this name. Delete it first.")
    try:
        check_update(old, _changed(old, declared.stated), catalog.namespace.tier)
    except BusError as error:
        raise ConfigError(
            f"{declared.where}: {error.text} Change the file back, or delete the {kind} first."
        ) from error


def _check_destinations(declared: Declared, known: set[str], catalog: Catalog) -> None:
    for row in FORWARDS:
        destination = declared.stated.get(row.field)
        if destination is not None and not _is_there(destination, catalog):
            path = resource_path(destination)
            if name_key(path) not in known:
                raise ConfigError(
                    f"{declared.where}: {row.wire} is '{path}', and there is no queue or topic of "
                    "that name."
                )


# --- Properties ----------------------------------------------------------------------------------


def _apply_properties(declared: Declared, catalog: Catalog, now_ms: int) -> Outcome:
    lost = [
        row.field
        for row in FORWARDS
        if declared.stated.get(row.field) and not _is_there(declared.stated[row.field], catalog)
    ]
    stated = {name: value for name, value in declared.stated.items() if name not in lost}
    try:
        if _is_still(declared, catalog):
            return Outcome.UNCHANGED
        old = _existing(declared, catalog)
        if old is None:
            _create(declared, dict.fromkeys(lost), catalog, now_ms)
            return Outcome.CREATED
        # Only what the file states: the rest may have been changed on purpose since.
        new = _changed(old, stated)
        if new == old:
            return Outcome.UNCHANGED
        catalog.update(new, now_ms)
    except BusError as error:
        raise ConfigError(f"{declared.where}: {error.text}") from error
    return Outcome.UPDATED


def _create(declared: Declared, without: Mapping[str, Any], catalog: Catalog, now_ms: int) -> None:
    match declared.entity:
        case Queue() as queue:
            catalog.create_queue(replace(queue, **without), now_ms)
        case Topic() as topic:
            catalog.create_topic(topic, now_ms)
        case Subscription() as subscription:
            catalog.create_subscription(replace(subscription, **without), now_ms, declared.rules)


def _existing(declared: Declared, catalog: Catalog) -> Entity | None:
    match declared.entity:
        case Subscription(topic=topic, name=name):
            return catalog.find_subscription(topic, name)
        case entity:
            return catalog.find(entity.path)


def _is_still(declared: Declared, catalog: Catalog) -> bool:
    """Whether a migration is under way: what the file wants is done at the next start after it."""
    match declared.entity:
        case Subscription(topic=topic):
            return stands_still(catalog.find(topic))
        case entity:
            return stands_still(catalog.find(entity.path))


def _changed(old: Entity, stated: Mapping[str, Any]) -> Entity:
    return normalise(replace(old, **stated))


def _is_there(destination: str, catalog: Catalog) -> bool:
    return catalog.find(resource_path(destination)) is not None


# --- Rules ---------------------------------------------------------------------------------------


def _apply_rules(declared: Declared, catalog: Catalog, now_ms: int) -> bool:
    """Whether a rule of a subscription that exists had to be added or changed.

    Rules that the file does not name are left alone, but for `$Default`: it would let in what the
    rules of the file are there to keep out (RUL-1).
    """
    old = _existing(declared, catalog)
    if declared.rules is None or not isinstance(old, Subscription) or stands_still(old):
        return False
    changed = False
    try:
        for rule in declared.rules:
            there = catalog.find_rule(old, rule.name)
            if there is None:
                catalog.add_rule(old, rule, now_ms)
            elif not _same(there, rule):
                catalog.update_rule(old, rule, now_ms)
            else:
                continue
            changed = True
        named = {name_key(rule.name) for rule in declared.rules}
        if name_key(DEFAULT_RULE) not in named and catalog.find_rule(old, DEFAULT_RULE):
            catalog.remove_rule(old, DEFAULT_RULE, now_ms)
            changed = True
    except BusError as error:
        raise ConfigError(f"{declared.where}: {error.text}") from error
    return changed


def _same(there: Rule, declared: Rule) -> bool:
    return (there.filter, there.action) == (declared.filter, declared.action)
