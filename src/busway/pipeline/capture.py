"""Capture: every event of an entity's journal into the lake, once (D-31, P-47).

Spark's checkpoint says which batch is next, the Delta log says which batches are there. Each is
written after the other's work is safe, so a kill between the two leaves a batch that is tried again
and found done. The checkpoint lives in the lake, one for each incarnation of an entity.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from busway.pipeline.connection import Credentials
from busway.pipeline.journal import Heads, Journal
from busway.pipeline.lake import Lake, Table
from busway.pipeline.offsets import Offset
from busway.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINTS = "_checkpoints"
"""Beside the tables; the underscore keeps readers of folders out."""
HOLD_LIFE_S = 7 * 24 * 3600
DEFAULT_EVENTS_PER_TRIGGER = 200_000
TRIGGER_S = 2


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    entity: str
    """With `/Subscriptions/name` for a subscription's own journal."""
    events_per_trigger: int = DEFAULT_EVENTS_PER_TRIGGER
    trigger_s: int = TRIGGER_S
    tasks: int | None = None


@dataclass(slots=True)
class Captured:
    """What a run did, for its summary."""

    entity: str
    epoch: str
    batches: int = 0
    rows: int = 0
    skipped: int = 0
    """Batches that were there already: a run before this one died in the middle."""


class Capture:
    """One entity into one lake. `begin` starts a query; what it does is told to `on_batch`."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        credentials: Credentials,
        settings: CaptureSettings,
        source_options: dict[str, str],
        on_batch: Callable[[Captured], None] = lambda captured: None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._credentials = credentials
        self._source_options = source_options
        self._on_batch = on_batch
        self._lake = lake
        self.table: Table = lake.table(EVENTS.layout())
        self.captured = Captured(settings.entity, "")

    def switch_on(self) -> tuple[Heads, bool]:
        """Make the broker keep a journal. The heads, and whether it was off until now."""
        with self._journal() as journal:
            heads = journal.heads_or_none()
            if heads is not None and heads.capture:
                return heads, False
            return journal.capture(True), True

    def begin(self, heads: Heads, *, once: bool) -> StreamingQuery:
        """Start the query. With `once` it ends when it has what was there at its beginning."""
        self.captured.epoch = heads.epoch
        checkpoint = self._checkpoint(heads)
        app_id = f"capture:{own_id(checkpoint)}"
        options = {
            **self._source_options,
            "entity": self._settings.entity,
            "consumer": f"capture-{own_id(checkpoint)}",
            "maxEventsPerTrigger": str(self._settings.events_per_trigger),
            "startingPosition": self._start(heads).to_json(),
        }
        if self._settings.tasks is not None:
            options["tasks"] = str(self._settings.tasks)
        stream = self._spark.readStream.format("busway").options(**options).load()
        writer = (
            stream.writeStream.queryName(f"capture {self._settings.entity}")
            .option("checkpointLocation", str(checkpoint / "spark"))
            .foreachBatch(self._keeper(app_id, heads.epoch))
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._settings.trigger_s} seconds")
        return writer.start()

    def _keeper(self, app_id: str, epoch: str) -> Callable[[DataFrame, int], None]:
        from pyspark.sql.functions import col, lit, to_date

        def keep(batch: DataFrame, batch_id: int) -> None:
            rows = batch.withColumn("epoch", lit(epoch)).withColumn(
                "event_date", to_date(col("event_time"))
            )
            added = self.table.append(rows, app_id, batch_id)
            self.captured.batches += 1
            if added is None:
                self.captured.skipped += 1
            else:
                self.captured.rows += added
            self._on_batch(self.captured)

        return keep

    # --- where it begins -------------------------------------------------------------------------

    def _start(self, heads: Heads) -> Offset:
        """After what the lake has of this incarnation: a checkpoint that was lost is no loss."""
        there = self.in_lake(heads.epoch)
        return Offset(
            heads.epoch,
            {
                part: max(earliest, there.get(part, 0))
                for part, earliest in heads.earliest.next.items()
            },
        )

    def in_lake(self, epoch: str) -> dict[int, int]:
        """By partition: the offset after the last one that the table has."""
        if not self.table.exists():
            return {}
        from pyspark.sql.functions import col
        from pyspark.sql.functions import max as greatest

        entity, subscription = split(self._settings.entity)
        of_subscription = (
            col("subscription").isNull()
            if subscription is None
            else col("subscription") == subscription
        )
        last = (
            self.table.frame(self._spark)
            .where((col("entity") == entity) & of_subscription & (col("epoch") == epoch))
            .groupBy("partition")
            .agg(greatest("journal_offset").alias("last"))
        )
        return {row.partition: row.last + 1 for row in last.collect()}

    def release(self, epoch: str) -> None:
        """Move the hold to what the lake has: Spark's own word for it comes late or never."""
        checkpoint = self._lake_folder() / folder_name(self._settings.entity, epoch)
        offset = Offset(epoch, self.in_lake(epoch))
        with self._journal() as journal:
            journal.hold(f"capture-{own_id(checkpoint)}", offset, HOLD_LIFE_S)

    def _checkpoint(self, heads: Heads) -> Path:
        folder = self._lake_folder() / folder_name(self._settings.entity, heads.epoch)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _lake_folder(self) -> Path:
        return Path(self._lake.folder) / CHECKPOINTS / "capture"

    def _journal(self) -> Journal:
        entity = self._settings.entity
        return Journal(entity, self._credentials.pass_for(entity))


def own_id(checkpoint: Path) -> str:
    """Who appends: as long-lived as the checkpoint, because batches are numbered by it."""
    file = checkpoint / "id"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(uuid4().hex)
    return file.read_text().strip()


def folder_name(entity: str, epoch: str) -> str:
    """Readable, legal on every file system, and different for different entities."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", entity)[:60]
    mark = hashlib.blake2b(f"{entity.lower()}\n{epoch}".encode(), digest_size=6).hexdigest()
    return f"{readable}-{mark}"


def split(entity: str) -> tuple[str, str | None]:
    """A queue or topic, and the subscription if it names one."""
    match = re.fullmatch(r"(.+)/subscriptions/([^/]+)", entity, re.IGNORECASE)
    return (entity, None) if match is None else (match.group(1), match.group(2))
