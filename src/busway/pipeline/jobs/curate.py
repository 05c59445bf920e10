"""Curate: silver and gold tables from what was captured. Runs beside a capture, again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from busway.pipeline.figures import gold, silver
from busway.pipeline.lake.lake import Lake, Table
from busway.pipeline.lake.tables import DELIVERIES, ENTITIES, EVENTS, MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NothingCapturedError(Exception):
    """There is no lake here, or nothing in it."""


@dataclass(slots=True)
class Curated:
    events_version: int
    rows: dict[str, int] = field(default_factory=dict)
    """By table: how many rows were written."""


def captured(lake: Lake) -> Table:
    """The table that all others are made from."""
    events = lake.table(EVENTS.layout())
    if not events.exists():
        raise NothingCapturedError(
            f"There is no table 'events' in {lake.folder}. Fill it first: "
            "busway pipeline capture --entity NAME --lake FOLDER --once."
        )
    return events


def curate(
    spark: SparkSession, lake: Lake, on_table: Callable[[str, int], None] = lambda name, rows: None
) -> Curated:
    """All tables above bronze. Each is one commit; a run that is killed is simply run again."""
    events = captured(lake)
    curated = Curated(events.delta().version())
    for each in (silver.OF_MESSAGES, silver.OF_DELIVERIES):
        table = lake.table(each.table.layout())
        rows = silver.update(spark, each, events, table)
        if rows and each is silver.OF_MESSAGES:
            silver.forget_moved(spark, events, table)
        curated.rows[each.table.name] = rows
        on_table(each.table.name, rows)
    frames = {
        "events": events.frame(spark, curated.events_version),
        "entities": lake.table(ENTITIES.layout()).frame(spark),
        "messages": lake.table(MESSAGES.layout()).frame(spark),
        "deliveries": lake.table(DELIVERIES.layout()).frame(spark),
    }
    for layout, compute in gold.FIGURES:
        target = lake.table(layout.layout())
        app_id = f"curate:{layout.name}"
        if target.last_version_of(app_id) == curated.events_version:
            continue
        rows = target.replace(compute(frames).coalesce(1), app_id, curated.events_version)
        curated.rows[layout.name] = rows
        on_table(layout.name, rows)
    return curated
