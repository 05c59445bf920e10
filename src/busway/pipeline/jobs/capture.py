"""Capture: every event of an entity's journal into the lake, once (D-31, P-47).

Spark's checkpoint says which batch is next, the Delta log says which batches are there. Each is
written after the other's work is safe, so a kill between the two leaves a batch that is tried again
and found done. The checkpoint lives in the lake, one for each incarnation of an entity.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from busway.pipeline.lake.lake import Lake, Table
from busway.pipeline.lake.tables import EVENTS
from busway.pipeline.wire.journal import Heads, Journal, JournalError
from busway.pipeline.wire.offsets import Offset
from busway.remote.connection import Credentials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)

CHECKPOINTS = "_checkpoints"
"""Beside the tables; the underscore keeps readers of folders out."""
DEFAULT_EVENTS_PER_TRIGGER = 200_000
TRIGGER_S = 2
LOOK_EVERY_S = 0.1
FIRST_PATIENCE_S = 10.0
"""For a broker that was never reached: the user may have mistyped where it is."""


STARTS_MAX = 5
GIVEN_UP = "Python worker failed to connect back"
"""What Spark says of a reader that took more than ten seconds to start, as on a busy machine. There
is no setting for that."""


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


class CheckpointError(Exception):
    """Spark's checkpoint and the lake contradict each other."""


def switch_on(credentials: Credentials, entity: str) -> tuple[Heads, bool]:
    """Make the broker keep a journal. The heads, and whether it was off until now."""
    allowed = credentials.pass_for(entity)
    with Journal(entity, allowed, patience_s=FIRST_PATIENCE_S) as journal:
        heads = journal.heads_or_none()
        if heads is not None and heads.capture:
            return heads, False
        return journal.capture(True), True


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
        self._noted: object = None

    def switch_on(self) -> tuple[Heads, bool]:
        return switch_on(self._credentials, self._settings.entity)

    def begin(self, heads: Heads, *, once: bool) -> StreamingQuery:
        """Start the query. With `once` it ends when it has what was there at its beginning."""
        self.captured.epoch = heads.epoch
        checkpoint = self._checkpoint(heads)
        app_id = f"capture:{own_id(checkpoint)}"
        options = {
            **self._source_options,
            "entity": self._settings.entity,
            "consumer": self._consumer(heads),
            "maxEventsPerTrigger": str(self._settings.events_per_trigger),
            "startingPosition": self._start(heads).to_json(),
            # Of the cluster: the planner's own guess is the cores of the machine that it runs on.
            "tasks": str(self._settings.tasks or self._spark.sparkContext.defaultParallelism),
        }
        stream = self._spark.readStream.format("busway").options(**options).load()
        writer = (
            stream.writeStream.queryName(f"capture {self._settings.entity}")
            .option("checkpointLocation", str(checkpoint / "spark"))
            .foreachBatch(self._keeper(app_id, heads))
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._settings.trigger_s} seconds")
        return started(writer)

    def _keeper(self, app_id: str, heads: Heads) -> Callable[[DataFrame, int], None]:
        from pyspark.sql.functions import col, lit, to_date

        def keep(batch: DataFrame, batch_id: int) -> None:
            rows = batch.withColumn("epoch", lit(heads.epoch)).withColumn(
                "event_date", to_date(col("event_time"))
            )
            added = self.table.append(rows, app_id, batch_id)
            self.captured.batches += 1
            if added is None:
                self._check_that_it_is_there(batch, heads)
                self.captured.skipped += 1
            else:
                self.captured.rows += added
            self._on_batch(self.captured)

        return keep

    def _check_that_it_is_there(self, batch: DataFrame, heads: Heads) -> None:
        """A batch is known by its number. In a checkpoint that was brought back from a backup the
        number may stand for other rows, and to pass those over would lose them."""
        there = self.in_lake(heads)
        if any(there.get(part, 0) < end for part, end in _ends(batch).items()):
            raise CheckpointError(
                f"The checkpoint of '{self._settings.entity}' is not the one that the lake was "
                f"filled with. Remove {self._checkpoint(heads)} and run it again: it goes on after "
                "what the lake has, and nothing is there twice."
            )

    # --- where it begins -------------------------------------------------------------------------

    def _start(self, heads: Heads) -> Offset:
        """After what the lake has of this incarnation: a checkpoint that was lost is no loss."""
        there = self.in_lake(heads)
        return Offset(
            heads.epoch,
            {
                part: max(earliest, there.get(part, 0))
                for part, earliest in heads.earliest.next.items()
            },
        )

    def in_lake(self, heads: Heads) -> dict[int, int]:
        """By partition: the offset after the last one that the table has.

        Names are the broker's own: the user may have written them in other case (`heads`).
        """
        from pyspark.sql.functions import col, lit

        return _ends(
            self.table.frame(self._spark).where(
                (col("entity") == heads.entity)
                & col("subscription").eqNullSafe(lit(heads.subscription))
                & (col("epoch") == heads.epoch)
            )
        )

    def release(self, heads: Heads) -> None:
        """Move the hold to what the lake has: Spark's own word for it comes late or never."""
        with self._journal() as journal:
            journal.hold(self._consumer(heads), self._start(heads))

    def note(self, heads: Heads, query: StreamingQuery) -> None:
        """Move the hold to the end of the last batch that is done.

        Spark says so when the next one begins, which may be never: whoever waits for this reader
        (`migrate`) would wait as long. The next look makes up for one that fails.
        """
        progress = query.lastProgress
        end = None if progress is None else progress["sources"][0]["endOffset"]
        if end is None or end == self._noted:
            return
        allowed = self._credentials.pass_for(self._settings.entity)
        offset = Offset.from_json(end) if isinstance(end, str) else Offset.from_dict(end)
        try:
            with Journal(self._settings.entity, allowed, patience_s=0.0) as journal:
                journal.hold(self._consumer(heads), offset)
        except JournalError as error:
            log.info("the hold of '%s' stays behind: %s", self._settings.entity, error)
        else:
            self._noted = end

    def _consumer(self, heads: Heads) -> str:
        return f"capture-{own_id(self._checkpoint(heads))}"

    def _checkpoint(self, heads: Heads) -> Path:
        folder = Path(self._lake.folder) / CHECKPOINTS / "capture"
        return folder / folder_name(self._settings.entity, heads.epoch)

    def _journal(self) -> Journal:
        entity = self._settings.entity
        return Journal(entity, self._credentials.pass_for(entity))


def started(writer: DataStreamWriter) -> StreamingQuery:
    """The query, once its reader is there: on a busy machine that takes several tries."""
    for _ in range(STARTS_MAX - 1):
        query = writer.start()
        if not _was_given_up(query):
            return query
        log.info("a reader was slow to start, and Spark has given it up; trying again")
    return writer.start()


def _was_given_up(query: StreamingQuery) -> bool:
    """Whether its reader did not start in time; waits until that is known."""
    while query.isActive and str(query.status["message"]).startswith("Initializing"):
        time.sleep(LOOK_EVERY_S)
    problem = query.exception()
    return problem is not None and GIVEN_UP in str(problem)


def own_id(checkpoint: Path) -> str:
    """Who appends: as long-lived as the checkpoint, because batches are numbered by it."""
    file = checkpoint / "id"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: half an id could be somebody else's.
        draft = file.with_name(f"id.{os.getpid()}.new")
        draft.write_text(uuid4().hex)
        draft.replace(file)
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


def _ends(rows: DataFrame) -> dict[int, int]:
    from pyspark.sql.functions import max as greatest

    last = rows.groupBy("partition").agg(greatest("journal_offset").alias("last"))
    return {row.partition: row.last + 1 for row in last.collect()}
