"""`busway trust`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.options import Command, refuse

if TYPE_CHECKING:
    from busway.runtime.trust_stores import Authority, JavaStore, SystemStore

TRUST_HELP = """Have clients on this machine trust the broker's certificate, or no longer.

The authority of 'busway serve --tls' is put into the certifi of this Python environment, where the
Azure SDK for Python looks. Other places are asked for. What was done is told, and nothing is done
twice; --remove takes away whatever this command has put there.

\b
  busway trust                                the authority of ./data/tls
  busway trust --python ../app/.venv          in the environment of an application
  sudo busway trust --system                  in the store of this system: Go, .NET, curl
  busway trust --java "$JAVA_HOME"            in the trust store of a Java
  busway trust --remove

Whoever can read authority.key in that folder can pretend to be any server to these clients. Use
this on machines for development.
"""


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=TRUST_HELP)(trust)


def trust(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Data folder of the server.", show_default=True)
    ] = "data",
    authority: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The authority, if it is not in DATA/tls."),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A Python, or the folder of a virtual environment, in place of this one; may be "
            "repeated.",
        ),
    ] = None,
    system: Annotated[
        bool | None, typer.Option("--system", help="Also in the store of the system.")
    ] = None,
    java: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Also in that of a Java home, or in a trust store file."),
    ] = None,
    remove: Annotated[
        bool | None, typer.Option("--remove", help="Take it away again, in the same places.")
    ] = None,
) -> None:
    from pathlib import Path

    from busway.runtime import trust_stores as stores

    place = Path(authority) if authority else Path(data, "tls", "authority.pem")
    own: stores.Authority | None = None
    if not remove:
        try:
            own = stores.Authority.read(place)
        except stores.TrustError as error:
            refuse(str(error))
    failed = False
    for where, change in _changes(own, python or _environments(), bool(system), java):
        try:
            print(f"{where}: {change()}")
        except stores.TrustError as error:
            failed = True
            print(f"busway: {error}", file=sys.stderr)
    if own is not None:
        print(f"Node looks in no store: export NODE_EXTRA_CA_CERTS={own.path}")
        print("'busway env' prints the variables for every SDK.")
    if failed:
        raise typer.Exit(1)


def _changes(
    own: Authority | None, pythons: list[str], system: bool, java: str | None
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each place, and what is to be done there: add this authority, or for None remove ours."""
    from busway.runtime import trust_stores as stores

    def in_certifi(python: str) -> str:
        bundle = stores.certifi_of(python)
        if bundle is None:
            return "has no certifi, so nothing is to be done"
        if own is None:
            return f"{stores.remove_from_bundle(bundle)} ({bundle})"
        return f"{stores.add_to_bundle(bundle, own)} ({bundle})"

    def in_store(found: Callable[[], SystemStore | JavaStore]) -> str:
        store = found()
        return store.remove() if own is None else store.add(own)

    for python in pythons:
        yield f"Python {python}", partial(in_certifi, python)
    if system:
        yield "system", partial(in_store, stores.system_store)
    if java:
        yield f"Java {java}", partial(in_store, partial(stores.JavaStore.of, java))


def _environments() -> list[str]:
    """The one that is active in the terminal, and the one that this command runs in."""
    active = os.environ.get("VIRTUAL_ENV")
    if active and os.path.realpath(active) != os.path.realpath(sys.prefix):
        return [active, sys.executable]
    return [sys.executable]
