"""`busway pipeline migrate`: a queue becomes partitioned, or conventional again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.pipeline import console
from busway.pipeline.console import Conf, ConnectionString, HttpEndpoint, Json, Master

if TYPE_CHECKING:
    from busway.pipeline.migrate import Migrated

SHOWN = 20


def migrate(
    entity: Annotated[str, typer.Option(metavar="NAME", help="The queue.")],
    partitioned: Annotated[
        bool | None,
        typer.Option("--partitioned/--conventional", help="What it is to be.", show_default=False),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Keep the old and new numbers of all messages there, as Parquet."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is there, and what would be done.")
    ] = False,
    connection_string: ConnectionString = None,
    http_endpoint: HttpEndpoint = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Make a queue partitioned or conventional, with all that it holds, and verify that.

    \b
    The queue is stopped, its messages are moved one by one in order, Spark compares the journals of
    both sides, and only then does the new queue take the name. A run that was killed is run again
    and goes on. Topics cannot be migrated.
    """
    from busway.pipeline.journal import JournalError
    from busway.pipeline.migrate import Migrate

    if partitioned is None:
        console.refuse("Say what the queue is to be: --partitioned or --conventional.")
    credentials = console.credentials_of(connection_string, http_endpoint)
    options = {} if http_endpoint is None else {"httpEndpoint": http_endpoint}
    try:
        planned = Migrate(
            credentials, entity, partitioned=partitioned, spark=_nobody, say=console.say
        ).plan()
    except JournalError as error:
        console.fail(str(error))
    if dry_run or planned.outcome == "already":
        console.summarise(asdict(planned), _lines(planned), as_json)
        return
    # Spark is there before the queue is stopped, so that it is not stopped for longer than need be.
    with console.spark_session("migrate", master, conf) as spark:
        job = Migrate(
            credentials,
            entity,
            partitioned=partitioned,
            spark=lambda: spark,
            source_options=options,
            lake=lake,
            say=console.say,
        )
        migrated = job.run()
    console.summarise(asdict(migrated), _lines(migrated), as_json)


def _nobody() -> Any:
    raise AssertionError("a plan needs no Spark")


def _lines(migrated: Migrated) -> list[str]:
    kind = "partitioned" if migrated.partitioned else "conventional"
    held = ", ".join(f"{count:,} {name}" for name, count in migrated.there.items()) or "nothing"
    match migrated.outcome:
        case "already":
            return [f"'{migrated.entity}' is {kind} already."]
        case "planned":
            return [
                f"'{migrated.entity}' holds {held}.",
                f"It would be stopped, moved, verified, and be {kind} then. Nothing was changed.",
            ]
    verified = migrated.verified
    assert verified is not None
    lines = [
        f"'{migrated.entity}' is {kind} now, and holds {held}.",
        f"{verified.messages:,} messages in {verified.sessions:,} sessions are what they were, and "
        "in the same order.",
    ]
    if verified.deferred:
        lines.append("Deferred messages have new numbers:")
        lines += [f"  {each['was']} -> {each['is']}" for each in verified.deferred[:SHOWN]]
        if len(verified.deferred) > SHOWN:
            lines.append(f"  and {len(verified.deferred) - SHOWN:,} more: --json has them all")
    if migrated.numbers is not None:
        lines.append(f"All numbers are in {migrated.numbers}")
    return lines


COMMANDS: dict[str, Callable[..., None]] = {"migrate": migrate}
