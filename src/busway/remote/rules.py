"""`busway rules`: the access rules of a running server's namespace, and their keys (D-34)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from busway.remote.console import ConnectionString, fail, refuse, server_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from busway.remote.client import RemoteServer

KEYS = ("primary", "secondary")
HELP = """Show who gets into a namespace, let others in, and change the locks.

\b
  busway rules                          which rules there are, and what each may do
  busway rules add web --send           a rule of that name, and its connection string
  busway rules show web                 its two connection strings
  busway rules renew web primary        another key; the old one opens nothing any more
  busway rules remove web

It needs the right to manage. Over AMQP, what a client has opened stays open until its token runs
out (the SDKs renew theirs within the hour) or its connection ends.
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the rule.", show_default=False)]


def add_to(app: typer.Typer, command: type[Any], group: type[Any]) -> None:
    rules = typer.Typer(cls=group, help=HELP, invoke_without_command=True)
    rules.callback()(show_all)
    for name, function in COMMANDS.items():
        rules.command(name, cls=command, help=function.__doc__)(function)
    app.add_typer(rules, name="rules", rich_help_panel=None)


def show_all(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="As the server tells it.")] = False,
    connection_string: ConnectionString = None,
) -> None:
    if context.invoked_subcommand is not None:
        return
    from busway.remote.drawing import Cell, table

    with _server(connection_string) as server:
        found = server.get("/$busway/rules")
    if as_json:
        import json

        print(json.dumps(found, indent=2))
        return
    rows: list[list[Cell]] = [
        [(rule["name"], ""), (", ".join(rule["rights"]), ""), (rule["changed"] or "-", "")]
        for rule in found["rules"]
    ]
    for line in table(["rule", "rights", "changed"], rows, colour=False):
        print(line)


def add(
    name: Name,
    send: Annotated[bool, typer.Option("--send", help="It may send messages.")] = False,
    listen: Annotated[
        bool, typer.Option("--listen", help="It may receive and settle them.")
    ] = False,
    manage: Annotated[
        bool, typer.Option("--manage", help="It may do everything in the namespace.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Give these rights to a rule that is there.")
    ] = False,
    connection_string: ConnectionString = None,
) -> None:
    """Make a rule with some rights, and print its connection string."""
    given = {"Manage": manage, "Send": send or manage, "Listen": listen or manage}
    rights = [right for right, wanted in given.items() if wanted]
    if not rights:
        refuse("What may it do? Give --send, --listen, or --manage for everything.")
    with _server(connection_string) as server:
        there = {rule["name"].lower() for rule in server.get("/$busway/rules")["rules"]}
        if name.lower() in there and not replace:
            fail(
                f"There is a rule '{name}' already. Choose another name, or change what it may do "
                "with --replace; its keys stay."
            )
        rule = server.put(_path(name), {"rights": rights})
        print(server.connection_string_of(rule["name"], rule["primary_key"]))


def show(name: Name, connection_string: ConnectionString = None) -> None:
    """Print the connection strings of a rule: with its primary key, and with its secondary one."""
    with _server(connection_string) as server:
        rule = server.get(_path(name))
        for key in (rule["primary_key"], rule["secondary_key"]):
            if key:
                print(server.connection_string_of(rule["name"], key))


def renew(
    name: Name,
    which: Annotated[
        str, typer.Argument(metavar="KEY", help="primary or secondary.", show_default=False)
    ],
    connection_string: ConnectionString = None,
) -> None:
    """Make a key anew, and print the connection string with it. The old one opens nothing more.

    \b
    To change the key of clients that must not notice:
      busway rules renew web secondary      give this connection string to all of them
      busway rules renew web primary        then nobody needs the old one
    """
    if which not in KEYS:
        refuse(f"The key is '{which}', and must be one of {', '.join(KEYS)}.")
    with _server(connection_string) as server:
        rule = server.post(f"{_path(name)}/renew", {"key": which})
        print(server.connection_string_of(rule["name"], rule[f"{which}_key"]))


def remove(name: Name, connection_string: ConnectionString = None) -> None:
    """Remove a rule: nobody gets in with its keys any more."""
    with _server(connection_string) as server:
        server.delete(_path(name))


COMMANDS: dict[str, Callable[..., None]] = {
    "add": add,
    "show": show,
    "renew": renew,
    "remove": remove,
}


@contextmanager
def _server(connection_string: str | None) -> Iterator[RemoteServer]:
    from busway.remote.client import RemoteError

    try:
        yield server_at(connection_string)
    except RemoteError as error:
        fail(error)


def _path(name: str) -> str:
    from urllib.parse import quote

    return f"/$busway/rules/{quote(name, safe='')}"
