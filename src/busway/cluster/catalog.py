"""The catalog: namespace, entities, access rules and stores, durable and in memory at once.

Owns what may be created, changed and removed (P-10, P-16, D-14, D-16). Every change is one commit,
then visible here, then told to the listeners; one that is refused changes nothing. Reads are
look-ups in dictionaries, because every send and settlement makes one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from busway.cluster.catalog_file import CatalogError, CatalogFile, Tombstone
from busway.model.entities import (
    ALL_RIGHTS,
    ROOT_RULE_NAME,
    AuthorizationRule,
    Namespace,
    Queue,
    partitions_of,
)
from busway.model.errors import (
    ARGUMENT_ERROR,
    ENTITY_ALREADY_EXISTS,
    ENTITY_COUNT_EXCEEDED,
    NOT_FOUND,
    SERVER_BUSY,
    BusError,
)
from busway.model.limits import ACCESS_RULES_MAX, TIERS, TierLimits
from busway.model.names import NAMESPACE_NAME, check_name, name_key
from busway.model.partitioning import place
from busway.model.properties import check_update, validate

__all__ = ["Catalog", "CatalogError", "Change", "StoreStanding", "Tombstone"]


@dataclass(frozen=True, slots=True)
class Change:
    """What listeners are told: created (no `before`), updated, or deleted (no `after`)."""

    before: Queue | None
    after: Queue | None


@dataclass(frozen=True, slots=True)
class StoreStanding:
    """A configured store: well if `problem` is None, otherwise *ill* and why (D-14)."""

    position: int
    store_id: str | None
    """The id that the catalog knows for this position."""
    problem: str | None = None


class Catalog:
    """Use `Catalog.open`. Satisfies `Entities` of the broker and `AccessRules` of the gateway."""

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self._listeners: list[Callable[[Change], None]] = []
        self._root_rule: AuthorizationRule | None = None
        self._well: tuple[str, ...] = ()
        self._namespace = Namespace()
        self._by_incarnation: dict[int, Queue] = {}
        self._by_key: dict[str, Queue] = {}
        self._load()

    @classmethod
    def open(cls, path: Path | None) -> Self:
        """The catalog in this file, which is made if it is not there; in memory for None."""
        return cls(CatalogFile(path))

    def close(self) -> None:
        self._file.close()

    def _load(self) -> None:
        namespace = self._file.namespace()
        if namespace is None:
            self._file.write_namespace(self._namespace)
        else:
            self._namespace = namespace
        queues = self._file.queues()
        self._by_incarnation = {queue.incarnation: queue for queue in queues}
        self._by_key = {queue.key: queue for queue in queues}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A write that fails leaves nobody with a wrong picture: read again what is there."""
        try:
            yield
        except sqlite3.Error as error:
            self._load()
            raise BusError(SERVER_BUSY, refused=True) from error

    # --- Stores (D-14) ---------------------------------------------------------------------------

    def expected_store(self, position: int) -> str | None:
        """The id that the store at this position must have; None if a new one may be made there.

        Ask before opening: a store that is expected and missing is ill, never re-made empty.
        """
        stores = self._file.stores()
        return stores[position] if position < len(stores) else None

    def register_stores(self, found: Sequence[str | None]) -> tuple[StoreStanding, ...]:
        """Compare the configured stores, in order, with the known ones; new ones are added.

        `found` has the id inside each store, None for one that is missing or cannot be opened.
        Raises `CatalogError` if a store is left out that holds partitions.
        """
        known = self._file.stores()
        self._check_removal(known[len(found) :], configured=len(found))
        kept = known[: len(found)]
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
        if kept != known:
            with self._writing():
                self._file.write_stores(kept)
        self._well = tuple(
            standing.store_id
            for standing in standings
            if standing.problem is None and standing.store_id is not None
        )
        return tuple(standings)

    def _check_removal(self, removed: list[str], configured: int) -> None:
        for store_id in removed:
            for queue in self.queues():
                if store_id in queue.placement:
                    raise CatalogError(
                        f"The store {store_id} holds partitions of the queue '{queue.path}' and "
                        f"cannot be removed: {configured} stores are configured, at least "
                        f"{configured + len(removed)} are needed. Configure them again, or delete "
                        "the queues that use the store first."
                    )

    # --- Queues ----------------------------------------------------------------------------------

    def get(self, incarnation: int) -> Queue | None:
        """The newest version of an incarnation, None once it is deleted (D-16)."""
        return self._by_incarnation.get(incarnation)

    def find(self, path: str) -> Queue | None:
        """By name, in any case (NAM-2)."""
        return self._by_key.get(name_key(path))

    def queues(self) -> list[Queue]:
        """All of them, in the order of their names."""
        return [queue for _, queue in sorted(self._by_key.items())]

    def create_queue(self, description: Queue, now_ms: int = 0) -> Queue:
        """A new incarnation with its placement, in one commit. The description's own incarnation,
        version and placement do not matter."""
        tier = self._namespace.tier
        validate(description, tier)
        if self.find(description.path) is not None:
            raise BusError(ENTITY_ALREADY_EXISTS, uri=description.path)
        if not TIERS[tier].entity_partitioning:
            description = replace(description, enable_partitioning=False)  # P-13
        self._check_quota(description, TIERS[tier])
        if not self._well:
            raise BusError(SERVER_BUSY, refused=True)
        partitions = partitions_of(description.enable_partitioning)
        queue = replace(
            description,
            version=1,
            placement=place(description.path, self._well, partitions),
            created_ms=now_ms,
            updated_ms=now_ms,
        )
        with self._writing():
            queue = self._file.insert_queue(self._namespace.name, queue)
        self._announce(Change(None, queue))
        return queue

    def _check_quota(self, description: Queue, tier: TierLimits) -> None:
        """P-16."""
        counts = [("entities", tier.entities_max, len(self._by_key))]
        if description.enable_partitioning:
            partitioned = sum(queue.enable_partitioning for queue in self._by_key.values())
            counts.append(
                ("partitioned queues and topics", tier.partitioned_entities_max, partitioned)
            )
        for counted, limit, count in counts:
            if limit is not None and count >= limit:
                raise BusError(
                    ENTITY_COUNT_EXCEEDED,
                    what="queue",
                    path=description.path,
                    namespace=self._namespace.name,
                    limit=limit,
                    counted=counted,
                )

    def update(self, description: Queue, now_ms: int = 0) -> Queue:
        """A new version of the queue of this path. A description of an older incarnation is not
        found; one that changes what is fixed is refused and changes nothing (P-10)."""
        old = self._existing(description.path)
        if description.incarnation not in (0, old.incarnation):
            raise BusError(NOT_FOUND, uri=description.path)
        check_update(old, description, self._namespace.tier)
        queue = replace(
            description,
            path=old.path,
            incarnation=old.incarnation,
            version=old.version + 1,
            placement=old.placement,
            created_ms=old.created_ms,
            updated_ms=now_ms,
        )
        with self._writing():
            self._file.update_queue(queue)
        self._announce(Change(old, queue))
        return queue

    def delete(self, path: str, now_ms: int = 0) -> Queue:
        """The queue is gone at once; its stores forget it in small steps (`tombstones`)."""
        queue = self._existing(path)
        with self._writing():
            self._file.delete_queue(queue, now_ms)
        self._announce(Change(queue, None))
        return queue

    def _existing(self, path: str) -> Queue:
        queue = self.find(path)
        if queue is None:
            raise BusError(NOT_FOUND, uri=path)
        return queue

    def tombstones(self) -> list[Tombstone]:
        """Deleted incarnations that some store has still to purge (D-16)."""
        return self._file.tombstones()

    def purged(self, incarnation: int, store_id: str | None = None) -> None:
        """This store, or every store for None, holds nothing of the incarnation any more."""
        with self._writing():
            self._file.delete_tombstones(incarnation, store_id)

    # --- Listeners -------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call `listener` after every change, in order (STA-2, STA-5). Returns how to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _announce(self, change: Change) -> None:
        if change.before is not None:
            del self._by_incarnation[change.before.incarnation]
            del self._by_key[change.before.key]
        if change.after is not None:
            self._by_incarnation[change.after.incarnation] = change.after
            self._by_key[change.after.key] = change.after
        for listener in tuple(self._listeners):
            listener(change)

    # --- Access ----------------------------------------------------------------------------------

    @property
    def namespace(self) -> Namespace:
        """With the root rule first, if its key is known."""
        rules = self._namespace.authorization_rules
        if self._root_rule is not None:
            rules = (self._root_rule, *rules)
        return replace(self._namespace, authorization_rules=rules)

    def set_root_key(self, key: str, secondary_key: str | None = None) -> None:
        """The root rule is not stored here: its key has a file of its own (`root_key.py`)."""
        self._root_rule = AuthorizationRule(ROOT_RULE_NAME, ALL_RIGHTS, key, secondary_key)

    def update_namespace(self, namespace: Namespace, now_ms: int = 0) -> Namespace:
        """New access rules. Name and tier are fixed; the root rule is left as it is."""
        check_name(NAMESPACE_NAME, namespace.name)
        kept = tuple(rule for rule in namespace.authorization_rules if rule.name != ROOT_RULE_NAME)
        old = self._namespace
        if (namespace.name, namespace.tier) != (old.name, old.tier):
            raise BusError(
                ARGUMENT_ERROR, detail="The name and the tier of a namespace cannot be changed."
            )
        if len(kept) + 1 > ACCESS_RULES_MAX:
            raise BusError(
                ARGUMENT_ERROR,
                detail=f"A namespace has at most {ACCESS_RULES_MAX} access rules (LIM-12).",
            )
        changed = replace(old, authorization_rules=kept, updated_ms=now_ms)
        with self._writing():
            self._file.write_namespace(changed)
        self._namespace = changed
        return self.namespace

    def namespace_rule(self, name: str) -> AuthorizationRule | None:
        return _named(self.namespace.authorization_rules, name)

    def entity_rule(self, path: str, name: str) -> tuple[str, AuthorizationRule] | None:
        """The rule of the entity that `path` names or lies in, with that entity's path (D-34)."""
        segments = path.strip("/").split("/")
        for end in range(len(segments), 0, -1):
            queue = self.find("/".join(segments[:end]))
            if queue is not None:
                rule = _named(queue.authorization_rules, name)
                return None if rule is None else (queue.path, rule)
        return None


def _named(rules: tuple[AuthorizationRule, ...], name: str) -> AuthorizationRule | None:
    return next((rule for rule in rules if name_key(rule.name) == name_key(name)), None)


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
        return f"store {position} is {found}, and the catalog expects {expected} there"
    return None
