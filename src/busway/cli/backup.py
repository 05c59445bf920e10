"""`busway backup` and `busway restore`."""

from __future__ import annotations

from typing import Annotated

import typer

from busway.cli.options import Command, refuse

BACKUP_HELP = """Copy the data folder of a broker, also while it runs: catalog and stores at one
point.

\b
  busway backup data backups/monday
  busway restore backups/monday data

Every message that was acknowledged before the backup began is in it, once. The broker goes on
serving; its commits wait for some milliseconds. The copy has the keys of the broker in it.
"""
RESTORE_HELP = """Put a backup back into a data folder, which must be empty or not there.

All checksums are verified first. Nothing is overwritten, and the backup stays as it is.
"""
Data = Annotated[str, typer.Argument(metavar="DATA", help="The data folder.")]


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=BACKUP_HELP)(backup)
    app.command(cls=Command, help=RESTORE_HELP)(restore)


def backup(
    data: Data,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder for the copy, which is not there yet.")
    ],
) -> None:
    from pathlib import Path

    from busway.runtime import backup as backups
    from busway.runtime.backup_manifest import BackupError

    try:
        taken = backups.back_up(Path(data), Path(target))
    except BackupError as error:
        refuse(str(error))
    how = (
        f"while the broker ran; commits waited for {taken.paused_ms} ms"
        if taken.running
        else "of a broker that did not run"
    )
    print(f"backed up {taken.stores} stores, {taken.size / 1_000_000:.1f} MB, to {target}, {how}")


def restore(
    backup: Annotated[str, typer.Argument(metavar="BACKUP", help="What 'busway backup' has made.")],
    data: Data,
) -> None:
    from pathlib import Path

    from busway.runtime import backup as backups
    from busway.runtime.backup_manifest import BackupError

    try:
        files = backups.restore(Path(backup), Path(data))
    except BackupError as error:
        refuse(str(error))
    print(f"restored {files} files to {data}; start it with: busway serve --data {data}")
