"""Triage: dead letters by their reasons, and those that deserve it sent once more.

A copy is sent first, and its dead letter is removed when the copy is acknowledged: whatever is
killed or cancelled in between, nothing is lost. Nothing is there twice either. A copy has an id
that only its dead letter can have, so a target that detects duplicates takes it once; and a note on
this machine says which copies were on their way and which had arrived, so that one whose id the
target has forgotten is not sent again unasked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busway.model.names import SUBSCRIPTIONS_NODE
from busway.pipeline import target
from busway.pipeline.dead_letters import DeadLetter, DeadLetterQueue, Taken, copy_of, new_id
from busway.pipeline.sender import Sender
from busway.remote.connection import Credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_REASON = "(none)"
BODY_SHOWN = 80
SAFE_PART = 0.9
"""Of the target's window for duplicates: the rest is for sending."""
LOCKS_LAST_S = 330.0
"""A little longer than locks last: a run that was killed, or another receiver, may have some."""
PAUSE_S = 1.0
SENDING, SENT = "sending", "sent"


class TriageError(Exception):
    """It cannot be done, and why."""


@dataclass(slots=True)
class Reasons:
    """What lies in a dead-letter queue."""

    entity: str
    dead_letters: int = 0
    chosen: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Resubmitted:
    entity: str
    target: str
    chosen: int
    sent: int = 0
    removed: int = 0
    """Dead letters removed: their copies have arrived, in this run or in one before."""
    left: int = 0
    """Left where they are: a run before this one may have sent them, and the target has forgotten
    their ids since."""
    doubtful: int = 0
    """The same, and sent all the same, as the user wants it."""
    gone: int = 0
    """Chosen, and not there any more when they were to be taken."""
    locked: int = 0
    """Still there, and held by somebody else."""


def look(entity: str, credentials: Credentials) -> list[DeadLetter]:
    """All dead letters, as they are now. Nothing is locked."""
    queue = DeadLetterQueue(entity, credentials.pass_for(entity))
    try:
        return list(queue.peek())
    finally:
        queue.close()


def choose(
    letters: Iterable[DeadLetter],
    reasons: Sequence[str] = (),
    where: str | None = None,
    spark: SparkSession | None = None,
) -> list[DeadLetter]:
    """Those with one of the reasons, and for which a condition in SQL is true."""
    found = [each for each in letters if not reasons or (each.reason or NO_REASON) in reasons]
    if where is None or not found:
        return found
    assert spark is not None
    numbers = _where(spark, found, where)
    return [each for each in found if each.sequence_number in numbers]


def _where(spark: SparkSession, letters: Sequence[DeadLetter], where: str) -> set[int]:
    from pyspark.errors import AnalysisException

    schema = (
        "sequence_number long, message_id string, session_id string, subject string,"
        "correlation_id string, content_type string, reason string, description string,"
        "enqueued_time timestamp, delivery_count int, application_properties map<string,string>,"
        "body binary"
    )
    rows = [tuple(getattr(each, name) for name in DeadLetter.__slots__) for each in letters]
    try:
        chosen = spark.createDataFrame(rows, schema).where(where).select("sequence_number")
    except AnalysisException as error:
        told = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
        raise TriageError(
            f"The condition is not one on dead letters, which have "
            f"{', '.join(DeadLetter.__slots__)}: {told}"
        ) from error
    return {row.sequence_number for row in chosen.collect()}


def told(
    entity: str, letters: Sequence[DeadLetter], chosen: Sequence[DeadLetter], samples: int
) -> Reasons:
    counts = Counter(each.reason or NO_REASON for each in chosen)
    shown: list[dict[str, Any]] = []
    seen: Counter[str] = Counter()
    for each in chosen:
        reason = each.reason or NO_REASON
        seen[reason] += 1
        if seen[reason] <= samples:
            shown.append(asdict(each) | {"body": each.body[:BODY_SHOWN].decode(errors="replace")})
    return Reasons(entity, len(letters), len(chosen), dict(counts.most_common()), shown)


def history(lake: str, entity: str) -> dict[str, dict[str, int]]:
    """By reason: what a lake has seen, of dead letters that are gone, too."""
    from busway.pipeline.lake import Lake
    from busway.pipeline.tables import DEAD_LETTERS

    table = Lake(lake).table(DEAD_LETTERS.layout())
    if not table.exists():
        raise TriageError(
            f"The lake {lake} has no table 'dead_letters' yet. Make it with: busway pipeline curate"
            f" --lake {lake}."
        )
    path, node, subscription = entity.lower().rpartition(f"/{SUBSCRIPTIONS_NODE.lower()}/")
    wanted = (path, subscription) if node else (entity.lower(), "")
    found: dict[str, dict[str, int]] = {}
    columns = ["entity", "subscription", "reason", "left_at"]
    for row in table.delta().to_pyarrow_table(columns=columns).to_pylist():
        if (row["entity"].lower(), (row["subscription"] or "").lower()) == wanted:
            counts = found.setdefault(
                row["reason"] or NO_REASON, {"dead_lettered": 0, "still_there": 0}
            )
            counts["dead_lettered"] += 1
            counts["still_there"] += row["left_at"] is None
    return dict(sorted(found.items(), key=lambda each: -each[1]["dead_lettered"]))


# --- What was on its way -------------------------------------------------------------------------


class Notes:
    """A file that says, before a copy is sent, that it will be, and afterwards that it has arrived.

    It is gone when nothing is left to be known.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.sending: dict[str, datetime] = {}
        """By id of the copy: when it was first on its way."""
        self.sent: set[str] = set()
        if file.exists():
            for line in file.read_text().splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            note = json.loads(line)
        except ValueError:
            return  # the last line, cut off: what it would have said had not begun
        when = datetime.fromisoformat(note["at"])
        for copy in note["ids"]:
            if note["state"] == SENT:
                self.sent.add(copy)
            else:
                self.sending.setdefault(copy, when)

    def write(self, state: str, copies: Sequence[str]) -> None:
        """It is on the disk when this returns."""
        note = {"state": state, "at": datetime.now(UTC).isoformat(), "ids": list(copies)}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(f"{json.dumps(note)}\n")
            file.flush()
            os.fsync(file.fileno())
        self._read(json.dumps(note))

    def forget(self) -> None:
        self.file.unlink(missing_ok=True)


def notes_file(folder: Path, credentials: Credentials, entity: str, to: str) -> Path:
    """One for each queue and target of a broker."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", entity)[:60]
    whole = f"{credentials.endpoint}\n{entity.lower()}\n{to.lower()}"
    mark = hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()
    return folder / f"{readable}-{mark}.jsonl"


def notes_folder(environ: Mapping[str, str]) -> Path:
    """Where they are if there is no lake to put them in."""
    base = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "busway" / "triage"


# --- Resubmitting --------------------------------------------------------------------------------


class Triage:
    def __init__(
        self,
        entity: str,
        to: str,
        credentials: Credentials,
        notes: Notes,
        *,
        accept_duplicates: bool = False,
    ) -> None:
        self._entity = entity
        self._to = to
        self._credentials = credentials
        self._notes = notes
        self._accept_duplicates = accept_duplicates
        found = target.check(to, credentials.pass_for(to), once=not accept_duplicates)
        knows = found is not None and found.requires_duplicate_detection
        self._window_s = found.window_s if found is not None and knows else 0.0

    def resubmit(
        self,
        chosen: Sequence[DeadLetter],
        on_batch: Callable[[Resubmitted], None] = lambda done: None,
        before_removing: Callable[[], None] = lambda: None,
    ) -> Resubmitted:
        """Copies of them to the target, and when one is stored its dead letter goes.

        `before_removing` is told when copies are stored and their dead letters still there.
        """
        wanted = {new_id(self._entity, each) for each in chosen}
        done = Resubmitted(self._entity, self._to, len(chosen))
        open_ids = set(wanted)
        queue = DeadLetterQueue(self._entity, self._credentials.pass_for(self._entity))
        sender = Sender(self._to, self._credentials.pass_for(self._to))
        try:
            until = time.monotonic() + LOCKS_LAST_S
            while open_ids:
                taken = queue.take()
                if not taken:
                    open_ids &= {new_id(self._entity, each) for each in queue.peek()}
                    done.gone = len(wanted) - done.removed - done.left - len(open_ids)
                    if time.monotonic() > until:
                        break
                    time.sleep(PAUSE_S if open_ids else 0)  # others have locked them
                    continue
                ids = {each.delivery_id: new_id(self._entity, each.letter) for each in taken}
                mine = [each for each in taken if ids[each.delivery_id] in open_ids]
                ready = self._send(sender, mine, done)
                before_removing()
                removed = queue.complete(ready) if ready else set()
                done.removed += len(removed)
                left = {ids[each.delivery_id] for each in mine if each not in ready}
                done.left += len(left)
                open_ids -= {ids[each] for each in removed} | left
                on_batch(done)
                if removed:
                    until = time.monotonic() + LOCKS_LAST_S
        finally:
            sender.close()
            queue.close()
        done.locked = len(open_ids)
        if not done.locked and not done.left:
            self._notes.forget()
        return done

    def _send(self, sender: Sender, taken: Sequence[Taken], done: Resubmitted) -> list[Taken]:
        """Send what has to be; all whose copies are stored now."""
        ready: list[Taken] = []
        to_send: list[tuple[str, Taken]] = []
        for each in taken:
            copy = new_id(self._entity, each.letter)
            if copy in self._notes.sent:
                ready.append(each)
            elif copy not in self._notes.sending or self._is_remembered(copy):
                to_send.append((copy, each))
            elif self._accept_duplicates:
                done.doubtful += 1
                to_send.append((copy, each))
        if to_send:
            copies = [copy for copy, _ in to_send]
            self._notes.write(SENDING, copies)
            for copy, each in to_send:
                sender.send(copy_of(each.payload, copy))
            sender.finish()
            self._notes.write(SENT, copies)
            done.sent += len(copies)
        return [*ready, *(each for _, each in to_send)]

    def _is_remembered(self, copy: str) -> bool:
        age_s = (datetime.now(UTC) - self._notes.sending[copy]).total_seconds()
        return age_s < self._window_s * SAFE_PART
