"""`busway clock`: what time it is for the messages of a server, and moving it ahead."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from busway.remote.console import ConnectionString, fail, refuse, server_at

CLOCK_HELP = """Show the clock of a server, move it ahead, or begin anew; for tests.

\b
  busway clock                   what time it is for messages
  busway clock advance 10m       so much later: schedules fire, locks and messages expire
  busway clock advance 1h30m     also 45s, 14d, PT10M
  busway clock reset             delete everything but the configured entities, and set it right

When 'advance' returns, all that has fallen due is done. Tokens go by the machine's clock and stay
good. Moving needs the right to manage, and a server that was started with --allow-clock.
"""


def add_to(app: typer.Typer, command: type[Any]) -> None:
    app.command("clock", cls=command, help=CLOCK_HELP)(clock)


def clock(
    action: Annotated[
        str | None, typer.Argument(metavar="[advance|reset]", help="Without one: show it.")
    ] = None,
    span: Annotated[
        str | None, typer.Argument(metavar="[SPAN]", help="How far ahead: 10m, 1h30m, PT10M.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As the server tells it.")] = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteError

    if action not in (None, "advance", "reset"):
        refuse(f"The action is '{action}', and must be 'advance' or 'reset'.")
    if (action == "advance") != (span is not None):
        refuse("'advance' needs a span of time, and nothing else takes one: clock advance 10m.")
    try:
        server = server_at(connection_string)
        if action == "advance":
            found = server.post("/$busway/clock", {"advance": span})
        elif action == "reset":
            found = server.post("/$busway/reset", {})
        else:
            found = server.get("/$busway/clock")
    except RemoteError as error:
        fail(str(error))
    if as_json:
        import json

        print(json.dumps(found, indent=2))
        return
    print(f"{found['now']}, {_ahead(found)}")


def _ahead(found: dict[str, Any]) -> str:
    from busway.model.durations import format_timespan

    if not found["movable"]:
        return "which cannot be moved (--allow-clock)"
    if found["ahead_ms"] == 0:
        return "as the machine's clock"
    return f"{format_timespan(found['ahead_ms'])} ahead of the machine's clock"
