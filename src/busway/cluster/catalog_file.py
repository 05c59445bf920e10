"""The catalog on disk: its tables, and how entities become rows (D-14, D-16).

Each method is one transaction, durable when it returns. What the rows mean, and what may be done to
them, is `catalog.py`'s business.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from busway.model.entities import AuthorizationRule, EntityStatus, Namespace, Queue
from busway.model.limits import Tier

FORMAT = 1
OWNER_ONLY = 0o600

SCHEMA = """
CREATE TABLE namespaces (name TEXT PRIMARY KEY, description TEXT NOT NULL);
CREATE TABLE stores (position INTEGER PRIMARY KEY, store_id TEXT NOT NULL UNIQUE);
-- AUTOINCREMENT: an incarnation is never given twice, not even after its entity is gone (D-16).
CREATE TABLE entities (
    incarnation INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    path_key TEXT NOT NULL,
    version INTEGER NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (namespace, path_key)
);
-- One row for each store that may still hold rows of a deleted entity.
CREATE TABLE tombstones (
    incarnation INTEGER NOT NULL,
    store_id TEXT NOT NULL,
    path TEXT NOT NULL,
    deleted_ms INTEGER NOT NULL,
    PRIMARY KEY (incarnation, store_id)
) WITHOUT ROWID;
"""


class CatalogError(Exception):
    """The catalog cannot serve, with what a person can do about it."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A deleted incarnation, and the stores that have not purged it yet."""

    incarnation: int
    path: str
    stores: frozenset[str]


class CatalogFile:
    """One SQLite database: a file, or memory for None. One thread at a time uses it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        try:
            if path is not None:
                # It holds the keys of access rules; SQLite gives its WAL the same mode.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, OWNER_ONLY))
            self._database = sqlite3.connect(
                ":memory:" if path is None else path, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            raise CatalogError(f"The catalog {path} cannot be opened: {error}.") from error

    def _prepare(self) -> None:
        found = self._format()
        if found > FORMAT:
            raise CatalogError(
                f"The catalog {self.path} was written by a newer Busway (format {found}; this one "
                f"reads up to {FORMAT}). Start that version, or use another data folder."
            )
        if found == 0:
            with self._transaction():
                if self._format() == 0:  # Nobody else was faster.
                    for statement in SCHEMA.split(";"):
                        self._database.execute(statement)
                    self._database.execute(f"PRAGMA user_version = {FORMAT}")

    def _format(self) -> int:
        return int(self._database.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    # Namespaces and stores

    def namespace(self) -> Namespace | None:
        row = self._database.execute("SELECT name, description FROM namespaces").fetchone()
        return None if row is None else namespace_of_row(*row)

    def write_namespace(self, namespace: Namespace) -> None:
        with self._transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO namespaces VALUES (?, ?)",
                (namespace.name, description_of(namespace, without=("name",))),
            )

    def stores(self) -> list[str]:
        rows = self._database.execute("SELECT store_id FROM stores ORDER BY position")
        return [store_id for (store_id,) in rows]

    def write_stores(self, stores: list[str]) -> None:
        """The list as it is now. Tombstones of a store that is gone have nothing to wait for."""
        with self._transaction():
            self._database.execute("DELETE FROM stores")
            self._database.executemany("INSERT INTO stores VALUES (?, ?)", list(enumerate(stores)))
            self._database.execute(
                "DELETE FROM tombstones WHERE store_id NOT IN (SELECT store_id FROM stores)"
            )

    # Entities

    def queues(self) -> list[Queue]:
        rows = self._database.execute(
            "SELECT path, incarnation, version, description FROM entities WHERE kind = 'queue'"
        )
        return [queue_of_row(*row) for row in rows]

    def insert_queue(self, namespace: str, queue: Queue) -> Queue:
        """Gives it its incarnation."""
        with self._transaction():
            cursor = self._database.execute(
                "INSERT INTO entities (namespace, kind, path, path_key, version, description)"
                " VALUES (?, 'queue', ?, ?, ?, ?)",
                (namespace, queue.path, queue.key, queue.version, description_of_queue(queue)),
            )
            assert cursor.lastrowid is not None
        return replace(queue, incarnation=cursor.lastrowid)

    def update_queue(self, queue: Queue) -> None:
        with self._transaction():
            self._database.execute(
                "UPDATE entities SET version = ?, description = ? WHERE incarnation = ?",
                (queue.version, description_of_queue(queue), queue.incarnation),
            )

    def delete_queue(self, queue: Queue, now_ms: int) -> None:
        """The entity goes and its tombstones come, together."""
        with self._transaction():
            self._database.execute(
                "DELETE FROM entities WHERE incarnation = ?", (queue.incarnation,)
            )
            self._database.executemany(
                "INSERT INTO tombstones VALUES (?, ?, ?, ?)",
                [
                    (queue.incarnation, store, queue.path, now_ms)
                    for store in sorted(set(queue.placement))
                ],
            )

    def tombstones(self) -> list[Tombstone]:
        rows = self._database.execute("SELECT incarnation, path, store_id FROM tombstones")
        stores: dict[tuple[int, str], set[str]] = {}
        for incarnation, path, store_id in rows:
            stores.setdefault((incarnation, path), set()).add(store_id)
        return [Tombstone(*named, frozenset(left)) for named, left in sorted(stores.items())]

    def delete_tombstones(self, incarnation: int, store_id: str | None) -> None:
        with self._transaction():
            self._database.execute(
                "DELETE FROM tombstones WHERE incarnation = ?1 AND store_id = ifnull(?2, store_id)",
                (incarnation, store_id),
            )

    def close(self) -> None:
        self._database.close()


# --- Rows ----------------------------------------------------------------------------------------

IN_COLUMNS = ("path", "incarnation", "version")
"""Fields of a queue that have a column of their own; the rest is its description."""


def description_of(record: Queue | Namespace, without: tuple[str, ...]) -> str:
    values: dict[str, object] = {}
    for each in fields(record):
        if each.name in without:
            continue
        value = getattr(record, each.name)
        if isinstance(value, EntityStatus | Tier):
            value = value.value
        elif each.name == "authorization_rules":
            value = [
                [rule.name, rule.rights, rule.primary_key, rule.secondary_key] for rule in value
            ]
        values[each.name] = value
    return json.dumps(values, separators=(",", ":"))


def description_of_queue(queue: Queue) -> str:
    return description_of(queue, without=IN_COLUMNS)


def queue_of_row(path: str, incarnation: int, version: int, description: str) -> Queue:
    values = json.loads(description)
    values["placement"] = tuple(values["placement"])
    values["status"] = EntityStatus(values["status"])
    values["authorization_rules"] = _rules(values["authorization_rules"])
    return Queue(path=path, incarnation=incarnation, version=version, **values)


def namespace_of_row(name: str, description: str) -> Namespace:
    values = json.loads(description)
    values["tier"] = Tier(values["tier"])
    values["authorization_rules"] = _rules(values["authorization_rules"])
    return Namespace(name=name, **values)


def _rules(rows: list[list[object]]) -> tuple[AuthorizationRule, ...]:
    rules = []
    for name, rights, primary_key, secondary_key in rows:
        assert isinstance(rights, list)
        rules.append(
            AuthorizationRule(
                str(name),
                tuple(rights),
                str(primary_key),
                None if secondary_key is None else str(secondary_key),
            )
        )
    return tuple(rules)
