"""Commands that have to look into the store before they know what to do.

Peek, receive by sequence number, cancel, batch delete, a session's state: each reads, and by the
time the page is there checks it against what has happened meanwhile (D-11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from busway.broker.counting import Event
from busway.broker.journal import CANCELLED, COMPLETED, PURGED
from busway.broker.partition import Partition
from busway.broker.seams import SessionLock
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.model.errors import (
    CANCEL_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    BusError,
)
from busway.model.journal import JournalEvent
from busway.model.message import Message, MessageState
from busway.store.base import READ_BYTES_MAX, READ_ROWS_MAX, MessagingStore, SubQueueKey

T = TypeVar("T")
Found = list[Message] | BusError
Missing = list[int] | BusError


class LookupOwner(Protocol):
    @property
    def available(self) -> bool: ...

    def stored_sub_queue(self, key: SubQueueKey) -> SubQueue | None:
        """None if the store has nothing of it."""

    def exists(self, incarnation: int) -> bool: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class Lookups:
    def __init__(self, owner: LookupOwner) -> None:
        self._owner = owner

    def peek(
        self,
        key: SubQueueKey,
        from_number: int,
        count: int,
        size: int,
        done: Callable[[Found], None],
        session_id: str | None = None,
        state: MessageState | None = None,
    ) -> None:
        """PEEK-1: what is committed, from a number on, in this state or any; touches nothing."""
        if not self._owner.available:
            done(BusError(SERVER_BUSY))
            return
        sub_queue = self._owner.stored_sub_queue(key)
        if sub_queue is None:
            done([])
            return
        slot, rows, size = sub_queue.slot, min(count, READ_ROWS_MAX), min(size, READ_BYTES_MAX)

        def operation(store: MessagingStore) -> list[Message]:
            return store.read_page(
                slot, from_number - 1, state=state, session_id=session_id, rows=rows, size=size
            )

        self._owner.read(operation, done)

    def receive_deferred(
        self,
        key: SubQueueKey,
        numbers: Sequence[int],
        delete: bool,
        done: Callable[[Found], None],
        session: SessionLock | None = None,
    ) -> None:
        """DEF-2 to DEF-5: all of these deferred messages, locked or removed, or none."""
        again = partial(self.receive_deferred, key, numbers, delete, done, session)
        sub_queue = self._ready_for(key, numbers, again)
        if isinstance(sub_queue, BusError):
            done(sub_queue)
        elif sub_queue is not None:
            if sub_queue.sessions is not None and (session is None or not session.valid):
                done(BusError(SESSION_LOCK_LOST))
                return
            self._read_numbers(
                sub_queue,
                numbers,
                lambda found: self._deferred(sub_queue, numbers, delete, session, found, done),
            )

    def _deferred(
        self,
        sub_queue: SubQueue,
        numbers: Sequence[int],
        delete: bool,
        session: SessionLock | None,
        found: Found,
        done: Callable[[Found], None],
    ) -> None:
        if isinstance(found, BusError):
            done(found)
            return
        free = [each for each in found if _is_free(sub_queue, each, MessageState.DEFERRED)]
        if session is not None:
            free = [each for each in free if each.session_id == session.session_id]
        if len(free) != len(numbers) or not self._owner.exists(sub_queue.key.incarnation):
            done(BusError(MESSAGE_NOT_FOUND))
        elif session is not None and not session.valid:
            done(BusError(SESSION_LOCK_LOST))
        elif delete:
            self._delete(
                sub_queue, free, COMPLETED, lambda error: done(free if error is None else error)
            )
        else:
            partition = self._owner.partition(sub_queue.key.incarnation, sub_queue.key.partition)
            partition.lock_deferred(sub_queue, free, session)
            done(free)

    def cancel_scheduled(
        self, key: SubQueueKey, numbers: Sequence[int], done: Callable[[BusError | None], None]
    ) -> None:
        """SCH-2: all of these scheduled messages, or none."""
        again = partial(self.cancel_scheduled, key, numbers, done)
        sub_queue = self._ready_for(key, numbers, again)
        if isinstance(sub_queue, BusError):
            missing = sub_queue.kind is MESSAGE_NOT_FOUND
            done(_not_cancelled(numbers) if missing else sub_queue)
        elif sub_queue is not None:
            self._read_numbers(
                sub_queue, numbers, lambda found: self._cancel(sub_queue, numbers, found, done)
            )

    def reserve_scheduled(
        self,
        key: SubQueueKey,
        numbers: Sequence[int],
        holder: object,
        done: Callable[[list[tuple[SubQueue, Message]] | BusError], None],
    ) -> None:
        """Mark these scheduled messages, all or none, for somebody who will cancel them, or let
        them go: meanwhile nobody else does, and they do not become active (D-1)."""
        again = partial(self.reserve_scheduled, key, numbers, holder, done)
        sub_queue = self._ready_for(key, numbers, again)
        if isinstance(sub_queue, BusError):
            missing = sub_queue.kind is MESSAGE_NOT_FOUND
            done(_not_cancelled(numbers) if missing else sub_queue)
            return
        if sub_queue is None:
            return

        def read(found: Found) -> None:
            if isinstance(found, BusError):
                done(found)
                return
            free = [each for each in found if _is_free(sub_queue, each, MessageState.SCHEDULED)]
            there = {message.number for message in free}
            missing = [number for number in numbers if number not in there]
            if missing:
                done(_not_cancelled(missing))
                return
            for message in free:
                sub_queue.adopt(message)
                message.staged = holder
            done([(sub_queue, message) for message in free])

        self._read_numbers(sub_queue, numbers, read)

    def stage_cancel(self, stage: Stage, sub_queue: SubQueue, message: Message) -> None:
        """Of one that was reserved."""
        message.staged = None
        key = sub_queue.key
        journal = self._owner.partition(key.incarnation, key.partition).journal
        if journal is not None:
            journal.happened(stage, CANCELLED, sub_queue, message)
        stage.discard(sub_queue, message, Event.DISCARDED)

    def let_go(self, sub_queue: SubQueue, message: Message) -> None:
        """Of one that was reserved, and is not cancelled. Its time may have come meanwhile."""
        message.staged = None
        sub_queue.released(message)
        if message.expires_ms is not None:
            partition = self._owner.partition(sub_queue.key.incarnation, sub_queue.key.partition)
            partition.expiry_due(message.expires_ms)

    def missing_scheduled(
        self, key: SubQueueKey, numbers: Sequence[int], done: Callable[[Missing], None]
    ) -> None:
        """Which of these a cancel would not find; for who cancels in several partitions."""
        if not self._owner.available:
            done(BusError(SERVER_BUSY))
            return
        sub_queue = self._owner.stored_sub_queue(key)
        if sub_queue is None:
            done(list(numbers))
            return

        def read(found: Found) -> None:
            if isinstance(found, BusError):
                done(found)
                return
            there = {each.number for each in found if each.state is MessageState.SCHEDULED}
            done([number for number in numbers if number not in there])

        self._read_numbers(sub_queue, numbers, read)

    def _cancel(
        self,
        sub_queue: SubQueue,
        numbers: Sequence[int],
        found: Found,
        done: Callable[[BusError | None], None],
    ) -> None:
        if isinstance(found, BusError):
            done(found)
            return
        free = [each for each in found if _is_free(sub_queue, each, MessageState.SCHEDULED)]
        there = {message.number for message in free}
        missing = [number for number in numbers if number not in there]
        if missing:
            done(_not_cancelled(missing))
        else:
            self._delete(sub_queue, free, CANCELLED, done)

    def delete_batch(
        self,
        key: SubQueueKey,
        count: int,
        before_ms: int,
        session_id: str | None,
        done: Callable[[int | BusError], None],
        state: MessageState = MessageState.ACTIVE,
    ) -> None:
        """Delete up to `count` messages of a state that were enqueued before a time, oldest first;
        locked ones stay."""
        if not self._owner.available:
            done(BusError(SERVER_BUSY))
            return
        sub_queue = self._owner.stored_sub_queue(key)
        if sub_queue is None:
            done(0)
            return
        slot, rows = sub_queue.slot, min(count, READ_ROWS_MAX)

        def take(after: int, deleted: int) -> None:
            self._owner.read(
                lambda store: store.read_page(
                    slot, after, state=state, session_id=session_id, rows=rows
                ),
                lambda found: taken(found, deleted),
            )

        def taken(found: Found, deleted: int) -> None:
            if isinstance(found, BusError):
                done(deleted or found)
                return
            old = [each for each in found if each.enqueued_ms < before_ms]
            free = [each for each in old if is_deletable(sub_queue, each)][: count - deleted]

            def deleted_some(error: BusError | None) -> None:
                total = deleted + (len(free) if error is None else 0)
                if error is not None:
                    done(total or error)
                elif total < count and found and len(old) == len(found):
                    take(found[-1].number, total)
                else:
                    done(total)

            if free:
                self._delete(sub_queue, free, PURGED, deleted_some)
            else:
                deleted_some(None)

        take(0, 0)

    def oldest(
        self,
        keys: Sequence[SubQueueKey],
        done: Callable[[dict[SubQueueKey, int] | BusError], None],
    ) -> None:
        """When the oldest active message of each was enqueued, without those that have none.

        What memory does not tell is read in one go: ask for few keys at a time, because commits
        wait behind it (D-11).
        """
        known: dict[SubQueueKey, int] = {}
        unknown: list[tuple[SubQueueKey, int]] = []
        for key in keys:
            sub_queue = self._owner.stored_sub_queue(key)
            if sub_queue is None or not sub_queue.committed.active:
                continue
            first = sub_queue.oldest_in_memory()
            if first is None:
                unknown.append((key, sub_queue.slot))
            else:
                known[key] = first.enqueued_ms

        def read(store: MessagingStore) -> dict[SubQueueKey, int]:
            pages = ((key, store.read_page(slot, 0, rows=1, size=1)) for key, slot in unknown)
            return known | {key: page[0].enqueued_ms for key, page in pages if page}

        if unknown:
            self._owner.read(read, done)
        else:
            done(known)

    # The parts.

    def _ready_for(
        self, key: SubQueueKey, numbers: Sequence[int], again: Callable[[], None]
    ) -> SubQueue | BusError | None:
        """The sub-queue; None if the command runs again when a commit is done (D-1)."""
        if not self._owner.available:
            return BusError(SERVER_BUSY)
        sub_queue = self._owner.stored_sub_queue(key)
        if sub_queue is None or not numbers or len(set(numbers)) != len(numbers):
            return BusError(MESSAGE_NOT_FOUND)
        for number in numbers:
            known = sub_queue.known.get(number)
            if known is not None and isinstance(known.staged, Stage):
                known.staged.waiting.append(again)
                return None
        return sub_queue

    def _read_numbers(
        self, sub_queue: SubQueue, numbers: Sequence[int], done: Callable[[Found], None]
    ) -> None:
        slot, wanted = sub_queue.slot, list(numbers)
        self._owner.read(lambda store: store.read_numbers(slot, wanted), done)

    def _delete(
        self,
        sub_queue: SubQueue,
        messages: Sequence[Message],
        event: JournalEvent,
        done: Callable[[BusError | None], None],
    ) -> None:
        key = sub_queue.key
        journal = self._owner.partition(key.incarnation, key.partition).journal
        stage = self._owner.stage(len(messages))
        for message in messages:
            known = sub_queue.known.get(message.number)
            if known is None:
                sub_queue.adopt(message)
                known = message
            if journal is not None:
                journal.happened(stage, event, sub_queue, known)
            if event is COMPLETED:
                stage.delete(sub_queue, known)
            else:
                stage.discard(sub_queue, known, Event.DISCARDED)
        stage.after.append(done)


def _is_free(sub_queue: SubQueue, message: Message, state: MessageState) -> bool:
    """In that state, and neither locked nor marked: what is in memory besides is one of both."""
    return message.state is state and message.number not in sub_queue.known


def is_deletable(sub_queue: SubQueue, message: Message) -> bool:
    """Neither locked nor marked."""
    known = sub_queue.known.get(message.number)
    return known is None or (known.lock_token is None and known.staged is None)


def _not_cancelled(numbers: Sequence[int]) -> BusError:
    return BusError(CANCEL_NOT_FOUND, numbers=",".join(str(number) for number in numbers))
