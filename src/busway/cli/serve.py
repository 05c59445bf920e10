"""`busway serve`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from busway.cli.options import Command, refuse

SERVE_HELP = """Run a broker until it is told to stop (Ctrl-C or SIGTERM).

On a terminal it prints a connection string for the Azure SDKs; elsewhere, where it would be kept in
a log, 'busway connection-string' shows it. Then comes a line that begins with 'ready'.

\b
  busway serve                                messages and entities in ./data
  busway serve --config examples/tour.toml    with the queues that a file names
  busway serve --memory --port 0              for a test: nothing on disk
  busway serve --tls                          with TLS, for clients that insist on it
  busway serve --emulator                     in place of Microsoft's emulator
  busway serve --dev-tokens                   for applications with DefaultAzureCredential

Every option is also a variable (--http-port: BUSWAY_HTTP_PORT) and, but for the logs, --emulator
and --accept-clock, a key in the [serve] table of the file (http_port = 5300). An option goes
before a variable, that before the file.
"""


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=SERVE_HELP)(serve)


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
    https_port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help="A port for the same while TLS is on, where clients look for HTTP in TLS and for "
            "AMQP over WebSocket; 0 takes a free one, 'off' opens none. By default 443 if it is "
            "free and allowed, none with --port 0.",
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
    key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File that has the key, in place of --key: a list of processes shows options.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Host names that tokens may be for, with commas between them, where clients "
            "reach the broker by others than they sign: behind a proxy. Names by which clients "
            "call it, localhost and this machine's own are known.",
        ),
    ] = None,
    emulator: Annotated[
        bool | None,
        typer.Option(
            "--emulator",
            help="Stand in for Microsoft's emulator: its ports 5672 and 5300, its public key "
            "SAS_KEY_VALUE, its Config.json from CONFIG_PATH, this folder or where its container "
            "has it. For this machine only, unless --host says otherwise.",
        ),
    ] = None,
    dev_tokens: Annotated[
        bool | None,
        typer.Option(
            "--dev-tokens",
            help="Issue Entra tokens to applications on this machine, as a managed identity would, "
            "and speak TLS; see 'busway env'. For development only.",
        ),
    ] = None,
    identity_header: Annotated[
        str | None,
        typer.Option(
            metavar="SECRET",
            help="What applications must know to get such a token. Without it a random one is made "
            "at first start and kept in the data folder.",
        ),
    ] = None,
    print_connection_string: Annotated[
        bool | None,
        typer.Option(
            "--print-connection-string",
            help="Print the connection string, with its key, even where standard output is no "
            "terminal; see 'busway connection-string'.",
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
    otel: Annotated[
        bool | None,
        typer.Option(
            "--otel",
            help="Send traces and metrics by OTLP, to where OTEL_EXPORTER_OTLP_ENDPOINT says. "
            "Needs the extra 'otel'.",
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
    allow_clock: Annotated[
        bool | None,
        typer.Option(
            "--allow-clock",
            help="Let those who may manage move the broker's clock ahead and reset the server, for "
            "tests; see 'busway clock'.",
        ),
    ] = None,
    accept_clock: Annotated[
        bool | None,
        typer.Option(
            "--accept-clock",
            help="For one start: the machine's clock is right, and stores that were written with a "
            "clock far ahead of it are set back.",
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
            help="text, or json: one object per line.",
        ),
    ] = "text",
    log_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="BUSWAY_LOG_FILE",
            help="Write the log to this file, which is opened anew on SIGHUP.  [default: stderr]",
        ),
    ] = None,
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
        "https_port": https_port,
        "tls": tls,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "stores": stores,
        "nodes": nodes,
        "key": key,
        "key_file": key_file,
        "hosts": hosts,
        "emulator": emulator,
        "dev_tokens": dev_tokens,
        "identity_header": identity_header,
        "print_connection_string": print_connection_string,
        "tier": tier,
        "namespace_partitions": namespace_partitions,
        "config": config,
        "memory": memory,
        "metrics": metrics,
        "metrics_entities": metrics_entities,
        "otel": otel,
        "allow_faults": allow_faults,
        "allow_clock": allow_clock,
        "accept_clock": accept_clock,
    }
    try:
        loaded = configuration.load(flags, os.environ)
    except configuration.ConfigError as error:
        refuse(str(error))
    if loaded.settings.nodes > 1:
        refuse("--nodes is more than 1, and this release runs one node. Leave it out.")
    try:
        logs.set_up(log_level.lower(), log_format.lower(), log_file)
    except OSError as error:
        refuse(f"--log-file: {log_file} cannot be opened: {error.strerror}.")

    from busway.runtime.data_folder import StartError
    from busway.runtime.serve import run

    try:
        status = run(loaded)
    except StartError as error:
        refuse(str(error))
    sys.exit(status)
