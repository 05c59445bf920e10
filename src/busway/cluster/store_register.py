"""Which stores there are, in order, and which of them are well (D-14).

They belong to the server: all of its namespaces share them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from busway.cluster.catalog_file import CatalogError, CatalogFile
from busway.model.entities import Subscription


@dataclass(frozen=True, slots=True)
class StoreStanding:
    """A configured store: well if `problem` is None, otherwise *ill* and why (D-14)."""

    position: int
    store_id: str | None
    """The id that the catalog knows for this position."""
    problem: str | None = None


class StoreRegister:
    """The stores that a catalog file knows."""

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self.well: tuple[str, ...] = ()
        """The ids of those that new entities can be placed on."""
        self._unavailable: set[str] = set()

    def expected(self, position: int) -> str | None:
        """The id that the store at this position must have; None if a new one may be made there.

        Ask before opening: a store that is expected and missing is ill, never re-made empty.
        """
        stores = self._file.stores()
        return stores[position] if position < len(stores) else None

    def register(self, found: Sequence[str | None]) -> tuple[StoreStanding, ...]:
        """Compare the configured stores, in order, with the known ones; new ones are added.

        `found` has the id inside each store, None for one that is missing or cannot be opened.
        Raises `CatalogError` if a store is left out that holds partitions.
        """
        known = self._file.stores()
        self._check_removal(known[len(found) :], configured=len(found))
        standings = compare(known, found)
        kept = [standing.store_id for standing in standings if standing.store_id is not None]
        if kept != known:
            try:
                self._file.write_stores(kept)
            except sqlite3.Error as error:
                raise CatalogError(f"The stores cannot be registered: {error}.") from error
        self.well = tuple(
            standing.store_id
            for standing in standings
            if standing.problem is None and standing.store_id is not None
        )
        return tuple(standings)

    def note(self, store_id: str, *, available: bool) -> None:
        """Whether a store can be used just now."""
        if available:
            self._unavailable.discard(store_id)
        else:
            self._unavailable.add(store_id)

    def choices(self, partitions: int) -> tuple[str, ...]:
        """The stores to place a new entity on.

        Several partitions are spread over all: they stay where they are, and those of a store that
        is ill serve when it is back (P-3, P-42). A single one goes where it can serve at once.
        """
        if partitions > 1:
            return self.well
        usable = tuple(each for each in self.well if each not in self._unavailable)
        return usable or self.well

    def _check_removal(self, removed: list[str], configured: int) -> None:
        if not removed:
            return
        for entity in self._file.entities():
            if isinstance(entity, Subscription):
                continue  # It lies where its topic does.
            for store_id in set(removed).intersection(entity.placement):
                raise CatalogError(
                    f"The store {store_id} holds partitions of the "
                    f"{entity.entity_type.lower()} '{entity.path}' and cannot be removed: "
                    f"{configured} stores are configured, at least "
                    f"{configured + len(removed)} are needed. Configure them again, or delete "
                    "the entities that use the store first."
                )


def compare(known: Sequence[str], found: Sequence[str | None]) -> list[StoreStanding]:
    """The standing of each configured store, in order.

    `known` are the ids that the catalog expects, `found` those inside the stores, None for one that
    is missing or cannot be opened. A store behind the known ones is new, and gets its own id.
    """
    kept = list(known[: len(found)])
    standings = []
    for position, store_id in enumerate(found):
        expected = kept[position] if position < len(kept) else None
        problem = _objection(position, store_id, expected, kept)
        if problem is None and expected is None:
            if position == len(kept) and store_id is not None:
                kept.append(store_id)
                expected = store_id
            else:
                problem = f"store {position} cannot be added before those in front of it"
        standings.append(StoreStanding(position, expected, problem))
    return standings


def _objection(
    position: int, found: str | None, expected: str | None, known: list[str]
) -> str | None:
    """Why the store found at a position cannot be used; None if it can (D-14)."""
    if expected is None:
        if found is None:
            return f"store {position} is not there yet and could not be made"
        if found in known:
            return f"store {position} is a copy of store {known.index(found)} ({found})"
        return None
    if found is None:
        return (
            f"store {position} ({expected}) is missing or cannot be opened; it holds messages, so "
            "no empty one is put in its place"
        )
    if found != expected:
        return (
            f"store {position} is {found}, and the catalog expects {expected} there: put the files "
            "back to where they were"
        )
    return None
