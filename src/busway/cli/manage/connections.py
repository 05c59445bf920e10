"""`busway connections`: who is connected, and to what. Asks Busway's own HTTP interface."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from busway.cli.manage import showing
from busway.cli.manage.showing import Json
from busway.cli.options import Command
from busway.remote.console import ConnectionString, credentials_at, ended_well

HELP = """Show who is connected over AMQP, and the links that they have.

\b
  busway connections
  busway connections --entity orders
  busway connections --json

It needs the right to manage. Only a Busway server can tell: Azure Service Bus does not.
"""
PAGE = 1_000


def add_to(app: typer.Typer) -> None:
    app.command("connections", cls=Command, help=HELP)(connections)


def connections(
    entity: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those with a link to it.")
    ] = None,
    as_json: Json = False,
    connection_string: ConnectionString = None,
) -> None:
    from busway.remote.client import RemoteServer

    credentials = credentials_at(connection_string)
    with ended_well(credentials):
        server = RemoteServer(credentials)
        found: list[dict[str, Any]] = []
        while True:
            page = server.get(f"/$busway/connections?skip={len(found)}&top={PAGE}")
            found += page["connections"]
            if not page["connections"] or len(found) >= page["total"]:
                break
    if entity is not None:
        found = [
            each
            for each in found
            if any(link.get("entity", "").lower() == entity.lower() for link in each["links"])
        ]
    if as_json:
        showing.tell({"connections": found, "http_connections": page["http_connections"]})
        return
    rows = [_row(each) for each in found]
    if rows:
        showing.tabulate(["address", "transport", "container", "links"], rows)
        print()
    amqp, http = len(found), page["http_connections"]
    print(f"{amqp:,} over AMQP, {http:,} over HTTP")


def _row(each: dict[str, Any]) -> list[str]:
    links = ", ".join(
        f"{link['role']} {link['entity']}" if "entity" in link else link["role"]
        for link in each["links"]
    )
    container = "".join(c if c.isprintable() else "." for c in each["container"] or "-")
    return [each["address"] or "-", each["transport"], container, links or "-"]
