"""`busway map` and `busway fault`: see the partitions of a running server, and break its stores."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from busway.remote.console import INTERRUPTED, ConnectionString, fail, number, refuse, server_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from busway.remote.client import RemoteServer

MODES = ("slow", "ill", "gone", "none")
BACK_S = 30.0
"""How long a store may take to serve again before that is reported as a failure."""

MAP_HELP = """Show the entities of a server: which partition lies in which store, and how full.

\b
  busway map                     stores, and a sign for each partition
  busway map --entity orders     with the numbers of each partition
  busway map --entity 'eu-*'     those whose names begin so
  busway map --json              for programs

It needs the right to manage.
"""

FAULT_HELP = """Make a store of a server slow, ill or gone, to see what an application does then.

\b
  busway fault store-1 gone --for 20       and well again after 20 seconds, or Ctrl-C
  busway fault store-1 slow --delay-ms 200 every call of it takes so much longer
  busway fault store-1 ill                 it refuses commits and reads
  busway fault store-1 none                well again

It needs the right to manage, and a server that was started with --allow-faults.
"""


def add_to(app: typer.Typer, command: type[Any]) -> None:
    app.command("map", cls=command, help=MAP_HELP)(show_map)
    app.command("fault", cls=command, help=FAULT_HELP)(fault)


def show_map(
    entity: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this one, with its subscriptions; * is anything."),
    ] = None,
    top: Annotated[
        str, typer.Option(metavar="N", help="Show no more entities than this.  [default: 50]")
    ] = "50",
    as_json: Annotated[bool, typer.Option("--json", help="As the server tells it.")] = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteError
    from busway.remote.drawing import draw

    most = number("--top", top, 1, 1_000_000)
    try:
        found = _read_map(server_at(connection_string), entity, most)
    except RemoteError as error:
        fail(error)
    if as_json:
        import json

        print(json.dumps(found, indent=2))
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in draw(found, partitions=entity is not None and "*" not in entity, colour=colour):
        print(line)
    left = found["total"] - len(found["entities"])
    if left > 0:
        print(f"\n{left:,} more; --entity or --top shows them.")


def _read_map(server: RemoteServer, entity: str | None, most: int) -> dict[str, Any]:
    """All pages that are wanted, as if they were one."""
    from urllib.parse import urlencode

    query = {"top": str(min(most, 1_000)), **({"entity": entity} if entity else {})}
    found: dict[str, Any] = server.get(f"/$busway/map?{urlencode(query)}")
    page = found
    while page["next"] and len(found["entities"]) < most:
        page = server.get(page["next"])
        found["entities"] += page["entities"]
    found["entities"] = found["entities"][:most]
    return found


def fault(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Its name, id or position.")],
    mode: Annotated[str, typer.Argument(metavar="MODE", help=f"One of {', '.join(MODES)}.")],
    delay_ms: Annotated[
        str | None, typer.Option(metavar="N", help="How much slower, in milliseconds.")
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="SECONDS", help="Put it right after this, or at Ctrl-C."),
    ] = None,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteError

    if mode not in MODES:
        refuse(f"The mode is '{mode}', and must be one of {', '.join(MODES)}.")
    body: dict[str, Any] = {"mode": mode}
    if (mode == "slow") != (delay_ms is not None):
        refuse("--delay-ms says how slow a slow store is: it is needed with 'slow', and only so.")
    if delay_ms is not None:
        body["delay_ms"] = number("--delay-ms", delay_ms, 1, 60_000)
    duration_s = None if duration is None else number("--for", duration, 1, 86_400)
    server = server_at(connection_string)
    try:
        if duration_s is None:
            _tell(server, store, body)
            return
        with _interruptible() as interrupted:
            try:
                _tell(server, store, body)
                time.sleep(duration_s)
            except KeyboardInterrupt:
                interrupted.append(True)
            finally:
                _tell(server, store, {"mode": "none"})
    except RemoteError as error:
        fail(error)
    if interrupted:
        sys.exit(INTERRUPTED)


def _tell(server: RemoteServer, store: str, body: dict[str, Any]) -> None:
    from urllib.parse import quote

    path = f"/$busway/stores/{quote(store, safe='')}/fault"
    found = server.post(path, body)
    if body["mode"] == "none":
        deadline = time.monotonic() + BACK_S
        while found["state"] != "serving" and time.monotonic() < deadline:
            time.sleep(0.1)
            found = server.get(path)
    print(f"{found['name']}: {found['fault']}, {found['state']}", flush=True)


@contextmanager
def _interruptible() -> Iterator[list[bool]]:
    """SIGTERM as Ctrl-C: whoever ends this command does not leave a broken store behind."""

    def interrupt(signum: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield []
    finally:
        signal.signal(signal.SIGTERM, before)
