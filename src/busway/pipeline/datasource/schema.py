"""The columns of a journal as Spark knows them; the table itself is `model/journal.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from busway.broker import journal_arrow
from busway.model.journal import columns_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """What a broker sends, and what Spark compares every batch with."""
    return journal_arrow.arrow_schema(columns_named(list(columns)))


def spark_schema(columns: Sequence[str]) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(columns))
