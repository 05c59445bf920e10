"""`busway top`: rates, depths, partitions and stores, live. Asks Busway's own HTTP interface."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.cli.manage import showing
from busway.cli.manage.showing import Json
from busway.cli.options import Command
from busway.remote.console import ConnectionString, credentials_at, ended_well, number, refuse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from busway.remote.client import RemoteServer

HELP = """Watch a server: messages in and out each second, what is held, partitions and stores.

\b
  busway top                      until Ctrl-C
  busway top --sort dead-letters --search eu-
  busway top --once               one picture, for a plain terminal or a log
  busway top --json               one sample, for programs

It needs the right to manage. Only a Busway server can tell: Azure Service Bus does not.
"""
SORTS = ("in", "out", "messages", "dead-letters", "name")
PAGE = 2_000
MAPPED = 1_000
"""Entities whose partitions are asked for."""
SAMPLE_S = 1.0
"""Between the two looks of a single sample: rates are what differs."""


def add_to(app: typer.Typer) -> None:
    app.command("top", cls=Command, help=HELP)(top)


def top(
    search: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only entities with this in their name.")
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="BY", help=f"One of {', '.join(SORTS)}.")
    ] = "messages",
    rows: Annotated[str, typer.Option(metavar="N", help="Entities that are shown at most.")] = "20",
    every: Annotated[str, typer.Option(metavar="SECONDS", help="How often it is drawn.")] = "2",
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteServer

    if sort not in SORTS:
        refuse(f"--sort is '{sort}', and must be one of {', '.join(SORTS)}.")
    most = number("--rows", rows, 1, 10_000)
    pause_s = number("--every", every, 1, 3_600)
    credentials = credentials_at(connection_string)
    server = RemoteServer(credentials)
    with ended_well(credentials):
        before = look(server, search)
        if as_json or once or not sys.stdout.isatty():
            time.sleep(SAMPLE_S)
            sample = compared(before, look(server, search), sort)
            if as_json:
                showing.tell(sample)
            else:
                _print(sample, most)
            return
        _watch(server, before, search, sort, most, pause_s)


def look(server: RemoteServer, search: str | None) -> dict[str, Any]:
    """What the server tells, with the moment at which it did."""
    from urllib.parse import urlencode

    query = urlencode({"search": search or "", "top": PAGE})
    found: dict[str, Any] = server.get(f"/$busway/entities?{query}")
    query = urlencode({"entity": f"*{search or ''}*", "top": MAPPED})
    lie = server.get(f"/$busway/map?{query}")
    clients = server.get("/$busway/connections?top=1")
    return {
        "at": time.monotonic(),
        "now": found["now"],
        "namespace": found["namespace"],
        "tier": found["tier"],
        "total": found["total"],
        "entities": {each["path"]: each for each in found["entities"]},
        "stores": lie["stores"],
        "partitions": {each["name"]: each["partitions"] for each in lie["entities"]},
        "connections": clients["total"],
        "http_connections": clients["http_connections"],
    }


def compared(before: dict[str, Any], after: dict[str, Any], sort: str) -> dict[str, Any]:
    """Rates, from two looks. A server that was restarted meanwhile counts from zero again."""
    span_s = max(after["at"] - before["at"], 0.001)
    entities = []
    for path, each in after["entities"].items():
        old = before["entities"].get(path, each)["totals"]
        rates = {
            f"{name}_per_s": round(max(0, count - old.get(name, 0)) / span_s, 1)
            for name, count in each["totals"].items()
        }
        entities.append(
            {
                "name": path,
                "type": each["type"],
                "availability": each["availability"],
                "partitions": [
                    {name: part[name] for name in ("partition", "store", "state", "depth")}
                    for part in after["partitions"].get(path, ())
                ],
                "depth": each["depth"],
                "rates": rates,
            }
        )
    keys: dict[str, Any] = {
        "in": lambda one: -one["rates"][f"{IN}_per_s"],
        "out": lambda one: -one["rates"][f"{OUT}_per_s"],
        "messages": lambda one: -one["depth"]["messages"],
        "dead-letters": lambda one: -one["depth"]["dead_letter"],
        "name": lambda one: one["name"].lower(),
    }
    entities.sort(key=lambda one: (keys[sort](one), one["name"].lower()))
    told = ("now", "namespace", "tier", "total", "stores", "connections", "http_connections")
    return {**{name: after[name] for name in told}, "entities": entities}


IN, OUT = "messages_in", "messages_out"
HEAD = ["entity", "in/s", "out/s", "active", "scheduled", "deferred", "dead letters", "size",
        "partitions", ""]  # fmt: skip


def _lines(sample: dict[str, Any], most: int) -> list[list[str]]:
    from busway.remote.drawing import fullest_of, sign

    rows = []
    shown = sample["entities"][:most]
    fullest = fullest_of(shown)
    for each in shown:
        depth, rates = each["depth"], each["rates"]
        rows.append(
            [
                each["name"],
                f"{rates[f'{IN}_per_s']:,.1f}",
                f"{rates[f'{OUT}_per_s']:,.1f}",
                f"{depth['active']:,}",
                f"{depth['scheduled']:,}",
                f"{depth['deferred']:,}",
                f"{depth['dead_letter']:,}",
                showing.size(depth["bytes"]),
                "".join(sign(part, fullest) for part in each["partitions"]),
                "" if each["availability"] == "Available" else each["availability"],
            ]
        )
    return rows


def _title(sample: dict[str, Any]) -> str:
    return (
        f"{sample['namespace']} ({sample['tier']})  {sample['total']:,} entities  "
        f"{sample['connections']:,} connections over AMQP, {sample['http_connections']:,} over "
        f"HTTP  {showing.instant(sample['now'])}"
    )


def _stores(sample: dict[str, Any]) -> list[list[str]]:
    return [
        [
            each["name"],
            each["status"],
            each["state"],
            "-" if each["round_trip_ms"] is None else f"{each['round_trip_ms']} ms",
            each["problem"] or each["reason"] or "",
        ]
        for each in sample["stores"]
    ]


STORE_HEAD = ["store", "health", "state", "commit", ""]


def _print(sample: dict[str, Any], most: int) -> None:
    print(_title(sample))
    print()
    showing.tabulate(STORE_HEAD, _stores(sample))
    print()
    showing.tabulate(HEAD, _lines(sample, most), right=HEAD[1:-2])


def _watch(
    server: RemoteServer,
    before: dict[str, Any],
    search: str | None,
    sort: str,
    most: int,
    pause_s: int,
) -> None:
    from rich.live import Live

    sample = compared(before, before, sort)
    with Live(_screen(sample, most), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(pause_s)
            after = look(server, search)
            live.update(_screen(compared(before, after, sort), most), refresh=True)
            before = after


def _screen(sample: dict[str, Any], most: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    stores = _table(STORE_HEAD, _stores(sample), right=())
    entities = _table(HEAD, _lines(sample, most), right=HEAD[1:-2])
    left = len(sample["entities"]) - most
    more = f"{left:,} more; --rows or --search shows them. " if left > 0 else ""
    return Group(
        Text(_title(sample), style="bold"),
        Text(""),
        stores,
        Text(""),
        entities,
        Text(f"{more}Ctrl-C ends it.", style="dim"),
    )


def _table(head: list[str], rows: list[list[str]], right: Any) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in head:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    for row in rows:
        ill = row[-1] not in ("", "-") or "ill" in row[1:3]
        table.add_row(*(Text(cell) for cell in row), style="red" if ill else "")
    return table
