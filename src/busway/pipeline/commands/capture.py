"""`busway pipeline capture`: journals into a lake, until it is told to end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from busway.pipeline.commands.console import (
    FAILED,
    Conf,
    ConnectionString,
    HttpEndpoint,
    Json,
    LakeFolder,
    Master,
    check_spark,
    credentials_of,
    number,
    refuse,
    say,
    spark_session,
    summarise,
    undisturbed,
)

if TYPE_CHECKING:
    from busway.pipeline.jobs.capture_watch import Captured


def capture(
    lake: LakeFolder,
    entity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A queue or topic, topic/Subscriptions/name, or a pattern ('orders-*'); may be "
            "repeated.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every queue, topic and subscription, also later ones.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Only what is there now; otherwise until Ctrl-C.")
    ] = False,
    batch_events: Annotated[
        str, typer.Option(metavar="N", help="At most so many events in a batch.")
    ] = "200000",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Go on where a journal no longer has what the lake lacks."
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="[HOST:]PORT",
            help="Serve /metrics for Prometheus and /health there.",
        ),
    ] = None,
    connection_string: ConnectionString = None,
    http_endpoint: HttpEndpoint = None,
    master: Master = "local[*,4]",
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Copy the journals of entities into the table 'events' of a lake, each event once.

    \b
      busway pipeline capture --entity orders --lake ./lake            until Ctrl-C
      busway pipeline capture --entity orders --lake ./lake --once     what is there now
      busway pipeline capture --entity 'orders-*' --lake s3://bucket/lake
      busway pipeline capture --all --lake ./lake --metrics 9400

    \b
    Capture is switched on where it is off, and it says from when on it captures. What the lake has
    is not copied again, whatever was killed in between. The folder is made if it is not there. An
    entity that is deleted is waited for, and captured again when it is made again.
    """
    from busway.pipeline.commands.monitor import Monitor
    from busway.pipeline.jobs.capture import Capture, CaptureSettings
    from busway.pipeline.jobs.capture_watch import EVERYTHING
    from busway.pipeline.jobs.capture_watch import FAILED as IS_FAILED
    from busway.pipeline.lake.lake import Lake

    names = [*(entity or ()), *([EVERYTHING] if everything else [])]
    if not names:
        refuse("Say what to capture: --entity NAME, --entity 'PATTERN*', or --all.")
    events = number("--batch-events", batch_events, 1, 100_000_000)
    credentials = credentials_of(connection_string, http_endpoint)
    # What can go wrong does so before the broker keeps a journal for nobody, and before Spark,
    # which takes its time.
    check_spark()
    there = Lake(lake)
    there.check_writable()
    settings = CaptureSettings(tuple(names), events, accept_loss=accept_loss)
    job = Capture(there, credentials, settings, say=say, on_batch=_told)
    job.begin(once=once)
    with (
        nullcontext() if metrics is None else Monitor(metrics, job.watch),
        spark_session("capture", master, conf) as spark,
        undisturbed() as asked_to_end,
    ):
        captured = job.run(spark, once=once, stopped=lambda: bool(asked_to_end))
        if asked_to_end:
            say("stopping; what was captured is kept, and the next run goes on from there")
    summary = {name: _summary(each) for name, each in captured.items()}
    lines = [f"{name}: {_counted(each)}" for name, each in captured.items()]
    summarise({"lake": there.folder, "entities": summary}, lines, as_json)
    if any(each.state == IS_FAILED for each in captured.values()):
        sys.exit(FAILED)


def _told(captured: Sequence[Captured]) -> None:
    for each in captured:
        say(f"{each.entity}: {_counted(each)}")


def _counted(captured: Captured) -> str:
    batches = "1 batch" if captured.batches == 1 else f"{captured.batches:,} batches"
    return f"{captured.rows:,} events in {batches}"


def _summary(captured: Captured) -> dict[str, object]:
    return {**asdict(captured), "behind": sum(captured.behind.values())}


COMMANDS: dict[str, Callable[..., None]] = {"capture": capture}
