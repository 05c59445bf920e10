"""The command line: `busway serve`, `busway cert` and `busway version`; others are `remote`'s.

What a command needs is imported when it runs (D-33). Typer is told to leave rich alone, and not to
convert options: it would load pydantic for that, 130 ms and 14 MB (measured), and `config` converts
flags, variables and files alike, with one wording for what is wrong.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from busway import __version__
from busway.pipeline.commands import app as pipeline_commands
from busway.remote import capture as capture_command
from busway.remote import commands as remote_commands
from busway.remote import rules as rules_command
from busway.remote import token as token_command

USAGE_ERROR = 2
"""What is wrong is the user's to put right: a setting, a port in use, a folder that is taken."""


class AsTyped:
    """A command or group whose options stay as they were typed."""

    def get_params(self, context: Any) -> list[Any]:
        options: list[Any] = super().get_params(context)  # type: ignore[misc]
        for option in options:
            option.process_value = partial(take_as_typed, option)
        return options


def take_as_typed(option: Any, context: Any, value: Any) -> Any:
    return value if option.callback is None else option.callback(context, option, value)


class Command(AsTyped, TyperCommand):
    pass


class Group(AsTyped, TyperGroup):
    pass


app = typer.Typer(
    name="busway",
    cls=Group,
    help="An open message broker that speaks Azure Service Bus.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)

SERVE_HELP = """Run a broker until it is told to stop (Ctrl-C or SIGTERM).

It prints a connection string for the Azure SDKs, then a line that begins with 'ready'.

\b
  busway serve                                messages and entities in ./data
  busway serve --config examples/tour.toml    with the queues that a file names
  busway serve --memory --port 0              for a test: nothing on disk
  busway serve --tls                          with TLS, for clients that insist on it

Every option is also a variable (--http-port: BUSWAY_HTTP_PORT) and, but for the logs, a key in the
[serve] table of the file (http_port = 5300). An option goes before a variable, that before the
file.
"""


@app.callback()
def commands() -> None:
    """Say which commands there are, also while there is only one."""


@app.command(cls=Command, help=SERVE_HELP)
def serve(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder for messages, entities and the root key.  [default: data]",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; 0.0.0.0 for all of this machine's.  [default: 127.0.0.1]",
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="Port for AMQP, HTTP, and both in TLS; 0 takes a free one and prints it.  "
            "[default: 5672]",
        ),
    ] = None,
    http_port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="A second port for the same, where clients of Microsoft's emulator look for HTTP; "
            "0 takes a free one, 'off' opens none. By default 5300 if it is free, none with "
            "--port 0.",
        ),
    ] = None,
    tls_port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="A port for the same while TLS is on, where clients look for AMQP in TLS; 0 takes "
            "a free one, 'off' opens none. By default 5671 if it is free, none with --port 0.",
        ),
    ] = None,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls",
            help="Speak TLS as well, with a certificate for this machine that is made at first "
            "start and kept in the data folder.",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Speak TLS as well, with this certificate in PEM format; see 'busway cert'.",
        ),
    ] = None,
    tls_key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The private key of --tls-cert, in PEM format."),
    ] = None,
    stores: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Messaging stores to spread partitions over. A folder that has more keeps them; "
            "new ones serve new queues.  [default: 2]",
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(metavar="N", help="Processes to run. Only 1 in this release.  [default: 1]"),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Key of the rule RootManageSharedAccessKey. Without it a random one is made at "
            "first start and kept in the data folder.",
        ),
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="TIER",
            help="basic, standard or premium: what the namespace allows. Fixed at first start.  "
            "[default: standard]",
        ),
    ] = None,
    namespace_partitions: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="1, 2 or 4 partitions for every queue and topic of a premium namespace. Fixed at "
            "first start.  [default: 1]",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with settings and queues to create: TOML, or the JSON of Microsoft's "
            "emulator.",
        ),
    ] = None,
    memory: Annotated[
        bool | None, typer.Option("--memory", help="Keep everything in memory, nothing on disk.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="WHO",
            help="Who may read /metrics: 'token', those with a token that may manage; 'open', "
            "everybody.  [default: token]",
        ),
    ] = None,
    metrics_entities: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many entities of a namespace have metrics of their own; the rest are told "
            "as one.  [default: 1000]",
        ),
    ] = None,
    allow_faults: Annotated[
        bool | None,
        typer.Option(
            "--allow-faults",
            help="Let those who may manage make stores slow, ill or gone, to rehearse outages; "
            "see 'busway fault'.",
        ),
    ] = None,
    log_level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL", envvar="BUSWAY_LOG_LEVEL", help="debug, info, warning or error."
        ),
    ] = "info",
    log_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            envvar="BUSWAY_LOG_FORMAT",
            help="text, or json: one object per line. To stderr.",
        ),
    ] = "text",
) -> None:
    from busway import config as configuration
    from busway.runtime import logs

    for name, value, allowed in (
        ("level", log_level, logs.LEVELS),
        ("format", log_format, logs.FORMATS),
    ):
        if value.lower() not in allowed:
            refuse(f"--log-{name} is '{value}', and must be one of {', '.join(allowed)}.")
    flags = {
        "data": data,
        "host": host,
        "port": port,
        "http_port": http_port,
        "tls_port": tls_port,
        "tls": tls,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "stores": stores,
        "nodes": nodes,
        "key": key,
        "tier": tier,
        "namespace_partitions": namespace_partitions,
        "config": config,
        "memory": memory,
        "metrics": metrics,
        "metrics_entities": metrics_entities,
        "allow_faults": allow_faults,
    }
    try:
        loaded = configuration.load(flags, os.environ)
    except configuration.ConfigError as error:
        refuse(str(error))
    if loaded.settings.nodes > 1:
        refuse("--nodes is more than 1, and this release runs one node. Leave it out.")
    logs.set_up(log_level.lower(), log_format.lower())

    from busway.runtime.data_folder import StartError
    from busway.runtime.serve import run

    try:
        status = run(loaded)
    except StartError as error:
        refuse(str(error))
    sys.exit(status)


CERT_HELP = """Make a certificate for a broker of your own, and the authority that signs it.

The authority is made once and kept, so that clients have to be told of it once. Each call makes a
new server certificate, for localhost, 127.0.0.1, ::1 and the names that are given.

\b
  busway cert
  busway cert --out certs --name broker.example.com --name 10.0.0.7
"""


@app.command(cls=Command, help=CERT_HELP)
def cert(
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Folder for the files; made if it is not there.")
    ] = "tls",
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="A name or address under which clients reach the broker; may be repeated.",
        ),
    ] = None,
) -> None:
    from pathlib import Path

    from busway.runtime.certificates import CertificateError, CertificateFolder
    from busway.runtime.trust import told

    files = CertificateFolder(Path(out).resolve())
    try:
        files.make(name or [])
    except CertificateError as error:
        refuse(str(error))
    print(told(files))


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


remote_commands.add_to(app, Command)
capture_command.add_to(app, Command)
rules_command.add_to(app, Command, Group)
token_command.add_to(app, Command)
pipeline_commands.add_to(app, Command, Group)


def refuse(text: str) -> NoReturn:
    """One clear sentence and a status, never a traceback."""
    print(f"busway: {text}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def main() -> None:
    app(prog_name="busway")
