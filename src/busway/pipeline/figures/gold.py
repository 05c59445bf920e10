"""Gold: the figures, computed anew from events, messages and deliveries.

Each function makes one table. They read a few narrow columns, never bodies: computing all of
it again costs less than keeping it up to date would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from busway.pipeline.figures.silver import DEAD_LETTER, migrated
from busway.pipeline.lake.table import LakeTable
from busway.pipeline.lake.tables import (
    DEAD_LETTERS,
    DUPLICATES,
    HOT_KEYS,
    LATENCY,
    ORDER_AUDIT,
    PARTITION_LOAD,
    REASONS,
    SKEW,
    THROUGHPUT,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOT_KEYS_MAX = 100
ENTITY = ("entity", "subscription")

Frames = Mapping[str, "DataFrame"]
"""`events`, `entities`, `messages` and `deliveries`."""


def _minute(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.date_trunc("minute", f.col(name)).alias("minute")


def throughput(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    # What a migration brings from the journal before is no traffic.
    brought = f.col("event").isin("enqueued", "scheduled") & migrated()
    return (
        frames["events"]
        .where(~brought)
        .groupBy(*ENTITY, _minute("event_time"), "event")
        .agg(
            f.count("*").alias("events"),
            f.coalesce(f.sum("message_size"), f.lit(0)).alias("bytes"),
        )
    )


def latency(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    messages = frames["messages"].where(f.col("enqueued_at").isNotNull())

    def measured(name: str, until: str, rows: DataFrame) -> DataFrame:
        waited = (f.unix_micros(f.col(until)) - f.unix_micros(f.col("enqueued_at"))) / f.lit(1000.0)
        timed = rows.where(f.col(until).isNotNull()).withColumn("waited_ms", waited)
        parts = f.percentile_approx("waited_ms", [0.5, 0.95, 0.99], 10_000)
        return (
            timed.groupBy(*ENTITY, _minute("enqueued_at"))
            .agg(
                f.count("*").alias("messages"),
                parts.alias("parts"),
                f.max("waited_ms").alias("max_ms"),
            )
            .select(
                *ENTITY,
                "minute",
                f.lit(name).alias("measure"),
                "messages",
                f.col("parts")[0].alias("p50_ms"),
                f.col("parts")[1].alias("p95_ms"),
                f.col("parts")[2].alias("p99_ms"),
                "max_ms",
            )
        )

    completed = messages.where(f.col("state") == "completed")
    return measured("to_delivery", "first_delivered_at", messages).unionByName(
        measured("to_completion", "ended_at", completed)
    )


def skew(frames: Frames) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    arrived = _arrived(frames["messages"])
    taken = arrived.groupBy(*ENTITY, "partition").agg(
        f.count("*").alias("messages"),
        f.coalesce(f.sum("message_size"), f.lit(0)).alias("bytes"),
    )
    whole = Window.partitionBy(*ENTITY)
    share = f.coalesce(f.col("messages") / f.sum("messages").over(whole), f.lit(0.0))
    return (
        _partitions(frames, taken)
        .join(taken.alias("taken"), _same(*ENTITY, "partition"), "left")
        .select(
            *(f.col(f"every.{name}").alias(name) for name in (*ENTITY, "partition")),
            f.coalesce("messages", f.lit(0)).cast("long").alias("messages"),
            f.coalesce("bytes", f.lit(0)).cast("long").alias("bytes"),
        )
        .withColumn("share", share)
        .withColumn("skew", f.col("share") * f.count("*").over(whole))
    )


def _partitions(frames: Frames, taken: DataFrame) -> DataFrame:
    """Every partition of each entity that took a message, whether it was used or not.

    The newest incarnation says how many there are; lakes of before that was written down have at
    least those that took something.
    """
    from pyspark.sql import functions as f

    used = taken.groupBy(*ENTITY).agg((f.max("partition") + 1).alias("used")).alias("taken")
    known = (
        frames["entities"]
        .groupBy(*ENTITY)
        .agg(f.max_by("partitions", "first_captured_at").alias("partitions"))
        .alias("every")
    )
    counted = used.join(known, _same(*ENTITY), "left")
    last = f.greatest("used", f.coalesce("partitions", f.lit(1))) - 1
    return counted.select(
        *(f.col(f"taken.{name}").alias(name) for name in ENTITY),
        f.explode(f.sequence(f.lit(0), last.cast("int"))).alias("partition"),
    ).alias("every")


def _same(*names: str) -> Column:
    """A condition for joining `every` and `taken`, null being equal to null."""
    from pyspark.sql import functions as f

    conditions = [f.col(f"every.{name}").eqNullSafe(f.col(f"taken.{name}")) for name in names]
    joined = conditions[0]
    for each in conditions[1:]:
        joined = joined & each
    return joined


def partition_load(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        _arrived(frames["messages"])
        .groupBy(*ENTITY, "partition", _minute("enqueued_at"))
        .agg(f.count("*").alias("messages"))
    )


def hot_keys(frames: Frames) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    messages = _arrived(frames["messages"])
    totals = messages.groupBy(*ENTITY).agg(f.count("*").alias("total"))

    def hot(kind: str, column: str) -> DataFrame:
        counted = (
            messages.where(f.col(column).isNotNull())
            .groupBy(*ENTITY, f.col(column).alias("key"))
            .agg(f.count("*").alias("messages"))
        )
        order = Window.partitionBy(*ENTITY).orderBy(f.desc("messages"), "key")
        first = counted.withColumn("place", f.row_number().over(order))
        return first.where(f.col("place") <= HOT_KEYS_MAX).withColumn("key_kind", f.lit(kind))

    found = hot("session", "session_id").unionByName(hot("partition_key", "partition_key"))
    met = found["entity"].eqNullSafe(totals["entity"]) & found["subscription"].eqNullSafe(
        totals["subscription"]
    )
    return found.join(totals, met).select(
        found["entity"],
        found["subscription"],
        "key_kind",
        "key",
        "messages",
        (f.col("messages") / f.col("total")).alias("share"),
    )


def dead_letters(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    left = f.when(
        f.col("ended_at").isNotNull() & f.col("last_sub_queue").contains(DEAD_LETTER),
        f.col("ended_at"),
    )
    return (
        frames["messages"]
        .where(f.col("dead_lettered_at").isNotNull())
        .select(
            *ENTITY,
            "epoch",
            "partition",
            "sequence_number",
            "message_id",
            "session_id",
            f.col("dead_letter_reason").alias("reason"),
            f.col("dead_letter_description").alias("description"),
            "dead_lettered_at",
            "deliveries",
            left.alias("left_at"),
        )
    )


def reasons(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        dead_letters(frames)
        .groupBy(*ENTITY, f.to_date("dead_lettered_at").alias("day"), "reason")
        .agg(
            f.count("*").alias("messages"),
            f.count_if(f.col("left_at").isNull()).alias("still_there"),
        )
    )


def duplicates(frames: Frames) -> DataFrame:
    from pyspark.sql import functions as f

    event = f.col("event")
    # What was scheduled and became active, or was migrated, was accepted once.
    is_new = f.coalesce(f.col("related_sequence_number"), f.lit(0)) == 0
    first = event.isin("scheduled", "enqueued") & is_new
    counted = (
        frames["events"]
        .groupBy(*ENTITY, _minute("event_time"))
        .agg(
            f.count_if(first).alias("accepted"),
            f.count_if(event == "duplicate_dropped").alias("dropped"),
        )
        .where((f.col("accepted") > 0) | (f.col("dropped") > 0))
    )
    both = f.col("accepted") + f.col("dropped")
    return counted.withColumn("rate", f.col("dropped") / both)


def session_order(frames: Frames) -> DataFrame:
    """Per session, the number of each completion must be above those before it (SES-4)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    completed = frames["messages"].where(
        f.col("session_id").isNotNull() & (f.col("state") == "completed")
    )
    session = (*ENTITY, "epoch", "session_id")
    before = (
        Window.partitionBy(*session)
        .orderBy("last_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    inverted = f.col("sequence_number") < f.max("sequence_number").over(before)
    return (
        completed.select(
            *session,
            "ended_at",
            f.coalesce(inverted, f.lit(False)).alias("inverted"),
        )
        .groupBy(*session)
        .agg(
            f.count("*").alias("completed"),
            f.count_if("inverted").alias("inversions"),
            f.min(f.when(f.col("inverted"), f.col("ended_at"))).alias("first_inversion_at"),
        )
    )


def _arrived(messages: DataFrame) -> DataFrame:
    """Each message once: one that was scheduled first counts when it became active."""
    from pyspark.sql import functions as f

    return messages.where(f.col("enqueued_at").isNotNull())


FIGURES: tuple[tuple[LakeTable, Callable[[Frames], DataFrame]], ...] = (
    (DEAD_LETTERS, dead_letters),
    (THROUGHPUT, throughput),
    (LATENCY, latency),
    (SKEW, skew),
    (PARTITION_LOAD, partition_load),
    (HOT_KEYS, hot_keys),
    (REASONS, reasons),
    (DUPLICATES, duplicates),
    (ORDER_AUDIT, session_order),
)
