"""Dead letters sent again: each leaves its dead-letter queue in the commit that stores its copy.

The copy goes to the entity of the dead letter, for a subscription to its topic, and always within
the dead letter's partition: there it keeps its key, and one commit is enough. No duplicate is told
by it, or the history would drop what an operator wants to have processed at last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from busway.amqp.codec import decode_value
from busway.amqp.sections import apply_changes, merge_changes
from busway.broker import dead_letters
from busway.broker.intake import Intake
from busway.broker.journal import COMPLETED
from busway.broker.lookups import is_deletable
from busway.broker.partition import Partition
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Subscription
from busway.model.errors import SERVER_BUSY, BusError
from busway.model.message import Message
from busway.store.base import READ_ROWS_MAX, MessagingStore, SubQueueKey

T = TypeVar("T")
Done = Callable[[int | BusError], None]
"""How many were sent again."""


class ResubmissionOwner(Protocol):
    @property
    def available(self) -> bool: ...

    def stored_sub_queue(self, key: SubQueueKey) -> SubQueue | None: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def whole_stage(self, records: int, size: int, fill: Callable[[Stage], None]) -> None: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class Resubmission:
    def __init__(self, owner: ResubmissionOwner, intake: Intake) -> None:
        self._owner = owner
        self._intake = intake

    def resubmit(
        self, key: SubQueueKey, numbers: Sequence[int] | None, count: int, done: Done
    ) -> None:
        """These dead letters, or the first `count` for None. What somebody has locked stays."""
        if not self._owner.available:
            done(BusError(SERVER_BUSY))
            return
        sub_queue = self._owner.stored_sub_queue(key)
        if sub_queue is None:
            done(0)
            return
        slot, rows = sub_queue.slot, min(count, READ_ROWS_MAX)
        wanted = None if numbers is None else list(numbers)

        def operation(store: MessagingStore) -> list[Message]:
            if wanted is None:
                return store.read_page(slot, 0, rows=rows)
            return store.read_numbers(slot, wanted)

        self._owner.read(operation, partial(self._found, sub_queue, done))

    def _found(self, sub_queue: SubQueue, done: Done, found: list[Message] | BusError) -> None:
        if isinstance(found, BusError):
            done(found)
            return
        free = [each for each in found if is_deletable(sub_queue, each)]
        if not free:
            done(0)
            return
        key = sub_queue.key
        origin = self._owner.partition(key.incarnation, key.partition)
        entity = origin.holder
        target = origin
        if isinstance(entity, Subscription):
            target = self._owner.partition(entity.topic_incarnation, key.partition)
        free = free[: self._intake.fan_outs.messages_per_commit(target.entity)]
        self._send_again(sub_queue, target, free, [_copy(each) for each in free], done)

    def _send_again(
        self,
        sub_queue: SubQueue,
        target: Partition,
        free: list[Message],
        copies: list[Message],
        done: Done,
    ) -> None:
        again = partial(self._send_again, sub_queue, target, free, copies, done)
        try:
            if not self._intake.fan_outs.waits(target, copies, copies, again):
                # Receivers may have taken some meanwhile.
                still = [is_deletable(sub_queue, each) for each in free]
                free = [each for each, is_free in zip(free, still, strict=True) if is_free]
                copies = [each for each, is_free in zip(copies, still, strict=True) if is_free]
                self._stage(sub_queue, target, free, copies, done)
        except BusError as error:
            done(error)

    def _stage(
        self,
        sub_queue: SubQueue,
        target: Partition,
        free: list[Message],
        copies: list[Message],
        done: Done,
    ) -> None:
        key = sub_queue.key
        journal = self._owner.partition(key.incarnation, key.partition).journal

        def fill(stage: Stage) -> None:
            self._intake.take_in(target, copies)
            for message in free:
                known = sub_queue.known.get(message.number)
                if known is None:
                    sub_queue.adopt(message)
                    known = message
                if journal is not None:
                    journal.happened(stage, COMPLETED, sub_queue, known)
                stage.delete(sub_queue, known)
            stage.after.append(lambda error: done(len(free) if error is None else error))

        size = sum(each.size for each in copies)
        self._owner.whole_stage(2 * len(free), size, fill)


def _copy(message: Message) -> Message:
    """As it was sent, with what receivers changed of its properties, without why it was dead."""
    bare = message.bare
    if message.changes is not None:
        changes = dict(decode_value(message.changes)[0])
        changes.pop(dead_letters.REASON, None)
        changes.pop(dead_letters.DESCRIPTION, None)
        if changes:
            bare = apply_changes(bare, merge_changes(None, changes))
    return Message(
        bare=bare,
        size=message.size,
        header=message.header,
        ttl_ms=message.ttl_ms,
        annotations=message.annotations,
        annotation_items=message.annotation_items,
        session_id=message.session_id,
    )
