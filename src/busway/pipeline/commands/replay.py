"""`busway pipeline replay`: messages are sent again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from busway.pipeline.commands import console
from busway.pipeline.commands.console import (
    Conf,
    ConnectionString,
    HttpEndpoint,
    Json,
    LakeFolder,
    Master,
)
from busway.pipeline.commands.progress import progress

Where = Annotated[
    str | None, typer.Option(metavar="SQL", help="Only messages that this is true for.")
]
AcceptDuplicates = Annotated[
    bool,
    typer.Option(
        "--accept-duplicates",
        help="Go on where a message may be stored twice: a target without duplicate detection, or "
        "one that has forgotten what it took.",
    ),
]


def replay(
    lake: LakeFolder,
    entity: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Whose messages: a queue, topic or topic/Subscriptions/name."
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A queue or topic for them.  [default: the same one]"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Enqueued then or later: 2026-11-16T12:00:00Z, or -2h."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Enqueued before.")] = None,
    where: Where = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")
    ] = False,
    sample: Annotated[str, typer.Option(metavar="N", help="Messages that a dry run shows.")] = "5",
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A name for it; with that of a run that was killed, it goes on."
        ),
    ] = None,
    chunk: Annotated[str, typer.Option(metavar="N", help="Messages sent at a time.")] = "10000",
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="Send them under the ids that they had.")
    ] = False,
    accept_duplicates: AcceptDuplicates = False,
    connection_string: ConnectionString = None,
    http_endpoint: HttpEndpoint = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Send messages of a lake again, each once, in the order that their sessions had.

    \b
      busway pipeline replay --lake ./lake --entity orders --since -2h --dry-run
      busway pipeline replay --lake ./lake --entity orders --since -2h --to orders-again

    \b
    First a plan is written into the lake, then it is sent chunk after chunk. A run that was killed
    goes on if it is run again with the same words and --plan NAME. Copies are what was sent, to the
    byte, but for ids of their own (the old one is in their property 'busway-original-message-id');
    with --keep-ids they keep theirs. --where is a condition on the
    table 'messages': "state = 'completed' and subject = 'paid'".
    """
    from busway.pipeline.jobs.replay import Replay, Selection
    from busway.pipeline.lake.lake import Lake

    size = console.number("--chunk", chunk, 1, 10_000_000)
    samples = console.number("--sample", sample, 0, 1_000)
    selection = Selection(
        entity, _time("--since", since), _time("--until", until), where, (since, until)
    )
    target = to or entity
    if "/subscriptions/" in target.lower():
        console.refuse(f"Nothing can be sent to '{target}'. Name a queue or topic with --to.")
    if not dry_run:
        console.credentials_of(connection_string, http_endpoint)
    options = {} if http_endpoint is None else {"httpEndpoint": http_endpoint}
    name = plan or f"replay-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with _told(), console.spark_session("replay", master, conf) as spark:
        job = Replay(
            spark,
            Lake(lake),
            selection,
            target,
            name,
            sink_options=options,
            chunk_size=size,
            accept_duplicates=accept_duplicates,
            keep_ids=keep_ids,
        )
        if dry_run:
            seen = job.look(samples)
            console.summarise(asdict(seen), _lines_of(seen, entity, target), as_json)
            return
        console.say(f"the plan is '{name}'; if this run is ended, go on with --plan {name}")
        replayed = job.plan()
        console.say(f"{replayed.messages:,} messages in {replayed.chunks:,} chunks")
        with progress("sent", replayed.messages, said_every_s=0) as bar:
            job.send(replayed, lambda chunk, state: bar(replayed.sent_before + replayed.sent))
            bar(replayed.sent_before + replayed.sent)
    lines = [
        f"{replayed.sent:,} messages of '{entity}' were sent to '{target}' (plan {name})",
        *([f"{replayed.sent_before:,} were sent before"] if replayed.sent_before else []),
        *(
            [f"messages of these chunks may be there twice: {replayed.doubtful}"]
            if replayed.doubtful
            else []
        ),
    ]
    console.summarise(asdict(replayed), lines, as_json)


def _lines_of(seen: Any, entity: str, target: str) -> list[str]:
    lines = [f"{seen.messages:,} messages of '{entity}' would be sent to '{target}'"]
    if seen.first is not None:
        lines.append(f"enqueued from {seen.first:%Y-%m-%d %H:%M:%S} to {seen.last:%H:%M:%S} UTC "
                     f"of {seen.last:%Y-%m-%d}")  # fmt: skip
    if seen.left_out:
        lines.append(f"{seen.left_out:,} are left out: their sections cannot be read")
    for title, counts in (
        ("by state", seen.by_state),
        ("by day", seen.by_day),
        (f"by session, of {seen.sessions:,}", seen.by_session),
    ):
        if counts:
            lines += ["", title, *(f"{count:>12,}  {name}" for name, count in counts.items())]
    if seen.samples:
        lines += ["", "the first of them"]
        lines += [f"  {json.dumps(each, default=str, ensure_ascii=False)}" for each in seen.samples]
    return lines


def _time(option: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    from busway.pipeline.datasource.options import OptionError, position

    try:
        found = position(text, option)
    except OptionError:
        found = None
    if found is None or found.time is None:
        console.refuse(
            f"{option} is '{text}', and must be a time like 2026-11-16T12:00:00Z, or before now "
            "like -2h."
        )
    return found.time


@contextmanager
def _told() -> Iterator[None]:
    """Errors that a user can do something about are one sentence."""
    import socket
    import ssl

    from busway.pipeline.jobs.replay import ReplayError
    from busway.remote.trust import UntrustedError
    from busway.remote.wire.line import BrokenError, RefusedError
    from busway.remote.wire.sender import SendError
    from busway.remote.wire.target import TargetError

    ours = (RefusedError, ReplayError, SendError, TargetError, UntrustedError)
    try:
        yield
    except ours as error:
        console.fail(str(error))
    except (BrokenError, ConnectionError, TimeoutError, ssl.SSLError, socket.gaierror) as error:
        what = error or type(error).__name__
        console.fail(f"No connection to the broker: {what}. Nothing is lost: run it again.")
    except KeyboardInterrupt:
        console.say("stopped; run it again to go on")
        sys.exit(console.INTERRUPTED)


COMMANDS: dict[str, Callable[..., None]] = {"replay": replay}
