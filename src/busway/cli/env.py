"""`busway env`."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from busway.cli.options import Command, refuse

ENV_HELP = """Print the variables by which applications with a credential find a broker.

For the server that was last started on DATA with --dev-tokens. DefaultAzureCredential and
ManagedIdentityCredential of azure-identity, in every language, then get their tokens from it.

\b
  eval "$(busway env)"                        in this terminal
  busway env --shell powershell               for PowerShell
  busway env --shell dotenv > .env            for files of variables

They have a secret in them: keep them out of logs. The Azure SDK for Python looks for authorities in
certifi, and listens to no variable; 'busway trust' puts the broker's there.
"""
SHELLS = ("sh", "powershell", "dotenv")


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=ENV_HELP)(env)


def env(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Data folder of the server.", show_default=True)
    ] = "data",
    shell: Annotated[
        str, typer.Option(metavar="KIND", help="sh, powershell or dotenv.", show_default=True)
    ] = "sh",
) -> None:
    if shell not in SHELLS:
        refuse(f"--shell is '{shell}', and must be one of {', '.join(SHELLS)}.")
    for name, value in variables(data).items():
        print(written(name, value, shell))
    if sys.stdout.isatty():
        print("# 'eval \"$(busway env)\"' sets them in this terminal", file=sys.stderr)


def variables(data: str) -> dict[str, str]:
    from pathlib import Path

    from busway.cluster import served_at
    from busway.model.entities import DEFAULT_NAMESPACE
    from busway.runtime.certificates import JAVA_PASSWORD, CertificateFolder
    from busway.runtime.trust_bundles import make_bundles

    folder = Path(data).resolve()
    try:
        header = (folder / "identity" / "header").read_text(encoding="ascii").strip()
    except OSError as error:
        refuse(
            f"{error.filename}: {error.strerror}. Start the broker once with --dev-tokens and "
            f"--data {data}."
        )
    served = served_at.read(folder)
    host = served.hosts.get(DEFAULT_NAMESPACE, "localhost")
    found = {
        "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": host,
        "IDENTITY_ENDPOINT": f"http://{host}:{served.port}/msi/token",
        "IDENTITY_HEADER": header,
    }
    files = CertificateFolder(folder / "tls")
    if not files.authority.exists():
        return found  # the certificate is one of the user's own
    try:
        pem, java = make_bundles(files)
    except OSError as error:
        refuse(f"{error.filename}: {error.strerror}. The bundles of authorities cannot be made.")
    return found | {
        "SSL_CERT_FILE": str(pem),
        "REQUESTS_CA_BUNDLE": str(pem),
        "NODE_EXTRA_CA_CERTS": str(files.authority),
        "JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={java} "
        f"-Djavax.net.ssl.trustStorePassword={JAVA_PASSWORD}",
    }


def written(name: str, value: str, shell: str) -> str:
    if shell == "powershell":
        quoted = value.replace("'", "''")
        return f"$env:{name} = '{quoted}'"
    if shell == "dotenv":
        return f"{name}={value}"
    return f"export {name}={shlex.quote(value)}"
