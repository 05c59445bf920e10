"""From columns to Arrow: the form in which journals leave the broker.

pyarrow is a dependency of those who read journals only, and is imported when it is needed (D-33).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from busway.broker.journal_columns import Columns
from busway.broker.journal_properties import TextMaps
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
            "in a clone of Busway, run 'make pipeline'; else pip install '/its/path[pipeline]'."
        ) from error
    return pyarrow


def arrow_schema(columns: Sequence[Column]) -> Any:
    """A `pyarrow.Schema`. Every column may be null: new ones are added to old data."""
    return _schema(tuple(columns))


@lru_cache(maxsize=64)
def _schema(columns: tuple[Column, ...]) -> Any:
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
    arrays = [
        _array(pa, column.kind, field.type, values[column.name])
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def _array(pa: Any, kind: ColumnKind, arrow_type: Any, cells: Sequence[Any]) -> Any:
    if isinstance(cells, TextMaps):
        return _maps(pa, arrow_type, cells)
    if len(cells) and cells[0] is cells[-1] and cells.count(cells[0]) == len(cells):
        # Half of the columns, in most journals: nothing, or the same word in every row.
        if cells[0] is None:
            return pa.nulls(len(cells), arrow_type)
        if kind is not ColumnKind.TIME:
            return pa.repeat(pa.scalar(cells[0], arrow_type), len(cells))
    if kind is ColumnKind.TIME:
        import pyarrow.compute as pc

        return pc.multiply(pa.array(cells, pa.int64()), MICROSECONDS).view(arrow_type)
    return pa.array(cells, arrow_type)


def _maps(pa: Any, arrow_type: Any, cells: TextMaps) -> Any:
    # A start that is null makes a map that is null; the last one only says where all end.
    starts = pa.array([*cells.starts, len(cells.names)], pa.int32())
    names, texts = pa.array(cells.names, pa.string()), pa.array(cells.texts, pa.string())
    return pa.MapArray.from_arrays(starts, names, texts, arrow_type)
