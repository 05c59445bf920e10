"""The columns of a journal as Arrow and Spark know them; the table itself is `model/journal.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from busway.model.journal import BY_NAME, ColumnKind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    types = {
        ColumnKind.TEXT: pa.string(),
        ColumnKind.COUNT: pa.int64(),
        ColumnKind.SMALL: pa.int32(),
        ColumnKind.TIME: pa.timestamp("us", "UTC"),
        ColumnKind.BINARY: pa.binary(),
        ColumnKind.TEXT_MAP: pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[BY_NAME[name].kind]) for name in columns])


def spark_schema(columns: Sequence[str]) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(columns))
