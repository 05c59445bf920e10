"""What commands have staged and no commit has applied yet (D-1).

Executing a command only fills a `Stage`. Once its commit is durable, `apply` makes it true in
memory and answers; if the commit failed, `undo` takes the marks off and answers that. Flat lists
and one answer per link: no closure, Future or timer per message (D-10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from busway.broker.seams import Grant, Replies
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.store.base import Batch, Counters, Delete, Move, Update

if TYPE_CHECKING:
    from busway.broker.sub_queue import SubQueue

STAGE_RECORDS_MAX = 1_024
STAGE_BYTES_MAX = 2 * 1024 * 1024
"""A batch closes at about this size; one send is never split (D-7)."""


class Change(NamedTuple):
    """What a message becomes when the commit is done."""

    state: MessageState
    delivery_count: int
    expires_ms: int | None
    changes: bytes | None


class Stage:
    """One batch while it is being filled, and while its commit is on the way."""

    __slots__ = (
        "_counters",
        "after",
        "answers",
        "bytes",
        "deletes",
        "moves",
        "purges",
        "puts",
        "records",
        "reserved",
        "updates",
        "waiting",
    )

    def __init__(self) -> None:
        self.puts: list[tuple[SubQueue, Message]] = []
        self.deletes: list[tuple[SubQueue, Message]] = []
        self.updates: list[tuple[SubQueue, Message, Change]] = []
        self.moves: list[tuple[SubQueue, SubQueue, Message, Change]] = []
        self.purges: list[int] = []
        self.reserved: list[tuple[Grant, list[Message]]] = []
        """Receive-and-delete: who gets what once the removal is durable (D-6)."""
        self.answers: dict[Replies, list[int]] = {}
        self.after: list[Callable[[BusError | None], None]] = []
        """For the rare commands that answer with more than a tag."""
        self.waiting: list[Callable[[], None]] = []
        """Commands that need something marked here; run once the outcome is known (D-1)."""
        self.records = 0
        self.bytes = 0
        self._counters: dict[SubQueue, Counters] = {}

    def has_room(self, records: int, size: int) -> bool:
        return self.records == 0 or (
            self.records + records <= STAGE_RECORDS_MAX and self.bytes + size <= STAGE_BYTES_MAX
        )

    @property
    def empty(self) -> bool:
        return not (self.records or self.after)

    # Filling it. Each marks its message, so nothing else touches it before the outcome.

    def put(self, sub_queue: SubQueue, message: Message) -> None:
        message.staged = self
        sub_queue.staged_bytes += message.size
        self.puts.append((sub_queue, message))
        self.records += 1
        self.bytes += message.size

    def delete(self, sub_queue: SubQueue, message: Message) -> None:
        assert message.staged is None
        message.staged = self
        self.deletes.append((sub_queue, message))
        self.records += 1

    def update(self, sub_queue: SubQueue, message: Message, change: Change) -> None:
        assert message.staged is None
        message.staged = self
        self.updates.append((sub_queue, message, change))
        self.records += 1

    def move(self, sub_queue: SubQueue, target: SubQueue, message: Message, change: Change) -> None:
        assert message.staged is None
        message.staged = self
        self.moves.append((sub_queue, target, message, change))
        self.records += 1

    def reserve(self, grant: Grant, messages: list[Message]) -> None:
        """Messages whose removal is staged here go to this grant, once it is durable."""
        grant.reserved += len(messages)
        self.reserved.append((grant, messages))

    def purge(self, slot: int) -> None:
        self.purges.append(slot)
        self.records += 1

    def answer(self, replies: Replies, tag: int) -> None:
        tags = self.answers.get(replies)
        if tags is None:
            self.answers[replies] = [tag]
        else:
            tags.append(tag)

    # Its commit.

    def batch(self, number: int, time_ms: int) -> Batch:
        """The records for the store. Called when every earlier batch is committed, because the
        counters in it are absolute (D-13)."""
        batch = Batch(number=number, time_ms=time_ms, purges=self.purges)
        counters = self._counters
        for sub_queue, message in self.puts:
            after = counters.get(sub_queue) or self._count(sub_queue)
            _add(after, message.state, 1, message.size)
            batch.puts.append((sub_queue.slot, message))
        for sub_queue, message in self.deletes:
            after = counters.get(sub_queue) or self._count(sub_queue)
            _add(after, message.state, -1, -message.size)
            batch.deletes.append(Delete(sub_queue.slot, message.number))
        for sub_queue, message, change in self.updates:
            after = counters.get(sub_queue) or self._count(sub_queue)
            _add(after, message.state, -1, 0)
            _add(after, change.state, 1, 0)
            batch.updates.append(Update(sub_queue.slot, message.number, *change))
        for sub_queue, target, message, change in self.moves:
            before = counters.get(sub_queue) or self._count(sub_queue)
            _add(before, message.state, -1, -message.size)
            after = counters.get(target) or self._count(target)
            _add(after, change.state, 1, message.size)
            state, delivery_count, expires_ms, changes = change
            batch.moves.append(
                Move(
                    sub_queue.slot,
                    message.number,
                    target.slot,
                    message.number,
                    state,
                    delivery_count,
                    message.enqueued_ms,
                    expires_ms,
                    changes,
                )
            )
        for sub_queue, after in counters.items():
            after.next_counter = sub_queue.next_counter
            batch.counters[sub_queue.slot] = after
            if not sub_queue.stored:
                batch.sub_queues.append((sub_queue.slot, sub_queue.key))
        return batch

    def settle_counters(self) -> None:
        """The commit is durable: what it counted is true, before anything else is staged on it."""
        for sub_queue, after in self._counters.items():
            sub_queue.committed = after
            sub_queue.stored = True

    def apply(self) -> None:
        """The commit is durable: reveal, remove, answer (D-5)."""
        for sub_queue, message in self.puts:
            message.staged = None
            sub_queue.staged_bytes -= message.size
            sub_queue.arrived(message)
        for sub_queue, message in self.deletes:
            sub_queue.removed(message)
        for sub_queue, message, change in self.updates:
            sub_queue.updated(message, change)
        for sub_queue, target, message, change in self.moves:
            sub_queue.removed(message)
            target.arrived(_moved(message, change))
        touched = list(self._counters)
        for replies, tags in self.answers.items():
            replies.committed(tags)
        self._hand_out(delivered=True)
        for answer in self.after:
            answer(None)
        for sub_queue in touched:
            sub_queue.wake()
        for command in self.waiting:
            command()

    def undo(self, error: BusError) -> None:
        """The commit failed: every mark comes off, and everybody is told (D-1)."""
        touched: dict[SubQueue, None] = {}
        for sub_queue, message in self.puts:
            sub_queue.staged_bytes -= message.size
        for sub_queue, message in self.deletes:
            sub_queue.restored(message)
            touched[sub_queue] = None
        for sub_queue, message, _ in self.updates:
            sub_queue.restored(message)
            touched[sub_queue] = None
        for sub_queue, _, message, _ in self.moves:
            sub_queue.restored(message)
            touched[sub_queue] = None
        self.tell(error)
        for sub_queue in touched:
            sub_queue.wake()

    def tell(self, error: BusError | None) -> None:
        """Answer everybody without touching the partitions' memory, which is being dropped."""
        for replies, tags in self.answers.items():
            if error is None:
                replies.committed(tags)
            else:
                for tag in tags:
                    replies.failed(tag, error)
        self._hand_out(delivered=error is None)
        for answer in self.after:
            answer(error)
        for command in self.waiting:
            command()

    def _hand_out(self, *, delivered: bool) -> None:
        for grant, messages in self.reserved:
            grant.reserved -= len(messages)
            if delivered:
                grant.receiver.deliver(grant, messages)
            else:
                grant.left = 0
            if grant.left == 0 and grant.reserved == 0:
                grant.receiver.finished(grant)

    def _count(self, sub_queue: SubQueue) -> Counters:
        counters = self._counters[sub_queue] = sub_queue.committed.copy()
        return counters


def _add(counters: Counters, state: MessageState, count: int, size: int) -> None:
    if state is MessageState.ACTIVE:
        counters.active += count
    elif state is MessageState.DEFERRED:
        counters.deferred += count
    else:
        counters.scheduled += count
    counters.bytes += size


def _moved(message: Message, change: Change) -> Message:
    """A message in its new sub-queue. A new object: the old one keeps its mark for ever, so that
    whatever still points at it passes it over."""
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
        expires_ms=change.expires_ms,
        delivery_count=change.delivery_count,
        state=change.state,
        changes=change.changes,
    )
