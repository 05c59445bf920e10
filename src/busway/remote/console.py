"""What the commands of this room share: which server they are about, and how they end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from busway.remote.connection import VARIABLE

if TYPE_CHECKING:
    from busway.remote.client import RemoteServer

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130

ConnectionString = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=f"What 'busway connection-string' prints. Or the variable {VARIABLE}, which other "
        "users of this machine do not see.",
    ),
]


def server_at(connection_string: str | None) -> RemoteServer:
    """Raises `RemoteError` if it is no connection string."""
    from busway.remote.client import RemoteServer

    text = connection_string or os.environ.get(VARIABLE)
    if not text:
        refuse(
            "Which server? Give the connection string that 'busway connection-string' prints, in "
            f"the variable {VARIABLE} or with --connection-string."
        )
    return RemoteServer(text)


def number(option: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        refuse(f"{option} is '{text}', and must be a whole number from {least} to {most}.")
    return int(text)


def refuse(text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def fail(text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(FAILED)
