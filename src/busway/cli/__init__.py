"""The command line: each command is a module here; those for a running server are `remote`'s.

What a command needs is imported when it runs (D-33). Typer is told to leave rich alone, and not to
convert options: it would load pydantic for that, 130 ms and 14 MB (measured), and `config` converts
flags, variables and files alike, with one wording for what is wrong.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.models import CommandInfo

from busway import __version__
from busway.cli import backup, cert, completion, env, recover, serve, trust, verify
from busway.cli.manage import (
    connections,
    dead_letters,
    entities,
    purge,
    receive,
    rules,
    send,
    sessions,
    top,
)
from busway.cli.options import Command, Group
from busway.pipeline.commands import app as pipeline_commands
from busway.remote import capture as capture_command
from busway.remote import clock as clock_command
from busway.remote import commands as remote_commands
from busway.remote import connection_string as connection_string_command
from busway.remote import rules as rules_command
from busway.remote import token as token_command

app = typer.Typer(
    name="busway",
    cls=Group,
    help="An open message broker that speaks Azure Service Bus.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)


def show_version(asked: bool) -> None:
    if asked:
        print(f"busway {__version__}")
        raise typer.Exit


@app.callback()
def commands(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version",
            help="Show the version; 'busway version' shows what it runs on, too.",
            callback=show_version,
            is_eager=True,
        ),
    ] = None,
) -> None:
    """Say which commands there are, also while there is only one."""


serve.add_to(app)
cert.add_to(app)
trust.add_to(app)
env.add_to(app)
backup.add_to(app)
verify.add_to(app)
recover.add_to(app)


@app.command(cls=Command)
def version() -> None:
    """Show the version, and what it runs on."""
    import platform
    import sqlite3

    from busway.amqp import codec
    from busway.runtime.serve import loop_name

    print(f"busway {__version__}")
    print(f"codec   {codec.IMPLEMENTATION}")
    print(f"python  {platform.python_version()}")
    print(f"loop    {loop_name()}")
    print(f"sqlite  {sqlite3.sqlite_version}")


entities.add_to(app)
rules.add_to(app)
send.add_to(app)
receive.add_to(app)
dead_letters.add_to(app)
purge.add_to(app)
sessions.add_to(app)
connections.add_to(app)
top.add_to(app)
connection_string_command.add_to(app, Command)
remote_commands.add_to(app, Command)
capture_command.add_to(app, Command)
clock_command.add_to(app, Command)
rules_command.add_to(app, Command, Group)
token_command.add_to(app, Command)
pipeline_commands.add_to(app, Command, Group)


completion.add_to(app)


def main() -> None:
    completion.prepare()
    make_only(next((word for word in sys.argv[1:] if not word.startswith("-")), None))
    app(prog_name="busway")


def make_only(asked: str | None) -> None:
    """Leave out the commands that were not asked for: typer would make all of them first, which
    takes longer than most of them run (measured: 0.09 s of 0.34)."""
    commands = [each for each in app.registered_commands if name_of(each) == asked]
    groups = [each for each in app.registered_groups if each.name == asked]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def name_of(command: CommandInfo) -> str | None:
    if command.name is not None or command.callback is None:
        return command.name
    return command.callback.__name__.replace("_", "-")
