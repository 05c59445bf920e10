"""`busway verify`: is a data folder whole?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from busway.cli.options import Command, refuse

VERIFY_HELP = """Look through a data folder that no broker uses, and say what is damaged.

Stores, their logs, the catalog, every checksum, and what catalog and stores say of each other.
Nothing is changed. The exit status is 0 if all is well, 1 if something is damaged.

\b
  busway verify data
  busway verify data --json
"""
DAMAGED = 1


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=VERIFY_HELP)(verify)


def verify(
    data: Annotated[str, typer.Argument(metavar="DATA", help="The data folder.")],
    json_: Annotated[
        bool | None, typer.Option("--json", help="Tell it as JSON, for a machine.")
    ] = None,
) -> None:
    from busway.cluster.data_check import verify_folder
    from busway.store.base import StoreUnavailable
    from busway.store.lockfile import ProcessLock

    folder = Path(data)
    if not folder.is_dir():
        refuse(f"there is no data folder {folder}.")
    lock = ProcessLock(folder / "busway.lock")
    try:
        lock.acquire()
    except StoreUnavailable as error:
        refuse(str(error))
    try:
        report = verify_folder(folder)
    finally:
        lock.release()
    if json_:
        print(json.dumps(report.as_json(), indent=2))
    else:
        for store in report.stores:
            print(
                f"{store.path.name}: {store.messages} messages"
                f" ({store.unchecked} without a checksum), {store.quarantined} set aside"
            )
        for problem in report.all_problems:
            print(f"DAMAGED  {problem}")
        if not report.all_problems:
            print("nothing is damaged")
    sys.exit(DAMAGED if report.all_problems else 0)
