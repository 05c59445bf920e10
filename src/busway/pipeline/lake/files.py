"""What a Spark task does with the rows of a batch: Parquet files, each under a name of its own.

A task that is tried again writes new files; only those that it tells of in the end are ever part of
a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    import pyarrow as pa

ADDED_FILE = "path string, size bigint, rows bigint, partition string, stats string"
"""What a task tells the driver of a file that it wrote."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a value, by a convention that readers know."""
FILE_ROWS_MAX = 1_000_000
STATISTICS_FOR = ("entity", "journal_offset", "event_time", "sequence_number", "enqueued_time")
"""Columns whose least and greatest value a file's entry has, for readers that skip files."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]
    stats: str


class FileWriter:
    """What a task does with its rows: one file for each combination of the partition columns."""

    def __init__(self, folder: str, schema: bytes, partition_by: Sequence[str]) -> None:
        self._folder = folder
        self._schema = schema
        self._partition_by = tuple(partition_by)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.BufferReader(self._schema))
        files: dict[tuple[str | None, ...], OpenFile] = {}
        finished: list[OpenFile] = []
        for batch in batches:
            table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            for values, rows in self._split(table):
                file = files.get(values)
                if file is None:
                    partition = dict(zip(self._partition_by, values, strict=True))
                    file = files[values] = OpenFile(self._folder, schema, partition)
                file.write(rows)
                if file.rows >= FILE_ROWS_MAX:
                    finished.append(files.pop(values))
        told = [file.close() for file in [*finished, *files.values()]]
        if told:
            yield pa.RecordBatch.from_pylist(
                [
                    {
                        "path": each.path,
                        "size": each.size,
                        "rows": each.rows,
                        "partition": json.dumps(each.partition),
                        "stats": each.stats,
                    }
                    for each in told
                ]
            )

    def _split(self, table: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        if not self._partition_by:
            yield (), table
            return
        import pyarrow.compute as pc

        keys = table.select(list(self._partition_by)).combine_chunks()
        distinct = keys.group_by(list(self._partition_by)).aggregate([])
        if len(distinct) == 1:
            yield self._values(distinct.to_pylist()[0]), table
            return
        for row in distinct.to_pylist():
            mask = None
            for name, value in row.items():
                column = keys[name]
                equal = pc.is_null(column) if value is None else pc.equal(column, value)
                mask = equal if mask is None else pc.and_(mask, equal)
            yield self._values(row), table.filter(mask)

    def _values(self, row: Mapping[str, Any]) -> tuple[str | None, ...]:
        return tuple(_partition_text(row[name]) for name in self._partition_by)


class OpenFile:
    """A Parquet file on its way, under a name of its own."""

    def __init__(self, folder: str, schema: pa.Schema, partition: Mapping[str, str | None]) -> None:
        import pyarrow as pa
        import pyarrow.fs
        import pyarrow.parquet as pq

        self.rows = 0
        self.partition = partition
        # Delta keeps partition columns in the log alone.
        self._schema = pa.schema([field for field in schema if field.name not in partition])
        places = [f"{name}={value or NO_VALUE}" for name, value in partition.items()]
        self._relative = "/".join([*places, f"part-{uuid4()}.zstd.parquet"])
        self._files, base = pyarrow.fs.FileSystem.from_uri(folder)
        self._path = f"{base}/{self._relative}"
        self._files.create_dir(self._path.rpartition("/")[0], recursive=True)
        self._statistics = _Statistics(
            [name for name in STATISTICS_FOR if name in self._schema.names]
        )
        self._writer = pq.ParquetWriter(
            self._path, self._schema, filesystem=self._files, compression="zstd"
        )

    def write(self, rows: pa.Table) -> None:
        kept = rows.select(self._schema.names)
        self._statistics.see(kept)
        self._writer.write_table(kept)
        self.rows += len(kept)

    def close(self) -> AddedFile:
        self._writer.close()
        size = self._files.get_file_info(self._path).size
        statistics = self._statistics.text(self.rows)
        return AddedFile(self._relative, size, self.rows, self.partition, statistics)


class _Statistics:
    def __init__(self, names: Sequence[str]) -> None:
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}
        self._nulls = dict.fromkeys(names, 0)

    def see(self, rows: pa.Table) -> None:
        import pyarrow.compute as pc

        for name in self._nulls:
            column = rows[name]
            self._nulls[name] += column.null_count
            ends = pc.min_max(column).as_py()
            if ends["min"] is None:
                continue
            self._least[name] = min(ends["min"], self._least.get(name, ends["min"]))
            self._most[name] = max(ends["max"], self._most.get(name, ends["max"]))

    def text(self, rows: int) -> str:
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: _json(value) for name, value in self._least.items()},
                "maxValues": {
                    name: _json(value, rounded_up=True) for name, value in self._most.items()
                },
                "nullCount": self._nulls,
            }
        )


def _json(value: Any, *, rounded_up: bool = False) -> Any:
    """Statistics have milliseconds: a greatest value must not end below what is there."""
    if not isinstance(value, datetime):
        return value
    if rounded_up:
        value += timedelta(microseconds=-value.microsecond % 1000)
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _partition_text(value: date | None) -> str | None:
    """A partition's value, for the log and for the folder."""
    return None if value is None else value.isoformat()
