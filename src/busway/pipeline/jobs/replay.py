"""Replay: messages of the lake are sent again, each once, in the order that they had.

First a plan is written: which messages, by their places in the table `events`, each with an id of
its own that is made of the plan's name and the message's place in its queue. Then chunk after chunk
is sent, and the lake notes when one is begun and when all of it is acknowledged. A run that is
killed is run again under the name of its plan, and goes on there. Of the chunk that was on its way
nobody knows how much arrived; it is sent again under the same ids, and a target that detects
duplicates drops what it has. That holds as long as it remembers them: after that, going on is for
the user to decide.

The messages of a session are in one task and in order, and a chunk begins when the one before has
arrived: so a session keeps its order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from busway.broker.journal_columns import UNDECODABLE
from busway.model.names import SUBSCRIPTIONS_NODE
from busway.pipeline.datasource.options import write_options
from busway.pipeline.figures import silver
from busway.pipeline.jobs import replay_messages
from busway.pipeline.jobs.curate import NothingCapturedError
from busway.pipeline.lake.lake import Lake, Table
from busway.pipeline.lake.replay_tables import PLAN_NAME, PLANS, PROGRESS, messages_of
from busway.pipeline.lake.tables import EVENTS, MESSAGES
from busway.remote.wire import target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CHUNK = 10_000
IDENTITY = ("epoch", "partition", "sequence_number")
PLACE = ("epoch", "partition", "journal_offset")
WENT_ON = ("renumbered", "moved")
"""States of messages that are in the lake a second time, under another number; `moved` is in lakes
of older versions only."""
SAFE_PART = 0.9
"""Of the target's window for duplicates: the rest is for sending the chunk."""
SENDING, SENT = "sending", "sent"
BODY_SHOWN = 60


class ReplayError(Exception):
    """It cannot be sent again, and why."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages."""

    entity: str
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None
    words: tuple[str | None, str | None] | None = None
    """How the user said the times: `-2h` is another time when a run goes on."""

    def text(self) -> str:
        since, until = self.words or (self.since, self.until)
        told = {"entity": self.entity, "since": since, "until": until, "where": self.where}
        return json.dumps(told, default=str, sort_keys=True)


@dataclass(slots=True)
class Seen:
    """What a dry run tells."""

    messages: int
    sessions: int
    first: datetime | None
    last: datetime | None
    left_out: int
    """Messages whose sections could not be read."""
    by_state: dict[str, int] = field(default_factory=dict)
    by_day: dict[str, int] = field(default_factory=dict)
    by_session: dict[str, int] = field(default_factory=dict)
    """Those with most messages."""
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Replayed:
    plan: str
    entity: str
    target: str
    messages: int
    chunks: int
    sent: int = 0
    """Messages sent by this run."""
    sent_before: int = 0
    """By runs before it."""
    doubtful: list[int] = field(default_factory=list)
    """Chunks of which messages may be there twice."""


class Replay:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        selection: Selection,
        to: str,
        plan: str,
        *,
        sink_options: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK,
        accept_duplicates: bool = False,
        keep_ids: bool = False,
    ) -> None:
        if not PLAN_NAME.fullmatch(plan):
            raise ReplayError(
                f"'{plan}' is no name for a plan: letters, digits, '-' and '_', up to 100."
            )
        self._spark = spark
        self._lake = lake
        self._selection = selection
        self._accept_duplicates = accept_duplicates
        self._keep_ids = keep_ids
        self._sink_options = {
            **(sink_options or {}),
            "entity": to,
            "requireDuplicateDetection": str(not accept_duplicates).lower(),
        }
        self._chunk_size = chunk_size
        self.target = to
        self.plan_name = plan
        self._plans = lake.table(PLANS.layout())
        self._progress = lake.table(PROGRESS.layout())
        self._messages = lake.table(messages_of(plan).layout())

    # --- which messages --------------------------------------------------------------------------

    def look(self, samples: int) -> Seen:
        """A dry run: what would be sent. Nothing is written but what `curate` writes."""
        from pyspark.sql import functions as f

        chosen = self._chosen().cache()
        try:
            readable = chosen.where(_readable())
            row = readable.agg(
                f.count("*").alias("messages"),
                f.count_distinct("session_id").alias("sessions"),
                f.min("enqueued_at").alias("first"),
                f.max("enqueued_at").alias("last"),
            ).first()
            assert row is not None
            seen = Seen(
                row.messages,
                row.sessions,
                _utc(row.first),
                _utc(row.last),
                chosen.count() - row.messages,
            )
            seen.by_state = _counts(readable.groupBy("state"), "state")
            days = readable.withColumn("day", f.to_date("enqueued_at").cast("string"))
            seen.by_day = _counts(days.groupBy("day"), "day", by_name=True)
            of_sessions = readable.where("session_id is not null").groupBy("session_id")
            seen.by_session = _counts(of_sessions, "session_id", most=10)
            shown = readable.orderBy("enqueued_at", "partition", "sequence_number").limit(samples)
            seen.samples = [_sample(each.asDict()) for each in shown.collect()]
            return seen
        finally:
            chosen.unpersist()

    def _chosen(self) -> DataFrame:
        """From the table `messages`, brought up to date first."""
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as f

        events, messages = (self._lake.table(each.layout()) for each in (EVENTS, MESSAGES))
        if not events.exists():
            raise NothingCapturedError(
                f"There is no table 'events' in {self._lake.folder}. Fill it first: "
                "busway pipeline capture --entity NAME --lake FOLDER --once."
            )
        silver.update(self._spark, silver.OF_MESSAGES, events, messages)
        selection = self._selection
        rows = messages.frame(self._spark).where(_of(selection.entity))
        rows = rows.where(f.col("enqueued_at").isNotNull() & ~f.col("state").isin(*WENT_ON))
        if selection.since is not None:
            rows = rows.where(f.col("enqueued_at") >= f.lit(selection.since))
        if selection.until is not None:
            rows = rows.where(f.col("enqueued_at") < f.lit(selection.until))
        if selection.where is not None:
            try:
                rows = rows.where(selection.where)
            except AnalysisException as error:
                told = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
                raise ReplayError(
                    f"The condition is not one on the table 'messages' ('busway pipeline tables "
                    f"messages' says what it has): {told}"
                ) from error
        return rows

    # --- the plan --------------------------------------------------------------------------------

    def plan(self) -> Replayed:
        """Write the plan, or take up the one of this name."""
        there = self._kept_plan()
        if there is None:
            self._keep_plan()
        else:
            self._chunk_size = there["chunk_size"]
        rows = self._messages.last_version_of(self._app_id)
        if rows is None:
            self._messages.append(self._planned(), self._app_id, 0)
        messages = self._messages.delta().count()
        return Replayed(
            self.plan_name,
            self._selection.entity,
            self.target,
            messages,
            -(-messages // self._chunk_size),
        )

    @property
    def _app_id(self) -> str:
        return f"replay:{self.plan_name}"

    def _kept_plan(self) -> dict[str, Any] | None:
        kept = [row for row in _rows(self._plans) if row["plan"] == self.plan_name]
        if not kept:
            return None
        (row,) = kept
        if (row["target"], row["selection"]) != (self.target, self._told()):
            raise ReplayError(
                f"There is a plan '{self.plan_name}' already, of {row['planned_at']:%Y-%m-%d %H:%M}"
                f": {row['selection']} to '{row['target']}'. Say the same to go on with it, or give"
                " this one another name with --plan."
            )
        return row

    def _told(self) -> str:
        """What a plan is about, to be compared when a run goes on."""
        return self._selection.text() + (" with its ids" if self._keep_ids else "")

    def _keep_plan(self) -> None:
        row = (
            self.plan_name,
            self._selection.entity,
            self.target,
            self._told(),
            self._chunk_size,
            datetime.now(UTC),
        )
        self._append(self._plans, row, 0)

    def _planned(self) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        # Only keys are sorted in one place; times never go back within a partition's journal, so
        # this order is that of every session.
        order = Window.orderBy("enqueued_at", *IDENTITY)
        keys = self._chosen().where(_readable()).select("enqueued_at", *IDENTITY)
        places = keys.select(
            *IDENTITY, (f.row_number().over(order) - 1).cast("long").alias("position")
        )
        placed = self._arrivals().join(places, list(IDENTITY))
        new_id = f.sha2(
            f.to_json(f.array(f.lit(self.plan_name), *(f.col(n).cast("string") for n in IDENTITY))),
            256,
        )
        return placed.select(
            "position",
            f.floor(f.col("position") / self._chunk_size).cast("long").alias("chunk"),
            *PLACE,
            "event_date",
            "sequence_number",
            f.col("message_id").alias("original_message_id"),
            (f.col("message_id") if self._keep_ids else new_id).alias("message_id"),
            "session_id",
        ).sort("position")

    def _arrivals(self) -> DataFrame:
        """The events that have the messages."""
        events = self._lake.table(EVENTS.layout()).frame(self._spark)
        return events.where(_of(self._selection.entity)).where(
            "event = 'enqueued' and sub_queue = 'main'"
        )

    # --- sending ---------------------------------------------------------------------------------

    def send(
        self, replayed: Replayed, on_chunk: Callable[[int, str], None] = lambda chunk, state: None
    ) -> Replayed:
        """Chunk after chunk. `on_chunk` is told before one is sent, and when it is there."""
        window_s = self._window_s()
        marks = self._marks()
        self._check_events(replayed)
        dates = self._dates()
        for chunk in range(replayed.chunks):
            first = chunk * self._chunk_size
            size = min(self._chunk_size, replayed.messages - first)
            if (chunk, SENT) in marks:
                replayed.sent_before += size
                continue
            begun = marks.get((chunk, SENDING))
            again = begun is not None
            if begun is None:
                begun = datetime.now(UTC)
                self._mark(chunk, SENDING, size)
            elif window_s is None or _age_s(begun) > window_s * SAFE_PART:
                self._must_accept(chunk, begun, window_s)
            on_chunk(chunk, SENDING)
            self._send_chunk(chunk, dates[chunk])
            if again if window_s is None else _age_s(begun) > window_s:
                replayed.doubtful.append(chunk)
            on_chunk(chunk, SENT)
            self._mark(chunk, SENT, size)
            replayed.sent += size
        return replayed

    def _window_s(self) -> float | None:
        """How long the target knows an id; None if it does not, or nobody may know."""
        allowed = write_options(self._sink_options).pass_for_entity()
        found = target.check(self.target, allowed, once=not self._accept_duplicates)
        if found is None:
            return None
        if found.requires_session:
            self._check_sessions()
        if not found.requires_duplicate_detection:
            return None
        if self._keep_ids:
            self._check_ids()
        return found.window_s

    def _check_sessions(self) -> None:
        planned = self._messages.delta().to_pyarrow_table(columns=["session_id"])
        if without := planned["session_id"].null_count:
            raise ReplayError(
                f"'{self.target}' requires sessions, and {without:,} of the {len(planned):,} "
                "messages have no session id. Nothing was sent. Name another target with --to, or "
                'leave those out: --where "session_id is not null".'
            )

    def _check_ids(self) -> None:
        """A target that detects duplicates would drop what has an id that it knows (DUP-3)."""
        if self.target.lower() == self._selection.entity.lower():
            raise ReplayError(
                f"'{self.target}' detects duplicates, and may drop its own messages under the ids "
                "that they had. Replay without --keep-ids, or to another target."
            )
        ids = self._messages.delta().to_pyarrow_table(columns=["message_id"])["message_id"]
        if repeated := len(ids) - len(ids.unique()):
            raise ReplayError(
                f"'{self.target}' detects duplicates, and would drop {repeated:,} of the "
                f"{len(ids):,} messages, because others have the same ids. Nothing was sent. "
                "Replay without --keep-ids, or to a target that does not detect duplicates."
            )

    def _check_events(self, replayed: Replayed) -> None:
        """The plan has places alone, so what it is about must still be in the lake."""
        planned = self._messages.frame(self._spark).select(*PLACE)
        there = self._arrivals().select(*PLACE).join(planned, list(PLACE), "left_semi").count()
        if there < replayed.messages:
            raise ReplayError(
                f"The table 'events' in {self._lake.folder} has only {there:,} of the "
                f"{replayed.messages:,} messages of the plan '{self.plan_name}'. Nothing was sent. "
                "Bring the table back, or make another plan."
            )

    def _must_accept(self, chunk: int, begun: datetime, window_s: float | None) -> None:
        if self._accept_duplicates:
            return
        raise ReplayError(
            f"Chunk {chunk} of the plan '{self.plan_name}' was being sent at {begun:%H:%M:%S} UTC "
            f"of {begun:%Y-%m-%d} when that run ended, and '{self.target}' remembers message ids "
            f"for {window_s or 0:.0f} s: what it took of the chunk then, it would take again. The "
            f"ids are in the table replays/{self.plan_name}, to be looked for. To send the chunk "
            "as a whole all the same: --accept-duplicates."
        )

    def _dates(self) -> dict[int, list[date]]:
        """By chunk: the days of its arrivals, so that no files of others are read for it."""
        columns = ["chunk", "event_date"]
        pairs = self._messages.delta().to_pyarrow_table(columns=columns).group_by(columns)
        found: dict[int, list[date]] = {}
        for row in pairs.aggregate([]).to_pylist():
            found.setdefault(row["chunk"], []).append(row["event_date"])
        return found

    def _send_chunk(self, chunk: int, dates: Sequence[date]) -> None:
        from pyspark.sql import functions as f

        tasks = self._spark.sparkContext.defaultParallelism
        chosen = self._messages.frame(self._spark).where(f.col("chunk") == chunk)
        arrivals = self._arrivals().where(f.col("event_date").isin(list(dates)))
        new_id = f.lit(None).cast("string") if self._keep_ids else f.col("plan_id")
        places = chosen.select(*PLACE, "position", f.col("message_id").alias("plan_id"))
        together = f.coalesce("session_id", "partition_key", "plan_id")
        rows = arrivals.join(f.broadcast(places), list(PLACE))
        placed = rows.repartition(tasks, together).sortWithinPartitions("position")
        messages = placed.select(*replay_messages.COLUMNS, new_id.alias("new_id"))
        encoded = messages.mapInArrow(replay_messages.encoded, replay_messages.ENCODED_ROW)
        encoded.write.format("busway").options(**self._sink_options).mode("append").save()

    def _marks(self) -> dict[tuple[int, str], datetime]:
        return {
            (row["chunk"], row["state"]): row["at"]
            for row in _rows(self._progress)
            if row["plan"] == self.plan_name
        }

    def _mark(self, chunk: int, state: str, messages: int) -> None:
        row = (self.plan_name, chunk, state, messages, datetime.now(UTC))
        self._append(self._progress, row, 2 * chunk + (state == SENT))

    def _append(self, table: Table, row: tuple[Any, ...], version: int) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(table.layout.schema)
        frame = self._spark.createDataFrame([row], schema=schema).coalesce(1)
        table.append(frame, self._app_id, version)


def _rows(table: Table) -> list[dict[str, Any]]:
    if not table.exists():
        return []
    rows: list[dict[str, Any]] = table.delta().to_pyarrow_table().to_pylist()
    return rows


def _of(entity: str) -> Column:
    from pyspark.sql import functions as f

    path, node, subscription = entity.lower().rpartition(f"/{SUBSCRIPTIONS_NODE.lower()}/")
    if not node:
        return (f.lower("entity") == entity.lower()) & f.col("subscription").isNull()
    return (f.lower("entity") == path) & (f.lower("subscription") == subscription)


def _readable() -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.col("body_type") != UNDECODABLE, f.lit(True))


def _counts(groups: Any, name: str, *, by_name: bool = False, most: int = 1_000) -> dict[str, int]:
    from pyspark.sql import functions as f

    counted = groups.agg(f.count("*").alias("messages"))
    order = [name] if by_name else [f.desc("messages"), f.asc(name)]
    return {row[name]: row["messages"] for row in counted.orderBy(*order).limit(most).collect()}


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    body = row["body"]
    return {
        "sequence_number": row["sequence_number"],
        "message_id": row["message_id"],
        "session_id": row["session_id"],
        "enqueued_at": _utc(row["enqueued_at"]),
        "state": row["state"],
        "body": None if body is None else bytes(body)[:BODY_SHOWN].decode(errors="replace"),
    }


def _age_s(begun: datetime) -> float:
    return (datetime.now(UTC) - begun).total_seconds()


def _utc(when: datetime | None) -> datetime | None:
    """Spark hands out times of its zone, which is UTC here, and does not say so."""
    return None if when is None else when.astimezone(UTC)
