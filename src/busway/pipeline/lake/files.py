"""What a Spark task does with the rows of a batch: Parquet files, each under a name of its own.

A task that is tried again writes new files; only those that it tells of in the end are ever part of
a table. The names of all files of a batch begin alike, so that those of one that was killed can be
found (`pending.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from busway.pipeline.lake.place import Place

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

ADDED_FILE = "path string, size bigint, rows bigint, partition string, stats string"
"""What a task tells the driver of a file that it wrote."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a value, by a convention that readers know."""
FILE_ROWS_MAX = 1_000_000
READ_ROWS = 4_000
ROW_GROUP_BYTES = 32 * 1024 * 1024
NO_DICTIONARY = ("body", "envelope", "lock_token", "message_id", "typed_properties")
"""Columns whose values hardly ever repeat: to look for repetitions costs, and finds none."""
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

    def __init__(
        self, place: Place, schema: bytes, partition_by: Sequence[str], batch: str = ""
    ) -> None:
        self._place = place
        self._schema = schema
        self._partition_by = tuple(partition_by)
        self._batch = batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For Spark's `mapInArrow`: rows in, told files out."""
        import pyarrow as pa

        if told := self.write(batches):
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

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[AddedFile]:
        """All of them, or none: files of an attempt that fails are removed."""
        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.BufferReader(self._schema))
        files: dict[tuple[str | None, ...], OpenFile] = {}
        made: list[OpenFile] = []
        try:
            for batch in batches:
                table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                for values, rows in self._split(table):
                    file = files.get(values)
                    if file is None or file.rows >= FILE_ROWS_MAX:
                        partition = dict(zip(self._partition_by, values, strict=True))
                        file = OpenFile(self._place, schema, partition, self._batch)
                        files[values] = file
                        made.append(file)
                    file.write(rows)
            return [file.close() for file in made]
        except BaseException:
            for file in made:
                file.discard()
            raise

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

    def __init__(
        self, place: Place, schema: pa.Schema, partition: Mapping[str, str | None], batch: str
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.rows = 0
        self.partition = partition
        # Delta keeps partition columns in the log alone.
        self._schema = pa.schema([field for field in schema if field.name not in partition])
        places = [f"{name}={value or NO_VALUE}" for name, value in partition.items()]
        self._relative = "/".join([*places, f"{name_prefix(batch)}{uuid4()}.zstd.parquet"])
        self._files, base = place.files()
        self._path = f"{base}/{self._relative}"
        if place.is_local:
            self._files.create_dir(self._path.rpartition("/")[0], recursive=True)
        self._statistics = _Statistics(
            [name for name in STATISTICS_FOR if name in self._schema.names]
        )
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._sink = self._files.open_output_stream(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in self._schema.names if name not in NO_DICTIONARY],
        )

    def write(self, rows: pa.Table) -> None:
        """Kept until there is enough for a group of rows: readers and writers pay for each."""
        kept = rows.select(self._schema.names)
        self._waiting.append(kept)
        self._waiting_bytes += kept.nbytes
        self.rows += len(kept)
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
            self._statistics.see(rows)
            self._writer.write_table(rows, row_group_size=len(rows))

    def close(self) -> AddedFile:
        self._flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        statistics = self._statistics.text(self.rows)
        return AddedFile(self._relative, size, self.rows, self.partition, statistics)

    def discard(self) -> None:
        """Whatever became of it, it is not needed."""
        for step in (self._sink.close, lambda: self._files.delete_file(self._path)):
            try:
                step()
            except OSError as problem:  # on a full disk it cannot even be closed
                log.info("%s: %s", self._relative, problem)


class FileReader:
    """What a task does with the names of files: their rows, as the table's schema has them."""

    def __init__(self, place: Place, schema: bytes, partition_by: Sequence[str]) -> None:
        self._place = place
        self._schema = schema
        self._partition_by = tuple(partition_by)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pa.ipc.read_schema(pa.BufferReader(self._schema))
        files, base = self._place.files()
        for batch in batches:
            for name in batch["path"].to_pylist():
                with pq.ParquetFile(f"{base}/{name}", filesystem=files) as file:
                    for rows in file.iter_batches(READ_ROWS):
                        yield self._shaped(rows, name, schema)

    def _shaped(self, rows: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.RecordBatch:
        """With the columns that its folders stand for, and those that it is too old to have."""
        import pyarrow as pa

        values = dict(part.split("=", 1) for part in name.split("/")[:-1])
        columns = []
        for field in schema:
            if field.name in values:
                text = values[field.name]
                value = pa.scalar(None if text == NO_VALUE else text, pa.string()).cast(field.type)
                columns.append(pa.repeat(value, len(rows)))
            elif field.name in rows.schema.names:
                columns.append(rows[field.name].cast(field.type))
            else:
                columns.append(pa.nulls(len(rows), field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def name_prefix(batch: str) -> str:
    """Of all files of a batch."""
    return f"part-{batch}-" if batch else "part-"


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
