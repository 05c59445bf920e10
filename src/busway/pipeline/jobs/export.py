"""Export: a table of the lake as plain Parquet files, for tools that know nothing of Delta.

Written beside the place first and moved there as a whole, so that who looks sees all or nothing.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from busway.pipeline.lake.lake import Lake, Table
from busway.pipeline.lake.tables import BY_NAME, table_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ExportError(Exception):
    """What cannot be exported, or where to."""


@dataclass(frozen=True, slots=True)
class Exported:
    table: str
    version: int
    rows: int
    folder: str


def check(lake: Lake, name: str, folder: Path) -> Table:
    """The table, if it can be exported there. Raises `ExportError`."""
    chosen = table_named(name)
    if chosen is None:
        raise ExportError(f"There is no table '{name}'. There are: {', '.join(BY_NAME)}.")
    table = lake.table(chosen.layout())
    if not table.exists():
        raise ExportError(
            f"The lake {lake.folder} has no table '{name}' yet. 'busway pipeline capture' makes "
            "'events', and 'busway pipeline curate' makes the others of that."
        )
    if folder.exists() and any(folder.iterdir()):
        raise ExportError(f"{folder} is there and not empty. Name another folder.")
    return table


def export(
    spark: SparkSession, lake: Lake, name: str, folder: Path, where: str | None = None
) -> Exported:
    """The rows of a table that an SQL condition is true for; all of them for None."""
    table = check(lake, name, folder)
    version = table.delta().version()
    rows = table.frame(spark, version)
    if where is not None:
        rows = rows.where(where)
    draft = folder.with_name(f".{folder.name}-{uuid4().hex}")
    try:
        rows.write.parquet(str(draft))
        count = spark.read.parquet(str(draft)).count()
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Exported(name, version, count, str(folder))
