"""A messaging store in plain dictionaries, for tests and for the simulation (D-35).

A `MemoryDisk` is what stays when a process dies; a `MemoryStore` is one owner's handle on it, and
several handles on one disk fence each other as they do in a file (D-18). A disk may be told not to
sync at each commit: a crash then forgets the last commits, all but as many as it is told to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from typing import TypeVar

from busway.model.message import Message, MessageState, partition_of
from busway.store.base import (
    FORGET_ROWS,
    PURGE_ROWS,
    READ_BYTES_MAX,
    READ_ROWS_MAX,
    Batch,
    CommitRefused,
    DuplicateMark,
    Expiring,
    ExpiryPage,
    Move,
    Opened,
    SessionRecord,
    StoreFenced,
    StoreUnavailable,
    SubQueueKey,
    SubQueueRecord,
    TransactionMark,
    TransferMark,
    Update,
)
from busway.store.journal import JournalHandle, JournalSize
from busway.store.memory_journal import MemoryJournalHandle, StoredJournals
from busway.store.memory_sub_queue import NO_SESSION, StoredSession, StoredSubQueue
from busway.store.ordered import OrderedKeys

K = TypeVar("K")
V = TypeVar("V")

Undo = Callable[[], object]


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
        self._sub_queues: dict[int, StoredSubQueue] = {}
        self._keys: dict[SubQueueKey, int] = {}
        self._purging: dict[int, None] = {}
        """Slots without messages whose other rows are still being forgotten."""
        self._copies: dict[int, int] = {}
        """By id of a shared body: how many messages and journal rows have it (D-30, D-31). They
        share the bytes too."""
        self._bodies: dict[int, bytes] = {}
        self._journals = StoredJournals(self._bodies, self._count_copy)
        self._transactions: dict[bytes, TransactionMark] = {}
        self._expiring: OrderedKeys[tuple[int, int, int]] = OrderedKeys()
        self._duplicates_over: OrderedKeys[tuple[int, int, bytes]] = OrderedKeys()
        self._transactions_over: OrderedKeys[tuple[int, bytes]] = OrderedKeys()
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
        by_slot = sorted(self._sub_queues.items())
        sessions: list[SessionRecord] = []
        transfers: list[TransferMark] = []
        for slot, sub_queue in by_slot:
            sessions += sub_queue.session_records(slot)
            for source, number in sorted(sub_queue.transfers.items()):
                transfers.append(TransferMark(slot, *source, number))
        return Opened(
            self.store_id,
            self.epoch,
            self.commit_number,
            self.time_ms,
            [SubQueueRecord(slot, each.key, each.counters.copy()) for slot, each in by_slot],
            sessions,
            transfers,
            [
                mark
                for _, mark in sorted(self._transactions.items())
                if mark.until_ms > self.time_ms or mark.orders is not None
            ],
            self._journals.heads(),
            self._journals.holds(),
        )

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
        self._apply_messages(batch, undo)
        for slot, counters in batch.counters.items():
            sub_queue = self._sub_queue(slot)
            undo.append(partial(setattr, sub_queue, "counters", sub_queue.counters))
            sub_queue.counters = counters.copy()
        self._apply_sessions(batch, undo)
        self._apply_marks(batch, undo)
        for slot in batch.journal_heads:
            self._sub_queue(slot)
        self._journals.apply(batch, undo)
        for slot in {**self._purging, **dict.fromkeys(batch.purges)}:
            self._purge(slot, undo)

    def _sub_queue(self, slot: int) -> StoredSubQueue:
        try:
            return self._sub_queues[slot]
        except KeyError:
            raise CommitRefused(f"there is no sub-queue in slot {slot}") from None

    def _add_sub_queue(self, slot: int, key: SubQueueKey, undo: list[Undo]) -> None:
        if slot in self._sub_queues or key in self._keys:
            raise CommitRefused(f"slot {slot} or {key} is there already")
        _set(self._keys, key, slot, undo)
        _set(self._sub_queues, slot, StoredSubQueue(key), undo)

    # --- messages and their bodies ---------------------------------------------------------------

    def _apply_messages(self, batch: Batch, undo: list[Undo]) -> None:
        for slot, number in batch.deletes:
            self._remove(slot, number, undo)
        for move in batch.moves:
            self._move(move, undo)
        for update in batch.updates:
            self._update(update, undo)
        bodies = dict(batch.bodies)
        if not self._copies.keys().isdisjoint(bodies):
            raise CommitRefused("a shared body is there already")
        for slot, message in batch.puts:
            stored = stored_copy(message)
            if stored.body_id is not None:
                if stored.body_id not in bodies:
                    raise CommitRefused(f"body {stored.body_id} is not in the batch")
                stored.bare = bodies[stored.body_id]
            self._put(slot, stored, undo)

    def _put(self, slot: int, message: Message, undo: list[Undo]) -> None:
        sub_queue = self._sub_queue(slot)
        number = message.number
        assert partition_of(number) == sub_queue.key.partition, (slot, message)
        if number in sub_queue.messages:
            raise CommitRefused(f"message {number} is in slot {slot} already")
        sub_queue.add(message)
        if message.expires_ms is not None:
            self._expiring.add((message.expires_ms, slot, number))
        if message.body_id is not None:
            self._count_copy(message.body_id, +1, message.bare)
        undo.append(partial(self._remove, slot, number, []))

    def _remove(self, slot: int, number: int, undo: list[Undo]) -> Message:
        message = self._sub_queue(slot).take(number)
        if message is None:
            raise CommitRefused(f"message {number} is not in slot {slot}")
        if message.expires_ms is not None:
            self._expiring.discard((message.expires_ms, slot, number))
        if message.body_id is not None:
            self._count_copy(message.body_id, -1, message.bare)
        undo.append(partial(self._put, slot, message, []))
        return message

    def _count_copy(self, body_id: int, step: int, bare: bytes) -> None:
        copies = self._copies.get(body_id, 0) + step
        if copies:
            self._copies[body_id] = copies
            self._bodies[body_id] = bare
        else:
            del self._copies[body_id]
            del self._bodies[body_id]

    def _move(self, move: Move, undo: list[Undo]) -> None:
        before = self._remove(move.slot, move.number, undo)
        moved = stored_copy(move.moved)
        moved.bare = before.bare
        moved.size = before.size
        moved.header = before.header
        moved.annotations = before.annotations
        moved.annotation_items = before.annotation_items
        moved.session_id = before.session_id
        moved.body_id = before.body_id
        self._put(move.to_slot, moved, undo)

    def _update(self, update: Update, undo: list[Undo]) -> None:
        changed = stored_copy(self._remove(update.slot, update.number, undo))
        changed.state = update.state
        changed.delivery_count = update.delivery_count
        changed.expires_ms = update.expires_ms
        changed.changes = update.changes
        self._put(update.slot, changed, undo)

    # --- sessions and marks ----------------------------------------------------------------------

    def _apply_sessions(self, batch: Batch, undo: list[Undo]) -> None:
        for slot, session_id, active, name in batch.session_counts:
            before = self._sub_queue(slot).sessions.get(session_id, StoredSession(name=name))
            self._keep_session(slot, session_id, replace(before, active=active), undo)
        for slot, session_id, state, updated_ms, name in batch.session_states:
            before = self._sub_queue(slot).sessions.get(session_id, StoredSession(name=name))
            set_ms = None if state is None else updated_ms
            after = StoredSession(before.active, state, set_ms, before.name)
            self._keep_session(slot, session_id, after, undo)

    def _keep_session(
        self, slot: int, session_id: str, session: StoredSession, undo: list[Undo]
    ) -> None:
        sessions = self._sub_queue(slot).sessions
        if not session.is_empty:
            _set(sessions, session_id, session, undo)
        elif session_id in sessions:
            _unset(sessions, session_id, undo)

    def _apply_marks(self, batch: Batch, undo: list[Undo]) -> None:
        for slot, digest, until_ms in batch.duplicates:
            self._mark_duplicate(slot, digest, until_ms, undo)
        for slot, incarnation, partition, number in batch.transfers:
            _set(self._sub_queue(slot).transfers, (incarnation, partition), number, undo)
        for mark in batch.transactions:
            self._mark_transaction(mark.transaction_id, mark, undo)
        self._forget_marks(undo)

    def _forget_marks(self, undo: list[Undo]) -> None:
        """A step of those whose time is over."""
        duplicates = takewhile(
            lambda key: key[0] <= self.time_ms, self._duplicates_over.after(None)
        )
        for _, slot, digest in list(islice(duplicates, FORGET_ROWS)):
            self._mark_duplicate(slot, digest, None, undo)
        done = takewhile(lambda key: key[0] <= self.time_ms, self._transactions_over.after(None))
        for _, id_ in list(islice(done, FORGET_ROWS)):
            self._mark_transaction(id_, None, undo)

    def _mark_duplicate(
        self, slot: int, digest: bytes, until_ms: int | None, undo: list[Undo]
    ) -> None:
        sub_queue = self._sub_queue(slot)
        before = sub_queue.duplicates.get(digest)
        if before is not None:
            self._duplicates_over.discard((before, slot, digest))
        if until_ms is not None:
            self._duplicates_over.add((until_ms, slot, digest))
        sub_queue.mark(digest, until_ms)
        undo.append(partial(self._mark_duplicate, slot, digest, before, []))

    def _mark_transaction(self, id_: bytes, mark: TransactionMark | None, undo: list[Undo]) -> None:
        before = self._transactions.get(id_)
        if before is not None:
            self._transactions_over.discard((before.until_ms, id_))
        if mark is None:
            del self._transactions[id_]
        else:
            self._transactions[id_] = mark
            if mark.orders is None:
                self._transactions_over.add((mark.until_ms, id_))
        undo.append(partial(self._mark_transaction, id_, before, []))

    # --- purging ---------------------------------------------------------------------------------

    def _purge(self, slot: int, undo: list[Undo]) -> None:
        sub_queue = self._sub_queues.get(slot)
        if sub_queue is None:
            return
        left = PURGE_ROWS
        for number in list(islice(sub_queue.numbers(), left)):
            self._remove(slot, number, undo)
            left -= 1
        for digest in list(islice(sub_queue.duplicates, left)):
            self._mark_duplicate(slot, digest, None, undo)
            left -= 1
        for session_id in list(islice(sub_queue.sessions, left)):
            _unset(sub_queue.sessions, session_id, undo)
            left -= 1
        for source in list(islice(sub_queue.transfers, left)):
            _unset(sub_queue.transfers, source, undo)
            left -= 1
        journal_is_gone = not sub_queue.messages and self._journals.purge(slot, left, undo)
        if sub_queue.is_empty and journal_is_gone:
            _unset(self._keys, sub_queue.key, undo)
            _unset(self._sub_queues, slot, undo)
            if slot in self._purging:
                _unset(self._purging, slot, undo)
        elif not sub_queue.messages:
            _set(self._purging, slot, None, undo)

    # --- reading ---------------------------------------------------------------------------------

    def journal_sizes(self, slot: int, first: int, rows: int) -> list[JournalSize]:
        return self._journals.sizes(slot, first, rows)

    def journal_handle(self) -> JournalHandle:
        return MemoryJournalHandle(self._keys, self._journals.by_slot)

    def page(
        self,
        slot: int,
        after_number: int,
        state: MessageState | None,
        session_id: str | None,
        rows: int,
        size: int,
    ) -> list[Message]:
        sub_queue = self._sub_queues.get(slot)
        if sub_queue is None:
            return []
        found = sub_queue.page(after_number, state, session_id, rows, size)
        return [stored_copy(message) for message in found]

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

    def session_state(self, slot: int, session_id: str) -> bytes | None:
        sub_queue = self._sub_queues.get(slot)
        if sub_queue is None:
            return None
        return sub_queue.sessions.get(session_id, NO_SESSION).state

    def duplicate_marks(
        self, slot: int, after: bytes, now_ms: int, rows: int
    ) -> list[DuplicateMark]:
        sub_queue = self._sub_queues.get(slot)
        return [] if sub_queue is None else sub_queue.duplicate_marks(slot, after, now_ms, rows)

    def found_duplicates(
        self, slot: int, digests: Sequence[bytes], now_ms: int
    ) -> list[DuplicateMark]:
        sub_queue = self._sub_queues.get(slot)
        there = {} if sub_queue is None else sub_queue.duplicates
        return [
            DuplicateMark(slot, digest, there[digest])
            for digest in digests
            if there.get(digest, now_ms) > now_ms
        ]


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
        session_id: str | None = None,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> list[Message]:
        disk = self._owned_disk()
        return disk.page(slot, after_number, state, session_id, min(rows, READ_ROWS_MAX), size)

    def read_numbers(self, slot: int, numbers: Sequence[int]) -> list[Message]:
        return self._owned_disk().numbered(slot, numbers)

    def read_expiring(
        self, after: Expiring | None, until_ms: int, rows: int = READ_ROWS_MAX
    ) -> ExpiryPage:
        return self._owned_disk().expiring(after, until_ms, min(rows, READ_ROWS_MAX))

    def read_session_state(self, slot: int, session_id: str) -> bytes | None:
        return self._owned_disk().session_state(slot, session_id)

    def read_duplicates(
        self, slot: int, after_digest: bytes, now_ms: int, rows: int = READ_ROWS_MAX
    ) -> list[DuplicateMark]:
        disk = self._owned_disk()
        return disk.duplicate_marks(slot, after_digest, now_ms, min(rows, READ_ROWS_MAX))

    def read_journal_sizes(self, slot: int, first: int, rows: int) -> list[JournalSize]:
        return self._owned_disk().journal_sizes(slot, first, rows)

    def journal_handle(self) -> JournalHandle:
        return self.disk.journal_handle()

    def find_duplicates(
        self, slot: int, digests: Sequence[bytes], now_ms: int
    ) -> list[DuplicateMark]:
        return self._owned_disk().found_duplicates(slot, digests, now_ms)

    def recount(self, slot: int) -> None:
        raise AssertionError(f"the counters of slot {slot} lie")

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
        enqueued_number=message.enqueued_number,
        body_id=message.body_id,
        hops=message.hops,
        dead_letter_source=message.dead_letter_source,
        destination=message.destination,
    )


def _set(where: dict[K, V], key: K, value: V, undo: list[Undo]) -> None:
    if key in where:
        undo.append(partial(where.__setitem__, key, where[key]))
    else:
        undo.append(partial(where.__delitem__, key))
    where[key] = value


def _unset(where: dict[K, V], key: K, undo: list[Undo]) -> None:
    undo.append(partial(where.__setitem__, key, where.pop(key)))


def _take_back(undo: list[Undo]) -> None:
    for step in reversed(undo):
        step()
