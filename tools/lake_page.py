"""Writes docs/reference/lake.md from the tables themselves (`busway.pipeline.lake.tables`).

    python -m tools.lake_page

A test fails when the page is not what this writes.
"""

from __future__ import annotations

from pathlib import Path

from busway.pipeline.lake.table import LakeTable
from busway.pipeline.lake.tables import ALL, STATES

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "lake.md"
COMMAND = "python -m tools.lake_page"

BEGINNING = """# The lake

A lake is a folder, or a prefix in an object store. Each table is a folder in it, in the format of [Delta](https://delta.io):
Parquet files, and a log that says which of them belong to the table. Anything that reads Delta
reads it: Spark, DuckDB, Polars, pandas (`deltalake`). Read it through the log; the folder also
has files that belong to no version, or not any more.

```
lake/events/            what the journals told: one row per event
lake/messages/ ...      what `curate` made of it
lake/replay_plans/ ...  what `replay` sends, and how far it has come
lake/_pending/          batches that are being written: whose files they are if it is cut off
```

`busway pipeline tables` says what stands here, and `busway pipeline tables NAME` has the columns
of one, for programs with `--json`. Layouts only gain columns. A table that is older gets them
with its next batch, and its older rows have nothing in them.

**What is tested**: folders of a file system, one machine, `local[...]`, a standalone cluster
whose workers share the file system, and lakes in an object store on a local S3 server. See
[lakes in object stores](../how-to/lakes-in-object-stores.md). Data files go straight to names of
their own and are never renamed, and commits go through `deltalake`.

**Each event once**: the files of a batch and how far the capture has come (a mark for each
partition of each incarnation of an entity: Delta's `txn` with the name `capture:EPOCH:PARTITION`
and the next offset as its version) are one commit of the log. There is no checkpoint beside it.
A capture that was killed goes on from the marks. Two captures of one entity into one lake cannot
both commit a range: one of them finds that the marks have moved, and goes on after them. A row is
identified by `entity`, `subscription`, `epoch`, `partition` and `journal_offset`.

**What is left of a batch that was cut off** is removed by the next start of a capture, by the
names of its files; what a single task has left behind, by the next `compact` after a week.

**Compaction** (`busway pipeline compact`) joins small files, and removes files that no version of
the last `--vacuum-hours` (a week) has. It can run beside a capture. Readers that look at versions
older than that no longer find their files.
"""


def page() -> str:
    parts = [BEGINNING, *(_section(table) for table in ALL)]
    states = [f"| `{name}` | {meaning} |" for name, meaning in STATES.items()]
    parts.append(
        "\n".join(["## What `messages.state` says", "", "| state | |", "|---|---|", *states])
    )
    return "\n".join(parts).rstrip() + "\n"


def _section(table: LakeTable) -> str:
    by = f" In folders by `{'`, `'.join(table.partition_by)}`." if table.partition_by else ""
    lines = [
        f"## {table.name}",
        "",
        f"{table.level.capitalize()}. {table.meaning}{by}",
        "",
        "| column | type | is |",
        "|---|---|---|",
    ]
    types = table.layout().schema
    lines += [
        f"| `{column.name}` | {_type(str(field.type))} | {column.meaning} |"
        for column, field in zip(table.columns, types, strict=True)
    ]
    return "\n".join(lines) + "\n"


def _type(name: str) -> str:
    """As SQL calls it."""
    names = {
        "string": "string",
        "int64": "bigint",
        "int32": "int",
        "double": "double",
        "bool": "boolean",
        "binary": "binary",
        "date32[day]": "date",
        "timestamp[us, tz=UTC]": "timestamp",
        "map<string, string>": "map<string, string>",
    }
    return names[name]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
