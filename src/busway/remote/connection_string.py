"""`busway connection-string`: what clients of a server need, made of what its data folder keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from busway.remote.console import refuse

HELP = """Print the connection string of a server, from its data folder.

\b
  busway connection-string                          of the server on ./data
  busway connection-string /var/lib/busway --tls    for clients that are to use TLS
  export BUSWAY_CONNECTION_STRING="$(busway connection-string)"

It names the host and the port at which the folder was last served. It has the root key in it, so
that whoever knows it may do everything: keep it out of logs.
"""
DATA = "data"


def add_to(app: typer.Typer, command: type[Any]) -> None:
    app.command("connection-string", cls=command, help=HELP)(connection_string)


def connection_string(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Data folder of the server.", show_default=True)
    ] = DATA,
    namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of another namespace than the default one."),
    ] = None,
    tls: Annotated[
        bool | None, typer.Option("--tls", help="For clients that are to use TLS.")
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The file with the key, if the server was started with --key or --key-file.",
        ),
    ] = None,
) -> None:
    print(kept_string(Path(data), namespace, key_file, tls=bool(tls)))


def kept_string(
    folder: Path, namespace: str | None = None, key_file: str | None = None, *, tls: bool = False
) -> str:
    """The connection string of a namespace; of the default one for None."""
    from busway.cluster import served_at
    from busway.model.entities import DEFAULT_NAMESPACE, ROOT_RULE_NAME
    from busway.model.names import name_key
    from busway.remote.connection import Credentials, Endpoint

    name = namespace or DEFAULT_NAMESPACE
    served = served_at.read(folder)
    hosts = {name_key(known): host for known, host in served.hosts.items()}
    if namespace is not None and name_key(name) not in hosts:
        known = ", ".join(served.hosts) or "none that was served"
        refuse(f"The data folder {folder} has no namespace '{name}'. It has: {known}.")
    if tls and not served.tls:
        refuse(f"The data folder {folder} was last served without TLS. Leave --tls out.")
    given = name_key(name) in {name_key(each) for each in served.keys_given}
    key = _key(folder, name, key_file, given=given)
    endpoint = Endpoint(hosts.get(name_key(name), "localhost"), served.port, tls)
    return Credentials(endpoint, ROOT_RULE_NAME, key).connection_string


def _key(folder: Path, namespace: str, key_file: str | None, *, given: bool) -> str:
    from busway.cluster import root_key
    from busway.model.entities import DEFAULT_NAMESPACE
    from busway.remote.connection import VARIABLE

    if key_file is not None:
        from busway.config.errors import ConfigError
        from busway.config.values import key_in_file

        try:
            return key_in_file(Path(key_file), "--key-file")
        except ConfigError as error:
            refuse(str(error))
    if given:
        refuse(
            f"The key of the namespace '{namespace}' was given with --key, --key-file or in a "
            "configuration, and is not kept in the data folder. Name a file that has it with "
            "--key-file."
        )
    own = None if namespace == DEFAULT_NAMESPACE else namespace
    try:
        return root_key.read(folder / root_key.file_name(own))
    except root_key.RootKeyError as error:
        refuse(str(error))
    except OSError as error:
        refuse(
            f"The root key in the data folder {folder} cannot be read: {error.strerror}. Name the "
            f"folder of the server, or give its connection string in {VARIABLE}."
        )
