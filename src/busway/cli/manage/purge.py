"""`busway purge`: remove messages of an entity, counted first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.manage import showing
from busway.cli.manage.places import DeadLetter, Entity, TransferDeadLetter, address_of
from busway.cli.manage.showing import Json, Yes
from busway.cli.options import Command
from busway.remote.console import FAILED, ConnectionString, credentials_at, ended_well

if TYPE_CHECKING:
    from busway.remote.purging import Purged

HELP = """Remove messages. They are counted first, and you are asked.

\b
  busway purge orders                     active messages
  busway purge orders --dead-letter
  busway purge orders --scheduled --deferred
  busway purge orders --everything --yes  active, scheduled and deferred ones

What others have locked stays, and is told. Scheduled messages of a topic are removed by its own
name. It needs the right to listen, for scheduled ones also that to send, and works against Azure
Service Bus as well.
"""


def add_to(app: typer.Typer) -> None:
    app.command("purge", cls=Command, help=HELP)(purge)


def purge(
    entity: Entity,
    dead_letter: DeadLetter = False,
    transfer_dead_letter: TransferDeadLetter = False,
    scheduled: Annotated[bool, typer.Option("--scheduled", help="Scheduled ones.")] = False,
    deferred: Annotated[bool, typer.Option("--deferred", help="Deferred ones.")] = False,
    everything: Annotated[
        bool, typer.Option("--everything", help="Active, scheduled and deferred ones.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.pipeline.commands.progress import progress
    from busway.remote.purging import Purge

    address = address_of(entity, dead_letter, transfer_dead_letter)
    states = {"scheduled"} if scheduled else set()
    states |= {"deferred"} if deferred else set()
    states = {"active", "scheduled", "deferred"} if everything else states or {"active"}
    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        work = Purge(address, credentials, states)
        counts = work.count()
        total = sum(counts.values())
        told = ", ".join(f"{count:,} {state}" for state, count in counts.items())
        where = f"'{address}' at {credentials.endpoint.host}:{credentials.endpoint.port}"
        if total:
            showing.confirm(f"Remove {told} messages of {where}?", yes)
            with progress("removed", total) as bar:
                done = work.remove(lambda count: bar(min(count, total)))
        else:
            done = work.nothing()
    _tell(address, done, as_json)
    if done.left:
        sys.exit(FAILED)


def _tell(address: str, done: Purged, as_json: bool) -> None:
    if as_json:
        showing.tell({"entity": address, "removed": done.removed, "left": done.left})
        return
    total = sum(done.removed.values())
    print(f"removed {total:,} {'message' if total == 1 else 'messages'} of {address}")
    if done.left:
        print(
            f"busway: {done.left:,} are still there: others have locked them, or their session. "
            "Run it again when those are done.",
            file=sys.stderr,
        )
