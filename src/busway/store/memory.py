"""A messaging store in plain dictionaries, for tests and for the simulation (D-35).

A `MemoryDisk` is what stays when a process dies; a `MemoryStore` is one owner's handle on it, and
several handles on one disk fence each other as they do in a file (D-18). A disk may be told not to
sync at each commit: a crash then forgets the last commits, all but as many as it is told to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from busway.model.message import Message, MessageState, partition_of
from busway.store.base import (
    PURGE_ROWS,
    READ_BYTES_MAX,
    READ_ROWS_MAX,
    Batch,
    CommitRefused,
    Counters,
    Expiring,
    ExpiryPage,
    Move,
    Opened,
    StoreFenced,
    StoreUnavailable,
    SubQueueKey,
    SubQueueRecord,
    Update,
)
from busway.store.ordered import OrderedKeys

Undo = Callable[[], object]


class _SubQueue:
    __slots__ = ("counters", "key", "messages", "numbers", "waiting")

    def __init__(self, key: SubQueueKey) -> None:
        self.key = key
        self.counters = Counters()
        self.messages: dict[int, Message] = {}
        self.numbers: OrderedKeys[int] = OrderedKeys()
        self.waiting = {
            MessageState.DEFERRED: OrderedKeys[int](),
            MessageState.SCHEDULED: OrderedKeys[int](),
        }


class MemoryDisk:
    """What survives. All changes are made of the small steps below, each of which knows how to
    take itself back: so a batch that is refused half way leaves no trace, nor does a lost one."""

    def __init__(self, store_id: str = "memory", *, sync_each_commit: bool = True) -> None:
        self.store_id = store_id
        self.sync_each_commit = sync_each_commit
        self.epoch = 0
        self.commit_number = 0
        self.time_ms = 0
        self.crashes = 0
        self._sub_queues: dict[int, _SubQueue] = {}
        self._keys: set[SubQueueKey] = set()
        self._expiring: OrderedKeys[tuple[int, int, int]] = OrderedKeys()
        self._unsynced: list[list[Undo]] = []
        """By commit since the last sync: how to take it back."""

    # --- syncing and crashing --------------------------------------------------------------------

    @property
    def unsynced(self) -> int:
        """How many commits a crash may forget."""
        return len(self._unsynced)

    def sync(self) -> None:
        self._unsynced.clear()

    def crash(self, keep: int = 0) -> None:
        """The power fails: of the commits that are not synced, the first `keep` stay.

        Every open handle is void afterwards.
        """
        assert 0 <= keep <= self.unsynced
        while len(self._unsynced) > keep:
            _take_back(self._unsynced.pop())
        self.sync()
        self.crashes += 1

    # --- what a handle does ----------------------------------------------------------------------

    def take_over(self) -> Opened:
        self.sync()  # the raised epoch is a commit of its own, and syncs what is before it
        self.epoch += 1
        records = [
            SubQueueRecord(slot, sub_queue.key, sub_queue.counters.copy())
            for slot, sub_queue in sorted(self._sub_queues.items())
        ]
        return Opened(self.store_id, self.epoch, self.commit_number, self.time_ms, records)

    def apply(self, batch: Batch) -> None:
        undo: list[Undo] = []
        try:
            self._apply(batch, undo)
        except BaseException:
            _take_back(undo)
            raise
        self._unsynced.append(undo)
        if self.sync_each_commit:
            self.sync()

    def _apply(self, batch: Batch, undo: list[Undo]) -> None:
        undo.append(partial(setattr, self, "commit_number", self.commit_number))
        self.commit_number = batch.number
        undo.append(partial(setattr, self, "time_ms", self.time_ms))
        self.time_ms = max(self.time_ms, batch.time_ms)
        for slot, key in batch.sub_queues:
            self._add_sub_queue(slot, key, undo)
        for slot, number in batch.deletes:
            self._remove(slot, number, undo)
        for move in batch.moves:
            self._move(move, undo)
        for update in batch.updates:
            self._update(update, undo)
        for slot, message in batch.puts:
            self._put(slot, stored_copy(message), undo)
        for slot, counters in batch.counters.items():
            sub_queue = self._sub_queue(slot)
            undo.append(partial(setattr, sub_queue, "counters", sub_queue.counters))
            sub_queue.counters = counters.copy()
        for slot in batch.purges:
            self._purge(slot, undo)

    def _sub_queue(self, slot: int) -> _SubQueue:
        try:
            return self._sub_queues[slot]
        except KeyError:
            raise CommitRefused(f"there is no sub-queue in slot {slot}") from None

    def _add_sub_queue(self, slot: int, key: SubQueueKey, undo: list[Undo]) -> None:
        if slot in self._sub_queues or key in self._keys:
            raise CommitRefused(f"slot {slot} or {key} is there already")
        self._keys.add(key)
        self._sub_queues[slot] = _SubQueue(key)
        undo.append(partial(self._remove_sub_queue, slot, []))

    def _remove_sub_queue(self, slot: int, undo: list[Undo]) -> None:
        sub_queue = self._sub_queues.pop(slot)
        self._keys.discard(sub_queue.key)
        undo.append(partial(self._keys.add, sub_queue.key))
        undo.append(partial(self._sub_queues.__setitem__, slot, sub_queue))

    def _put(self, slot: int, message: Message, undo: list[Undo]) -> None:
        sub_queue = self._sub_queue(slot)
        number = message.number
        assert partition_of(number) == sub_queue.key.partition, (slot, message)
        if number in sub_queue.messages:
            raise CommitRefused(f"message {number} is in slot {slot} already")
        sub_queue.messages[number] = message
        sub_queue.numbers.add(number)
        if message.state is not MessageState.ACTIVE:
            sub_queue.waiting[message.state].add(number)
        if message.expires_ms is not None:
            self._expiring.add((message.expires_ms, slot, number))
        undo.append(partial(self._remove, slot, number, []))

    def _remove(self, slot: int, number: int, undo: list[Undo]) -> Message:
        sub_queue = self._sub_queue(slot)
        message = sub_queue.messages.pop(number, None)
        if message is None:
            raise CommitRefused(f"message {number} is not in slot {slot}")
        sub_queue.numbers.discard(number)
        if message.state is not MessageState.ACTIVE:
            sub_queue.waiting[message.state].discard(number)
        if message.expires_ms is not None:
            self._expiring.discard((message.expires_ms, slot, number))
        undo.append(partial(self._put, slot, message, []))
        return message

    def _move(self, move: Move, undo: list[Undo]) -> None:
        moved = stored_copy(self._remove(move.slot, move.number, undo))
        moved.number = move.to_number
        moved.state = move.state
        moved.delivery_count = move.delivery_count
        moved.enqueued_ms = move.enqueued_ms
        moved.expires_ms = move.expires_ms
        moved.changes = move.changes
        self._put(move.to_slot, moved, undo)

    def _update(self, update: Update, undo: list[Undo]) -> None:
        changed = stored_copy(self._remove(update.slot, update.number, undo))
        changed.state = update.state
        changed.delivery_count = update.delivery_count
        changed.expires_ms = update.expires_ms
        changed.changes = update.changes
        self._put(update.slot, changed, undo)

    def _purge(self, slot: int, undo: list[Undo]) -> None:
        sub_queue = self._sub_queues.get(slot)
        if sub_queue is None:
            return
        for number in list(islice(sub_queue.numbers.after(None), PURGE_ROWS)):
            self._remove(slot, number, undo)
        if not sub_queue.messages:
            self._remove_sub_queue(slot, undo)

    # --- reading ---------------------------------------------------------------------------------

    def page(
        self, slot: int, after_number: int, state: MessageState | None, rows: int, size: int
    ) -> list[Message]:
        sub_queue = self._sub_queues.get(slot)
        if sub_queue is None:
            return []
        if state is None or state is MessageState.ACTIVE:
            numbers = sub_queue.numbers
        else:
            numbers = sub_queue.waiting[state]
        found: list[Message] = []
        for number in numbers.after(after_number):
            message = sub_queue.messages[number]
            if state is not None and message.state is not state:
                continue
            if len(found) == rows or (size <= 0 and found):
                break
            found.append(stored_copy(message))
            size -= message.size
        return found

    def numbered(self, slot: int, numbers: Sequence[int]) -> list[Message]:
        sub_queue = self._sub_queues.get(slot)
        if sub_queue is None:
            return []
        there = sub_queue.messages
        return [stored_copy(there[number]) for number in numbers if number in there]

    def expiring(self, after: Expiring | None, until_ms: int, rows: int) -> ExpiryPage:
        due: list[Expiring] = []
        for expires_ms, slot, number in self._expiring.after(after):
            if expires_ms > until_ms or len(due) == rows:
                return ExpiryPage(due, expires_ms)
            due.append(Expiring(expires_ms, slot, number))
        return ExpiryPage(due, None)


class MemoryStore:
    """A `MessagingStore`: one owner's handle on a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self._epoch: int | None = None
        self._crashes = 0

    def open(self) -> Opened:
        opened = self.disk.take_over()
        self._epoch = opened.epoch
        self._crashes = self.disk.crashes
        return opened

    def commit(self, batch: Batch) -> None:
        disk = self._owned_disk()
        assert batch.number == disk.commit_number + 1, "batches are numbered without gaps"
        disk.apply(batch)

    def read_page(
        self,
        slot: int,
        after_number: int,
        *,
        state: MessageState | None = MessageState.ACTIVE,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> list[Message]:
        disk = self._owned_disk()
        return disk.page(slot, after_number, state, min(rows, READ_ROWS_MAX), size)

    def read_numbers(self, slot: int, numbers: Sequence[int]) -> list[Message]:
        return self._owned_disk().numbered(slot, numbers)

    def read_expiring(
        self, after: Expiring | None, until_ms: int, rows: int = READ_ROWS_MAX
    ) -> ExpiryPage:
        return self._owned_disk().expiring(after, until_ms, min(rows, READ_ROWS_MAX))

    def free_bytes(self) -> int | None:
        self._owned_disk()
        return None

    def close(self) -> None:
        self._epoch = None

    def _owned_disk(self) -> MemoryDisk:
        if self._epoch is None:
            raise StoreUnavailable("the store is not open")
        if self._crashes != self.disk.crashes:
            raise StoreUnavailable("the store crashed, open it again")
        if self._epoch != self.disk.epoch:
            raise StoreFenced(f"another owner has opened this store since epoch {self._epoch}")
        return self.disk


def stored_copy(message: Message) -> Message:
    """The fields that a store keeps, in an object of its own: owners change theirs (D-1)."""
    return Message(
        bare=message.bare,
        size=message.size,
        header=message.header,
        ttl_ms=message.ttl_ms,
        annotations=message.annotations,
        annotation_items=message.annotation_items,
        session_id=message.session_id,
        number=message.number,
        enqueued_ms=message.enqueued_ms,
        expires_ms=message.expires_ms,
        delivery_count=message.delivery_count,
        state=message.state,
        changes=message.changes,
    )


def _take_back(undo: list[Undo]) -> None:
    for step in reversed(undo):
        step()
