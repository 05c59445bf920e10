"""A lake: Delta tables in a folder, each in a folder of its own name below it.

Spark's tasks write Parquet files under names that nobody else uses (`files.py`). The driver
makes them part of a table in one commit of the Delta log, together with who appended them and which
batch it was. So a batch is there once however often it is tried: a second attempt finds its own
mark and does nothing. Files of an attempt that died before its commit belong to no version; they
are removed by name (`pending.py`), or by `vacuum`.

A lake is a folder of this machine, one that all machines of a cluster see under the same path, or a
prefix in an object store (`place.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busway.pipeline.lake.files import ADDED_FILE, AddedFile, FileReader, FileWriter
from busway.pipeline.lake.place import LakeFolderError, Place

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


_PATTERN = re.compile(r"[*?\[\]{}]")
"""What Spark takes for more than itself in a path."""
TASKS_PER_CORE = 2
"""That read files of an object store: files differ in size."""


__all__ = ["ConflictError", "Lake", "LakeFolderError", "Table", "TableLayout"]


class ConflictError(Exception):
    """Two jobs wanted to change the same rows."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a table is, before there is one."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    """Dates, so that a folder's name needs no escapes, which readers undo in different ways. A file
    has rows of few entities, and its statistics say which: those need no folders."""
    description: str = ""


class Table:
    """One Delta table; made when the first batch is appended."""

    def __init__(self, place: Place, layout: TableLayout) -> None:
        self.place = place
        self.layout = layout
        self._options = place.options()

    # --- reading ---------------------------------------------------------------------------------

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(self.place.uri, self._options)

    def delta(self, version: int | None = None) -> DeltaTable:
        """The newest version, or another one."""
        from deltalake import DeltaTable

        return DeltaTable(self.place.uri, version=version, storage_options=self._options)

    def frame(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """The rows of a version, for Spark. The log says which files there are; nobody lists."""
        import pyarrow as pa

        if not self.exists():
            return spark.createDataFrame([], schema=self._spark_schema())
        actions = pa.table(self.delta(version).get_add_actions())
        return self.frame_of(spark, actions["path"].to_pylist())

    def frame_of(self, spark: SparkSession, files: Sequence[str]) -> DataFrame:
        """The rows of some files of the table, by their names in it."""
        if not files:
            return spark.createDataFrame([], schema=self._spark_schema())
        if not self.place.is_local:
            return self._fetched(spark, files)
        folder = self.place.address
        reader = spark.read.schema(self._spark_schema()).option("basePath", folder)
        return reader.parquet(*(_PATTERN.sub(r"\\\g<0>", f"{folder}/{file}") for file in files))

    def _fetched(self, spark: SparkSession, files: Sequence[str]) -> DataFrame:
        """Read by the tasks themselves: Spark's own way to an object store takes Hadoop's jars, and
        keys in its settings (docs/discussion/lakes-in-object-stores.md)."""
        schema = self.layout.schema.serialize().to_pybytes()
        reader = FileReader(self.place, schema, self.layout.partition_by)
        tasks = min(len(files), max(1, spark.sparkContext.defaultParallelism) * TASKS_PER_CORE)
        names = spark.createDataFrame([(name,) for name in files], "path string")
        return names.repartition(tasks).mapInArrow(reader, self._spark_schema())

    def last_version_of(self, app_id: str) -> int | None:
        """The newest batch that this application has appended."""
        return self.delta().transaction_version(app_id) if self.exists() else None

    # --- writing ---------------------------------------------------------------------------------

    def append(self, frame: DataFrame, app_id: str, version: int) -> int | None:
        """Add a batch, once. The rows that were added, or None if the batch was there already."""
        last = self.last_version_of(app_id)
        if last is not None and last >= version:
            return None
        files = self._write(frame)
        if not self._commit(files, "append", {app_id: version}):
            return None
        return sum(each.rows for each in files)

    def append_rows(self, rows: Sequence[Mapping[str, Any]], app_id: str, version: int) -> bool:
        """Add a few rows, once, without Spark. Whether it was this call that did it."""
        import pyarrow as pa

        last = self.last_version_of(app_id)
        if last is not None and last >= version:
            return False
        schema = self.layout.schema
        writer = FileWriter(self.place, schema.serialize().to_pybytes(), self.layout.partition_by)
        files = writer.write([pa.RecordBatch.from_pylist([dict(row) for row in rows], schema)])
        return self._commit(files, "append", {app_id: version})

    def marks(self, names: Sequence[str]) -> dict[str, int]:
        """How far each of these has come, for those that have a mark."""
        if not names or not self.exists():
            return {}
        table = self.delta()
        found = {name: table.transaction_version(name) for name in names}
        return {name: mark for name, mark in found.items() if mark is not None}

    def add(
        self, files: Sequence[AddedFile], marks: Mapping[str, int], before: Mapping[str, int]
    ) -> None:
        """Make files part of the table and move marks, in one commit.

        Raises `ConflictError` if a mark is not where it was (none: it must have none yet), whether
        it was moved before this call or at the same time.
        """
        self.create()
        table = self.delta()
        for name in marks:
            if table.transaction_version(name) != before.get(name):
                raise ConflictError(self._moved)
        self._write_log(table, files, "append", marks)

    def replace(
        self, frame: DataFrame, app_id: str, version: int, dates: Sequence[date] | None = None
    ) -> int:
        """Other rows, in one commit: all of them, or those of some dates of the partition column.

        Readers see the old ones or the new ones.
        """
        if dates is not None and not dates:
            return 0
        files = self._write(frame)
        (column,) = self.layout.partition_by if dates is not None else ("",)
        chosen = None if dates is None else [(column, "in", sorted(map(str, dates)))]
        self._commit(files, "overwrite", {app_id: version}, chosen)
        return sum(each.rows for each in files)

    def added_since(self, version: int) -> list[str] | None:
        """The files that later versions have brought, but for those that only rearrange rows.

        None if the log or a file is not there any more: then everything has to be read.
        """
        names: list[str] = []
        for number in range(version + 1, self.delta().version() + 1):
            entry = self.place.read_bytes(f"_delta_log/{number:020d}.json")
            if entry is None:
                return None
            for line in entry.splitlines():
                added = json.loads(line).get("add")
                if added is not None and added["dataChange"]:
                    names.append(added["path"])
        return names if self.place.has(*names) else None

    def _write(self, frame: DataFrame) -> list[AddedFile]:
        layout = self.layout
        schema = layout.schema.serialize().to_pybytes()
        writer = FileWriter(self.place, schema, layout.partition_by)
        told = frame.select(*layout.schema.names).mapInArrow(writer, ADDED_FILE).collect()
        return [
            AddedFile(row.path, row.size, row.rows, json.loads(row.partition), row.stats)
            for row in told
        ]

    def create(self) -> None:
        """Make the table if it is not there, and give it the columns that it lacks."""
        from deltalake import DeltaTable

        if not self.exists():
            DeltaTable.create(
                self.place.uri,
                self.layout.schema,
                mode="ignore",
                partition_by=list(self.layout.partition_by),
                name=self.layout.name,
                description=self.layout.description or None,
                storage_options=self._options,
            )
        self.evolve()

    def _commit(
        self,
        files: Sequence[AddedFile],
        mode: str,
        marks: Mapping[str, int],
        chosen: Any = None,
    ) -> bool:
        """Whether it was this call that did it, and not another process of the same application."""
        self.create()
        table = self.delta()
        for app_id, version in marks.items():
            last = table.transaction_version(app_id)
            if mode == "append" and last is not None and last >= version:
                return False
        self._write_log(table, files, mode, marks, chosen)
        return True

    def _write_log(
        self,
        table: DeltaTable,
        files: Sequence[AddedFile],
        mode: str,
        marks: Mapping[str, int],
        chosen: Any = None,
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [
            AddAction(
                path=each.path,
                size=each.size,
                partition_values=each.partition,
                modification_time=now_ms,
                data_change=True,
                stats=each.stats,
            )
            for each in files
        ]
        transactions = [Transaction(name, version) for name, version in marks.items()]
        with self._alone():
            table.create_write_transaction(
                actions,
                mode=mode,
                schema=table.schema(),
                partition_by=list(self.layout.partition_by),
                partition_filters=chosen,
                commit_properties=CommitProperties(app_transactions=transactions),
            )

    @property
    def _moved(self) -> str:
        return (
            f"Another job has changed the table '{self.layout.name}' at the same time, so that "
            "nothing of this one was kept there. Run it again."
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Appends and compaction go together; what replaces rows must have been the only one."""
        from deltalake.exceptions import CommitFailedError

        try:
            yield
        except CommitFailedError as error:
            raise ConflictError(self._moved) from error

    def evolve(self) -> list[str]:
        """Give the table the columns that its layout has gained; the names of those added."""
        from deltalake import Field, Schema

        table = self.delta()
        there = {field.name for field in table.schema().fields}
        wanted = Schema.from_arrow(self.layout.schema).fields
        new: list[Field] = [field for field in wanted if field.name not in there]
        if new:
            table.alter.add_columns(new)
        return [field.name for field in new]

    # --- looking after ---------------------------------------------------------------------------

    def compact(self) -> dict[str, Any]:
        """Few large files instead of many small ones; the rows stay. Safe beside a capture."""
        with self._alone():
            return self.delta().optimize.compact()

    def vacuum(self, retention_hours: int, *, dry_run: bool = False) -> list[str]:
        """Remove files that no version of the last hours has. The files' names."""
        return self.delta().vacuum(
            retention_hours=retention_hours,
            dry_run=dry_run,
            enforce_retention_duration=False,
            full=True,
        )

    def _spark_schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.layout.schema)


class Lake:
    """Raises `LakeFolderError` where no lake can be."""

    def __init__(self, folder: str | Path) -> None:
        self.place = Place.of(str(folder))
        self.folder = self.place.address

    def check_writable(self) -> None:
        """Raises `OSError` or `LakeFolderError` if nothing can be written there. The folder need
        not be there yet."""
        self.place.check_writable()

    def table(self, layout: TableLayout) -> Table:
        return Table(self.place.below(layout.name), layout)


def write_parquet(frame: DataFrame, place: Place) -> None:
    """Rows as plain Parquet files in a place of their own, which is emptied first."""
    from pyspark.sql.pandas.types import to_arrow_schema

    for name in list(place.names()):
        place.remove(name)
    writer = FileWriter(place, to_arrow_schema(frame.schema).serialize().to_pybytes(), ())
    frame.mapInArrow(writer, ADDED_FILE).collect()
