"""Damage to the catalog's files: it hands out what was written, or says what is wrong."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from busway.cluster.catalog_damage import CHECKED_TABLES
from busway.cluster.catalog_file import CatalogError, CatalogFile
from busway.cluster.catalogs import Catalogs
from busway.cluster.data_check import verify_folder
from busway.cluster.recovery import accept_catalog_loss
from busway.model.entities import Queue, Rule, SqlFilter, Subscription, Topic
from busway.store.commit_mark import mark_of, read_mark
from busway.store.sqlite_log import FRAME_HEADER, HEADER, log_of

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
    shutil.copy(live / "catalog.db-mark", folder / "clean")
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


def cut_between_frames(path: Path, chance: random.Random) -> None:
    """SQLite takes such a log for whole: nothing in it says that it had more."""
    data = path.read_bytes()
    frame = FRAME_HEADER.size + int.from_bytes(data[8:12], "big")
    frames = (len(data) - HEADER.size) // frame
    with path.open("r+b") as file:
        file.truncate(HEADER.size + chance.randrange(frames) * frame)


@pytest.mark.parametrize(
    ("source", "in_log", "harm"),
    [
        ("clean", False, flip),
        ("killed", True, flip),
        ("clean", False, cut),
        ("killed", True, cut),
        ("killed", True, cut_between_frames),
    ],
    ids=["flip in the file", "flip in the log", "file cut", "log cut", "log cut between frames"],
)
def test_damage_is_never_taken_for_data(
    folder: Path,
    tmp_path: Path,
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
        try:
            found = content(path)
        except CatalogError:
            refused += 1
        else:
            assert found == truth, turn
        shutil.rmtree(copy)
    assert refused


def test_a_bad_place_in_the_log_changes_nothing_and_verify_tells_it(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(folder / "killed", copy)
    path = copy / "catalog.db"
    data = bytearray(log_of(path).read_bytes())
    data[len(data) // 2] ^= 1
    log_of(path).write_bytes(data)
    with pytest.raises(CatalogError, match=r"Nothing was changed\. Put back a backup.*--accept-"):
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


# --- the mark ------------------------------------------------------------------------------------


def serving(path: Path) -> Catalogs:
    catalogs = Catalogs.open(path)
    catalogs.stores.register(["store-a"])
    return catalogs


def without_log(data: Path, _: Path) -> None:
    log_of(data / "catalog.db").unlink()


def with_an_older_copy(data: Path, older: Path) -> None:
    log_of(data / "catalog.db").unlink()
    shutil.copy(older / "catalog.db", data)


def with_another_catalog(data: Path, _: Path) -> None:
    log_of(data / "catalog.db").unlink()
    (data / "catalog.db").unlink()
    other = serving(data.parent / "other.db")
    other.default.create_queue(Queue(path="elsewhere"))
    other.close()
    shutil.copy(data.parent / "other.db", data / "catalog.db")


def without_catalog(data: Path, _: Path) -> None:
    log_of(data / "catalog.db").unlink()
    (data / "catalog.db").unlink()


def emptied(data: Path, _: Path) -> None:
    log_of(data / "catalog.db").unlink()
    (data / "catalog.db").write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (without_log, r"ends at change \d+, and changes up to \d+ were acknowledged: its log is"),
        (with_an_older_copy, r"ends at change \d+.* or the file is an older copy"),
        (with_another_catalog, r"is another one: \w+, and the one that was used here is \w+"),
        (without_catalog, r"catalog\.db is missing\. It has had \d+ changes"),
        (emptied, r"catalog\.db is empty\. It has had \d+ changes"),
    ],
)
def test_a_catalog_that_lost_changes_is_refused_until_the_loss_is_accepted(
    folder: Path, tmp_path: Path, harm: Callable[[Path, Path], None], told: str
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    data = tmp_path / "data"
    shutil.copytree(folder / "clean", data)
    catalogs = serving(data / "catalog.db")
    shutil.copy(data / "catalog.db", older)
    catalogs.default.create_queue(Queue(path="newest"))
    killed = tmp_path / "killed"
    shutil.copytree(data, killed, ignore=shutil.ignore_patterns("*-shm"))
    catalogs.close()
    harm(killed, older)
    before = {each.name: each.read_bytes() for each in killed.iterdir()}
    with pytest.raises(CatalogError, match=told) as refused:
        CatalogFile(killed / "catalog.db")
    assert "busway recover --accept-loss" in str(refused.value)
    assert {each.name: each.read_bytes() for each in killed.iterdir()} == before
    assert re.search(told, "\n".join(verify_folder(killed).problems))
    assert accept_catalog_loss(killed / "catalog.db") > 0
    reopened = serving(killed / "catalog.db")
    assert reopened.default.find("newest") is None
    reopened.default.create_queue(Queue(path="after"))
    reopened.close()
    assert not any("change" in text for text in verify_folder(killed).problems)


def test_the_mark_follows_each_change_and_outlives_the_catalog(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalogs = serving(path)
    catalog = catalogs.default  # a namespace is a change, too
    numbers = [read_mark(path)]
    for name in ("a", "b"):
        catalog.create_queue(Queue(path=name))
        numbers.append(read_mark(path))
    with catalog.together():
        catalog.create_queue(Queue(path="c"))
        catalog.create_queue(Queue(path="d"))
    numbers.append(read_mark(path))
    catalogs.close()
    commits = [each.commit_number for each in numbers if each is not None]
    assert commits == list(range(commits[0], commits[0] + 4))
    assert len({each.store_id for each in numbers if each is not None}) == 1
    again = Catalogs.open(path)
    again.close()
    assert read_mark(path) == numbers[-1]


def test_a_catalog_without_its_mark_opens_and_gets_one(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "clean", tmp_path / "data")
    path = tmp_path / "data" / "catalog.db"
    mark = read_mark(path)
    mark_of(path).unlink()
    assert content(path) == content(folder / "clean" / "catalog.db")
    assert read_mark(path) == mark


def test_a_log_without_its_catalog_is_not_thrown_away(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "killed", tmp_path / "data")
    path = tmp_path / "data" / "catalog.db"
    path.unlink()
    mark_of(path).unlink()
    with pytest.raises(CatalogError, match=r"is missing, but its log catalog\.db-wal is there"):
        CatalogFile(path)
    assert log_of(path).stat().st_size


# --- rows of the other tables --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "UPDATE namespaces SET description = replace(description, ':1,', ':2,')",
            "the namespace 'bu",
        ),
        ("UPDATE stores SET store_id = 'x' WHERE position = 0", "store 0"),
        ("UPDATE tombstones SET incarnation = incarnation + 1", "the deleted entity 'gone'"),
        ("UPDATE carried_out SET transaction_id = x'99'", "a transaction in store store-a"),
        ("UPDATE declared_access SET digest = x'99'", "the declared access rule 'key'"),
        ("UPDATE catalog SET commit_number = commit_number + 1", "the catalog itself"),
        ("UPDATE stores SET checksum = NULL", "store 0"),
    ],
)
def test_a_damaged_row_of_any_table_is_refused_and_named(
    tmp_path: Path, statement: str, told: str
) -> None:
    path = upgraded(tmp_path)
    with sqlite3.connect(path) as database:
        assert database.execute(statement).rowcount
    database.close()
    with pytest.raises(CatalogError, match=f"the row of {told}.* is not what was written"):
        Catalogs.open(path)
    assert told in "\n".join(verify_folder(tmp_path).problems)


def upgraded(folder: Path) -> Path:
    """A catalog as format 6 left it, opened once."""
    path = folder / "catalog.db"
    with sqlite3.connect(path) as database:
        database.executescript((Path(__file__).parent / "format_6.sql").read_text())
    database.close()
    CatalogFile(path).close()
    return path


def test_a_file_of_format_6_keeps_its_rows_and_gets_checksums_and_a_mark(tmp_path: Path) -> None:
    path = upgraded(tmp_path)
    catalogs = Catalogs.open(path)
    assert [each.namespace.name for each in catalogs] == ["busway", "second"]
    assert catalogs.stores.expected(1) == "store-b"
    assert [each.path for each in catalogs.tombstones()] == ["gone"]
    subscription = catalogs.default.find_subscription("news", "all")
    assert subscription is not None
    assert [each.name for each in catalogs.default.rules(subscription)] == ["$Default", "r"]
    catalogs.close()
    assert read_mark(path) is not None
    with sqlite3.connect(path) as database:
        for table in CHECKED_TABLES:
            missing = f"SELECT count(*) FROM {table} WHERE checksum IS NULL"
            assert database.execute(missing).fetchone() == (0,), table
    database.close()


def test_a_damaged_row_of_an_older_file_is_not_sealed_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with sqlite3.connect(path) as database:
        database.executescript((Path(__file__).parent / "format_6.sql").read_text())
        database.execute("UPDATE entities SET version = 7 WHERE path = 'orders'")
    database.close()
    with pytest.raises(CatalogError, match="the row of the queue 'orders' is not what was written"):
        Catalogs.open(path)
