"""The data source `busway`: journals as tables and as streams (P-47). Its sink is `sink.py`.

    spark.read.format("busway").option("entity", "orders").load()
    spark.readStream.format("busway").option("entity", "orders").load()

A range of a journal reads the same however often it is read, so a batch that is tried again has the
same rows. Readers keep no state at the broker but a hold, if they are given a name: any number of
them read the same journal, and none takes a message from an application.

Spark's planner runs the methods of a reader in one process and `read` in others. The key of the
connection string stays in the first; the others get a signature that opens this entity for a day.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from busway.pipeline.datasource.aliases import renamed
from busway.pipeline.datasource.options import (
    Position,
    ReadOptions,
    check_options,
    read_options,
    write_options,
)
from busway.pipeline.datasource.schema import arrow_schema, spark_schema
from busway.pipeline.datasource.sink import BatchWriter, StreamWriter, prepare
from busway.pipeline.wire.journal import DamagedError, EpochError, GapError, Heads, Journal
from busway.pipeline.wire.offsets import Offset, Span, grouped, spans
from busway.remote.connection import Pass

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MICROSECOND = timedelta(microseconds=1)


class BuswayDataSource(DataSource):
    """What Spark finds under the name `busway`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given = renamed(dict(options))
        # Here and not later: an error in a stream reader's constructor hides behind another one.
        check_options(self._given)

    @classmethod
    def name(cls) -> str:
        return "busway"

    def schema(self) -> StructType:
        return spark_schema(read_options(self._given).columns)

    def reader(self, schema: StructType) -> BatchReader:
        options = read_options(self._given)
        return FilteringBatchReader(options) if _spark_pushes_filters() else BatchReader(options)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StreamReader(read_options(self._given))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(prepare(write_options(self._given), schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return StreamWriter(prepare(write_options(self._given), schema, overwrite=overwrite))


@dataclass
class Work(InputPartition):
    """What one task reads."""

    entity: str
    allowed: Pass
    epoch: str
    spans: list[Span]
    columns: tuple[str, ...]
    events: tuple[str, ...]
    fail_on_data_loss: bool

    def __init__(self, **values: Any) -> None:
        super().__init__(None)
        for name, value in values.items():
            setattr(self, name, value)


def work_of(options: ReadOptions, epoch: str, between: list[Span]) -> list[Work]:
    allowed = options.pass_for_entity()
    return [
        Work(
            entity=options.entity,
            allowed=allowed,
            epoch=epoch,
            spans=group,
            columns=options.columns,
            events=options.events,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for group in grouped(between, options.tasks)
    ]


def rows_of(work: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as the declared schema has them."""
    if not isinstance(work, Work):
        return  # Spark starts one task also where there is nothing to read
    schema = arrow_schema(work.columns)
    asked = work.columns
    if work.events and "event" not in asked:
        asked = (*asked, "event")
    journal = Journal(work.entity, work.allowed)
    try:
        for span in work.spans:
            for batch in _present(journal, work, span, asked):
                yield _shaped(batch, work, schema)
    finally:
        journal.close()


def _present(
    journal: Journal, work: Work, span: Span, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield from journal.read(work.epoch, span, columns)
        except GapError as gap:
            if work.fail_on_data_loss:
                raise
            # Nothing of the span was handed out yet: a gap is told before the first row.
            log.warning("%s", gap)
            if gap.earliest >= span.end:
                return
            span = Span(span.partition, gap.earliest, span.end)
        except DamagedError as damaged:
            if work.fail_on_data_loss:
                raise
            # All in front of it was handed out already.
            log.warning("%s", damaged)
            if damaged.following >= span.end:
                return
            span = Span(span.partition, damaged.following, span.end)
        else:
            return


def _shaped(batch: pa.RecordBatch, work: Work, schema: pa.Schema) -> pa.RecordBatch:
    if work.events:
        import pyarrow as pa
        import pyarrow.compute as pc

        batch = batch.filter(pc.is_in(batch["event"], value_set=pa.array(work.events)))
    return batch.select(schema.names).cast(schema)


def resolve(position: Position, heads: Heads, journal: Journal) -> Offset:
    if position.word == "earliest":
        return heads.earliest
    if position.word == "latest":
        return heads.latest
    if position.time is not None:
        return journal.at(position.time)
    assert position.offset is not None
    given = position.offset
    if given.epoch != heads.epoch:
        raise EpochError(journal.entity, given.epoch, heads.epoch)
    # Partitions that it does not name are read from where they begin.
    return Offset(given.epoch, {**heads.earliest.next, **given.next})


# --- Batches -------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._partitions: set[int] | None = None
        self._least: int = 0
        self._most: int | None = None
        self._not_before: datetime | None = None
        self._before: datetime | None = None

    def narrow(self, each: Filter) -> None:
        """Leave out what the filter excludes, as far as offsets and times can tell."""
        match each:
            case EqualTo(("partition",), int(value)):
                self._only({value})
            case In(("partition",), values):
                self._only({int(value) for value in values})
            case EqualTo(("journal_offset",), int(value)):
                self._from(value)
                self._to(value + 1)
            case GreaterThanOrEqual(("journal_offset",), int(value)):
                self._from(value)
            case GreaterThan(("journal_offset",), int(value)):
                self._from(value + 1)
            case LessThan(("journal_offset",), int(value)):
                self._to(value)
            case LessThanOrEqual(("journal_offset",), int(value)):
                self._to(value + 1)
            case GreaterThanOrEqual(("event_time",), datetime() as when) | GreaterThan(
                ("event_time",), datetime() as when
            ):
                when = _utc(when)
                self._not_before = max(self._not_before or when, when)
            case LessThan(("event_time",), datetime() as when) | LessThanOrEqual(
                ("event_time",), datetime() as when
            ):
                when = _utc(when) + MICROSECOND
                self._before = min(self._before or when, when)

    def _only(self, partitions: set[int]) -> None:
        there = self._partitions
        self._partitions = partitions if there is None else there & partitions

    def _from(self, offset: int) -> None:
        self._least = max(self._least, offset)

    def _to(self, offset: int) -> None:
        self._most = offset if self._most is None else min(self._most, offset)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        journal = Journal(options.entity, options.pass_for_entity())
        try:
            heads = journal.heads()
            start = resolve(options.start, heads, journal)
            end = resolve(options.end, heads, journal)
            between = spans(start, end)
            if self._not_before is not None:
                between = _cut(between, least=journal.at(self._not_before))
            if self._before is not None:
                between = _cut(between, most=journal.at(self._before + timedelta(milliseconds=1)))
        finally:
            journal.close()
        wanted = [
            Span(
                span.partition,
                max(span.start, self._least),
                span.end if self._most is None else min(span.end, self._most),
            )
            for span in between
            if self._partitions is None or span.partition in self._partitions
        ]
        return work_of(options, heads.epoch, [span for span in wanted if span.rows > 0])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(partition)


class FilteringBatchReader(BatchReader):
    """A reader that takes filters, for sessions with `spark.sql.python.filterPushdown.enabled`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow what is read. Spark still applies every filter to every row."""
        for each in filters:
            self.narrow(each)
            yield each


def _spark_pushes_filters() -> bool:
    """Whether this process was started to push filters.

    Spark refuses a reader with `pushFilters` in a session that has pushdown off, which is the
    default, and calls that method in this worker module only.
    """
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules


def _cut(
    between: list[Span], least: Offset | None = None, most: Offset | None = None
) -> list[Span]:
    kept = [
        Span(
            span.partition,
            span.start if least is None else max(span.start, least.next[span.partition]),
            span.end if most is None else min(span.end, most.next[span.partition]),
        )
        for span in between
    ]
    return [span for span in kept if span.rows > 0]


def _utc(when: datetime) -> datetime:
    return when.astimezone(UTC) if when.tzinfo is not None else when.replace(tzinfo=UTC)


# --- Streams -------------------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._journal = Journal(options.entity, options.pass_for_entity())
        self._target: Offset | None = None
        """Where a run with AvailableNow ends."""
        self._waiting_since: float | None = None
        self._latest: Offset | None = None
        self._held: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, which need nothing of the planner's: not its connection, not its key."""
        return {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        heads = self._journal.heads()
        start = resolve(self._options.start, heads, self._journal)
        self._hold(start)
        return start.to_dict()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._journal.heads().latest

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows limits of one kind each: it is told one, `latestOffset` heeds all."""
        options = self._options
        if options.max_events is not None:
            return ReadMaxRows(options.max_events)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        beginning = Offset.from_dict(start)
        heads = self._journal.heads()
        self._latest = heads.latest
        if beginning.epoch != heads.epoch:  # its offsets mean nothing there, whatever they are
            raise EpochError(self._options.entity, beginning.epoch, heads.epoch)
        # Spark plans a batch when the one before it is done: all before this was processed. Its
        # own word for that (`commit`) comes with the next batch, which may be never.
        self._hold(beginning)
        beginning = self._past_what_is_lost(beginning, heads)
        end = self._target or heads.latest
        if self._must_wait(beginning.rows_until(end)):
            return start
        if isinstance(limit, ReadAllAvailable):
            limits: tuple[int | None, int | None] = (None, None)
        else:
            limits = (self._options.max_events, self._options.max_bytes)
        if limits != (None, None) and beginning.rows_until(end) > 0:
            planned = self._journal.plan(beginning, *limits)
            end = Offset(
                end.epoch,
                {part: min(offset, planned.next[part]) for part, offset in end.next.items()},
            )
        # A target from before a restart may lie behind what was already read.
        end = Offset(
            end.epoch,
            {part: max(offset, beginning.next.get(part, 0)) for part, offset in end.next.items()},
        )
        return end.to_dict()

    def _past_what_is_lost(self, start: Offset, heads: Heads) -> Offset:
        if self._options.fail_on_data_loss:
            return start  # reading will say what is wrong
        earliest = heads.earliest.next
        return Offset(
            start.epoch,
            {part: max(offset, earliest.get(part, 0)) for part, offset in start.next.items()},
        )

    def _must_wait(self, rows: int) -> bool:
        """Whether too few events are there to be worth a batch. Never for a run that must end."""
        least = self._options.min_events
        if least is None or self._target is not None or rows == 0 or rows >= least:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self._options.max_delay_s:
            return True
        self._waiting_since = None
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """For the lag in a query's progress."""
        return None if self._latest is None else self._latest.to_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        beginning, ending = Offset.from_dict(start), Offset.from_dict(end)
        return work_of(self._options, beginning.epoch, spans(beginning, ending))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_of(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will ask for nothing before this: the hold moves on (it comes late; D-31)."""
        self._hold(Offset.from_dict(end))

    def stop(self) -> None:
        self._journal.close()

    def _hold(self, offset: Offset) -> None:
        if self._options.consumer is not None and offset != self._held:
            self._journal.hold(self._options.consumer, offset)
            self._held = offset
