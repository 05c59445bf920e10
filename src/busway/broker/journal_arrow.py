"""From columns to Arrow: the form in which journals leave the broker.

pyarrow is a dependency of those who read journals only, and is imported when it is needed (D-33).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from busway.broker.journal_columns import Columns
from busway.model.journal import Column, ColumnKind

MICROSECONDS = 1_000
"""In a millisecond: Spark's timestamps count them."""


class PipelineMissingError(RuntimeError):
    """The libraries of the data pipeline are not installed."""


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise PipelineMissingError(
            "Reading journals needs pyarrow, which is not installed where the broker runs. There, "
            "in a clone of Busway, run 'make pipeline'; else pip install 'busway[pipeline]'."
        ) from error
    return pyarrow


def arrow_schema(columns: Sequence[Column]) -> Any:
    """A `pyarrow.Schema`. Every column may be null: new ones are added to old data."""
    pa = _pyarrow()
    types = {
        ColumnKind.TEXT: pa.string(),
        ColumnKind.COUNT: pa.int64(),
        ColumnKind.SMALL: pa.int32(),
        ColumnKind.TIME: pa.timestamp("us", tz="UTC"),
        ColumnKind.BINARY: pa.binary(),
        ColumnKind.TEXT_MAP: pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(column.name, types[column.kind]) for column in columns])


def to_arrow(columns: Sequence[Column], values: Columns) -> Any:
    """A `pyarrow.RecordBatch` of exactly that schema."""
    pa = _pyarrow()
    schema = arrow_schema(columns)
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        cells = values[column.name]
        if column.kind is ColumnKind.TIME:
            cells = [None if each is None else each * MICROSECONDS for each in cells]
        arrays.append(pa.array(cells, field.type))
    return pa.record_batch(arrays, schema=schema)


def ipc_stream(columns: Sequence[Column], batches: Iterable[Columns]) -> Iterator[bytes]:
    """An Arrow IPC stream, a piece for each batch; the schema is there even without rows."""
    pa = _pyarrow()
    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), arrow_schema(columns)) as writer:
        for values in batches:
            writer.write_batch(to_arrow(columns, values))
            yield sink.take()
    yield sink.take()


class _Pieces:
    """A file that is taken away piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)

    def flush(self) -> None:
        """What is written is there."""

    def close(self) -> None:
        """The pieces are still to be taken."""
