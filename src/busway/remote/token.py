"""`busway token`: a shared access signature, for whoever talks HTTP without a client library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from busway.remote.connection import VARIABLE
from busway.remote.console import ConnectionString, refuse

HELP = """Print a token for the header Authorization of HTTP requests.

\b
  busway token                          for everything, signed with the root key of ./data
  busway token --entity orders --ttl 8h for one queue or topic and what is below it
  curl -H "Authorization: $(busway token)" http://localhost:5300/orders/messages -d hello

A token opens what the rule that signs it may do. The root rule may do everything: for less, give
the connection string of a rule that has only the right to send, or to listen.
"""
DATA = "data"


def add_to(app: typer.Typer, command: type[Any]) -> None:
    app.command("token", cls=command, help=HELP)(token)


def token(
    entity: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Only for this queue or topic.  [default: the whole namespace]"
        ),
    ] = "",
    ttl: Annotated[
        str, typer.Option(metavar="DURATION", help="How long it is valid.  [default: 1h]")
    ] = "1h",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help=f"Data folder of the server, whose root key signs.  [default: {DATA}]",
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The file with the root key, if the server was started with --key or --key-file.",
        ),
    ] = None,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteError, RemoteServer
    from busway.remote.connection_string import kept_string

    lasts_s = _seconds(ttl)
    if connection_string is None and data is None:
        connection_string = os.environ.get(VARIABLE)
    try:
        server = RemoteServer(
            connection_string or kept_string(Path(data or DATA), key_file=key_file)
        )
    except RemoteError as error:
        refuse(str(error))
    print(server.token(entity.strip("/"), lasts_s))


def _seconds(text: str) -> int:
    from busway.model.durations import SECOND_MS, parse_duration

    try:
        span_ms = parse_duration(text)
    except ValueError as error:
        refuse(f"--ttl: {error}.")
    if span_ms is None or span_ms < SECOND_MS:
        refuse("--ttl must be a second or longer, and not unlimited: 30m, 8h, 7d.")
    return span_ms // SECOND_MS
