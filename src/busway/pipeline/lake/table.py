"""What a table of a lake is: its columns, and what each of them means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from busway.model.journal import ColumnKind
from busway.pipeline.lake.lake import TableLayout

if TYPE_CHECKING:
    import pyarrow as pa

TEXT, COUNT, SMALL, TIME, BINARY, TEXT_MAP = (
    ColumnKind.TEXT,
    ColumnKind.COUNT,
    ColumnKind.SMALL,
    ColumnKind.TIME,
    ColumnKind.BINARY,
    ColumnKind.TEXT_MAP,
)
DATE, REAL, FLAG = "date32", "float64", "bool"
"""What journals do not have and figures do."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    name: str
    kind: ColumnKind | str
    meaning: str


@dataclass(frozen=True, slots=True)
class LakeTable:
    name: str
    level: str
    """bronze, silver, gold, or jobs."""
    meaning: str
    columns: tuple[LakeColumn, ...]
    partition_by: tuple[str, ...] = ()

    def layout(self) -> TableLayout:
        import pyarrow as pa

        types: dict[ColumnKind | str, pa.DataType] = {
            TEXT: pa.string(),
            COUNT: pa.int64(),
            SMALL: pa.int32(),
            TIME: pa.timestamp("us", "UTC"),
            BINARY: pa.binary(),
            TEXT_MAP: pa.map_(pa.string(), pa.string()),
            DATE: pa.date32(),
            REAL: pa.float64(),
            FLAG: pa.bool_(),
        }
        schema = pa.schema([(column.name, types[column.kind]) for column in self.columns])
        return TableLayout(self.name, schema, self.partition_by, self.meaning)


def lake_table(
    name: str,
    level: str,
    meaning: str,
    *columns: tuple[str, ColumnKind | str, str],
    by: tuple[str, ...] = (),
) -> LakeTable:
    return LakeTable(name, level, meaning, tuple(LakeColumn(*each) for each in columns), by)
