"""A lake: Delta tables in a folder, each in a folder of its own name below it.

Spark's tasks write Parquet files under names that nobody else uses (`lake_files.py`). The driver
makes them part of a table in one commit of the Delta log, together with who appended them and which
batch it was. So a batch is there once however often it is tried: a second attempt finds its own
mark and does nothing. Files of an attempt that died before its commit belong to no version;
`vacuum` removes them.

A lake is a folder of this machine, or one that all machines of a cluster see under the same path.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import url2pathname

from busway.pipeline.lake.files import ADDED_FILE, AddedFile, FileWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


_PATTERN = re.compile(r"[*?\[\]{}]")
"""What Spark takes for more than itself in a path."""
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\")


class ConflictError(Exception):
    """Two jobs wanted to change the same rows."""


class LakeFolderError(Exception):
    """A lake cannot be there, and where it can be."""


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

    def __init__(self, folder: str, layout: TableLayout) -> None:
        self.folder = folder
        self.layout = layout
        self._uri = Path(folder).as_uri()
        """What Delta takes; it would undo escapes that are none in a plain path."""

    # --- reading ---------------------------------------------------------------------------------

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(self._uri)

    def delta(self) -> DeltaTable:
        """The newest version."""
        from deltalake import DeltaTable

        return DeltaTable(self._uri)

    def frame(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """The rows of a version, for Spark. The log says which files there are; nobody lists."""
        import pyarrow as pa
        from deltalake import DeltaTable

        if not self.exists():
            return spark.createDataFrame([], schema=self._spark_schema())
        actions = pa.table(DeltaTable(self._uri, version=version).get_add_actions())
        names = actions["path"].to_pylist()
        return self.frame_of(spark, [f"{self.folder}/{name}" for name in names])

    def frame_of(self, spark: SparkSession, files: Sequence[str]) -> DataFrame:
        """The rows of some files of the table."""
        if not files:
            return spark.createDataFrame([], schema=self._spark_schema())
        reader = spark.read.schema(self._spark_schema()).option("basePath", self.folder)
        return reader.parquet(*(_PATTERN.sub(r"\\\g<0>", file) for file in files))

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
        if not self._commit(files, "append", app_id, version):
            return None
        return sum(each.rows for each in files)

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
        self._commit(files, "overwrite", app_id, version, chosen)
        return sum(each.rows for each in files)

    def added_since(self, version: int) -> list[str] | None:
        """The files that later versions have brought, but for those that only rearrange rows.

        None if the log or a file is not there any more: then everything has to be read.
        """
        names: list[str] = []
        for number in range(version + 1, self.delta().version() + 1):
            entry = Path(self.folder) / "_delta_log" / f"{number:020d}.json"
            if not entry.is_file():
                return None
            for line in entry.read_text().splitlines():
                added = json.loads(line).get("add")
                if added is not None and added["dataChange"]:
                    names.append(f"{self.folder}/{added['path']}")
        return names if all(Path(name).is_file() for name in names) else None

    def _write(self, frame: DataFrame) -> list[AddedFile]:
        layout = self.layout
        schema = layout.schema.serialize().to_pybytes()
        writer = FileWriter(self.folder, schema, layout.partition_by)
        told = frame.select(*layout.schema.names).mapInArrow(writer, ADDED_FILE).collect()
        return [
            AddedFile(row.path, row.size, row.rows, json.loads(row.partition), row.stats)
            for row in told
        ]

    def _commit(
        self,
        files: Sequence[AddedFile],
        mode: str,
        app_id: str,
        version: int,
        chosen: Any = None,
    ) -> bool:
        """Whether it was this call that did it, and not another process of the same application."""
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.transaction import AddAction

        layout = self.layout
        if not self.exists():
            DeltaTable.create(
                self._uri,
                layout.schema,
                mode="ignore",
                partition_by=list(layout.partition_by),
                name=layout.name,
                description=layout.description or None,
            )
        self.evolve()
        table = self.delta()
        last = table.transaction_version(app_id)
        if mode == "append" and last is not None and last >= version:
            return False
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
        with self._alone():
            table.create_write_transaction(
                actions,
                mode=mode,
                schema=table.schema(),
                partition_by=list(layout.partition_by),
                partition_filters=chosen,
                commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
            )
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Appends and compaction go together; what replaces rows must have been the only one."""
        from deltalake.exceptions import CommitFailedError

        try:
            yield
        except CommitFailedError as error:
            raise ConflictError(
                f"Another job has changed the table '{self.layout.name}' at the same time, so that "
                "nothing of this one was kept there. Run it again."
            ) from error

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
    """Raises `LakeFolderError` for what is no folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(_local(str(folder)).absolute())
        if found := _ESCAPE.search(self.folder):
            raise LakeFolderError(
                f"A lake cannot be in '{self.folder}': Delta takes '{found[0]}' in a path for "
                "another character. Choose a folder with another name."
            )

    def check_writable(self) -> None:
        """Raises `OSError` if nothing can be written there. The folder need not be there yet."""
        place = Path(self.folder)
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))

    def table(self, layout: TableLayout) -> Table:
        return Table(f"{self.folder}/{layout.name}", layout)


def _local(text: str) -> Path:
    """A path, or a URL of one."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() == "file":
        path = url2pathname(rest.removeprefix("//").removeprefix("localhost"))
        if path.startswith("/"):
            return Path(path)
        raise LakeFolderError(f"'{text}' is no folder of this machine. Write file:///srv/lake.")
    if "://" in text:
        raise LakeFolderError(
            f"A lake is a folder, and '{text}' is in {scheme}: object stores are not supported. "
            "Mount it, or capture into a folder and copy its tables from there."
        )
    return Path(text)
