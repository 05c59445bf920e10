"""`busway pipeline ...`: the jobs on Spark, from the command line.

A command prints what it does while it does it, on the error stream, and a summary at its end; with
`--json` the summary is one object, for programs. Every job may be killed and run again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from busway.pipeline.commands.console import (
    FAILED,
    Conf,
    ConnectionString,
    HttpEndpoint,
    Json,
    LakeFolder,
    Master,
    credentials_of,
    kindly,
    number,
    refuse,
    say,
    spark_session,
    summarise,
)

PIPELINE_HELP = """Capture what passes through the bus into a lake, and work with it on Spark.

\b
  busway pipeline doctor                                     what is there, and what is missing
  busway pipeline capture --entity orders --lake ./lake      every event, until Ctrl-C
  busway pipeline curate --lake ./lake                       messages, deliveries and figures
  busway pipeline report --lake ./lake                       the figures as one HTML page
  busway pipeline replay --lake ./lake --entity orders       messages once more
  busway pipeline migrate --entity orders --partitioned      to partitions, with all that it holds

Commands that talk to a server take --connection-string, or the variable BUSWAY_CONNECTION_STRING.
"""


def add_to(app: typer.Typer, command: type[Any], group: type[Any]) -> None:
    from busway.pipeline.commands.capture import COMMANDS as CAPTURING
    from busway.pipeline.commands.migrate import COMMANDS as MIGRATING
    from busway.pipeline.commands.replay import COMMANDS as SENDING

    pipeline = typer.Typer(cls=group, help=PIPELINE_HELP, no_args_is_help=True)
    for name, function in (CAPTURING | COMMANDS | SENDING | MIGRATING).items():
        pipeline.command(name, cls=command, help=function.__doc__)(kindly(function))
    app.add_typer(pipeline, name="pipeline", rich_help_panel=None)


# --- Commands ------------------------------------------------------------------------------------


def curate(
    lake: LakeFolder, master: Master = "local[*,4]", conf: Conf = None, as_json: Json = False
) -> None:
    """Make the tables 'messages', 'deliveries' and 'dead_letters', and the figures, from 'events'.

    \b
      busway pipeline curate --lake ./lake

    \b
    Only what is new is read. It can run beside a capture, and be killed and run again.
    """
    from busway.pipeline.jobs.curate import captured
    from busway.pipeline.jobs.curate import curate as run
    from busway.pipeline.lake.lake import Lake

    captured(Lake(lake))  # before Spark, which takes its time
    with spark_session("curate", master, conf) as spark:
        curated = run(spark, Lake(lake), lambda name, rows: say(f"{name}: {rows:,} rows written"))
    lines = [f"{name}: {rows:,} rows" for name, rows in curated.rows.items()]
    summarise(asdict(curated), lines, as_json)


def report(
    lake: LakeFolder,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page.  [default: LAKE/report.html]")
    ] = None,
    entity: Annotated[str | None, typer.Option(metavar="NAME", help="Only this one.")] = None,
    no_curate: Annotated[
        bool, typer.Option("--no-curate", help="Show the figures as they are; needs no Spark.")
    ] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="Show it in the server's portal as well.")
    ] = False,
    connection_string: ConnectionString = None,
    http_endpoint: HttpEndpoint = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Write the figures of a lake as one HTML page with charts.

    \b
      busway pipeline report --lake ./lake                               lake/report.html
      busway pipeline report --lake ./lake --publish                     and in the portal
      busway pipeline report --lake ./lake --entity orders --out orders.html

    \b
    It curates the lake first, so that the figures are of now.
    """
    from datetime import UTC, datetime

    from busway.pipeline.figures import report as page
    from busway.pipeline.jobs.curate import captured
    from busway.pipeline.jobs.curate import curate as run
    from busway.pipeline.lake.lake import Lake
    from busway.remote.client import RemoteServer

    server = RemoteServer(credentials_of(connection_string, http_endpoint)) if publish else None
    there = Lake(lake)
    captured(there)
    if not no_curate:
        with spark_session("report", master, conf) as spark:
            run(spark, there, lambda name, rows: say(f"{name}: {rows:,} rows written"))
    figures = page.read(there, entity)
    text = page.page(figures, datetime.now(UTC), there.folder)
    if out:
        Path(out).write_text(text, encoding="utf-8")
    else:
        there.place.write_bytes("report.html", text.encode())
    file = out or f"{there.folder}/report.html"
    summary, lines = {"page": file}, [f"The report is in {file}"]
    if server is not None:
        server.put("/$busway/report", {"page": text})
        summary["portal"] = f"http://{server.address}/portal/#/captures"
        lines.append(f"and in the portal: {summary['portal']}")
    summarise(summary, lines, as_json)


def export(
    lake: LakeFolder,
    out: Annotated[str, typer.Option(metavar="DIR", help="A folder for the files; made new.")],
    table: Annotated[
        str, typer.Option(metavar="NAME", help="A table; 'busway pipeline tables' names them.")
    ] = "messages",
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only rows that this is true for.")
    ] = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Write a table of a lake as plain Parquet files, for tools that know nothing of Delta.

    \b
      busway pipeline export --lake ./lake --out ./messages
      busway pipeline export --lake ./lake --where "state = 'dead_lettered'" --out ./dead

    \b
    All rows come from one version of the table. --where is a condition in SQL on its columns.
    """
    from busway.pipeline.jobs.export import check
    from busway.pipeline.jobs.export import export as run
    from busway.pipeline.lake.lake import Lake

    check(Lake(lake), table, Path(out))
    with spark_session("export", master, conf) as spark:
        done = run(spark, Lake(lake), table, Path(out), where)
    summarise(asdict(done), [f"{done.rows:,} rows of {table} are in {done.folder}"], as_json)


def compact(
    lake: LakeFolder,
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A table; all of them without it.")
    ] = None,
    vacuum_hours: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Remove files that no version of the last N hours has.",
        ),
    ] = "168",
    as_json: Json = False,
) -> None:
    """Join small files into large ones, and remove what no table needs any more.

    \b
      busway pipeline compact --lake ./lake
      busway pipeline compact --lake ./lake --table events --vacuum-hours 24

    \b
    It can run beside a capture. Needs no Spark. Who reads a version older than the hours of
    --vacuum-hours no longer finds its files.
    """
    from busway.pipeline.jobs.curate import captured
    from busway.pipeline.lake.lake import Lake
    from busway.pipeline.lake.tables import BY_NAME

    # Files of a batch that is being written belong to no version yet: too young to be removed.
    hours = number("--vacuum-hours", vacuum_hours, 1, 100_000)
    for name in table or ():
        if name not in BY_NAME:
            refuse(f"There is no table '{name}'. There are: {', '.join(BY_NAME)}.")
    captured(Lake(lake))
    done = {}
    for name in table or BY_NAME:
        there = Lake(lake).table(BY_NAME[name].layout())
        if there.exists():
            metrics = there.compact()
            removed = there.vacuum(hours)
            done[name] = {
                "joined": metrics["numFilesRemoved"],
                "into": metrics["numFilesAdded"],
                "removed": len(removed),
            }
            say(f"{name}: {done[name]['joined']} files became {done[name]['into']}")
    lines = [
        f"{name}: {each['joined']} files became {each['into']}, {each['removed']} were removed"
        for name, each in done.items()
    ]
    summarise(done, lines, as_json)


def tables(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="One of them, with its columns.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what the tables of a lake are, and what each column means.

    \b
      busway pipeline tables
      busway pipeline tables messages
    """
    from busway.pipeline.lake.tables import ALL, BY_NAME

    if table is None:
        known = {each.name: {"level": each.level, "meaning": each.meaning} for each in ALL}
        lines = [f"{each.name:<20}{each.level:<8}{each.meaning}" for each in ALL]
        summarise(known, lines, as_json)
        return
    if table not in BY_NAME:
        refuse(f"There is no table '{table}'. There are: {', '.join(BY_NAME)}.")
    chosen = BY_NAME[table]
    columns = {
        column.name: {"type": str(field.type), "meaning": column.meaning}
        for column, field in zip(chosen.columns, chosen.layout().schema, strict=True)
    }
    lines = [f"{name:<28}{each['type']:<22}{each['meaning']}" for name, each in columns.items()]
    summarise(columns, [chosen.meaning, "", *lines], as_json)


def doctor(as_json: Json = False) -> None:
    """Say what the pipeline needs, what of it is there, and how to get the rest.

    \b
      busway pipeline doctor

    \b
    Its status is 1 if a job could not run.
    """
    from busway.pipeline.spark.doctor import examine

    findings = examine(os.environ)
    lines = [
        f"{'ok' if each.well else 'MISSING' if each.needed else '-':<9}{each.what:<11}{each.told}"
        for each in findings
    ]
    summarise({each.what: asdict(each) for each in findings}, lines, as_json)
    if any(each.needed and not each.well for each in findings):
        sys.exit(FAILED)


COMMANDS: dict[str, Callable[..., None]] = {
    "curate": curate,
    "report": report,
    "export": export,
    "compact": compact,
    "tables": tables,
    "doctor": doctor,
}
