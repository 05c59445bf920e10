"""`busway cert`."""

from __future__ import annotations

from typing import Annotated

import typer

from busway.cli.options import Command, refuse

CERT_HELP = """Make a certificate for a broker of your own, and the authority that signs it.

The authority is made once and kept, so that clients have to be told of it once. Each call makes a
new server certificate, for localhost, 127.0.0.1, ::1 and the names that are given.

\b
  busway cert
  busway cert --out certs --name broker.example.com --name 10.0.0.7
"""


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=CERT_HELP)(cert)


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
