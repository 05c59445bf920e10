"""Looks through a data folder that nobody uses: stores, logs, catalog, and what each says of the
others (`busway verify`). Nothing is changed."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from busway.cluster.catalog_damage import CHECKED_TABLES, damaged_rows, file_finding
from busway.cluster.catalog_rows import entity_of_row, namespace_of_row, rule_of_row
from busway.cluster.catalog_schema import FIRST_MARKED_FORMAT
from busway.cluster.strangers import Stranger, strangers_in
from busway.store.sqlite_damage import structure_findings
from busway.store.sqlite_guard import read_only
from busway.store.sqlite_verify import StoreReport, verify_store


@dataclass(slots=True)
class FolderReport:
    folder: Path
    stores: list[StoreReport] = field(default_factory=list)
    entities: dict[int, str] = field(default_factory=dict)
    """Paths by incarnation, as the catalog has them."""
    strangers: list[Stranger] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Of the catalog, and of what it and the stores say of each other."""

    @property
    def all_problems(self) -> list[str]:
        return [*self.problems, *(text for store in self.stores for text in store.problems)]

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "status": "damaged" if self.all_problems else "ok",
            "problems": self.all_problems,
            "entities": len(self.entities),
            "stores": [
                {
                    "file": store.path.name,
                    "id": store.store_id,
                    "commit_number": store.commit_number,
                    "messages": store.messages,
                    "without_checksum": store.unchecked,
                    "quarantined": store.quarantined,
                    "lost_commits": store.lost_commits,
                }
                for store in self.stores
            ],
        }


def verify_folder(folder: Path) -> FolderReport:
    report = FolderReport(folder)
    known_ids, known = _look_at_catalog(folder / "catalog.db", report)
    files = sorted(folder.glob("store-*.db"), key=lambda each: int(each.stem.split("-")[1]))
    report.stores = [verify_store(file) for file in files]
    for position, store_id in enumerate(known_ids):
        file = folder / f"store-{position}.db"
        there = next((each for each in report.stores if each.path == file), None)
        if there is None:
            report.problems.append(f"{file.name} is missing; the catalog expects {store_id} there")
        elif there.store_id not in (None, store_id):
            report.problems.append(
                f"{file.name} is store {there.store_id}, and the catalog expects {store_id} there"
            )
    if known is not None:
        held = {each.path.name: each.records for each in report.stores}
        report.strangers = strangers_in(held, known)
        report.problems += [f"the catalog does not know this: {each}" for each in report.strangers]
    return report


def _look_at_catalog(path: Path, report: FolderReport) -> tuple[list[str], set[int] | None]:
    """The stores that it expects, and the incarnations that it knows; None if it cannot be read."""
    finding = file_finding(path)
    if finding is not None:
        report.problems.append(str(finding))
    if not path.exists() or not path.stat().st_size:
        if finding is None:
            report.problems.append(f"{path.name} is missing")
        return [], set()
    try:
        with read_only(path) as connection:
            (format_,) = connection.execute("PRAGMA user_version").fetchone()
            structure = structure_findings(connection, thorough=True)
            report.problems += [f"{path.name}: {text}" for text in structure]
            rows = connection.execute(
                "SELECT kind, path, incarnation, version, description FROM entities"
            ).fetchall()
            for row in rows:
                report.entities[row[2]] = row[1]
                _readable(report, f"entity '{row[1]}'", entity_of_row, *row)
            if format_ >= FIRST_MARKED_FORMAT:
                found = damaged_rows(connection, *CHECKED_TABLES)
                report.problems += [f"{path.name}: {text}" for text in found]
            else:
                report.problems.append(
                    f"{path.name} has format {format_}, without all checksums: start the broker"
                    " once to upgrade it"
                )
            for row in connection.execute("SELECT name, description FROM namespaces").fetchall():
                _readable(report, f"namespace '{row[0]}'", namespace_of_row, *row)
            for row in connection.execute("SELECT description FROM rules").fetchall():
                _readable(report, "a rule", rule_of_row, *row)
            stores = connection.execute("SELECT store_id FROM stores ORDER BY position").fetchall()
            buried = connection.execute("SELECT incarnation FROM tombstones").fetchall()
    except sqlite3.Error as error:
        report.problems.append(f"{path.name} cannot be read: {error}")
        return [], None
    return [each for (each,) in stores], {*report.entities, *(each for (each,) in buried)}


def _readable(report: FolderReport, what: str, read: Any, *row: Any) -> None:
    try:
        read(*row)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        report.problems.append(f"catalog.db: {what} cannot be read: {error!r}")
