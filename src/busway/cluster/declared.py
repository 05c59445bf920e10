"""Brings the catalog to what a configuration file declares (P-10).

Makes what is missing, changes what may change, and refuses the rest; entities that the file does
not mention are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from busway.cluster.catalog import Catalog
from busway.config.entities import DeclaredQueue
from busway.config.errors import ConfigError
from busway.model.entities import Topic
from busway.model.errors import BusError
from busway.model.properties import check_update


class Outcome(Enum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Applied:
    path: str
    outcome: Outcome


def apply(declared: Iterable[DeclaredQueue], catalog: Catalog, now_ms: int = 0) -> list[Applied]:
    """Nothing is changed if an existing entity differs in what is fixed; raises `ConfigError`."""
    declared = list(declared)
    for each in declared:
        _check(each, catalog)
    return [Applied(each.path, _apply_one(each, catalog, now_ms)) for each in declared]


def _check(declared: DeclaredQueue, catalog: Catalog) -> None:
    old = catalog.find(declared.path)
    if old is not None:
        try:
            check_update(old, replace(old, **declared.stated), catalog.namespace.tier)
        except BusError as error:
            raise ConfigError(
                f"{declared.where}: {error.text} Change the file back, or delete the queue first."
            ) from error


def _apply_one(declared: DeclaredQueue, catalog: Catalog, now_ms: int) -> Outcome:
    old = catalog.find(declared.path)
    if isinstance(old, Topic):
        raise ConfigError(f"{declared.where}: there is a topic of this name.")
    try:
        if old is None:
            catalog.create_queue(declared.queue, now_ms)
            return Outcome.CREATED
        # Only what the file states: the rest may have been changed on purpose since.
        new = replace(old, **declared.stated)
        if new == old:
            return Outcome.UNCHANGED
        catalog.update(new, now_ms)
    except BusError as error:
        raise ConfigError(f"{declared.where}: {error.text}") from error
    return Outcome.UPDATED
