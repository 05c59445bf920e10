"""All namespaces of a server over one catalog file: a `Catalog` each.

They share the stores, and incarnations are unique over all of them (D-16), so a broker asks here by
incarnation and never learns of namespaces. What a namespace is (tier, partitions) is fixed when it
is made (P-14).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self
from uuid import UUID

from busway.cluster.catalog import Catalog, Change
from busway.cluster.catalog_file import (
    INCARNATION_BITS,
    CatalogError,
    CatalogFile,
    Tombstone,
)
from busway.cluster.rule_book import NewIdSource
from busway.cluster.rule_orders import decode_orders
from busway.cluster.store_register import StoreRegister
from busway.model.entities import DEFAULT_NAMESPACE, Entity, Namespace, Queue, Topic
from busway.model.errors import NOT_FOUND, BusError
from busway.model.limits import DEFAULT_TIER, TIERS, Tier
from busway.model.names import NAMESPACE_NAME, check_name, name_key

if TYPE_CHECKING:
    from busway.filters.rules import TopicRules


class Catalogs:
    """Satisfies `Entities` of the broker and `Directory` of the exchange, over all namespaces."""

    def __init__(self, file: CatalogFile, new_id: NewIdSource) -> None:
        self._file = file
        self._new_id = new_id
        self.stores = StoreRegister(file)
        self._owners: dict[int, Catalog] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._catalogs: dict[str, Catalog] = {}
        for namespace in file.namespaces():
            self._open(namespace)

    @classmethod
    def open(cls, path: Path | None, *, new_id: NewIdSource | None = None) -> Self:
        """The catalogs in this file, which is made if it is not there; in memory for None.

        `new_id` is what the function `newid()` of rules gives, and what incarnations are made of;
        without it both are counted.
        """
        file = CatalogFile(path)
        if new_id is not None:
            file.random_incarnation = lambda: new_id().int >> (128 - INCARNATION_BITS)
        return cls(file, new_id or _counting_ids())

    def incarnations(self) -> set[int]:
        """Of all entities, and of the deleted ones that some store has still to purge."""
        return self._file.incarnations()

    def be_quick(self) -> None:
        """Before others are served: no change waits for a file that another process has locked."""
        self._file.be_quick()

    def close(self) -> None:
        self._file.close()

    # --- Namespaces ------------------------------------------------------------------------------

    @property
    def default(self) -> Catalog:
        """Of the namespace that is meant where none is named."""
        return self.namespace(DEFAULT_NAMESPACE)

    def __iter__(self) -> Iterator[Catalog]:
        """The default one first, then by name."""
        yield self.default
        for key in sorted(self._catalogs):
            if key != name_key(DEFAULT_NAMESPACE):
                yield self._catalogs[key]

    def namespace(
        self,
        name: str,
        *,
        tier: Tier | None = None,
        partitions: int | None = None,
        now_ms: int = 0,
    ) -> Catalog:
        """The catalog of this namespace, which is made if it is not there.

        Raises `CatalogError` if it is there with another tier or number of partitions; None takes
        what it has, or the default for a new one.
        """
        found = self._catalogs.get(name_key(name))
        if found is None:
            found = self._make(name, tier, partitions, now_ms)
        there = found.namespace
        for what, wanted, fixed in (
            ("tier", tier and tier.value, there.tier.value),
            ("number of partitions", partitions, there.partitions),
        ):
            if wanted is not None and wanted != fixed:
                raise CatalogError(
                    f"The {what} of the namespace '{there.name}' is {fixed} and cannot become "
                    f"{wanted}: it is fixed when the namespace is made. Take the setting back, or "
                    "make a namespace of another name or in another data folder."
                )
        return found

    def _make(self, name: str, tier: Tier | None, partitions: int | None, now_ms: int) -> Catalog:
        try:
            check_name(NAMESPACE_NAME, name)
        except BusError as error:
            raise CatalogError(error.text) from error
        namespace = Namespace(
            name=name,
            tier=tier or DEFAULT_TIER,
            partitions=partitions or 1,
            partitions_stated=partitions is not None,
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        if namespace.partitions not in TIERS[namespace.tier].namespace_partitions:
            raise CatalogError(
                f"The namespace '{name}' of the tier {namespace.tier.value} cannot have "
                f"{partitions} partitions. Only namespaces of the tier Premium are partitioned as "
                "a whole; in others each queue and topic says whether it is."
            )
        try:
            self._file.write_namespace(namespace)
        except sqlite3.Error as error:
            raise CatalogError(f"The namespace '{name}' cannot be made: {error}.") from error
        return self._open(namespace)

    def _open(self, namespace: Namespace) -> Catalog:
        catalog = Catalog(self._file, namespace, self.stores, self._owners, self._new_id)
        catalog.listen(self._told)
        self._catalogs[name_key(namespace.name)] = catalog
        return catalog

    # --- Entities of all namespaces --------------------------------------------------------------

    def get(self, incarnation: int) -> Entity | None:
        """The newest version of an incarnation, None once it is deleted (D-16)."""
        catalog = self._owners.get(incarnation)
        return None if catalog is None else catalog.get(incarnation)

    def replace_placement(self, entity: Entity) -> None:
        """Only while nobody serves it: its messages were found elsewhere (`recovery.py`)."""
        self._file.update(entity)

    def topic_rules(self, incarnation: int) -> TopicRules:
        catalog = self._owners.get(incarnation)
        if catalog is None:
            raise BusError(NOT_FOUND, uri=f"topic {incarnation}")
        return catalog.topic_rules(incarnation)

    def carry_out(
        self, store_id: str, transaction_id: bytes, orders: bytes, now_ms: int = 0
    ) -> None:
        """A transaction changes rules of one topic, so all of them are one namespace's (D-28)."""
        owners = [self._owners.get(order.subscription) for order in decode_orders(orders)]
        # If all of it was deleted meanwhile, it does not matter who says so.
        catalog = next((each for each in owners if each is not None), self.default)
        catalog.carry_out(store_id, transaction_id, orders, now_ms)

    def forget_carried_out(self, store_id: str, transaction_id: bytes) -> None:
        self.default.forget_carried_out(store_id, transaction_id)

    def keep_carried_out(self, store_id: str, asked_for: Collection[bytes]) -> None:
        self.default.keep_carried_out(store_id, asked_for)

    def find_beside(self, incarnation: int, path: str) -> Queue | Topic | None:
        """The queue or topic of this name in the namespace of that incarnation (FWD-1)."""
        catalog = self._owners.get(incarnation)
        return None if catalog is None else catalog.find(path)

    def tombstones(self) -> list[Tombstone]:
        """Deleted incarnations that some store has still to purge (D-16)."""
        return self.default.tombstones()

    def purged(self, incarnation: int, store_id: str | None = None) -> None:
        """This store, or every store for None, holds nothing of the incarnation any more."""
        self.default.purged(incarnation, store_id)

    # --- Listeners -------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call `listener` after every change in any namespace, in order."""
        self._listeners.append(listener)

    def _told(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def _counting_ids() -> NewIdSource:
    numbers = count(1)
    return lambda: UUID(int=next(numbers))
