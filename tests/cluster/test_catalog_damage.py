"""Damage to the catalog's files: it hands out what was written, or says what is wrong."""

from __future__ import annotations

import logging
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from busway.cluster.catalog_file import CatalogError, CatalogFile
from busway.cluster.catalogs import Catalogs
from busway.cluster.data_check import verify_folder
from busway.model.entities import Queue, Rule, SqlFilter, Subscription, Topic
from busway.store.sqlite_log import log_of

TURNS = 60
Content = tuple[list[object], list[object]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`killed` has everything in the log, `clean` has no log."""
    folder = tmp_path_factory.mktemp("catalogs")
    live = folder / "live"
    live.mkdir()
    catalogs = Catalogs.open(live / "catalog.db")
    catalogs.stores.register(["store-a"])
    catalog = catalogs.default
    topic = catalog.create_topic(Topic(path="news"))
    for index in range(20):
        catalog.create_queue(Queue(path=f"queue-{index}", max_delivery_count=index + 1))
        made = catalog.create_subscription(Subscription(topic=topic.path, name=f"s{index}"))
        catalog.add_rule(made, Rule(name="r", filter=SqlFilter(f"a = {index}")))
    for file in live.iterdir():
        if not file.name.endswith("-shm"):
            (folder / "killed").mkdir(exist_ok=True)
            shutil.copy(file, folder / "killed")
    catalogs.close()
    (folder / "clean").mkdir()
    shutil.copy(live / "catalog.db", folder / "clean")
    return folder


def content(path: Path) -> Content:
    file = CatalogFile(path)
    try:
        return list(file.entities()), list(file.rules("busway"))
    except sqlite3.Error as error:
        raise CatalogError(str(error)) from error  # as `Catalogs` says it
    finally:
        file.close()


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def cut(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(chance.randrange(1, path.stat().st_size))


@pytest.mark.parametrize(
    ("source", "in_log", "harm"),
    [
        ("clean", False, flip),
        ("killed", True, flip),
        ("clean", False, cut),
    ],
    ids=["flip in the file", "flip in the log", "file cut"],
)
def test_damage_is_never_taken_for_data(
    folder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    source: str,
    in_log: bool,
    harm: object,
) -> None:
    chance = random.Random(f"{source} {in_log} {harm.__name__}")  # type: ignore[attr-defined]
    shutil.copytree(folder / source, tmp_path / "truth")
    truth = content(tmp_path / "truth" / "catalog.db")
    assert (len(truth[0]), len(truth[1])) == (41, 40)
    refused = 0
    for turn in range(TURNS):
        copy = tmp_path / f"copy-{turn}"
        shutil.copytree(folder / source, copy)
        path = copy / "catalog.db"
        harm(log_of(path) if in_log else path, chance)  # type: ignore[operator]
        caplog.clear()
        try:
            found = content(path)
        except CatalogError:
            refused += 1
        else:
            told = any(each.levelno >= logging.WARNING for each in caplog.records)
            assert found == truth or (told and is_older(found, truth)), turn
        shutil.rmtree(copy)
    assert refused


def is_older(found: Content, truth: Content) -> bool:
    """Nothing in it but what was written; the last change may be missing."""
    return all(each in truth[1] for each in found[1]) and len(found[1]) >= len(truth[1]) - 1


def test_a_bad_place_in_the_log_changes_nothing_and_verify_tells_it(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(folder / "killed", copy)
    path = copy / "catalog.db"
    data = bytearray(log_of(path).read_bytes())
    data[len(data) // 2] ^= 1
    log_of(path).write_bytes(data)
    with pytest.raises(CatalogError, match=r"Nothing was changed\. Put back a backup"):
        CatalogFile(path)
    assert log_of(path).read_bytes() == data
    problems = "\n".join(verify_folder(copy).problems)
    assert "The log of the catalog" in problems


def test_verify_names_a_row_that_is_not_what_was_written(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "clean", tmp_path / "data")
    with sqlite3.connect(tmp_path / "data" / "catalog.db") as database:
        database.execute("UPDATE entities SET version = version + 1 WHERE path = 'queue-7'")
        database.execute("UPDATE rules SET subscription = subscription + 1 WHERE number = 2")
    database.close()
    problems = "\n".join(verify_folder(tmp_path / "data").problems)
    assert "the row of the queue 'queue-7' is not what was written" in problems
    assert "the row of the rule 'r' is not what was written" in problems


def test_rows_of_an_older_file_are_readable_and_get_theirs_when_written(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "catalog.db"
    shutil.copy(folder / "clean" / "catalog.db", path)
    truth = content(path)
    with sqlite3.connect(path) as database:
        for table in ("entities", "rules"):
            database.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        database.execute("PRAGMA user_version = 5")
    database.close()
    assert content(path) == truth
    file = CatalogFile(path)
    file.update(next(file.entities()))
    file.close()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(checksum) FROM entities").fetchone() == (1,)
    database.close()
    assert content(path) == truth
