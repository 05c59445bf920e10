"""`busway dead-letters list|resubmit`: which messages could not be handled, why, and once more.

A copy is sent and the dead letter removed in one transaction (`remote/triage.py`), so that each is
there once, whatever is killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.cli.manage import showing
from busway.cli.manage.completing import entity_names
from busway.cli.manage.showing import Json
from busway.cli.options import Command, Group
from busway.remote.console import (
    FAILED,
    ConnectionString,
    credentials_at,
    ended_well,
    number,
    refuse,
)

if TYPE_CHECKING:
    from busway.remote.triage import Reasons, Resubmitted

HELP = """Show dead letters by their reasons, and send those again that deserve it, each once.

\b
  busway dead-letters list orders
  busway dead-letters list orders --reason Unreadable --sample 5
  busway dead-letters resubmit orders --reason MaxDeliveryCountExceeded
  busway dead-letters resubmit orders --where "sys.Label = 'paid' AND amount > 5"
  busway dead-letters resubmit news/Subscriptions/all --all --to news-again

It works against Azure Service Bus as well; resubmitting needs transactions.
"""
NUMBER_MAX = (1 << 63) - 1

Entity = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="Whose dead letters: a queue or topic/Subscriptions/name.",
        autocompletion=entity_names,
    ),
]
Reason = Annotated[
    list[str] | None,
    typer.Option("--reason", metavar="TEXT", help="Only with this reason; may be repeated."),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="Only those that a filter of subscriptions would take: \"sys.Label = 'paid'\".",
    ),
]


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(cls=Group, help=HELP, no_args_is_help=True)
    group.command("list", cls=Command, help=list_letters.__doc__)(list_letters)
    group.command("resubmit", cls=Command, help=resubmit.__doc__)(resubmit)
    app.add_typer(group, name="dead-letters")


def list_letters(
    entity: Entity,
    reason: Reason = None,
    where: Where = None,
    sample: Annotated[
        str, typer.Option(metavar="N", help="Dead letters of each reason that are shown.")
    ] = "1",
    lake: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A lake: count those that have left since, too."),
    ] = None,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Show dead letters by their reasons. Nothing is locked, and nothing counts as delivered."""
    from busway.remote import triage

    samples = number("--sample", sample, 0, 1_000)
    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        letters = triage.look(entity, credentials)
        chosen = triage.choose(letters, reason or (), where)
        found = triage.told(entity, letters, chosen, samples)
        history = None if lake is None else _history(lake, entity)
    if as_json:
        showing.tell(asdict(found) | ({} if history is None else {"history": history}))
        return
    for line in _lines(found, history or {}):
        print(line)


def _history(lake: str, entity: str) -> dict[str, Any]:
    from busway.pipeline.commands.console import known, lake_folder
    from busway.pipeline.lake.dead_letter_history import history

    try:
        return history(lake_folder(lake) or lake, entity)
    except Exception as error:
        if (text := known(error)) is None:
            raise
        refuse(text)


def _lines(found: Reasons, history: dict[str, Any]) -> Sequence[str]:
    lines = [f"{found.dead_letters:,} dead letters in '{found.entity}'"]
    if found.chosen != found.dead_letters:
        lines.append(f"{found.chosen:,} of them are chosen")
    lines += [f"{count:>12,}  {reason}" for reason, count in found.by_reason.items()]
    if history:
        lines += ["", "all that the lake knows of"]
        lines += [
            f"{each['dead_lettered']:>12,}  {reason}, {each['still_there']:,} of them still there"
            for reason, each in history.items()
        ]
    if found.samples:
        lines += ["", "samples"]
        lines += [
            f"  {json.dumps(each, default=str, ensure_ascii=False)}" for each in found.samples
        ]
    return lines


def resubmit(
    entity: Entity,
    sequence_number: Annotated[
        list[str] | None,
        typer.Option("--sequence-number", metavar="N", help="Only this one; may be repeated."),
    ] = None,
    reason: Reason = None,
    where: Where = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A queue or topic for them.  [default: the same queue; none for a subscription]",
        ),
    ] = None,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Send dead letters again, and remove them: both in one transaction, so each is there once.

    A run that was killed is run again: it goes on with what is left. Copies are what was sent,
    without the reason; one that the target might drop as a duplicate has a new id.
    """
    from busway.remote import triage

    if not (sequence_number or reason or where or everything):
        refuse("Which ones? Say --sequence-number, --reason, --where, or --all.")
    numbers = [number("--sequence-number", each, 0, NUMBER_MAX) for each in sequence_number or ()]
    target = to or entity
    if "/subscriptions/" in target.lower():
        topic = target[: target.lower().rfind("/subscriptions/")]
        refuse(
            f"Nothing can be sent to '{target}' alone. Say where to: --to QUEUE, or --to {topic} "
            "for the topic, which gives each subscription whose rules want it a copy. Copies have "
            "the property 'busway-resubmitted-for' with this subscription's name, so that rules "
            "can tell."
        )
    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        from busway.pipeline.commands.progress import progress

        chosen = triage.choose(triage.look(entity, credentials), reason or (), where, numbers)
        if numbers and len(chosen) < len(numbers):
            there = {each.sequence_number for each in chosen}
            missing = ", ".join(str(each) for each in numbers if each not in there)
            refuse(f"'{entity}' has no dead letter with the sequence number {missing}.")
        work = triage.Triage(entity, target, credentials)
        with progress("resubmitted", len(chosen)) as bar:
            done = work.resubmit(chosen, lambda now: bar(now.moved))
    if as_json:
        showing.tell(asdict(done))
    else:
        for line in _outcome(done):
            print(line)
    if done.refused or done.locked:
        sys.exit(FAILED)


def _outcome(done: Resubmitted) -> list[str]:
    return [
        f"{done.moved:,} of {done.chosen:,} dead letters of '{done.entity}' went to "
        f"'{done.target}'",
        *([f"{done.gone:,} were not there any more"] if done.gone else []),
        *([f"{done.deferred:,} are deferred, and stay"] if done.deferred else []),
        *([f"{done.locked:,} are locked by another receiver: try again"] if done.locked else []),
        *(f"{count:,} are refused, and stay: {text}" for text, count in done.refused.items()),
    ]
