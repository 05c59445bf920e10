"""What left an entity and what arrived in its twin, compared by Spark: the judge of `migrate`.

Every message that left must have arrived once, the same in each byte, in the same state, and in the
same order within its session. Both sides are events of journals; `part` is the queue, or the topic
or subscription, to which the numbers belong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SHOWN = 20
"""Differences and numbers that a person is shown; programs get all numbers."""
COMPARED = {
    "sub_queue": "lies elsewhere",
    "state": "is in another state",
    "session_id": "is in another session",
    "message_id": "has another message id",
    "delivery_count": "has another delivery count",
    "typed_properties": "has other properties",
    "content": "has other bytes",
}
LEFT = ("moved",)
ARRIVED = ("enqueued", "scheduled", "deferred")
READ = (
    "partition",
    "event",
    "sub_queue",
    "sequence_number",
    "related_sequence_number",
    "dead_letter_reason",
    "destination",
    "message_id",
    "session_id",
    "delivery_count",
    "typed_properties",
    "raw",
)


@dataclass(slots=True)
class Verified:
    messages: int = 0
    sessions: int = 0
    states: dict[str, int] = field(default_factory=dict)
    """How many messages of each state, and how many dead letters."""
    deferred: list[dict[str, Any]] = field(default_factory=list)
    """By queue or subscription, the numbers that deferred messages had and have: who keeps them
    needs the new ones."""
    differences: list[str] = field(default_factory=list)


def paired(source: DataFrame, twin: DataFrame) -> DataFrame:
    """One row for each message that left or arrived: what it was, and what it is. `part` is the
    queue, or the topic or subscription, whose own its number is."""
    from pyspark.sql import functions as f

    left = source.where(f.col("event") == "moved").select(
        "part",
        f.col("sequence_number").alias("number"),
        f.col("partition").alias("from_partition"),
        f.col("dead_letter_reason").alias("was_state"),
        *_facts("was"),
    )
    deferred = twin.where(f.col("event") == "deferred").select("part", "sequence_number").distinct()
    arrived = twin.where(
        f.col("event").isin("enqueued", "scheduled") & (f.col("dead_letter_reason") == "Migrated")
    )
    is_deferred = f.col("deferred").isNotNull()
    arrived = arrived.join(
        deferred.withColumn("deferred", f.lit(True)), ["part", "sequence_number"], "left"
    ).select(
        "part",
        f.col("related_sequence_number").alias("number"),
        f.col("sequence_number").alias("new_number"),
        f.col("partition").alias("to_partition"),
        f.when(f.col("event") == "scheduled", "scheduled")
        .when(is_deferred, "deferred")
        .otherwise("active")
        .alias("is_state"),
        *_facts("is"),
    )
    return left.join(arrived, ["part", "number"], "full_outer")


def _facts(prefix: str) -> list[Column]:
    from pyspark.sql import functions as f

    named = {name: f.col(name) for name in COMPARED if name not in ("state", "content")}
    named["content"] = f.sha2(f.col("raw"), 256)
    return [column.alias(f"{prefix}_{name}") for name, column in named.items()]


def judged(pairs: DataFrame) -> Verified:
    """Counts, and every way in which the two sides differ."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    lost, added = f.col("new_number").isNull(), f.col("from_partition").isNull()
    problem = f.when(lost, "did not arrive").when(added, "was not in the source")
    for name, words in COMPARED.items():
        same = f.col(f"was_{name}").eqNullSafe(f.col(f"is_{name}"))
        problem = problem.when(~same, words)
    # A number is a source's own, so a second arrival of one is a second row.
    by_number = Window.partitionBy("part", "number")
    problem = problem.when(f.count("*").over(by_number) > 1, "arrived twice")
    in_order = Window.partitionBy(*ways(pairs)).orderBy("number")
    overtaken = f.lag("new_number").over(in_order) > f.col("new_number")
    problem = problem.when(overtaken, "has been overtaken")
    found = pairs.withColumn("problem", problem).cache()
    try:
        place = f.when(f.col("was_sub_queue") == "main", f.col("was_state")).otherwise(
            f.col("was_sub_queue")
        )
        states = {row[0]: row[1] for row in found.groupBy(place).count().collect()}
        wrong = found.where(f.col("problem").isNotNull())
        bad = wrong.orderBy("part", "number").limit(SHOWN).collect()
        deferred = (
            found.where(f.col("was_state") == "deferred")
            .orderBy("part", "number")
            .select("part", "number", "new_number", "was_session_id")
            .collect()
        )
        sessions = found.select("part", "was_session_id").where("was_session_id is not null")
        return Verified(
            sum(states.values()),
            sessions.distinct().count(),
            {str(name): count for name, count in states.items()},
            [
                {
                    "entity": row.part,
                    "was": row.number,
                    "is": row.new_number,
                    "session_id": row.was_session_id,
                }
                for row in deferred
            ],
            [f"Message {row.number} of '{row.part}' {row.problem}." for row in bad],
        )
    finally:
        found.unpersist()


def ways(pairs: DataFrame) -> list[Column]:
    """Within these the order is promised: a session, or what one partition gave to another."""
    from pyspark.sql import functions as f

    session = f.col("was_session_id")
    return [
        f.col("part"),
        f.col("was_sub_queue"),
        session,
        f.when(session.isNull(), f.col("from_partition")),
        f.when(session.isNull(), f.col("to_partition")),
    ]


def numbers(pairs: DataFrame) -> DataFrame:
    """For who has kept numbers: each message's old and new one."""
    return pairs.selectExpr(
        "part as entity",
        "number as old_sequence_number",
        "new_number as new_sequence_number",
        "was_sub_queue as sub_queue",
        "was_state as state",
        "was_session_id as session_id",
        "was_message_id as message_id",
    )
