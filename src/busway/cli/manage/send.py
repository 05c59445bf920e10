"""`busway send`: messages from the command line, a file, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from busway.cli.manage import showing
from busway.cli.manage.completing import entity_names
from busway.cli.manage.showing import Json
from busway.cli.options import Command
from busway.remote.console import ConnectionString, credentials_at, ended_well, number, refuse

if TYPE_CHECKING:
    from busway.remote.connection import Credentials

HELP = """Send messages to a queue or topic.

\b
  busway send orders hello                                 one message
  busway send orders '{"id": 7}' --content-type application/json --property n:int=7
  busway send orders --file picture.png                    the file is its body
  cat orders.txt | busway send orders --lines              one message for each line
  busway peek orders --json | busway send copy --json-lines   all of it, exactly
  busway send orders later --schedule 10m                  in ten minutes
  busway send orders hello --count 1000 --batch 100

It needs the right to send, and works against Azure Service Bus as well. Without a body it is read
from standard input. Properties are texts, or have a type: name:int=7, name:bool=true, name:uuid=...
"""
COUNT_MAX = 100_000_000
BATCH_MAX = 4_500
OPTION_FIELDS = (
    "message_id", "session_id", "partition_key", "subject", "correlation_id", "content_type",
    "to", "reply_to", "reply_to_session_id",
)  # fmt: skip


def _text(name: str, text: str, short: str | None = None) -> Any:
    flags = [f"--{name.replace('_', '-')}", *([short] if short else [])]
    return typer.Option(*flags, metavar="TEXT", help=text, show_default=False)


def add_to(app: typer.Typer) -> None:
    app.command("send", cls=Command, help=HELP)(send)


def send(
    entity: Annotated[
        str,
        typer.Argument(metavar="ENTITY", help="A queue or topic.", autocompletion=entity_names),
    ],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY]", help="The body.", show_default=False)
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Read it from there.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="A message for each line.")] = False,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="A message for each line, as 'receive --json' writes it."
        ),
    ] = False,
    message_id: Annotated[str | None, _text("message_id", "Its id.  [default: a new one]")] = None,
    session_id: Annotated[str | None, _text("session_id", "Its session.")] = None,
    partition_key: Annotated[
        str | None, _text("partition_key", "Messages with the same go to the same partition.")
    ] = None,
    subject: Annotated[str | None, _text("subject", "What it is about (the label).")] = None,
    correlation_id: Annotated[str | None, _text("correlation_id", "What it answers.")] = None,
    content_type: Annotated[
        str | None, _text("content_type", "Of its body: application/json.")
    ] = None,
    to: Annotated[str | None, _text("to", "For whom it is.")] = None,
    reply_to: Annotated[str | None, _text("reply_to", "Where answers go.")] = None,
    reply_to_session_id: Annotated[
        str | None, _text("reply_to_session_id", "The session of answers.")
    ] = None,
    time_to_live: Annotated[
        str | None,
        typer.Option("--ttl", metavar="DURATION", help="How long it lives: 30s, 14d, PT1H."),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="When it becomes active: 10m from now, or 2026-11-18T12:00:00Z."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="NAME=VALUE",
            help="An application property; name:int=7 has a type. May be repeated.",
        ),
    ] = None,
    count: Annotated[
        str, typer.Option(metavar="N", help="Send each so many times.", show_default=False)
    ] = "1",
    batch: Annotated[
        str,
        typer.Option(
            metavar="N", help="Messages that are stored together or not at all.", show_default=False
        ),
    ] = "1",
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.wire.message_json import MessageJsonError

    given = locals()
    options: dict[str, Any] = {
        name: given[name] for name in OPTION_FIELDS if given[name] is not None
    }
    repeats = number("--count", count, 1, COUNT_MAX)
    group = number("--batch", batch, 1, BATCH_MAX)
    if lines and json_lines:
        refuse("--lines and --json-lines are two ways to read the same.")
    if body is not None and (file is not None or lines or json_lines):
        refuse("The body is an argument, or it is read: not both.")
    if repeats > 1 and message_id is not None:
        refuse("--count sends several messages, and --message-id names one.")
    options |= _times(time_to_live, schedule)
    options |= _properties(properties)
    credentials = credentials_at(connection_string)
    try:
        with ended_well(credentials), _source(file, body) as source:
            messages = _messages(source, body, lines, json_lines, options)
            sent = _send(entity, credentials, messages, repeats, group)
    except MessageJsonError as error:
        refuse(str(error))
    if as_json:
        showing.tell({"entity": entity, "sent": sent})
    else:
        print(f"sent {sent:,} {'message' if sent == 1 else 'messages'} to {entity}")


def _times(time_to_live: str | None, schedule: str | None) -> dict[str, Any]:
    from datetime import UTC, datetime, timedelta

    from busway.model.durations import format_iso, parse_duration

    found: dict[str, Any] = {}
    if time_to_live is not None:
        try:
            ms = parse_duration(time_to_live)
        except ValueError:
            ms = 0
        if ms is not None and ms <= 0:
            refuse(f"--ttl is '{time_to_live}', and must be a duration such as 30s, 14d or PT1H.")
        if ms is not None:
            found["time_to_live"] = format_iso(ms)
    if schedule is None:
        return found
    try:
        span_ms = parse_duration(schedule)
        if span_ms is None:
            refuse("--schedule is 'unlimited': it would never become active.")
        moment = datetime.now(UTC) + timedelta(milliseconds=span_ms)
    except ValueError:
        try:
            moment = datetime.fromisoformat(schedule)
        except ValueError:
            refuse(
                f"--schedule is '{schedule}', and must be like 10m, or 2026-11-18T12:00:00Z (in "
                "UTC, if no zone is said)."
            )
    return found | {"scheduled_enqueue_time": moment.isoformat()}


def _properties(pairs: list[str] | None) -> dict[str, Any]:
    import json

    from busway.broker.journal_properties import forms_of
    from busway.remote.wire.typed_values import TypedTextError, read_pair

    if not pairs:
        return {}
    try:
        values = dict(read_pair(each, "--property") for each in pairs)
    except TypedTextError as error:
        refuse(str(error))
    return {"application_properties": {k: json.loads(forms_of(v)[1]) for k, v in values.items()}}


def _source(file: str | None, body: str | None) -> Any:
    """What is read from; nothing if the body is an argument."""
    from contextlib import nullcontext

    if body is not None:
        return nullcontext()
    if file is None or file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(file, "rb")
    except OSError as error:
        refuse(f"{file} cannot be read: {error.strerror}.")


def _messages(
    source: BinaryIO | None,
    body: str | None,
    lines: bool,
    json_lines: bool,
    options: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Objects as `message_json` reads them; what was said on the command line holds for all."""
    if source is None:
        yield {"body": body, **options}
    elif json_lines:
        yield from _from_json(source, options)
    elif lines:
        for line in source:
            yield {**_content(line.rstrip(b"\r\n")), **options}
    else:
        yield {**_content(source.read()), **options}


def _from_json(source: BinaryIO, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import json

    for place, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            refuse(f"Line {place} is not JSON: {error}.")
        if not isinstance(found, dict):
            refuse(f"Line {place} is not a JSON object, as 'busway receive --json' writes it.")
        yield {**found, **options}


def _content(data: bytes) -> dict[str, Any]:
    from base64 import b64encode

    return {"body_base64": b64encode(data).decode()}


def _send(
    entity: str,
    credentials: Credentials,
    messages: Iterator[dict[str, Any]],
    repeats: int,
    group: int,
) -> int:
    """Send them all, and wait until they are stored; how many there were."""
    import time
    from uuid import uuid4

    from busway.pipeline.commands.progress import progress
    from busway.remote.wire.batches import batched
    from busway.remote.wire.message_json import encode
    from busway.remote.wire.sender import Sender

    def encoded() -> Iterator[bytes]:
        for each in messages:
            for _ in range(repeats):
                named = each if "message_id" in each else {**each, "message_id": uuid4().hex}
                yield encode(named, time.time_ns() // 1_000_000)

    sender = Sender(entity, credentials.pass_for(entity), patience_s=0)
    sent = 0
    try:
        with progress("sent", None) as bar:
            for some in batched(encoded(), group):
                sender.send(some.payload, batch=some.count > 1)
                sent += some.count
                if sent > WORTH_TELLING:
                    bar(sent)
            sender.finish()
    finally:
        sender.close()
    return sent


WORTH_TELLING = 5_000
"""Messages after which a person wants to see that it goes on."""
