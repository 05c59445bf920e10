"""Silver: one row per message and one per delivery, kept up to date from new events alone.

A row is what its events add up to, and sums can be added: a row that is there and the events that
are new make the next row. So `curate` reads what was captured since the last time, and writes again
only the dates whose rows have changed. If it cannot know what is new (the log was cleaned, files
were vacuumed), it reads everything; the rows are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from busway.pipeline.lake.lake import Table
from busway.pipeline.lake.table import LakeTable
from busway.pipeline.lake.tables import DELIVERIES, MESSAGES, OVER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAIN, DEAD_LETTER, TRANSFER = "main", "dead_letter", "transfer"
CARRYING = ("enqueued", "scheduled")
SETTLING = ("completed", "abandoned", "deferred", "dead_lettered")

IDENTITY = ("entity", "subscription", "epoch", "partition", "sequence_number")
OF_MESSAGE = (
    "message_id",
    "session_id",
    "partition_key",
    "correlation_id",
    "subject",
    "content_type",
    "reply_to",
    "to",
    "application_properties",
    "typed_properties",
    "body",
    "body_type",
    "body_size",
    "message_size",
)


@dataclass(frozen=True, slots=True)
class Silver:
    """How a table comes out of events."""

    table: LakeTable
    key: tuple[str, ...]
    partials: Callable[[DataFrame], DataFrame]
    """One row for each event that matters, in the shape of the table's sums."""
    again: Callable[[DataFrame], DataFrame]
    """The rows of the table in that shape."""
    combine: Callable[[DataFrame], DataFrame]
    """Partials to rows."""


def update(spark: SparkSession, silver: Silver, events: Table, target: Table) -> int:
    """Bring a silver table up to the newest version of `events`; how many rows were written."""
    app_id = f"curate:{silver.table.name}"
    now = events.delta().version()
    done = target.last_version_of(app_id)
    if done is not None and done >= now:
        return 0
    files = None if done is None else events.added_since(done)
    if files is None:
        rows = silver.combine(silver.partials(events.frame(spark)))
        return target.replace(rows, app_id, now)
    new = silver.partials(events.frame_of(spark, files)).cache()
    try:
        there = target.frame(spark)
        keys = new.select(*silver.key).distinct()
        met = [there[name].eqNullSafe(keys[name]) for name in silver.key]
        dates = {
            row.first_date
            for part in (
                there.join(keys, _all(met), "left_semi").select("first_date").distinct(),
                silver.combine(new).select("first_date").distinct(),
            )
            for row in part.collect()
        }
        kept = there.where(there["first_date"].isin(sorted(dates)))
        rows = silver.combine(silver.again(kept).unionByName(new))
        return target.replace(rows, app_id, now, sorted(dates))
    finally:
        new.unpersist()


def forget_moved(spark: SparkSession, events: Table, target: Table) -> int:
    """Drop messages of an incarnation whose place another one took, with its messages; how many.

    The old journal says of each that it was moved, but a capture that was away has not read that.
    What it left behind open has its row in the new journal.
    """
    from pyspark.sql import functions as f

    arrivals = events.frame(spark).where(migrated()).groupBy("entity", "subscription", "epoch")
    took_over = arrivals.agg(f.min("event_time").alias("at")).collect()
    if not took_over:
        return 0
    there = target.frame(spark)
    superseded = f.lit(False)
    for row in took_over:
        superseded = superseded | (
            (f.col("entity") == row.entity)
            & f.col("subscription").eqNullSafe(f.lit(row.subscription))
            & (f.col("epoch") != row.epoch)
            & (f.col("first_event_at") < f.lit(row.at))
        )
    left = superseded & ~f.col("state").isin(*OVER)
    found = there.where(left).groupBy("first_date").count().collect()
    if not found:
        return 0
    dates = sorted(row.first_date for row in found)
    kept = there.where(f.col("first_date").isin(dates) & ~left)
    target.replace(kept, "curate:moved", events.delta().version(), dates)
    return sum(int(row["count"]) for row in found)


def _all(conditions: Sequence[Any]) -> Any:
    joined = conditions[0]
    for each in conditions[1:]:
        joined = joined & each
    return joined


# --- Messages ------------------------------------------------------------------------------------


def message_partials(events: DataFrame) -> DataFrame:
    """What each event says of its message. `content` is the message, where the event carries it."""
    from pyspark.sql import functions as f

    event, at = f.col("event"), f.col("event_time")

    def when(word: str, value: Column) -> Column:
        return f.when(event == word, value)

    numbered = events.where(f.col("sequence_number").isNotNull() & (event != "duplicate_dropped"))
    own = numbered.select(
        *IDENTITY,
        f.when(event.isin(*CARRYING), f.struct(*OF_MESSAGE)).alias("content"),
        f.when(event.isin(*CARRYING), f.col("journal_offset")).alias("content_offset"),
        when("scheduled", at).alias("scheduled_at"),
        # One that was moved here is as old as it is, wherever it was.
        when("enqueued", f.when(migrated(), f.coalesce("enqueued_time", at)).otherwise(at)).alias(
            "enqueued_at"
        ),
        when("delivered", at).alias("first_delivered_at"),
        when("delivered", at).alias("last_delivered_at"),
        when("dead_lettered", at).alias("dead_lettered_at"),
        f.coalesce(when("delivered", f.lit(1)), f.lit(0)).cast("long").alias("deliveries"),
        f.coalesce(when("abandoned", f.lit(1)), f.lit(0)).cast("long").alias("abandons"),
        when("dead_lettered", f.col("dead_letter_reason")).alias("dead_letter_reason"),
        when("dead_lettered", f.col("dead_letter_description")).alias("dead_letter_description"),
        when("forwarded", f.col("destination")).alias("destination"),
        at.alias("first_event_at"),
        f.struct(
            f.col("journal_offset").alias("last_offset"),
            event.alias("last_event"),
            f.col("sub_queue").alias("last_sub_queue"),
            at.alias("last_event_at"),
        ).alias("last"),
    )
    return own.unionByName(_renumbered(numbered, own))


def _renumbered(events: DataFrame, like: DataFrame) -> DataFrame:
    """Some messages go on under another number: the last word about the old one."""
    from pyspark.sql import functions as f

    activated = events.where(
        (f.col("event") == "enqueued")
        & (f.col("related_sequence_number") > 0)
        & ~migrated()  # then it is a number in the entity that it was moved from
    )
    filled = {
        "sequence_number": f.col("related_sequence_number"),
        "deliveries": f.lit(0).cast("long"),
        "abandons": f.lit(0).cast("long"),
        "first_event_at": f.col("event_time"),
        "last": f.struct(
            f.col("journal_offset").alias("last_offset"),
            f.lit("renumbered").alias("last_event"),
            f.col("sub_queue").alias("last_sub_queue"),
            f.col("event_time").alias("last_event_at"),
        ),
    }
    columns = []
    for field in like.schema.fields:
        if field.name in filled:
            column = filled[field.name]
        elif field.name in IDENTITY:
            column = f.col(field.name)
        else:
            column = f.lit(None).cast(field.dataType)
        columns.append(column.alias(field.name))
    return activated.select(*columns)


def migrated() -> Column:
    """Whether an arrival is that of a message from the entity whose place this one took."""
    from pyspark.sql import functions as f

    return f.col("dead_letter_reason").eqNullSafe("Migrated")


def messages_again(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.select(
        *IDENTITY,
        f.struct(*OF_MESSAGE).alias("content"),
        # Older than any event: what an event carries goes before what is there.
        f.lit(-1).cast("long").alias("content_offset"),
        "scheduled_at",
        "enqueued_at",
        "first_delivered_at",
        "last_delivered_at",
        "dead_lettered_at",
        "deliveries",
        "abandons",
        "dead_letter_reason",
        "dead_letter_description",
        "destination",
        "first_event_at",
        f.struct("last_offset", "last_event", "last_sub_queue", "last_event_at").alias("last"),
    )


def combine_messages(partials: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    sums = partials.groupBy(*IDENTITY).agg(
        f.max_by("content", "content_offset").alias("content"),
        f.min("scheduled_at").alias("scheduled_at"),
        f.min("enqueued_at").alias("enqueued_at"),
        f.min("first_delivered_at").alias("first_delivered_at"),
        f.max("last_delivered_at").alias("last_delivered_at"),
        f.max("dead_lettered_at").alias("dead_lettered_at"),
        f.sum("deliveries").alias("deliveries"),
        f.sum("abandons").alias("abandons"),
        f.max_by("dead_letter_reason", "dead_lettered_at").alias("dead_letter_reason"),
        f.max_by("dead_letter_description", "dead_lettered_at").alias("dead_letter_description"),
        f.max("destination").alias("destination"),
        f.min("first_event_at").alias("first_event_at"),
        f.max("last").alias("last"),
    )
    rows = sums.select(
        *IDENTITY,
        "content.*",
        *[name for name in sums.columns if name not in (*IDENTITY, "content", "last")],
        "last.*",
    )
    # What was moved by a migration goes on in the new journal: it is one message, and has one row.
    rows = rows.where(f.col("last_event") != "moved").withColumn("state", _state())
    over = f.col("state").isin(*OVER)
    return rows.withColumn("ended_at", f.when(over, f.col("last_event_at"))).withColumn(
        "first_date", f.to_date("first_event_at")
    )


def _state() -> Column:
    from pyspark.sql import functions as f

    event, place = f.col("last_event"), f.col("last_sub_queue")
    gone = event.isin("completed", "expired", "purged", "forwarded")
    dead = place.isin(DEAD_LETTER, f"{TRANSFER}_{DEAD_LETTER}")
    return (
        f.when(dead & gone, f.lit("dead_letter_removed"))
        .when(dead | (event == "dead_lettered"), f.lit("dead_lettered"))
        .when((place == TRANSFER) & ~gone, f.lit("transferring"))
        .when(event.isin("enqueued", "delivered", "abandoned"), f.lit("active"))
        .otherwise(event)
    )


# --- Deliveries ----------------------------------------------------------------------------------

DELIVERY = (*IDENTITY, "lock_token")


def delivery_partials(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    event, at = f.col("event"), f.col("event_time")
    delivered, settled = event == "delivered", event.isin(*SETTLING)
    outcome = f.when(
        (event == "abandoned") & (f.col("dead_letter_reason") == "LockExpired"),
        f.lit("lock_expired"),
    ).otherwise(event)
    return events.where(f.col("lock_token").isNotNull() & (delivered | settled)).select(
        *DELIVERY,
        f.when(delivered, f.col("delivery_count") + 1).cast("long").alias("attempt"),
        f.when(delivered, at).alias("delivered_at"),
        f.when(settled, at).alias("settled_at"),
        f.when(settled, outcome).alias("outcome"),
        at.alias("first_event_at"),
        f.col("journal_offset").alias("last_offset"),
    )


def deliveries_again(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    first = f.coalesce("delivered_at", "settled_at").alias("first_event_at")
    return rows.select(
        *DELIVERY, "attempt", "delivered_at", "settled_at", "outcome", first, "last_offset"
    )


def combine_deliveries(partials: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    sums = partials.groupBy(*DELIVERY).agg(
        f.max("attempt").alias("attempt"),
        f.min("delivered_at").alias("delivered_at"),
        f.max("settled_at").alias("settled_at"),
        f.max("outcome").alias("outcome"),
        f.min("first_event_at").alias("first_event_at"),
        f.max("last_offset").alias("last_offset"),
    )
    return sums.withColumn("first_date", f.to_date("first_event_at"))


OF_MESSAGES = Silver(MESSAGES, IDENTITY, message_partials, messages_again, combine_messages)
OF_DELIVERIES = Silver(
    DELIVERIES, DELIVERY, delivery_partials, deliveries_again, combine_deliveries
)
