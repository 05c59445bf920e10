"""Reading the journal of an entity over all of its partitions: what the HTTP face asks for.

Stateless: any number of readers, each says where it is. A range that was planned gives the same
rows whenever it is read, until retention forgets it; then the reader is told of the gap, never
given less without a word. Everything here blocks and decodes: it is for a thread or process of its
own, with handles of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from busway.broker.journal_columns import Columns, fields_for, to_columns
from busway.model.entities import Entity
from busway.model.journal import COLUMNS, Column, epoch_of
from busway.store.base import SubQueueKey, SubQueueKind
from busway.store.journal import (
    TRIM_ROWS,
    JournalDamaged,
    JournalHandle,
    JournalHead,
    JournalHold,
)

PLAN_ROWS = TRIM_ROWS
"""Partitions take turns of so many rows, so that none is planned dry while others wait."""
UNLIMITED = 1 << 62


class JournalError(Exception):
    """A reader asked for what is not there. Its arguments are its own, so that it can go from one
    process to another."""


class JournalGapError(JournalError):
    """What was asked for is forgotten: the reader comes too late, or held more than the cap."""

    def __init__(self, path: str, partition: int, asked: int, earliest: int) -> None:
        super().__init__(path, partition, asked, earliest)
        self.path = path
        self.partition = partition
        self.asked = asked
        self.earliest = earliest

    def __str__(self) -> str:
        return (
            f"The journal of '{self.path}' begins at offset {self.earliest} in partition "
            f"{self.partition}: {self.earliest - self.asked} events from offset {self.asked} on "
            f"are forgotten. Go on at {self.earliest} if they can be missed; a hold keeps what is "
            "not read yet."
        )


class JournalDamagedError(JournalError):
    """Rows that are not what was written are handed to nobody."""

    def __init__(self, path: str, partition: int, asked: int, next_offset: int) -> None:
        super().__init__(path, partition, asked, next_offset)
        self.path = path
        self.partition = partition
        self.asked = asked
        self.next_offset = next_offset

    def __str__(self) -> str:
        count = self.next_offset - self.asked
        return (
            f"{count} events in the journal of '{self.path}', partition {self.partition}, from "
            f"offset {self.asked} on are damaged on the broker's disk and are not handed out. Go "
            f"on at {self.next_offset} if they can be missed; 'busway verify' on the data folder "
            "says what else is damaged."
        )


class JournalAheadError(JournalError):
    """An offset that no event has got yet: of another broker, or of data that were set back."""

    def __init__(self, path: str, partition: int, asked: int, next_offset: int) -> None:
        super().__init__(path, partition, asked, next_offset)
        self.path = path
        self.partition = partition
        self.asked = asked
        self.next_offset = next_offset

    def __str__(self) -> str:
        return (
            f"The journal of '{self.path}' ends at offset {self.next_offset} in partition "
            f"{self.partition}, and offset {self.asked} was asked for. Was the data folder "
            "replaced? Start anew from the earliest offset."
        )


class EpochDiffersError(JournalError):
    """The entity was deleted and made again: offsets of the old one mean nothing (D-16)."""

    def __init__(self, path: str, asked: str, epoch: str) -> None:
        super().__init__(path, asked, epoch)
        self.path = path
        self.asked = asked
        self.epoch = epoch

    def __str__(self) -> str:
        return (
            f"The journal of '{self.path}' has the epoch {self.epoch}, and {self.asked} was asked "
            "for: the entity was deleted and made again. Start anew from the earliest offset."
        )


class PartitionHead(NamedTuple):
    partition: int
    head: JournalHead


class EntityJournal:
    """The journal of one incarnation. `handles` are by store id; one that lacks a store of the
    entity raises `StoreUnavailable` as the handle itself would."""

    def __init__(self, entity: Entity, handles: Mapping[str, JournalHandle]) -> None:
        self._entity = entity
        self._handles = handles

    @property
    def epoch(self) -> str:
        return epoch_of(self._entity)

    @property
    def partitions(self) -> range:
        return range(len(self._entity.placement))

    def check_epoch(self, epoch: str | None) -> None:
        """Raises `EpochDiffersError`; None is for who has no offsets yet."""
        if epoch is not None and epoch != self.epoch:
            raise EpochDiffersError(self._entity.path, epoch, self.epoch)

    # Where it begins and ends.

    def heads(self) -> list[PartitionHead]:
        return [PartitionHead(partition, self._head(partition)) for partition in self.partitions]

    def at(self, time_ms: int) -> dict[int, int]:
        """By partition: the offset of the first event at that time or later."""
        found = {}
        for partition in self.partitions:
            handle, key = self._way(partition)
            found[partition] = handle.offset_at(key, time_ms)
        return found

    def holds(self) -> dict[str, list[tuple[int, JournalHold]]]:
        """By consumer: its partitions and where it is in them."""
        found: dict[str, list[tuple[int, JournalHold]]] = {}
        for partition in self.partitions:
            handle, key = self._way(partition)
            for hold in handle.holds(key):
                found.setdefault(hold.name, []).append((partition, hold))
        return found

    # Planning.

    def plan(
        self,
        start: Mapping[int, int],
        *,
        rows: int | None = None,
        size: int | None = None,
        epoch: str | None = None,
    ) -> dict[int, int]:
        """By partition: the offset up to which to read, from `start` on, within these limits.

        Partitions take turns. Something is planned wherever there is something, however small the
        limits are, or a reader would wait for ever before one large message. A partition that
        `start` does not name begins at its earliest offset.
        """
        self.check_epoch(epoch)
        heads = dict(self.heads())
        ends = {
            partition: self._checked(partition, start.get(partition, head.earliest), head)
            for partition, head in heads.items()
        }
        if rows is None and size is None:
            return {partition: head.next_offset for partition, head in heads.items()}
        rows_left = rows if rows is not None else UNLIMITED
        bytes_left = size if size is not None else UNLIMITED
        hungry = [each for each, end in ends.items() if end < heads[each].next_offset]
        planned_any = False
        while hungry and ((rows_left > 0 and bytes_left > 0) or not planned_any):
            for partition in list(hungry):
                turn = min(PLAN_ROWS, max(1, rows_left // len(hungry)))
                stop = min(ends[partition] + turn, heads[partition].next_offset)
                least = 0 if planned_any else 1
                taken, taken_bytes = self._fitting(
                    partition, ends[partition], stop, bytes_left, least
                )
                ends[partition] += taken
                rows_left -= taken
                bytes_left -= taken_bytes
                planned_any = planned_any or taken > 0
                full = ends[partition] < stop
                if full or ends[partition] == heads[partition].next_offset:
                    hungry.remove(partition)
                if rows_left <= 0 or bytes_left <= 0:
                    return ends
        return ends

    def _fitting(
        self, partition: int, first: int, stop: int, size: int, least: int
    ) -> tuple[int, int]:
        """How many of these rows are within `size`, but at least so many; and their bytes."""
        if size >= UNLIMITED:
            return stop - first, 0  # offsets are dense: only bytes have to be looked up
        handle, key = self._way(partition)
        count = taken_bytes = 0
        for row in handle.sizes(key, first, stop - first):
            if count >= least and taken_bytes + row.bytes > size:
                break
            count += 1
            taken_bytes += row.bytes
        return count, taken_bytes

    # Reading.

    def read(
        self,
        partition: int,
        first: int,
        stop: int,
        columns: Sequence[Column] = COLUMNS,
        *,
        epoch: str | None = None,
    ) -> Iterator[Columns]:
        """The rows of offsets from `first` up to `stop`, all of them, in batches as large as one
        short read of a store. Raises at the first `next` if the range is not there, and later if
        it is forgotten meanwhile."""
        self.check_epoch(epoch)
        handle, key = self._way(partition)
        head = self._head(partition)
        self._checked(partition, first, head)
        if stop > head.next_offset:
            raise JournalAheadError(self._entity.path, partition, stop, head.next_offset)
        fields = fields_for(columns)
        while first < stop:
            try:
                page = handle.read(key, first, stop, fields)
            except JournalDamaged as found:
                path = self._entity.path
                raise JournalDamagedError(path, partition, first, found.next_offset) from found
            if not page:
                head = self._head(partition)
                self._checked(partition, first, head)
                if first < head.next_offset:  # it ought to be there
                    raise JournalDamagedError(self._entity.path, partition, first, first + 1)
                raise EpochDiffersError(self._entity.path, self.epoch, "gone")
            first += len(page)
            yield to_columns(self._entity, partition, page, columns)

    # The parts.

    def _way(self, partition: int) -> tuple[JournalHandle, SubQueueKey]:
        store_id = self._entity.placement[partition]
        key = SubQueueKey(self._entity.incarnation, partition, SubQueueKind.MAIN)
        return self._handles[store_id], key

    def _head(self, partition: int) -> JournalHead:
        handle, key = self._way(partition)
        return handle.head(key) or JournalHead()

    def _checked(self, partition: int, asked: int, head: JournalHead) -> int:
        if asked < head.earliest:
            raise JournalGapError(self._entity.path, partition, asked, head.earliest)
        if asked > head.next_offset:
            raise JournalAheadError(self._entity.path, partition, asked, head.next_offset)
        return asked
