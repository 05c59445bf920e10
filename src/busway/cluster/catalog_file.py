"""The catalog on disk: its tables, and what is written together (D-14, D-16).

Each method is one transaction, durable when it returns. What the rows mean, and what may be done to
them, is `catalog.py`'s business; how records become rows is that of `catalog_rows.py`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from busway.amqp.errors import ProtocolError
from busway.cluster.catalog_damage import (
    CHECKED_TABLES,
    ENTITY_COLUMNS,
    RULE_COLUMNS,
    WHAT_TO_DO,
    damaged_rows,
    file_finding,
    is_sound,
    rows_of,
    seal,
)
from busway.cluster.catalog_rows import (
    description_of,
    description_of_rule,
    entity_of_row,
    kind_of,
    namespace_of_row,
    rule_of_row,
)
from busway.cluster.catalog_schema import FORMAT, STEPS
from busway.model.entities import Entity, Namespace, Rule, Subscription
from busway.model.names import name_key
from busway.model.properties import AnyEntity
from busway.store.checksums import of_values
from busway.store.commit_mark import CommitMark
from busway.store.sqlite_damage import structure_findings

T = TypeVar("T")

OWNER_ONLY = 0o600
INCARNATION_TRIES = 8
INCARNATION_BITS = 62
CHECKED_WHEN_LOADED = ("entities", "rules", "namespaces")
"""Each row is read when the server starts."""


class CatalogError(Exception):
    """The catalog cannot serve, with what a person can do about it."""


class CatalogLocked(sqlite3.OperationalError):
    """Somebody else is writing to the file. Nothing was begun, so nothing need be read again."""


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
        self.random_incarnation: Callable[[], int] | None = None
        """Where new incarnations come from; without it they are counted."""
        self._together = False
        self._mark = None if path is None else CommitMark(path)
        self._commit_number = 0
        """Of the transaction that is under way, or was the last."""
        try:
            if path is not None:
                finding = file_finding(path)
                if finding is not None:
                    raise CatalogError(f"{finding.text} Nothing was changed. {finding.way_out}")
                # It holds the keys of access rules; SQLite gives its WAL the same mode.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, OWNER_ONLY))
            self._database = sqlite3.connect(
                ":memory:" if path is None else path, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA cell_size_check = ON")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            findings = structure_findings(self._database)
            if findings:
                raise CatalogError(
                    f"The catalog {path} is damaged: {'; '.join(findings)}. {WHAT_TO_DO}"
                )
            self._prepare()
            self._check_small_tables()
            self._open_mark()
        except (OSError, sqlite3.Error) as error:
            raise CatalogError(f"The catalog {path} cannot be opened: {error}.") from error

    def _prepare(self) -> None:
        found = self._format()
        if found > FORMAT:
            raise CatalogError(
                f"The catalog {self.path} was written by a newer Busway (format {found}; this one "
                f"reads up to {FORMAT}). Start that version, or use another data folder."
            )
        if found < FORMAT:
            with self._transaction():
                for step in STEPS[self._format() :]:  # Somebody else may have been faster.
                    for statement in step.split(";"):
                        self._database.execute(statement)
                seal(self._database, *CHECKED_TABLES)
                self._database.execute(f"PRAGMA user_version = {FORMAT}")

    def _check_small_tables(self) -> None:
        for text in damaged_rows(self._database, *set(CHECKED_TABLES) - set(CHECKED_WHEN_LOADED)):
            raise CatalogError(f"The catalog {self.path} is damaged: {text}. {WHAT_TO_DO}")

    def _open_mark(self) -> None:
        catalog_id, number = self._database.execute(
            "SELECT catalog_id, commit_number FROM catalog"
        ).fetchone()
        self._commit_number = number
        if self._mark is not None:
            self._mark.open(catalog_id, number)

    def be_quick(self) -> None:
        """From now on a file that another process has locked is an error at once. SQLite would wait
        for seconds, and everybody with it who is served by the same thread."""
        self._database.execute("PRAGMA busy_timeout = 0")

    def _format(self) -> int:
        return int(self._database.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written in here is one transaction."""
        with self._transaction():
            self._together = True
            try:
                yield
            finally:
                self._together = False

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._together:
            yield
            return
        try:
            self._database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise CatalogLocked(str(error)) from error
        try:
            yield
            self._count_commit()
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        if self._mark is not None:
            self._mark.set(self._commit_number)

    def _count_commit(self) -> None:
        one, catalog_id, number = self._database.execute(
            "SELECT one, catalog_id, commit_number FROM catalog"
        ).fetchone()
        self._commit_number = number + 1
        self._database.execute(
            "UPDATE catalog SET commit_number = ?, checksum = ?",
            (number + 1, of_values(one, catalog_id, number + 1)),
        )

    def _decoded(self, decode: Callable[..., T], row: tuple[Any, ...], what: str) -> T:
        """Rows are written whole, so one that cannot be read was damaged since."""
        try:
            return decode(*row)
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
            ProtocolError,
        ) as error:
            raise CatalogError(
                f"The catalog {self.path} is damaged: the description {what} cannot be read "
                f"({type(error).__name__}: {error}). Put back a backup of the data folder with "
                "'busway restore'."
            ) from error

    def _check(self, row: tuple[Any, ...], what: str) -> None:
        if not is_sound(row):
            raise CatalogError(
                f"The catalog {self.path} is damaged: the row {what} is not what was written. "
                f"{WHAT_TO_DO}"
            )

    # Namespaces and stores

    def namespaces(self) -> list[Namespace]:
        rows = self._database.execute(
            "SELECT name, description, checksum FROM namespaces ORDER BY name"
        )
        return [self._namespace(row) for row in rows]

    def _namespace(self, row: tuple[Any, ...]) -> Namespace:
        what = f"of the namespace '{row[0]}'"
        namespace = self._decoded(namespace_of_row, row[:-1], what)
        self._check(row, what)
        return namespace

    def write_namespace(self, namespace: Namespace) -> None:
        with self._transaction():
            self._database.execute(
                "INSERT OR REPLACE INTO namespaces (name, description, checksum) VALUES (?, ?, ?)",
                _sealed(namespace.name, description_of(namespace)),
            )

    def declared_access(self, namespace: str) -> dict[str, bytes]:
        rows = self._database.execute(
            "SELECT name_key, digest FROM declared_access WHERE namespace = ?", (namespace,)
        )
        return dict(rows.fetchall())

    def write_declared_access(self, namespace: str, digests: Mapping[str, bytes]) -> None:
        """These, and no others any more."""
        with self._transaction():
            self._database.execute("DELETE FROM declared_access WHERE namespace = ?", (namespace,))
            self._database.executemany(
                "INSERT INTO declared_access VALUES (?, ?, ?, ?)",
                [_sealed(namespace, key, digest) for key, digest in digests.items()],
            )

    def stores(self) -> list[str]:
        rows = self._database.execute(
            "SELECT position, store_id, checksum FROM stores ORDER BY position"
        ).fetchall()
        for row in rows:
            self._check(row, f"of store {row[0]}")
        return [store_id for _, store_id, _ in rows]

    def write_stores(self, stores: list[str]) -> None:
        """The list as it is now. What is kept for a store that is gone has nothing to wait for."""
        with self._transaction():
            self._database.execute("DELETE FROM stores")
            self._database.executemany(
                "INSERT INTO stores VALUES (?, ?, ?)",
                [_sealed(position, store_id) for position, store_id in enumerate(stores)],
            )
            for table in ("tombstones", "carried_out"):
                self._database.execute(
                    f"DELETE FROM {table} WHERE store_id NOT IN (SELECT store_id FROM stores)"
                )

    # Entities

    def entities(self, namespace: str | None = None) -> Iterator[Entity]:
        """Of one namespace, or of all for None."""
        rows = self._database.execute(
            f"SELECT {ENTITY_COLUMNS} FROM entities WHERE namespace = ifnull(?, namespace)",
            (namespace,),
        )
        for row in rows:
            what = f"of the {row[0]} '{row[1]}'"
            entity = self._decoded(entity_of_row, row[:5], what)
            self._check(row, what)
            yield entity

    def _seal(self, incarnation: int) -> None:
        """The checksum of an entity's row as it is now."""
        row = self._database.execute(
            f"SELECT {ENTITY_COLUMNS} FROM entities WHERE incarnation = ?", (incarnation,)
        ).fetchone()
        if row is not None:
            self._database.execute(
                "UPDATE entities SET checksum = ? WHERE incarnation = ?",
                (of_values(*row[:-1]), incarnation),
            )

    def insert(self, namespace: str, entity: AnyEntity, rules: Sequence[Rule] = ()) -> AnyEntity:
        """Gives it its incarnation; a subscription comes with its first rules."""
        with self._transaction():
            cursor = self._database.execute(
                "INSERT INTO entities"
                " (incarnation, namespace, kind, path, path_key, version, description)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    self._fresh_incarnation(),
                    namespace,
                    kind_of(entity),
                    entity.path,
                    entity.key,
                    entity.version,
                    description_of(entity),
                ),
            )
            assert cursor.lastrowid is not None
            self._seal(cursor.lastrowid)
            for rule in rules:
                self._put_rule(cursor.lastrowid, rule)
        return replace(entity, incarnation=cursor.lastrowid)

    def _fresh_incarnation(self) -> int | None:
        """One that nobody has or had: a counter would start again with a new catalog, and give one
        queue the messages of another. None lets SQLite count, where there is no randomness."""
        if self.random_incarnation is None:
            return None
        for _ in range(INCARNATION_TRIES):
            chosen = self.random_incarnation()
            if chosen > 0 and not self._knows(chosen):
                return chosen
        return None

    def _knows(self, incarnation: int) -> bool:
        found = self._database.execute(
            "SELECT 1 FROM entities WHERE incarnation = ?1"
            " UNION ALL SELECT 1 FROM tombstones WHERE incarnation = ?1",
            (incarnation,),
        )
        return found.fetchone() is not None

    def incarnations(self) -> set[int]:
        """Of all entities, and of the deleted ones that some store has still to purge."""
        rows = self._database.execute(
            "SELECT incarnation FROM entities UNION SELECT incarnation FROM tombstones"
        )
        return {incarnation for (incarnation,) in rows}

    def update(self, entity: Entity) -> None:
        with self._transaction():
            self._update(entity)

    def _update(self, entity: Entity) -> None:
        self._database.execute(
            "UPDATE entities SET version = ?, description = ? WHERE incarnation = ?",
            (entity.version, description_of(entity), entity.incarnation),
        )
        self._seal(entity.incarnation)

    def delete(self, entities: Sequence[Entity], now_ms: int) -> None:
        """The entities go with their rules and their tombstones come, together."""
        with self._transaction():
            for entity in entities:
                self._delete(entity, now_ms)

    def _delete(self, entity: Entity, now_ms: int) -> None:
        incarnation = entity.incarnation
        self._database.execute("DELETE FROM entities WHERE incarnation = ?", (incarnation,))
        self._database.execute("DELETE FROM rules WHERE subscription = ?", (incarnation,))
        self._database.executemany(
            "INSERT INTO tombstones VALUES (?, ?, ?, ?, ?)",
            [
                _sealed(incarnation, store, entity.path, now_ms)
                for store in sorted(set(entity.placement))
            ],
        )

    def write_changes(
        self, changes: Sequence[tuple[Entity | None, Entity | None]], now_ms: int
    ) -> None:
        """Those without an `after` go, the others become it, with its path: all or nothing."""
        with self._transaction():
            for before, after in changes:
                if after is not None:
                    self._update(after)
                    self._database.execute(
                        "UPDATE entities SET path = ?, path_key = ? WHERE incarnation = ?",
                        (after.path, after.key, after.incarnation),
                    )
                    self._seal(after.incarnation)
                elif before is not None:
                    self._delete(before, now_ms)

    def tombstones(self) -> list[Tombstone]:
        """Raises `CatalogError` for a damaged one: it might name an entity that is not deleted."""
        stores: dict[tuple[int, str], set[str]] = {}
        for row in rows_of(self._database, "tombstones"):
            incarnation, store_id, path, _, _ = row
            self._check(row, f"of the deleted entity '{path}'")
            stores.setdefault((incarnation, path), set()).add(store_id)
        return [Tombstone(*named, frozenset(left)) for named, left in sorted(stores.items())]

    def delete_tombstones(self, incarnation: int, store_id: str | None) -> None:
        with self._transaction():
            self._database.execute(
                "DELETE FROM tombstones WHERE incarnation = ?1 AND store_id = ifnull(?2, store_id)",
                (incarnation, store_id),
            )

    # Rules of subscriptions

    def rules(self, namespace: str) -> Iterator[tuple[int, Rule]]:
        """All rules there, each with the incarnation of its subscription, oldest first."""
        rows = self._database.execute(
            f"SELECT {RULE_COLUMNS}, path FROM rules"
            " JOIN entities ON incarnation = subscription WHERE namespace = ? ORDER BY number",
            (namespace,),
        )
        for *row, path in rows:
            rule = self._decoded(rule_of_row, (row[3],), f"of a rule of '{path}'")
            self._check(tuple(row), f"of the rule '{row[2]}' of '{path}'")
            yield row[1], rule

    def put_rule(self, subscription: Subscription, rule: Rule) -> None:
        """A new rule, or a new form of one; `subscription` is the version that has it."""
        with self._transaction():
            self._update(subscription)
            self._put_rule(subscription.incarnation, rule)

    def _put_rule(self, subscription: int, rule: Rule) -> None:
        self._database.execute(
            "INSERT INTO rules (subscription, name_key, description) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET description = excluded.description",
            (subscription, name_key(rule.name), description_of_rule(rule)),
        )
        row = self._database.execute(
            f"SELECT {RULE_COLUMNS} FROM rules WHERE subscription = ? AND name_key = ?",
            (subscription, name_key(rule.name)),
        ).fetchone()
        self._database.execute(
            "UPDATE rules SET checksum = ? WHERE number = ?", (of_values(*row[:-1]), row[0])
        )

    def delete_rule(self, subscription: Subscription, name: str) -> None:
        with self._transaction():
            self._update(subscription)
            self._database.execute(
                "DELETE FROM rules WHERE subscription = ? AND name_key = ?",
                (subscription.incarnation, name_key(name)),
            )

    # Transactions that changed rules

    def carried_out(self, store_id: str) -> set[bytes]:
        rows = self._database.execute(
            "SELECT transaction_id FROM carried_out WHERE store_id = ?", (store_id,)
        )
        return {transaction_id for (transaction_id,) in rows}

    def mark_carried_out(self, store_id: str, transaction_id: bytes) -> None:
        with self._transaction():
            self._database.execute(
                "INSERT INTO carried_out VALUES (?, ?, ?)", _sealed(store_id, transaction_id)
            )

    def forget_carried_out(self, store_id: str, transaction_ids: Iterable[bytes]) -> None:
        with self._transaction():
            self._database.executemany(
                "DELETE FROM carried_out WHERE store_id = ? AND transaction_id = ?",
                [(store_id, transaction_id) for transaction_id in transaction_ids],
            )

    def close(self) -> None:
        self._database.close()
        if self._mark is not None:
            self._mark.close()


def _sealed(*values: Any) -> tuple[Any, ...]:
    """A row with its checksum."""
    return (*values, of_values(*values))
