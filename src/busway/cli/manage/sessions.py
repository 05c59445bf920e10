"""`busway sessions list|state`: which sessions an entity has, and what they remember."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from typing import Annotated, Any

import typer

from busway.cli.manage import showing
from busway.cli.manage.places import Entity, seconds
from busway.cli.manage.showing import Json
from busway.cli.options import Command, Group
from busway.remote.console import ConnectionString, credentials_at, ended_well, fail, refuse

HELP = """Show the sessions of an entity, and look at or change their state.

\b
  busway sessions list orders
  busway sessions state orders customer-7
  busway sessions state orders customer-7 --set '{"step": 3}'
  busway sessions state orders customer-7 --clear

A session's state can be seen by whoever holds it: nobody else can, for that moment. It needs the
right to listen, and works against Azure Service Bus as well.
"""


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(cls=Group, help=HELP, no_args_is_help=True)
    group.command("list", cls=Command, help=list_sessions.__doc__)(list_sessions)
    group.command("state", cls=Command, help=state.__doc__)(state)
    app.add_typer(group, name="sessions")


def list_sessions(
    entity: Entity,
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only those with this in their id.")
    ] = None,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """List the sessions that have messages or a state."""
    from busway.remote.wire.receiving import Receiver

    credentials = credentials_at(connection_string)
    with ended_well(credentials), Receiver(entity.strip("/"), credentials) as receiver:
        found = [
            each
            for each in receiver.session_ids()
            if search is None or search.lower() in each.lower()
        ]
    if as_json:
        showing.tell(found)
        return
    for each in found:
        print(each)
    if not found:
        print("busway: There are no sessions.", file=sys.stderr)


def state(
    entity: Entity,
    session_id: Annotated[str, typer.Argument(metavar="SESSION", help="Its id.")],
    value: Annotated[
        str | None, typer.Option("--set", metavar="TEXT", help="Its new state; - reads it.")
    ] = None,
    encoded: Annotated[
        str | None, typer.Option("--set-base64", metavar="BASE64", help="Its new state in base64.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="It has no state any more.")] = False,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for whoever holds it.")
    ] = "5s",
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    """Show the state of a session; or set it, or clear it."""
    from busway.remote.wire.receiving import Receiver

    if (value is not None) + (encoded is not None) + clear > 1:
        refuse("--set, --set-base64 and --clear are three different things; say one.")
    wanted = _wanted(value, encoded)
    wait_s = seconds("--wait", wait)
    credentials = credentials_at(connection_string)
    with ended_well(credentials), Receiver(entity.strip("/"), credentials) as receiver:
        if not receiver.open_session(session_id, wait_s):
            fail(f"Somebody holds the session '{session_id}' of '{entity}'. Try again later.")
        if wanted is not None or clear:
            receiver.set_session_state(None if clear else wanted)
        found = receiver.session_state()
        receiver.leave_session()
    if as_json:
        showing.tell({"entity": entity, "session_id": session_id, **_told(found)})
    elif found is None:
        print(f"busway: The session '{session_id}' has no state.", file=sys.stderr)
    else:
        sys.stdout.buffer.write(found + b"\n")
        sys.stdout.flush()


def _wanted(value: str | None, encoded: str | None) -> bytes | None:
    if encoded is not None:
        try:
            return b64decode(encoded, validate=True)
        except ValueError:
            refuse("--set-base64 is not base64.")
    if value == "-":
        return sys.stdin.buffer.read()
    return None if value is None else value.encode()


def _told(found: bytes | None) -> dict[str, Any]:
    if found is None:
        return {"state": None}
    try:
        return {"state": found.decode()}
    except UnicodeDecodeError:
        return {"state_base64": b64encode(found).decode()}
