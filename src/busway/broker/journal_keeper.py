"""How long journals are kept: by time and size, with named holds up to a cap (D-31).

The limits are the server's, but for those that an entity has of its own; they are read at every
look, so a change counts from the next one on.

The oldest rows go in small steps, one commit each, so that trimming never holds up messages. A hold
keeps what its consumer has not read, also beyond the limits; but not beyond the cap, and not for
ever: a broker never stops for a consumer that is lost. Who comes too late is told of the gap when
it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

from busway.broker.journal import Journal
from busway.broker.staging import Stage
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.journal import JournalLimits
from busway.store.base import MessagingStore
from busway.store.journal import TRIM_ROWS, JournalHead, JournalSize

T = TypeVar("T")

LOOK_MS = 1_000
"""Between two looks at all journals, while none has to be trimmed."""
FULL_LOOKS = 10
"""A disk that is found full so often in a row, about once a second, is not full for a moment. Looks
are counted, not time: a clock that jumps is no reason to forget anything."""
STEP_REST_MS = 10
"""Between two steps, so that other commits come in between."""


class KeeperOwner(Protocol):
    def now_ms(self) -> int: ...

    @property
    def journals(self) -> Iterable[Journal]: ...

    @property
    def journal_limits(self) -> JournalLimits: ...

    @property
    def disk_full(self) -> bool:
        """As the last commit saw it."""

    def entity_or_none(self, incarnation: int) -> Entity | None:
        """Its newest version; None once it is deleted."""

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class _Limits(NamedTuple):
    """What one partition's journal may keep."""

    oldest_ms: int
    bytes_max: int
    held_from: int | None
    """The offset from which on somebody wants the rows."""
    held_bytes_max: int

    def exclude(self, offset: int, time_ms: int, bytes_there: int) -> bool:
        """Whether the first row, of so many bytes, goes."""
        if self.held_from is not None and offset >= self.held_from:
            return bytes_there > self.held_bytes_max
        return time_ms <= self.oldest_ms or bytes_there > self.bytes_max


class JournalKeeper:
    """Trims the journals of one broker, one step at a time."""

    def __init__(self, owner: KeeperOwner, look_again: Callable[[], None]) -> None:
        self._owner = owner
        self._look_again = look_again
        self._busy = False
        self._life = 0
        self._full_looks = 0
        self.due_ms: int | None = None
        """When to look next; None while a step is on its way, or there is no journal."""

    def restart(self, now_ms: int) -> None:
        """The store serves, or serves again: what was on its way is not any more."""
        self._life += 1
        self._busy = False
        self.expects(now_ms + LOOK_MS)

    def expects(self, due_ms: int) -> None:
        if not self._busy and (self.due_ms is None or due_ms < self.due_ms):
            self.due_ms = due_ms

    def run(self, now_ms: int) -> None:
        if self.due_ms is None or self.due_ms > now_ms:
            return
        self.due_ms = None
        self._look_at_the_disk()
        there = False
        for journal in self._owner.journals:
            there = True
            self._forget_holds(journal, now_ms)
            if self._is_over(journal, now_ms):
                self._busy = True
                self._step(journal, now_ms)
                return
        if there:
            self.due_ms = now_ms + LOOK_MS

    # What is too much.

    def _limits(self, journal: Journal, now_ms: int) -> _Limits | None:
        """None for what is purged as a whole (D-16)."""
        entity = self._owner.entity_or_none(journal.partition.incarnation)
        if entity is None:
            return None
        if self._full_looks >= FULL_LOOKS:
            return _Limits(now_ms, 0, None, 0)
        holds = [hold.offset for hold in journal.holds.values() if hold.offset is not None]
        limits = self._owner.journal_limits.of(entity.capture_limits)
        partitions = len(entity.placement)
        return _Limits(
            now_ms - limits.retention_ms,
            limits.size_bytes // partitions,
            min(holds, default=None),
            limits.held_bytes // partitions,
        )

    def _look_at_the_disk(self) -> None:
        """A journal keeps the bodies of what was completed: on a disk that stays full, draining
        would free nothing (D-9)."""
        if not self._owner.disk_full:
            self._full_looks = 0
            return
        self._owner.stage(0).after.append(self._looked)  # a commit looks at the disk again

    def _looked(self, error: BusError | None) -> None:
        self._full_looks = self._full_looks + 1 if error is None and self._owner.disk_full else 0

    def _is_over(self, journal: Journal, now_ms: int) -> bool:
        head, limits = journal.head, self._limits(journal, now_ms)
        if limits is None or head.earliest == head.next_offset:
            return False
        return limits.exclude(head.earliest, head.earliest_ms, head.bytes)

    # Steps.

    def _step(self, journal: Journal, now_ms: int) -> None:
        slot, first, life = journal.main.slot, journal.head.earliest, self._life

        def sized(found: list[JournalSize] | BusError) -> None:
            if life != self._life:
                return
            step = None if isinstance(found, BusError) else self._cut(journal, found, now_ms)
            if step is None or journal.gone:
                self._rest(LOOK_MS)
                return
            stage = self._owner.stage(1)
            stage.trims.append((journal, step))
            stage.records += 1
            stage.after.append(trimmed)

        def trimmed(error: BusError | None) -> None:
            if life == self._life:
                self._rest(STEP_REST_MS if error is None else LOOK_MS)

        self._owner.read(lambda store: store.read_journal_sizes(slot, first, TRIM_ROWS), sized)

    def _rest(self, rest_ms: int) -> None:
        self._busy = False
        self.expects(self._owner.now_ms() + rest_ms)
        self._look_again()

    def _cut(self, journal: Journal, rows: list[JournalSize], now_ms: int) -> JournalHead | None:
        """By how much the head changes: rows, bytes, and the time of the row that is then first."""
        head, limits = journal.head, self._limits(journal, now_ms)
        gone, freed = 0, 0
        if limits is None:
            return None
        for row in rows:
            if not limits.exclude(row.offset, row.time_ms, head.bytes - freed):
                break
            gone += 1
            freed += row.bytes
        if gone == len(rows) and rows[-1:] and rows[-1].offset + 1 < head.next_offset:
            gone, freed = gone - 1, freed - rows[-1].bytes  # the next one's time is not known
        if gone == 0:
            return None
        earliest_ms = rows[gone].time_ms if gone < len(rows) else 0
        return JournalHead(earliest=gone, bytes=freed, earliest_ms=earliest_ms)

    # Holds.

    def _forget_holds(self, journal: Journal, now_ms: int) -> None:
        if not journal.holds:
            return
        over = [hold for hold in journal.holds.values() if hold.until_ms <= now_ms]
        for hold in over:
            stage = self._owner.stage(1)
            stage.holds.append((journal, hold._replace(offset=None)))
            stage.records += 1
