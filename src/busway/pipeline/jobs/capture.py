"""Capture: every event of journals into the lake, once (D-31, P-47).

Spark's tasks read ranges of journals and write files (`capture_task.py`). One commit of the table's
log makes the files part of it and moves the marks: for each partition of each incarnation of an
entity, the offset after the last one that the table has. So what is there and how far a capture
has come cannot differ, whatever is killed. A batch that was cut off is planned again, from the
marks; of two captures that want the same range one commits, and the other is told.

There is no checkpoint beside the lake that could be lost, or brought back from another time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from busway.pipeline.jobs.capture_task import CaptureTask, Piece, Told
from busway.pipeline.jobs.capture_watch import Captured, Followed, Watch
from busway.pipeline.jobs.older_lake import OlderLake
from busway.pipeline.lake.files import AddedFile, FileWriter
from busway.pipeline.lake.lake import ConflictError, Lake
from busway.pipeline.lake.pending import PendingBatches
from busway.pipeline.lake.place import first_line
from busway.pipeline.lake.tables import ENTITIES, EVENTS
from busway.pipeline.wire.journal import PATIENCE_S, Heads, JournalError
from busway.pipeline.wire.offsets import Offset, Span, grouped, limited
from busway.remote.connection import Credentials, Pass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DEFAULT_EVENTS_PER_TRIGGER = 200_000
TRIGGER_S = 2.0
LOOK_EVERY_S = 0.1
STORE_PATIENCE_S = 120.0
"""For an object store that does not answer: as long as for a broker."""
CONFLICT_PATIENCE_S = 60.0


CONFLICTS_MAX = 5
PAUSE_S = 1.0

Targets = Mapping[str, Heads | None] | None
"""By entity: where a run ends that only takes what is there."""
Plan = list[tuple[Followed, list[Span]]]


class _StoppedError(Exception):
    """In the middle of a batch, which is dropped."""


class _GivenUpError(Exception):
    """A batch of which some part could not be read; the others are planned again."""


class CaptureError(Exception):
    """Why a capture cannot go on, and what to do."""


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    entities: tuple[str, ...]
    """Names, with `/Subscriptions/name` for a subscription's own journal; or patterns."""
    events_per_trigger: int = DEFAULT_EVENTS_PER_TRIGGER
    trigger_s: float = TRIGGER_S
    tasks: int | None = None
    accept_loss: bool = False


class Capture:
    """Entities into one lake. What it does is told to `say` and, after each batch, `on_batch`."""

    def __init__(
        self,
        lake: Lake,
        credentials: Credentials,
        settings: CaptureSettings,
        *,
        say: Callable[[str], None] = lambda text: None,
        on_batch: Callable[[Sequence[Captured]], None] = lambda captured: None,
    ) -> None:
        self._lake = lake
        self._credentials = credentials
        self._settings = settings
        self._say = say
        self._on_batch = on_batch
        self.table = lake.table(EVENTS.layout())
        self._entities = lake.table(ENTITIES.layout())
        self._introduced: set[str] = set()
        self._pending = PendingBatches(lake.place, self.table)
        self.watch = Watch(
            credentials, settings.entities, self.in_lake, say, accept_loss=settings.accept_loss
        )
        self._older = OlderLake(lake.place)
        self._consumer = ""
        self._trouble_since: float | None = None
        self._conflicts = 0
        self._stopped: Callable[[], bool] = lambda: False
        self._worker = ThreadPoolExecutor(1)
        """Waits for Spark, so that the thread that gets signals does not."""

    @property
    def captured(self) -> dict[str, Captured]:
        return self.watch.captured

    def begin(self, *, once: bool) -> None:
        """All that can go wrong before Spark is started, which takes its time."""
        self.watch.begin(once=once)
        self.table.create()
        self._consumer = f"capture-{self.table.delta().metadata().id}"
        if left := self._pending.clean():
            self._say(f"removed {left} files of a batch that was cut off")
        for each in self.watch.reading:
            self._hold(each)

    def run(
        self, spark: SparkSession, *, once: bool, stopped: Callable[[], bool] = lambda: False
    ) -> dict[str, Captured]:
        """Until it is stopped, or nothing can be waited for; with `once`, until it has what was
        there at its beginning."""
        self._stopped = stopped
        targets = {each.key: each.heads for each in self.watch.reading} if once else None
        try:
            while not stopped() and self.watch.can_go_on:
                if once and not any(self._left(each, targets) for each in self.watch.reading):
                    break
                if not self._turn(spark, targets) and not once:
                    self._rest(stopped)
                if not once:
                    self.watch.look()
            for each in self.watch.reading:
                self._hold(each)
        finally:
            self.watch.close()
            self._worker.shutdown()
        return self.captured

    def _rest(self, stopped: Callable[[], bool]) -> None:
        until = time.monotonic() + self._settings.trigger_s
        while time.monotonic() < until and not stopped():
            time.sleep(LOOK_EVERY_S)

    # --- a batch ---------------------------------------------------------------------------------

    def _turn(self, spark: SparkSession, targets: Targets) -> bool:
        """One batch, if there is something to read; whether rows came into the lake."""
        planned = self._plan(targets)
        if not planned:
            return False
        try:
            self._batch(spark, planned)
        except _StoppedError:
            return False
        except _GivenUpError:
            self.watch.look()
            return False
        except Exception as error:
            if not isinstance(error, ConflictError) and not self._is_of_store(error):
                raise
            self._again(error)
            return False
        self._trouble_since = None
        return True

    def _is_of_store(self, error: Exception) -> bool:
        """Whether an object store failed, which may be over soon. A full disk is not."""
        from deltalake.exceptions import DeltaError
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        if self._lake.place.is_local:
            return False
        if isinstance(error, Py4JJavaError | PySparkException):  # in all attempts of a task
            return "OSError: " in str(error)
        return isinstance(error, OSError | DeltaError)

    def _again(self, error: Exception) -> None:
        """Try again, for a while, from what the table has then: a commit whose answer was lost may
        be there, or that of another capture."""
        now = time.monotonic()
        conflict = isinstance(error, ConflictError)
        if self._trouble_since is None:
            self._trouble_since = now
            if conflict:
                self._say("another capture has written the same events; going on after them")
            else:
                self._say(f"the lake cannot be written, trying again: {_reason(error)}")
        elif now - self._trouble_since > (CONFLICT_PATIENCE_S if conflict else STORE_PATIENCE_S):
            raise CaptureError(
                f"The lake {self._lake.folder} cannot be written: {_reason(error)} Nothing is "
                "lost; run it again when that is mended."
            ) from error
        self._conflicts += conflict
        if self._conflicts >= CONFLICTS_MAX:
            names = ", ".join(each.name for each in self.watch.reading)
            raise CaptureError(
                f"Another capture of {names} into {self._lake.folder} is running. Each event is "
                "there once, but one capture is enough: end the other, or this one stays ended."
            ) from error
        time.sleep(PAUSE_S)
        try:
            for each in self.watch.reading:
                if each.heads is not None:
                    self.watch.refresh(each)
        except Exception as problem:
            if not self._is_of_store(problem):
                raise
            log.info("what the lake has is looked at again later: %s", problem)

    def _plan(self, targets: Targets) -> Plan:
        """What the next batch reads: fair over all partitions of all entities."""
        owners: list[tuple[Followed, int]] = []
        between: list[Span] = []
        for each in self.watch.reading:
            for span in self._left(each, targets):
                between.append(Span(len(owners), span.start, span.end))
                owners.append((each, span.partition))
        chosen: dict[str, tuple[Followed, list[Span]]] = {}
        for span in limited(between, self._settings.events_per_trigger):
            each, partition = owners[span.partition]
            _, spans = chosen.setdefault(each.key, (each, []))
            spans.append(Span(partition, span.start, span.end))
        return list(chosen.values())

    def _left(self, each: Followed, targets: Targets) -> list[Span]:
        """What there is of it to read, up to its target if it has one."""
        if targets is None:
            return each.spans()
        target = targets.get(each.key)
        if target is None or each.heads is None or each.heads.epoch != target.epoch:
            return []
        ends = target.latest.next
        cut = [
            Span(span.partition, span.start, min(span.end, ends.get(span.partition, 0)))
            for span in each.spans()
        ]
        return [span for span in cut if span.rows > 0]

    def _batch(self, spark: SparkSession, planned: Plan) -> None:
        with self._pending.batch() as name:
            told = self._written(spark, name, planned)
            if problems := [each for each in told if each.problem]:
                self._learn(problems)
                raise _GivenUpError
            self._commit([file for each in told for file in each.files], planned)
        for each, spans in planned:
            self.watch.advance(each, spans)
            self._hold(each)
        self._on_batch([each.captured for each, _ in planned])

    def _written(self, spark: SparkSession, batch: str, planned: Plan) -> list[Told]:
        layout = self.table.layout
        schema = layout.schema.serialize().to_pybytes()
        writer = FileWriter(self.table.place, schema, layout.partition_by, batch)
        work = self._work(planned, self._settings.tasks or spark.sparkContext.defaultParallelism)
        # Rows stay in the tasks: what Spark moves is this list, and that of the files.
        task = CaptureTask(writer, layout.schema.names, PATIENCE_S)
        tasks = spark.sparkContext.parallelize(work, len(work)).flatMap(task)
        told = self._worker.submit(tasks.collect)
        while not told.done():
            wait([told], LOOK_EVERY_S)
            if self._stopped():
                spark.sparkContext.cancelAllJobs()
                wait([told])
                raise _StoppedError
        return told.result()

    def _work(self, planned: Plan, tasks: int) -> list[list[Piece]]:
        owners: list[tuple[Followed, Pass, int]] = []
        between: list[Span] = []
        for each, spans in planned:
            allowed = self._credentials.pass_for(each.name)
            for span in spans:
                between.append(Span(len(owners), span.start, span.end))
                owners.append((each, allowed, span.partition))
        work = []
        for group in grouped(between, tasks):
            pieces = []
            for span in group:
                each, allowed, partition = owners[span.partition]
                assert each.heads is not None
                part = Span(partition, span.start, span.end)
                pieces.append(Piece(each.name, allowed, each.heads.epoch, part))
            work.append(pieces)
        return work

    def _learn(self, problems: Sequence[Told]) -> None:
        """An entity that is gone or cannot be read takes nothing from the others."""
        for each in problems:
            if each.entity is None:
                raise CaptureError(f"{each.problem} Nothing is lost; run it again.")
            followed = self.watch.followed[each.entity.lower()]
            if each.gone:
                followed.heads = None  # the next look says what has become of it
                followed.captured.state = "waiting"
            else:
                self.watch.failed(each.entity, each.problem)

    def _introduce(self, heads: Heads) -> None:
        """Say in the lake what it is: figures are relative to all of its partitions."""
        if heads.epoch in self._introduced:
            return
        row = {
            "entity": heads.entity,
            "subscription": heads.subscription,
            "epoch": heads.epoch,
            "partitions": len(heads.partitions),
            "first_captured_at": datetime.now(UTC),
        }
        self._entities.append_rows([row], f"entity:{heads.epoch}", 0)
        self._introduced.add(heads.epoch)

    def _commit(self, files: Sequence[AddedFile], planned: Plan) -> None:
        before: dict[str, int] = {}
        after: dict[str, int] = {}
        for each, spans in planned:
            assert each.heads is not None
            self._introduce(each.heads)
            if not each.marked:  # also of partitions that are still empty
                epoch = each.heads.epoch
                after |= {mark_of(epoch, part): mark for part, mark in each.marks.items()}
            for span in spans:
                name = mark_of(each.heads.epoch, span.partition)
                after[name] = span.end
                if span.partition in each.marked:
                    before[name] = each.marked[span.partition]
        self.table.add(files, after, before)

    # --- what the lake has -----------------------------------------------------------------------

    def in_lake(self, heads: Heads) -> tuple[dict[int, int], dict[int, int]]:
        """By partition: the offset after the last one that the table has, and its mark if it has
        one. Lakes of before there were marks have rows without."""
        names = {mark_of(heads.epoch, part): part for part in heads.latest.next}
        marked = {names[name]: mark for name, mark in self.table.marks(list(names)).items()}
        if not marked and self._older.is_there:
            return self._older.ends(self.table, heads), {}
        return marked, marked

    def _hold(self, each: Followed) -> None:
        """The broker keeps what the lake does not have yet, up to its limits."""
        if each.heads is None or each.held == each.marks:
            return
        try:
            journal = self.watch.journal(each, 0.0)
            journal.hold(self._consumer, Offset(each.heads.epoch, dict(each.marks)))
            for name in self._older.consumers(each.name, each.heads.epoch):
                journal.release(name)
        except JournalError as error:  # the next batch makes up for it
            log.info("the hold of '%s' stays behind: %s", each.name, error)
        else:
            each.held = dict(each.marks)


def _reason(error: Exception) -> str:
    """Of a task's failure, which is a page, the line that says what it was."""
    lines = [line for line in str(error).splitlines() if line.strip().startswith("OSError: ")]
    return first_line(OSError(lines[-1].strip())) if lines else first_line(error)


def mark_of(epoch: str, partition: int) -> str:
    """The name of a mark in the log of the table. No two incarnations have the same epoch."""
    return f"capture:{epoch}:{partition:02d}"
