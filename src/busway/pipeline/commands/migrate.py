"""`busway pipeline migrate`: a queue or topic becomes partitioned, or conventional again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.pipeline.commands import console
from busway.pipeline.commands.console import Conf, ConnectionString, HttpEndpoint, Json, Master

if TYPE_CHECKING:
    from busway.pipeline.jobs.migrate import Migrated

SHOWN = 20


def migrate(
    entity: Annotated[str, typer.Option(metavar="NAME", help="The queue or topic.")],
    partitioned: Annotated[
        bool | None,
        typer.Option("--partitioned/--conventional", help="What it is to be.", show_default=False),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="Keep the old and new numbers of all messages there, as Parquet."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is there, and what would be done.")
    ] = False,
    call_off: Annotated[
        bool,
        typer.Option("--call-off", help="Bring back what has been moved, and let it serve again."),
    ] = False,
    connection_string: ConnectionString = None,
    http_endpoint: HttpEndpoint = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Make a queue or topic partitioned or conventional, with all it holds, and verify that.

    \b
      busway pipeline migrate --entity orders --partitioned --dry-run
      busway pipeline migrate --entity orders --partitioned

    \b
    It is stopped, with its subscriptions if it is a topic; its messages are moved one by one in
    order; Spark compares the journals of both sides; and only then does the new one take the name.
    A run that was killed is run again and goes on. With --call-off it comes back instead.
    """
    from busway.pipeline.jobs.migrate import Migrate
    from busway.pipeline.wire.journal import JournalError

    if call_off and (partitioned is not None or dry_run):
        console.refuse("--call-off goes with --entity alone.")
    if partitioned is None and not call_off:
        console.refuse("Say what it is to be: --partitioned or --conventional.")
    credentials = console.credentials_of(connection_string, http_endpoint)
    options = {} if http_endpoint is None else {"httpEndpoint": http_endpoint}
    asked = Migrate(
        credentials, entity, partitioned=bool(partitioned), spark=_nobody, say=console.say
    )
    try:
        planned = asked.call_off() if call_off else asked.plan()
        if not (call_off or dry_run):
            asked.check(planned)  # before Spark, which takes its time
    except JournalError as error:
        console.fail(str(error))
    if dry_run or planned.outcome != "planned":
        console.summarise(asdict(planned), _lines(planned), as_json)
        return
    # Spark is there before anything is stopped, so that it is not stopped for longer than need be.
    with console.spark_session("migrate", master, conf) as spark:
        job = Migrate(
            credentials,
            entity,
            partitioned=bool(partitioned),
            spark=lambda: spark,
            source_options=options,
            lake=lake,
            say=console.say,
        )
        migrated = job.run(told=True)
    console.summarise(asdict(migrated), _lines(migrated), as_json)


def _nobody() -> Any:
    raise AssertionError("a plan needs no Spark")


def _lines(migrated: Migrated) -> list[str]:
    kind = "partitioned" if migrated.partitioned else "conventional"
    held = ", ".join(f"{count:,} {name}" for name, count in migrated.there.items()) or "nothing"
    match migrated.outcome:
        case "already":
            return [f"'{migrated.entity}' is {kind} already."]
        case "not_migrated":
            return [f"'{migrated.entity}' is not being migrated: there is nothing to call off."]
        case "called_off":
            return [f"'{migrated.entity}' is {kind} as it was, serves again, and holds {held}."]
        case "planned":
            return [
                f"'{migrated.entity}' holds {held}.",
                *(migrated.preflight.lines() if migrated.preflight else ()),
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
        lines += [
            f"  {each['entity']}: {each['was']} -> {each['is']}"
            for each in verified.deferred[:SHOWN]
        ]
        if len(verified.deferred) > SHOWN:
            lines.append(f"  and {len(verified.deferred) - SHOWN:,} more: --json has them all")
    if migrated.numbers is not None:
        lines.append(f"All numbers are in {migrated.numbers}")
    return lines


COMMANDS: dict[str, Callable[..., None]] = {"migrate": migrate}
