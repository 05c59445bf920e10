"""What commands share that talk to a server: which one they are about, and how they end.

The exit statuses are a table of docs/reference/command-line.md; `ended_well` gives each error its
own, with one sentence on the error stream and never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from busway.remote.connection import VARIABLE

if TYPE_CHECKING:
    from busway.remote.client import RemoteServer
    from busway.remote.connection import Credentials

FAILED = 1
USAGE_ERROR = 2
UNREACHABLE = 3
NO_RIGHTS = 4
NOT_FOUND = 5
INTERRUPTED = 130

DATA = "data"
"""The folder of the server that is meant if nobody says which."""

ConnectionString = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help=f"The server. Else the variable {VARIABLE}, which other users of this machine do not "
        f"see; else the server that runs on ./{DATA}.",
        show_default=False,
    ),
]


def credentials_at(connection_string: str | None) -> Credentials:
    """Of the server that is meant: as said, as the variable says, or the one on ./data."""
    from pathlib import Path

    from busway.remote import connection
    from busway.remote.connection_string import kept_string

    text = connection_string or os.environ.get(VARIABLE)
    if not text:
        if not Path(DATA).is_dir():
            refuse(
                "Which server? Give the connection string that 'busway connection-string' prints, "
                f"in the variable {VARIABLE} or with --connection-string; or go to the folder with "
                f"the server's ./{DATA}."
            )
        text = kept_string(Path(DATA))
    try:
        return connection.read(text)
    except connection.ConnectionStringError as error:
        refuse(str(error))


def server_at(connection_string: str | None) -> RemoteServer:
    from busway.remote.client import RemoteServer

    return RemoteServer(credentials_at(connection_string))


def number(option: str, text: str, least: int, most: int) -> int:
    """`most` has fewer than twenty digits."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        refuse(f"{option} is '{text}', and must be a whole number from {least} to {most}.")
    return int(text)


def coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def refuse(text: str) -> NoReturn:
    end(USAGE_ERROR, text)


def fail(error: str | Exception) -> NoReturn:
    """With the status of the error, where it has one."""
    end(getattr(error, "exit_status", FAILED), str(error))


def end(status: int, text: str) -> NoReturn:
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def ended_well(credentials: Credentials) -> Iterator[None]:
    """Known errors of the work with a server are one sentence, and the status that they have."""
    from busway.remote.client import RemoteError
    from busway.remote.triage import TriageError
    from busway.remote.trust import UntrustedError
    from busway.remote.wire.conditions import ConditionError
    from busway.remote.wire.line import BrokenError, RefusedError
    from busway.remote.wire.sender import SendError
    from busway.remote.wire.target import TargetError

    address = f"{credentials.endpoint.host}:{credentials.endpoint.port}"
    nobody = (
        f"Nobody listens at {address}. Is the server running, and is this its connection string?"
    )
    try:
        yield
    except (RemoteError, TargetError, TriageError) as error:
        fail(error)
    except ConditionError as error:
        refuse(str(error))
    except RefusedError as error:
        end(status_of(error.condition), _sentence(str(error)))
    except SendError as error:
        cause = error.__cause__
        if isinstance(cause, RefusedError):
            end(status_of(cause.condition), _sentence(str(error)))
        if isinstance(cause, ConnectionRefusedError):
            end(UNREACHABLE, nobody)
        end(FAILED if cause is None else UNREACHABLE, _sentence(str(error)))
    except UntrustedError as error:
        end(UNREACHABLE, str(error))
    except ConnectionRefusedError:
        end(UNREACHABLE, nobody)
    except BrokenPipeError:
        # Whoever read our output has left, as 'head' does. Nothing is to be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except (BrokenError, OSError) as error:
        end(UNREACHABLE, f"No connection to {address}: {str(error) or type(error).__name__}.")
    except KeyboardInterrupt:
        print("busway: stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)


def status_of(condition: str | None) -> int:
    """Of what a broker calls a refusal (AMQP 2.8.15, and the service's own)."""
    from busway.model import errors

    return {
        errors.UNAUTHORIZED_CONDITION: NO_RIGHTS,
        errors.NOT_FOUND_CONDITION: NOT_FOUND,
        errors.MESSAGE_NOT_FOUND_CONDITION: NOT_FOUND,
    }.get(condition or "", FAILED)


def _sentence(text: str) -> str:
    """The service adds where to read more, and a stamp for those who run it."""
    return text.partition(" To know more visit ")[0].partition(" TrackingId:")[0].rstrip()
