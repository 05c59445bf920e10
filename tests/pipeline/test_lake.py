"""Delta tables that Spark writes and the log makes true, once for each batch (P-47)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from busway.cli import app
from busway.pipeline.lake.lake import ConflictError, Lake, LakeFolderError, Table, TableLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        ("entity", pa.string()),
        ("event_date", pa.date32()),
        ("journal_offset", pa.int64()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
)
LAYOUT = TableLayout("events", SCHEMA, ("event_date",))
NOON = datetime(2026, 11, 16, 12, 0, 0, 123_456, tzinfo=UTC)
ODD_NAME = "orders/eu 1%é=x"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Lake(tmp_path / "lake").table(LAYOUT)


def rows(spark: SparkSession, offsets: range, entity: str = "orders") -> DataFrame:
    data = [(entity, date(2026, 11, 16), n, NOON, {"n": str(n)}, b"%d" % n) for n in offsets]
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(data, schema=from_arrow_schema(SCHEMA)).repartition(2)


def offsets_of(table: Table) -> list[int]:
    return sorted(table.delta().to_pyarrow_table()["journal_offset"].to_pylist())


def test_a_batch_is_there_once_however_often_it_is_tried(spark: SparkSession, table: Table) -> None:
    assert table.append(rows(spark, range(10)), "capture-1", 0) == 10
    assert table.append(rows(spark, range(10)), "capture-1", 0) is None
    assert table.append(rows(spark, range(10, 15)), "capture-1", 1) == 5
    assert offsets_of(table) == list(range(15))
    assert table.last_version_of("capture-1") == 1
    assert table.append(rows(spark, range(15, 16)), "another", 0) == 1


def test_two_processes_cannot_both_append_a_batch(spark: SparkSession, table: Table) -> None:
    table.append(rows(spark, range(3)), "capture", 0)
    written = table._write(rows(spark, range(3, 6)))
    stale = table.delta()
    table.append(rows(spark, range(3, 6)), "capture", 1)
    assert not table._commit(written, "append", {"capture": 1})  # it looks once more
    table.delta = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(ConflictError, match="'events' at the same time"):
        table._commit(written, "append", {"capture": 1})  # and the log itself does
    assert sorted(
        DeltaTable(table.place.address).to_pyarrow_table()["journal_offset"].to_pylist()
    ) == [*range(6)]


def test_an_attempt_that_died_leaves_nothing_to_read(spark: SparkSession, table: Table) -> None:
    table.append(rows(spark, range(3)), "capture", 0)
    table._write(rows(spark, range(3, 6)))  # and then it was killed
    assert offsets_of(table) == [0, 1, 2]
    table.append(rows(spark, range(3, 6)), "capture", 1)
    assert offsets_of(table) == list(range(6))
    orphans = table.vacuum(0)
    assert len(orphans) == 2
    assert offsets_of(table) == list(range(6))


def test_spark_and_delta_read_what_was_written(spark: SparkSession, table: Table) -> None:
    table.append(rows(spark, range(4), ODD_NAME), "capture", 0)
    table.append(rows(spark, range(4, 6), "orders"), "capture", 1)
    by_spark = {
        (row.entity, row.journal_offset, row.event_time.astimezone(UTC), row.properties["n"])
        for row in table.frame(spark).collect()
    }
    by_delta = {
        (row["entity"], row["journal_offset"], row["event_time"], dict(row["properties"])["n"])
        for row in table.delta().to_pyarrow_table().to_pylist()
    }
    assert by_spark == by_delta
    assert {name for name, *_ in by_spark} == {ODD_NAME, "orders"}
    filtered = table.frame(spark).where("entity = 'orders'").count()
    assert filtered == 2


def test_files_can_be_skipped_by_their_statistics(spark: SparkSession, table: Table) -> None:
    table.append(rows(spark, range(100)).coalesce(1), "capture", 0)
    (entry,) = pa.table(table.delta().get_add_actions(flatten=True)).to_pylist()
    assert (entry["num_records"], entry["min.journal_offset"], entry["max.journal_offset"]) == (
        100,
        0,
        99,
    )
    assert entry["min.event_time"] <= NOON <= entry["max.event_time"]


def test_compaction_keeps_the_rows_and_the_batches(spark: SparkSession, table: Table) -> None:
    for batch in range(4):
        table.append(rows(spark, range(batch * 5, batch * 5 + 5)), "capture", batch)
    before = len(table.delta().file_uris())
    table.compact()
    assert len(table.delta().file_uris()) == 1 < before
    assert offsets_of(table) == list(range(20))
    assert table.append(rows(spark, range(15, 20)), "capture", 3) is None
    table.vacuum(0)
    assert offsets_of(table) == list(range(20))
    assert table.frame(spark).count() == 20


def test_a_layout_that_gained_a_column_gives_it_to_the_table(
    spark: SparkSession, table: Table
) -> None:
    table.append(rows(spark, range(2)), "capture", 0)
    wider = Table(
        table.place,
        TableLayout("events", SCHEMA.append(pa.field("note", pa.string())), LAYOUT.partition_by),
    )
    from pyspark.sql.functions import lit

    wider.append(rows(spark, range(2, 4)).withColumn("note", lit("new")), "capture", 1)
    notes = {row.journal_offset: row.note for row in wider.frame(spark).collect()}
    assert notes == {0: None, 1: None, 2: "new", 3: "new"}
    assert DeltaTable(table.place.address).to_pyarrow_table()["note"].null_count == 2


def test_replacing_is_one_commit(spark: SparkSession, table: Table) -> None:
    table.append(rows(spark, range(5)), "capture", 0)
    assert table.replace(rows(spark, range(7)), "curate", 3) == 7
    assert offsets_of(table) == list(range(7))
    assert DeltaTable(table.place.address, version=1).to_pyarrow_table().num_rows == 5
    assert table.last_version_of("curate") == 3


def test_an_empty_table_can_be_read(spark: SparkSession, table: Table) -> None:
    assert not table.exists()
    assert table.frame(spark).count() == 0
    assert table.append(rows(spark, range(0)), "capture", 0) == 0
    assert table.frame(spark).count() == 0


@pytest.mark.parametrize("name", ["a lake", "ä [1] {x} 100% *#?"])
@pytest.mark.parametrize("as_url", [False, True])
def test_a_lake_may_be_in_a_folder_of_any_name(
    spark: SparkSession, tmp_path: Path, name: str, as_url: bool
) -> None:
    folder = tmp_path / name
    table = Lake(folder.as_uri() if as_url else folder).table(LAYOUT)
    table.append(rows(spark, range(2)), "test", 0)
    table.append(rows(spark, range(2, 3)), "test", 1)
    assert table.frame(spark).count() == 3
    added = table.added_since(table.delta().version() - 1)
    assert added is not None
    assert table.frame_of(spark, added).count() == 1
    assert (folder / "events" / "_delta_log").is_dir()


def test_a_lake_may_be_named_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Lake("./lake").folder == str(tmp_path / "lake")
    assert Lake(f"file:{tmp_path}/x").folder == Lake(f"file://localhost{tmp_path}/x").folder


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("hdfs://host/lake", "hdfs is not known here"),
        ("s3://bucket", "Write s3://bucket/lake"),
        ("s3://key:secret@bucket/lake", "keys belong into the environment"),
        ("abfss://account.dfs.core.windows.net/lake", "Write abfss://container@account"),
        ("gs://bucket/a b", "' ' in its path means something else"),
        ("file://server/share", "Write file:///srv/lake"),
        ("/srv/a%20lake", "Delta takes '%20'"),
    ],
)
def test_a_lake_that_cannot_be_there_is_refused(folder: str, text: str) -> None:
    with pytest.raises(LakeFolderError, match=text):
        Lake(folder)
    refused = CliRunner().invoke(app, ["pipeline", "compact", "--lake", folder])
    assert refused.exit_code == 2
    assert text in refused.stderr
