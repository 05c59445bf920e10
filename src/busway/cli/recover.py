"""`busway recover`: what stores hold, given to entities again, written out, or given up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from busway.cli.options import Command, refuse

if TYPE_CHECKING:
    from busway.cluster.data_check import FolderReport

RECOVER_HELP = """See what the stores of a data folder hold that the catalog does not know, and what
was set aside; attach it to entities again, or write it out. No broker may use the folder.

\b
  busway recover data                             what there is
  busway recover data --attach 4711=orders        to the queue 'orders', made if it is not there
  busway recover data --attach 4711=news/Subscriptions/all
  busway recover data --namespace second --attach 4711=orders
  busway recover data --export messages.jsonl     one message per line, as JSON
  busway recover data --accept-loss               go on without commits that are lost
"""


def add_to(app: typer.Typer) -> None:
    app.command(cls=Command, help=RECOVER_HELP)(recover)


def recover(
    data: Annotated[str, typer.Argument(metavar="DATA", help="The data folder.")],
    attach: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INCARNATION=ENTITY",
            help="Give what an incarnation holds to this queue, topic or subscription "
            "(TOPIC/Subscriptions/NAME); may be repeated.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --attach: the entity's namespace."),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write what the catalog does not know to a file."),
    ] = None,
    everything: Annotated[
        bool | None, typer.Option("--all", help="With --export: write every message.")
    ] = None,
    accept_loss: Annotated[
        bool | None,
        typer.Option(
            "--accept-loss",
            help="Let stores open that lack commits which were acknowledged. Their logs are kept "
            "under another name.",
        ),
    ] = None,
) -> None:
    from busway.cluster import attaching, recovery
    from busway.cluster.data_check import verify_folder
    from busway.store.base import StoreUnavailable
    from busway.store.lockfile import ProcessLock
    from busway.store.sqlite_recovery import RecoveryError

    folder = Path(data)
    if not folder.is_dir():
        refuse(f"there is no data folder {folder}.")
    lock = ProcessLock(folder / "busway.lock")
    try:
        lock.acquire()
        if accept_loss:
            for name, lost in recovery.accept_loss(folder).items():
                if lost > 0:
                    print(f"{name}: goes on without {lost} commits that were acknowledged")
                else:
                    print(f"{name}: no commit that was acknowledged is known to be lost")
        for each in attach or ():
            incarnation, _, target = each.partition("=")
            if not incarnation.isdigit() or not target:
                refuse(f"--attach is '{each}', and must be INCARNATION=ENTITY.")
            count = attaching.attach(folder, int(incarnation), target, os.urandom, namespace)
            print(f"{count} messages of incarnation {incarnation} are in '{target}' now")
        report = verify_folder(folder)
        if export is not None:
            wanted = None if everything else {each.incarnation for each in report.strangers}
            with open(export, "w", encoding="utf-8") as file:
                count = 0
                for line in recovery.exported(folder, wanted):
                    print(json.dumps(line), file=file)
                    count += 1
            print(f"{count} messages were written to {export}")
        tell(report)
    except (StoreUnavailable, RecoveryError, OSError) as error:
        refuse(str(error))
    finally:
        lock.release()


def tell(report: FolderReport) -> None:
    for stranger in report.strangers:
        print(f"unknown to the catalog: {stranger}")
    for store in report.stores:
        if store.quarantined:
            print(f"{store.path.name}: {store.quarantined} damaged messages were set aside")
        for problem in store.problems:
            print(f"DAMAGED  {problem}")
    if not report.strangers and not report.all_problems:
        print("The catalog knows everything that the stores hold.")
