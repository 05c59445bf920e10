"""`busway pipeline ...`: the jobs on Spark, from the command line.

A command prints what it does while it does it, on the error stream, and a summary at its end; with
`--json` the summary is one object, for programs. Every job may be killed and run again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from busway.pipeline.connection import Credentials

VARIABLE = "BUSWAY_CONNECTION_STRING"
FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130
LOOK_EVERY_S = 0.5
TOO_SLOW = "Python worker failed to connect back"
"""What Spark says when it did not wait long enough; no setting makes it wait longer."""

PIPELINE_HELP = """Capture what passes through the bus into a lake, and work with it on Spark.

\b
  busway pipeline doctor                                     what is there, and what is missing
  busway pipeline capture --entity orders --lake ./lake      every event, until Ctrl-C
  busway pipeline curate --lake ./lake                       messages, deliveries and figures
  busway pipeline report --lake ./lake                       the figures as one HTML page
  busway pipeline replay --lake ./lake --entity orders       messages once more
  busway pipeline triage --entity orders                     dead letters, and what to do with them

Commands that talk to a server take --connection-string, or the variable BUSWAY_CONNECTION_STRING.
"""

ConnectionString = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=f"What 'busway serve' has printed. Or the variable {VARIABLE}, which other users of "
        "this machine do not see.",
    ),
]
HttpEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where the server serves HTTP, if not on the port of the connection string.",
    ),
]
LakeFolder = Annotated[str, typer.Option("--lake", metavar="DIR", help="The lake's folder.")]
Master = Annotated[
    str,
    typer.Option(
        metavar="URL", help="Spark's master: local[*,4], spark://host:7077, ...", show_default=False
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")]


def add_to(app: typer.Typer, command: type[Any], group: type[Any]) -> None:
    from busway.pipeline.commands_migrate import COMMANDS as MIGRATING
    from busway.pipeline.commands_replay import COMMANDS as SENDING

    pipeline = typer.Typer(cls=group, help=PIPELINE_HELP, no_args_is_help=True)
    for name, function in (COMMANDS | SENDING | MIGRATING).items():
        pipeline.command(name, cls=command, help=function.__doc__)(function)
    app.add_typer(pipeline, name="pipeline", rich_help_panel=None)


# --- Commands ------------------------------------------------------------------------------------


def capture(
    lake: LakeFolder,
    entity: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="A queue or topic, or topic/Subscriptions/name; may be repeated.",
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Only what is there now; otherwise until Ctrl-C.")
    ] = False,
    batch_events: Annotated[
        str, typer.Option(metavar="N", help="At most so many events in a batch.  [default: 200000]")
    ] = "200000",
    connection_string: ConnectionString = None,
    http_endpoint: HttpEndpoint = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Copy the journal of entities into the table 'events' of a lake, each event once.

    \b
    Capture is switched on where it is off, and it says from when on it captures. What the lake has
    is not copied again, whatever was killed in between.
    """
    from busway.pipeline.capture import Capture, Captured, CaptureSettings, switch_on
    from busway.pipeline.lake import Lake

    credentials = _credentials(connection_string, http_endpoint)
    events = _number("--batch-events", batch_events, 1, 100_000_000)
    with _kind_errors():  # before Spark, which takes its time
        switched = {name: switch_on(credentials, name) for name in entity}
    for name, (heads, was_off) in switched.items():
        _say(f"{name}: captured {'from now on' if was_off else f'since {heads.since}'}")
    with _spark("capture", master, conf) as spark:
        options = {} if http_endpoint is None else {"httpEndpoint": http_endpoint}
        total: dict[str, Captured] = {}

        def told(captured: Captured) -> None:
            total[captured.entity] = captured
            _say(f"{captured.entity}: {captured.rows:,} events in {captured.batches:,} batches")

        running = []
        for name, (heads, _) in switched.items():
            settings = CaptureSettings(name, events_per_trigger=events)
            job = Capture(spark, Lake(lake), credentials, settings, options, told)
            running.append((job, heads, job.begin(heads, once=once)))
        if not _finished([query for _, _, query in running]):
            _say("stopping; what was captured is kept, and the next run goes on from there")
            for _, _, query in running:
                query.stop()
        for job, heads, _ in running:
            job.release(heads)
            total.setdefault(job.captured.entity, job.captured)
        summary = {name: asdict(captured) for name, captured in total.items()}
        lines = [
            f"{name}: {each.rows:,} events in {each.batches:,} batches"
            for name, each in total.items()
        ]
        _summary({"lake": str(lake), "entities": summary}, lines, as_json)


def _finished(queries: Sequence[StreamingQuery]) -> bool:
    """Wait until they have all ended, or one has failed; False if a signal came before that."""
    with _undisturbed() as asked_to_end:
        while True:
            active = [query for query in queries if query.isActive]
            for query in queries:
                if (problem := query.exception()) is not None:
                    for other in active:
                        other.stop()
                    raise problem
            if not active or asked_to_end:
                return not active
            time.sleep(LOOK_EVERY_S)


def curate(
    lake: LakeFolder, master: Master = "local[*,4]", conf: Conf = None, as_json: Json = False
) -> None:
    """Make the tables 'messages', 'deliveries' and 'dead_letters', and the figures, from 'events'.

    \b
    Only what is new is read. It can run beside a capture, and be killed and run again.
    """
    from busway.pipeline.curate import captured
    from busway.pipeline.curate import curate as run
    from busway.pipeline.lake import Lake

    with _kind_errors():  # before Spark, which takes its time
        captured(Lake(lake))
    with _spark("curate", master, conf) as spark:
        curated = run(spark, Lake(lake), lambda name, rows: _say(f"{name}: {rows:,} rows written"))
    lines = [f"{name}: {rows:,} rows" for name, rows in curated.rows.items()]
    _summary(asdict(curated), lines, as_json)


def report(
    lake: LakeFolder,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page.  [default: LAKE/report.html]")
    ] = None,
    entity: Annotated[str | None, typer.Option(metavar="NAME", help="Only this one.")] = None,
    no_curate: Annotated[
        bool, typer.Option("--no-curate", help="Show the figures as they are; needs no Spark.")
    ] = False,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Write the figures of a lake as one HTML page with charts."""
    from datetime import UTC, datetime

    from busway.pipeline import report as page
    from busway.pipeline.curate import curate as run
    from busway.pipeline.lake import Lake

    there = Lake(lake)
    if not no_curate:
        with _spark("report", master, conf) as spark:
            run(spark, there, lambda name, rows: _say(f"{name}: {rows:,} rows written"))
    figures = page.read(there, entity)
    file = Path(out) if out else Path(there.folder) / "report.html"
    file.write_text(page.page(figures, datetime.now(UTC), str(lake)), encoding="utf-8")
    _summary({"page": str(file)}, [f"The report is in {file}"], as_json)


def export(
    lake: LakeFolder,
    out: Annotated[str, typer.Option(metavar="DIR", help="A folder for the files; made new.")],
    table: Annotated[str, typer.Option(metavar="NAME", help="A table.")] = "messages",
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only rows that this is true for.")
    ] = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Write a table of a lake as plain Parquet files."""
    from busway.pipeline.export import export as run
    from busway.pipeline.lake import Lake

    with _spark("export", master, conf) as spark:
        done = run(spark, Lake(lake), table, Path(out), where)
    _summary(asdict(done), [f"{done.rows:,} rows of {table} are in {done.folder}"], as_json)


def compact(
    lake: LakeFolder,
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A table; all of them without it.")
    ] = None,
    vacuum_hours: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Remove files that no version of the last N hours has.  [default: 168]",
        ),
    ] = "168",
    as_json: Json = False,
) -> None:
    """Join small files into large ones, and remove what no table needs any more.

    \b
    It can run beside a capture. Needs no Spark.
    """
    from busway.pipeline.lake import Lake
    from busway.pipeline.tables import BY_NAME

    # Files of a batch that is being written belong to no version yet: too young to be removed.
    hours = _number("--vacuum-hours", vacuum_hours, 1, 100_000)
    for name in table or ():
        if name not in BY_NAME:
            _refuse(f"There is no table '{name}'. There are: {', '.join(BY_NAME)}.")
    done = {}
    for name in table or BY_NAME:
        there = Lake(lake).table(BY_NAME[name].layout())
        if there.exists():
            with _kind_errors():
                metrics = there.compact()
                removed = there.vacuum(hours)
            done[name] = {
                "joined": metrics["numFilesRemoved"],
                "into": metrics["numFilesAdded"],
                "removed": len(removed),
            }
            _say(f"{name}: {done[name]['joined']} files became {done[name]['into']}")
    lines = [
        f"{name}: {each['joined']} files became {each['into']}, {each['removed']} were removed"
        for name, each in done.items()
    ]
    _summary(done, lines or [f"There is no lake in {lake}."], as_json)


def tables(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="One of them, with its columns.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what the tables of a lake are, and what each column means."""
    from busway.pipeline.tables import ALL, BY_NAME

    if table is None:
        known = {each.name: {"level": each.level, "meaning": each.meaning} for each in ALL}
        lines = [f"{each.name:<20}{each.level:<8}{each.meaning}" for each in ALL]
        _summary(known, lines, as_json)
        return
    if table not in BY_NAME:
        _refuse(f"There is no table '{table}'. There are: {', '.join(BY_NAME)}.")
    chosen = BY_NAME[table]
    columns = {
        column.name: {"type": str(field.type), "meaning": column.meaning}
        for column, field in zip(chosen.columns, chosen.layout().schema, strict=True)
    }
    lines = [f"{name:<28}{each['type']:<22}{each['meaning']}" for name, each in columns.items()]
    _summary(columns, [chosen.meaning, "", *lines], as_json)


def doctor(as_json: Json = False) -> None:
    """Say what the pipeline needs, what of it is there, and how to get the rest."""
    from busway.pipeline.doctor import examine

    findings = examine(os.environ)
    lines = [
        f"{'ok' if each.well else 'MISSING' if each.needed else '-':<9}{each.what:<11}{each.told}"
        for each in findings
    ]
    _summary({each.what: asdict(each) for each in findings}, lines, as_json)
    if any(each.needed and not each.well for each in findings):
        sys.exit(FAILED)


COMMANDS: dict[str, Callable[..., None]] = {
    "capture": capture,
    "curate": curate,
    "report": report,
    "export": export,
    "compact": compact,
    "tables": tables,
    "doctor": doctor,
}

# --- What they share -----------------------------------------------------------------------------


def _credentials(connection_string: str | None, http_endpoint: str | None) -> Credentials:
    from busway.pipeline import connection

    if connection_string is not None:
        # Spark's processes are started from this one and look for it there.
        os.environ[VARIABLE] = connection_string
    try:
        return connection.read(connection.found(None), http_endpoint)
    except connection.ConnectionStringError as error:
        _refuse(str(error))


@contextmanager
def _spark(job: str, master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """A session for the length of a job; its known errors become one sentence and a status."""
    settings = {}
    for each in conf or ():
        name, equals, value = each.partition("=")
        if not equals:
            _refuse(f"--conf is '{each}', and must be like spark.executor.memory=2g.")
        settings[name.strip()] = value.strip()
    from busway.pipeline.java import JavaError
    from busway.pipeline.session import open_session

    try:
        _say("starting Spark")
        with _undisturbed() as asked_to_end:
            session = open_session(f"busway {job}", master, settings)
    except JavaError as error:
        _fail(str(error))
    except ImportError as error:
        _fail(f"{error.name} is not installed. Run: pip install 'busway[pipeline]'.")
    try:
        if asked_to_end:
            raise KeyboardInterrupt
        with _kind_errors():
            yield session
    except KeyboardInterrupt:
        _say("stopped; run it again to go on")
        sys.exit(INTERRUPTED)
    finally:
        session.stop()


@contextmanager
def _undisturbed() -> Iterator[list[int]]:
    """Signals wait. A start of Spark that is cut off leaves its JVM behind, and a call to the JVM
    that is cut off prints pages.

    What came meanwhile is in the list. Afterwards both signals end a job as Ctrl-C does.
    """
    asked: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    for each in signals:
        signal.signal(each, lambda number, frame: asked.append(number))
    try:
        yield asked
    finally:
        for each in signals:
            signal.signal(each, signal.default_int_handler)


@contextmanager
def _kind_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        told = known(error)
        if told is None:
            raise
        _fail(told)


def known(error: BaseException) -> str | None:
    """The sentence of an error that a user can do something about; None for all others.

    Spark wraps what its Python processes raise into texts; the last line that looks like one of
    ours is the reason.
    """
    from busway.pipeline.capture import CheckpointError
    from busway.pipeline.connection import ConnectionStringError
    from busway.pipeline.curate import NothingCapturedError
    from busway.pipeline.export import ExportError
    from busway.pipeline.journal import JournalError
    from busway.pipeline.lake import ConflictError
    from busway.pipeline.options import OptionError

    ours = (
        CheckpointError,
        ConflictError,
        ConnectionStringError,
        NothingCapturedError,
        ExportError,
        JournalError,
        OptionError,
    )
    if isinstance(error, ours):
        return str(error)
    if TOO_SLOW in str(error):
        return (
            "Spark gives its Python processes ten seconds to start, and this machine was too busy "
            "for that. Nothing is lost; run it again."
        )
    for line in reversed(str(error).splitlines()):
        module, colon, text = line.strip().partition(": ")
        if colon and module.startswith("busway.") and " " not in module:
            return text
    return None


def _number(option: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        _refuse(f"{option} is '{text}', and must be a whole number from {least} to {most}.")
    return int(text)


_started = time.monotonic()


def _say(text: str) -> None:
    print(f"{time.monotonic() - _started:7.1f} s  {text}", file=sys.stderr, flush=True)


def _summary(values: object, lines: Sequence[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(values, default=str))
    else:
        for line in lines:
            print(line)


def _refuse(text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def _fail(text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(FAILED)
