"""Triage: dead letters by their reasons, and those that deserve it sent once more.

A copy is sent and its dead letter removed in one transaction of the broker (`dead_letters.py`).
So whatever is killed, cancelled or cut off, each one is either there or has gone on, once; who runs
the same command again looks at what is left. Nothing has to be remembered in between, and no
target has to detect duplicates.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.model.errors import LOCK_LOST
from busway.model.limits import TRANSACTION_MAX_MESSAGES
from busway.model.message import partition_of
from busway.remote.connection import Credentials
from busway.remote.wire import target
from busway.remote.wire.conditions import condition
from busway.remote.wire.copies import RESUBMITTED_FOR, copy_of
from busway.remote.wire.dead_letters import (
    DeadLetter,
    DeadLetterQueue,
    RolledBackError,
    Taken,
    new_id,
    subscription_of,
)
from busway.remote.wire.line import BrokenError

log = logging.getLogger(__name__)

NO_REASON = "(none)"
BODY_SHOWN = 80
LOCKS_LAST_S = 330.0
"""A little longer than locks last: a run that was killed, or another receiver, may have some."""
PAUSE_S = 1.0
PATIENCE_S = 120.0
"""How long a broker that is away is dialled again: longer than a restart takes."""
REFUSALS_MAX = 20
GROUP_BYTES = 1 << 20
"""Of copies in one transaction, beyond the first."""


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
    moved: int = 0
    """Copies that are stored, their dead letters removed."""
    gone: int = 0
    """Chosen, and not there any more when they were to be taken."""
    deferred: int = 0
    """Left, because a receiver of dead letters has put them aside: only by number they come."""
    locked: int = 0
    """Still there, and held by somebody else."""
    refused: dict[str, int] = field(default_factory=dict)
    """Left, because the target does not take them: how many, by what the broker says."""


def look(entity: str, credentials: Credentials) -> list[DeadLetter]:
    """All dead letters, as they are now. Nothing is locked."""
    queue = DeadLetterQueue(entity, credentials)
    try:
        return list(queue.peek())
    finally:
        queue.close()


def choose(
    letters: Iterable[DeadLetter],
    reasons: Sequence[str] = (),
    where: str | None = None,
    numbers: Collection[int] = (),
) -> list[DeadLetter]:
    """Those with one of the reasons and of the numbers, and for which an SQL filter is true."""
    found = [
        each
        for each in letters
        if (not reasons or (each.reason or NO_REASON) in reasons)
        and (not numbers or each.sequence_number in numbers)
    ]
    if where is None:
        return found
    wanted = condition(where)
    return [each for each in found if wanted(each.payload)]


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
            fields = asdict(each)
            del fields["payload"]
            shown.append(fields | {"body": each.body[:BODY_SHOWN].decode(errors="replace")})
    return Reasons(entity, len(letters), len(chosen), dict(counts.most_common()), shown)


# --- Resubmitting --------------------------------------------------------------------------------


class Triage:
    def __init__(self, entity: str, to: str, credentials: Credentials) -> None:
        self._entity = entity
        self._to = to
        self._credentials = credentials
        self._subscription = subscription_of(entity)
        found = target.check(to, credentials.pass_for(to), once=False)
        self._needs_session = found is not None and found.requires_session
        # A target that detects duplicates may know the old id from the first attempt (DUP-1).
        self._needs_new_id = found is None or found.requires_duplicate_detection

    def resubmit(
        self,
        chosen: Sequence[DeadLetter],
        on_group: Callable[[Resubmitted], None] = lambda done: None,
    ) -> Resubmitted:
        """Move them to the target; a broker that is away meanwhile is waited for."""
        self._check(chosen)
        done = Resubmitted(self._entity, self._to, len(chosen))
        deferred = {self._id(each) for each in chosen if each.state == "deferred"}
        done.deferred = len(deferred)
        work = _Work(done, {self._id(each) for each in chosen} - deferred)
        until = time.monotonic() + PATIENCE_S
        while work.left:
            try:
                queue = DeadLetterQueue(self._entity, self._credentials, self._to)
                try:
                    self._move_all(queue, work, on_group)
                finally:
                    queue.close()
                break
            except (BrokenError, OSError) as problem:
                if work.took_progress():
                    until = time.monotonic() + PATIENCE_S
                elif time.monotonic() > until:
                    raise
                log.info("dialling again: %s", problem)
                time.sleep(PAUSE_S)
        done.locked = len(work.left)
        return done

    def _check(self, chosen: Sequence[DeadLetter]) -> None:
        without = sum(each.session_id is None for each in chosen)
        if self._needs_session and without:
            raise TriageError(
                f"'{self._to}' requires sessions, and {without:,} of the {len(chosen):,} chosen "
                "dead letters have no session id. Nothing was sent. Name another target with --to, "
                'or leave those out: --where "sys.SessionId IS NOT NULL".'
            )

    def _id(self, letter: DeadLetter) -> str:
        return new_id(self._entity, letter)

    def _move_all(
        self, queue: DeadLetterQueue, work: _Work, on_group: Callable[[Resubmitted], None]
    ) -> None:
        until = time.monotonic() + LOCKS_LAST_S
        while work.left:
            taken = queue.take()
            for group in _groups([each for each in taken if self._id(each.letter) in work.left]):
                if self._move(queue, work, group):
                    until = time.monotonic() + LOCKS_LAST_S
                on_group(work.done)
            if not taken:
                work.still_there({self._id(each) for each in queue.peek()})
                if time.monotonic() > until:
                    return
                time.sleep(PAUSE_S if work.left else 0)  # others have locked them

    def _move(self, queue: DeadLetterQueue, work: _Work, group: Sequence[Taken]) -> bool:
        """Whether something was moved. A group that is not taken as a whole comes again, and is
        then tried one by one: the fault may be that of one alone."""
        ids = [self._id(each.letter) for each in group]
        if len(group) > 1 and any(each in work.alone for each in ids):
            return sum(self._move(queue, work, [each]) for each in group) > 0
        work.in_doubt.update(ids)
        try:
            queue.move([(each, self._copy(each)) for each in group])
        except RolledBackError as error:
            work.in_doubt.difference_update(ids)
            if len(group) == 1 and LOCK_LOST.text not in str(error):
                work.refuse(ids[0], str(error).partition(" TrackingId:")[0])
            work.alone.update(ids)
            return False
        work.moved(ids)
        return True

    def _copy(self, taken: Taken) -> bytes:
        """What its sender sent, without why it was dead-lettered."""
        marked = None if self._subscription is None else {RESUBMITTED_FOR: self._subscription}
        return copy_of(
            taken.payload,
            time.time_ns() // 1_000_000,
            message_id=self._id(taken.letter) if self._needs_new_id else None,
            without=(REASON, DESCRIPTION),
            more=marked,
        )


class _Work:
    """What is to be done, by the ids of copies, and what has become of it."""

    def __init__(self, done: Resubmitted, left: set[str]) -> None:
        self.done = done
        self.left = left
        self.alone: set[str] = set()
        """Those that were in a group that the broker did not take."""
        self.in_doubt: set[str] = set()
        """Those that were being moved when a connection broke."""
        self._moved_before = 0
        self._in_a_row = 0
        """Refusals since something was moved."""

    def moved(self, ids: Iterable[str]) -> None:
        gone_on = self.left & set(ids)
        self._in_a_row = 0
        self.done.moved += len(gone_on)
        self.left -= gone_on
        self.in_doubt -= gone_on

    def refuse(self, copy: str, text: str) -> None:
        """Raises `TriageError` if it is not the fault of single ones."""
        self.done.refused[text] = self.done.refused.get(text, 0) + 1
        self.left.discard(copy)
        self._in_a_row += 1
        if self._in_a_row == REFUSALS_MAX:
            raise TriageError(
                f"'{self.done.target}' has refused {REFUSALS_MAX} dead letters one after the other,"
                f" after {self.done.moved:,} were moved. The last answer: {text} The others are "
                "where they were."
            )

    def still_there(self, there: set[str]) -> None:
        """Of those that were in doubt, the ones that are not there any more were moved."""
        missing = self.left - there
        self.moved(missing & self.in_doubt)
        self.done.gone += len(missing - self.in_doubt)
        self.left &= there

    def took_progress(self) -> bool:
        before, self._moved_before = self._moved_before, self.done.moved
        return self.done.moved > before


def _groups(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """What one transaction can move: of one partition (PRT-6), and not too much (LIM-5)."""
    by_partition: dict[int, list[Taken]] = {}
    for each in taken:
        by_partition.setdefault(partition_of(each.letter.sequence_number), []).append(each)
    for members in by_partition.values():
        group: list[Taken] = []
        size = 0
        for each in members:
            size += len(each.payload)
            if group and (size > GROUP_BYTES or len(group) == TRANSACTION_MAX_MESSAGES):
                yield group
                group, size = [], len(each.payload)
            group.append(each)
        yield group
