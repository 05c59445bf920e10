"""The job `migrate`: a queue or topic becomes partitioned, or conventional again, and Spark is the
judge.

The server moves the messages (`broker/moving.py`); this job asks for it, looks on, and then reads
the journals of both sides: every message that left one must have arrived in the other, the same in
each byte and in the same order within its session; at a topic, in each subscription. Only then does
the new one take the name, and not before captures of the old journal have read it to its end. Each
step may be asked for again, so a job that was killed is run again and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import quote

from busway.pipeline.jobs.move_judge import ARRIVED, LEFT, READ, Verified, judged, numbers, paired
from busway.pipeline.jobs.move_preflight import Preflight, look, readers
from busway.pipeline.lake.lake import write_parquet
from busway.pipeline.lake.place import Place
from busway.pipeline.wire.journal import Journal, JournalError, NotCapturedError
from busway.remote.connection import Credentials, Pass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_S = 0.5
HOLD = "migrate"
HOLD_LIFE_S = 24 * 3600
CAPTURE_PATIENCE_S = 60.0
"""For captures that are running: they read what there is every few seconds."""
MOVED_PATIENCE_S = 10.0
"""For a reader that lacks nothing but what was moved, to show that it runs."""


class MigrationError(JournalError):
    """Why something is not migrated, and what to do."""


class BehindError(MigrationError):
    """Readers of the journal have not read it to its end."""


class NotTheSameError(MigrationError):
    """What arrived is not what left: nothing is switched."""


class Part(NamedTuple):
    """What has a journal of its own, and its twin: a queue; a topic, and each subscription."""

    entity: str
    twin: str


@dataclass(frozen=True, slots=True)
class Progress:
    """As the server tells it."""

    entity: str
    partitioned: bool
    phase: str
    twin: str | None
    left: Mapping[str, int]
    moved: Mapping[str, int]
    locked: int
    problems: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def left_total(self) -> int:
        return sum(self.left.values())

    @property
    def moved_total(self) -> int:
        return sum(self.moved.values())


class Migrations(Journal):
    """Requests about one migration: as patient as a reader of journals is."""

    def __init__(self, entity: str, allowed: Pass) -> None:
        super().__init__(entity, allowed)
        self._base = "/$busway/migrations"
        self._path = f"/{quote(entity, safe='/')}"

    def start(self, *, partitioned: bool) -> Progress:
        wanted = {"entity": self.entity, "partitioned": partitioned, "capture": True}
        return _progress(self._json("POST", "", body=wanted))

    def progress(self) -> Progress:
        return _progress(self._json("GET", self._path))

    def around(self) -> Mapping[str, Any]:
        """What the server knows of it beside that: `refusal`, `forwarded_by`."""
        told: Mapping[str, Any] = self._json("GET", self._path)
        return told

    def switch(self) -> Progress:
        return _progress(self._json("POST", f"{self._path}/switch"))

    def call_off(self) -> Progress:
        return _progress(self._json("DELETE", self._path))

    def _error(self, status: int, body: bytes) -> Exception:
        if status == 401:
            return MigrationError(
                f"The broker at {self._allowed.endpoint} does not let this key migrate "
                f"'{self.entity}'. It needs the right to manage the namespace."
            )
        return super()._error(status, body)


@dataclass(slots=True)
class Migrated:
    entity: str
    partitioned: bool
    outcome: str
    """`planned`, `already` or `migrated`; `called_off`, or `not_migrated`: nothing to call off."""
    there: dict[str, int] = field(default_factory=dict)
    preflight: Preflight | None = None
    verified: Verified | None = None
    numbers: str | None = None
    """Where the old and new numbers of all messages were written to."""
    moving_s: float = 0.0
    verifying_s: float = 0.0


class Migrate:
    """One queue or topic. `spark` is asked for when there is something to verify, not before."""

    def __init__(
        self,
        credentials: Credentials,
        entity: str,
        *,
        spark: Callable[[], SparkSession],
        partitioned: bool = False,
        source_options: Mapping[str, str] | None = None,
        lake: str | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._credentials = credentials
        self._entity = entity
        self._partitioned = partitioned
        self._spark = spark
        self._source_options = dict(source_options or {})
        self._lake = lake
        self._say = say
        self._server = Migrations(entity, credentials.pass_for(""))
        self._told: tuple[str, ...] = ()

    def plan(self) -> Migrated:
        """What would be moved; changes nothing."""
        found = self._server.progress()
        is_done = found.phase == "none" and found.partitioned is self._partitioned
        outcome = "already" if is_done else "planned"
        planned = Migrated(found.entity, self._partitioned, outcome, dict(found.left))
        if not is_done and found.phase == "none":
            around, total = self._server.around(), found.left_total
            planned.preflight = look(self._credentials, found.entity, total, around, HOLD)
        return planned

    def check(self, planned: Migrated, *, told: bool = False) -> None:
        """Raise what would keep it from being finished, while it still serves; who is about to read
        the journal to its end is waited for."""
        ahead = planned.preflight
        if ahead is None:
            return  # it was stopped by a run before this one, which goes on
        if ahead.refusal:
            raise MigrationError(ahead.refusal)
        for line in () if told else ahead.lines():
            self._say(line)
        if not ahead.behind:
            return
        self._say(f"waiting for {_readers(len(ahead.behind))} of the journal; it still serves")
        until = time.monotonic() + CAPTURE_PATIENCE_S
        while ahead.behind:
            if time.monotonic() > until:
                raise BehindError(
                    f"'{planned.entity}' was not stopped: its journal goes with a migration, and "
                    "not everybody has read it to its end:\n"
                    + "\n".join(f"  {each}" for each in ahead.behind)
                    + _WHAT_TO_DO
                )
            time.sleep(LOOK_S)
            around = self._server.around()
            ahead = look(self._credentials, planned.entity, 0, around, HOLD)

    def run(self, *, told: bool = False) -> Migrated:
        """`told`: what there is to say before it is stopped was said."""
        planned = self.plan()
        if planned.outcome == "already":
            return planned
        self.check(planned, told=told)
        began_s = time.monotonic()
        found = self._server.start(partitioned=self._partitioned)
        self._hold(found)
        self._say(f"'{found.entity}' is stopped; {found.left_total:,} messages go to {found.twin}")
        found = self._until_moved()
        planned.moving_s = round(time.monotonic() - began_s, 1)
        self._say(f"{found.moved_total:,} messages were moved in {planned.moving_s} s")
        try:
            began_s = time.monotonic()
            planned.verified = self._verify(found, planned)
            planned.verifying_s = round(time.monotonic() - began_s, 1)
            self._say(f"verified in {planned.verifying_s} s")
            self._until_captured(found)
        except NotTheSameError:
            raise  # it stays as it is: to bring it back would wipe out the traces
        except Exception as error:
            self._go_back(found, error)
        self._say("the new one takes the name")
        self._server.switch()
        self._let_go(found)
        planned.outcome = "migrated"
        planned.there = dict(found.moved)
        return planned

    def _go_back(self, found: Progress, error: Exception) -> NoReturn:
        """Nobody is left with a queue that is stopped."""
        self._say(f"it cannot be finished: '{found.entity}' is brought back")
        back = self.call_off()
        raise MigrationError(
            f"'{back.entity}' could not be migrated, and serves again as it was. "
            f"{str(error).strip() or type(error).__name__}"
        ) from error

    def _hold(self, found: Progress) -> None:
        """The journals are kept until they have been compared, also where little is kept."""
        for entity in (path for part in found.parts for path in (part.entity, part.twin)):
            with self._journal(entity) as journal:
                try:
                    journal.hold(HOLD, journal.heads().earliest, HOLD_LIFE_S)
                except NotCapturedError as error:
                    raise MigrationError(
                        f"The migration of '{found.entity}' was started without capture, so there "
                        "is no journal to compare. End it without this job, with POST "
                        f"/$busway/migrations/{found.entity}/switch, once its phase is 'moved'."
                    ) from error

    def _let_go(self, found: Progress) -> None:
        for part in found.parts:
            with self._journal(part.entity) as journal:
                journal.release(HOLD)

    def _journal(self, entity: str) -> Journal:
        return Journal(entity, self._credentials.pass_for(entity))

    def _until_moved(self) -> Progress:
        while (found := self._server.progress()).phase == "moving":
            self._tell(found)
            time.sleep(LOOK_S)
        if found.phase != "moved":
            raise MigrationError(
                f"The migration of '{found.entity}' was called off, or ended, by somebody else."
            )
        return found

    def _tell(self, found: Progress) -> None:
        """Where it is, if that is news."""
        waiting = f", {found.locked:,} locked" if found.locked else ""
        told = (
            f"{found.phase}: {found.left_total:,} in '{found.entity}', {found.moved_total:,} in "
            f"{found.twin}{waiting}",
            *found.problems,
        )
        if told != self._told:
            self._told = told
            for line in told:
                self._say(line)

    def _until_captured(self, found: Progress) -> None:
        """The old journals go with the switch: whoever follows them has to have read what happened.

        That messages were moved is told by the new journals, too. A reader that lacks only that is
        waited for if it runs, and one that is away is not.
        """
        first: dict[tuple[str, str], Mapping[str, Any]] = {}
        began, said = time.monotonic(), False
        while True:
            behind = [
                each
                for part in found.parts
                for each in readers(self._credentials, part.entity, HOLD)
                if each.events
            ]
            for each in behind:
                first.setdefault((each.entity, each.name), each.offset)
            waited_s = time.monotonic() - began
            needed = [
                each
                for each in behind
                if not each.only_moved
                or waited_s < MOVED_PATIENCE_S
                or first[each.entity, each.name] != each.offset
            ]
            if not needed or waited_s > CAPTURE_PATIENCE_S:
                break
            if not said:
                self._say(f"waiting for {_readers(len(needed))} of the old journal")
                said = True
            time.sleep(LOOK_S)
        if missing := [each for each in behind if not each.only_moved]:
            raise BehindError(
                "Its journal goes with the switch, and not everybody has read it to its end:\n"
                + "\n".join(f"  {each}" for each in missing)
                + _WHAT_TO_DO
            )
        for each in behind:
            self._say(f"{each.name} is away: it has seen everything but that messages were moved")

    # --- calling it off --------------------------------------------------------------------------

    def call_off(self) -> Migrated:
        """Until the entity serves again as it was; what has gone there comes back first."""
        before = self._server.progress()
        if before.phase == "none":
            return Migrated(before.entity, before.partitioned, "not_migrated", dict(before.left))
        while (found := self._server.call_off()).phase != "none":
            self._tell(found)
            time.sleep(LOOK_S)
        self._let_go(before)
        return Migrated(found.entity, found.partitioned, "called_off", dict(found.left))

    # --- verifying -------------------------------------------------------------------------------

    def _verify(self, found: Progress, planned: Migrated) -> Verified:
        parts = [part for part in found.parts if self._is_told_of(part)]
        if not parts:
            return _checked(found, Verified())
        pairs = self._pairs(parts).cache()
        try:
            verified = _checked(found, judged(pairs))
            if self._lake is not None:
                planned.numbers = f"{self._lake}/migrations/{found.twin}"
                write_parquet(numbers(pairs), Place.of(planned.numbers))
            return verified
        finally:
            pairs.unpersist()

    def _is_told_of(self, part: Part) -> bool:
        """Most subscriptions of a large topic may be empty, and Spark takes a second for each."""
        for entity in part:
            with self._journal(entity) as journal:
                if any(each.next for each in journal.heads().partitions):
                    return True
        return False

    def _pairs(self, parts: Sequence[Part]) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as f

        left, arrived = [], []
        for part in parts:
            name = f.lit(part.entity).alias("part")
            went = f.col("destination") == part.twin  # and not to that of an earlier migration
            left.append(self._events(part.entity, LEFT).where(went).select("*", name))
            arrived.append(self._events(part.twin, ARRIVED).select("*", name))
        return paired(reduce(DataFrame.unionAll, left), reduce(DataFrame.unionAll, arrived))

    def _events(self, entity: str, events: Sequence[str]) -> DataFrame:
        options = {
            **self._source_options,
            "entity": entity,
            "columns": ",".join(READ),
            "events": ",".join(events),
            "includeRaw": "true",
        }
        return self._spark().read.format("busway").options(**options).load()


_WHAT_TO_DO = (
    "\nRun 'busway pipeline capture --once' with the same --entity and --lake, and then this "
    "command again. Whoever does not need the rest is let go with DELETE "
    "/{entity}/$journal/consumers/{name}."
)


def _readers(count: int) -> str:
    return "1 reader" if count == 1 else f"{count} readers"


def _checked(found: Progress, verified: Verified) -> Verified:
    """Raises if there are differences, or the journals do not tell of all that is there."""
    differences = list(verified.differences)
    if verified.messages != found.moved_total:
        differences.append(
            f"The journals tell of {verified.messages:,} messages, and {found.twin} holds "
            f"{found.moved_total:,}."
        )
    if differences:
        raise NotTheSameError(_told(found, differences))
    return verified


def _told(found: Progress, differences: list[str]) -> str:
    listed = "\n".join(f"  {each}" for each in differences)
    return (
        f"What arrived in '{found.twin}' is not what left '{found.entity}'. Nothing was switched, "
        f"and everything is left as it is, stopped, so that it can be looked at ('busway pipeline "
        f"migrate --entity {found.entity} --call-off' brings it back):\n{listed}"
    )


def _progress(told: Mapping[str, Any]) -> Progress:
    return Progress(
        told["entity"],
        told["partitioned"],
        told["phase"],
        told["twin"],
        told["left"],
        told["moved"],
        told["locked"],
        tuple(told["problems"]),
        tuple(Part(each["entity"], each["twin"]) for each in told["parts"]),
    )
