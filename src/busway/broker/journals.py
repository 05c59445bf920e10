"""The journals of a broker's partitions: which are there, which are being written, who holds what.

A journal is there from its first event, or its first hold, until its entity is deleted; it is being
written while the entity is captured (D-31).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from busway.broker.journal import Journal
from busway.broker.partition import Partition
from busway.broker.staging import Stage
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.names import SubQueueKind
from busway.store.base import Opened, SubQueueKey
from busway.store.journal import JournalHold


class JournalsOwner(Protocol):
    def stage(self, records: int, size: int = 0) -> Stage: ...

    def partition_in(self, slot: int) -> Partition: ...

    def take_work(self) -> None: ...

    def entity(self, incarnation: int) -> Entity: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...


class Journals:
    def __init__(self, owner: JournalsOwner, appeared: Callable[[], None]) -> None:
        self._owner = owner
        self._appeared = appeared
        """Told when there is a journal that there was not: somebody has to trim it."""
        self._by_partition: dict[tuple[int, int], Journal] = {}

    def __iter__(self) -> Iterator[Journal]:
        return iter(self._by_partition.values())

    def of(self, partition: Partition) -> Journal:
        named = (partition.incarnation, partition.index)
        journal = self._by_partition.get(named)
        if journal is None:
            journal = self._by_partition[named] = Journal(partition)
            self._appeared()
        return journal

    def switch(self, partition: Partition, entity: Entity | None) -> None:
        """From here on the partition tells what happens, or does not any more."""
        captured = entity is not None and entity.capture
        partition.journal = self.of(partition) if captured else None

    def hold(
        self,
        incarnation: int,
        index: int,
        name: str,
        offset: int | None,
        until_ms: int,
        done: Callable[[BusError | None], None],
    ) -> None:
        """A consumer has read up to `offset`: keep what follows, up to the cap, until then. None
        ends its hold."""
        try:
            self._owner.take_work()
            self._owner.entity(incarnation)
        except BusError as error:
            done(error)
            return
        journal = self.of(self._owner.partition(incarnation, index))
        stage = self._owner.stage(1)
        stage.records += 1
        stage.holds.append((journal, JournalHold(journal.main.slot, name, offset, until_ms)))
        stage.after.append(done)

    # What becomes of the store.

    def load(self, opened: Opened) -> None:
        for slot, head in opened.journal_heads:
            self.of(self._owner.partition_in(slot)).head = head
        for hold in opened.holds:
            self.of(self._owner.partition_in(hold.slot)).holds[hold.name] = hold

    def clear(self) -> None:
        """All memory of the store is being dropped (D-3)."""
        self._by_partition.clear()

    def forget(self, key: SubQueueKey) -> None:
        """The sub-queue was purged; with the main one, its partition's journal (D-16)."""
        if key.kind is SubQueueKind.MAIN:
            journal = self._by_partition.pop((key.incarnation, key.partition), None)
            if journal is not None:
                journal.gone = True
