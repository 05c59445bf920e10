"""A partition: what may happen to a message, and what it becomes (semantics sections 1 to 6, 9).

A synchronous state machine. Time comes from its owner, every change goes into the owner's open
stage, and nothing is true before the commit (D-1, D-5).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from busway.amqp.sections import merge_changes
from busway.broker import dead_letters
from busway.broker.seams import Replies, Settlement, SettlementKind
from busway.broker.staging import Change, Stage
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Queue
from busway.model.errors import DEAD_LETTER_TWICE, LOCK_LOST, QUOTA_EXCEEDED, BusError
from busway.model.message import Message, MessageState, sequence_number
from busway.store.base import SubQueueKey, SubQueueKind


class Owner(Protocol):
    """What a partition asks of the broker that runs it."""

    @property
    def available(self) -> bool: ...

    def now_ms(self) -> int: ...

    def queue(self, incarnation: int) -> Queue: ...

    def is_deleted(self, incarnation: int) -> bool: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def mint_token(self, partition: int) -> bytes: ...

    def fetch(self, sub_queue: SubQueue) -> None: ...

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None: ...

    def expiry_due(self, due_ms: int) -> None: ...

    def make_sub_queue(self, partition: Partition, kind: SubQueueKind) -> SubQueue: ...

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None: ...


class Outcome(Enum):
    """What a settlement makes of a locked message."""

    REMOVED = "removed"
    RETURNED = "returned"
    COUNTED = "returned, its delivery count one higher"
    DEFERRED = "deferred"
    DEFERRED_COUNTED = "deferred still, its delivery count one higher"
    DEAD_LETTERED = "moved to the dead-letter queue"


# MSG-3: from a locked message's state, by what the client decided.
MOVES: dict[tuple[MessageState, SettlementKind], Outcome] = {
    (MessageState.ACTIVE, SettlementKind.COMPLETE): Outcome.REMOVED,
    (MessageState.ACTIVE, SettlementKind.ABANDON): Outcome.COUNTED,
    (MessageState.ACTIVE, SettlementKind.RELEASE): Outcome.RETURNED,
    (MessageState.ACTIVE, SettlementKind.DEFER): Outcome.DEFERRED,
    (MessageState.ACTIVE, SettlementKind.DEAD_LETTER): Outcome.DEAD_LETTERED,
    (MessageState.DEFERRED, SettlementKind.COMPLETE): Outcome.REMOVED,
    (MessageState.DEFERRED, SettlementKind.ABANDON): Outcome.DEFERRED_COUNTED,  # DEF-2
    (MessageState.DEFERRED, SettlementKind.RELEASE): Outcome.RETURNED,
    (MessageState.DEFERRED, SettlementKind.DEFER): Outcome.DEFERRED,
    (MessageState.DEFERRED, SettlementKind.DEAD_LETTER): Outcome.DEAD_LETTERED,
}


class Partition:
    """One of the pieces of an entity, with sequence numbers of its own (P-31)."""

    __slots__ = ("_owner", "_sub_queues", "incarnation", "index")

    def __init__(self, owner: Owner, incarnation: int, index: int) -> None:
        self._owner = owner
        self._sub_queues: dict[SubQueueKind, SubQueue] = {}
        self.incarnation = incarnation
        self.index = index

    # What it is made of.

    @property
    def queue(self) -> Queue:
        """The entity's newest version; raises *not found* once it is deleted (D-16)."""
        return self._owner.queue(self.incarnation)

    @property
    def deleted(self) -> bool:
        return self._owner.is_deleted(self.incarnation)

    @property
    def sub_queues(self) -> dict[SubQueueKind, SubQueue]:
        return self._sub_queues

    def sub_queue(self, kind: SubQueueKind) -> SubQueue:
        found = self._sub_queues.get(kind)
        if found is None:
            found = self._sub_queues[kind] = self._owner.make_sub_queue(self, kind)
        return found

    @property
    def size_bytes(self) -> int:
        """What counts against its size: all sub-queues, and what is staged (D-17)."""
        return sum(each.committed.bytes + each.staged_bytes for each in self._sub_queues.values())

    # What its sub-queues ask of the owner.

    @property
    def available(self) -> bool:
        return self._owner.available

    def now_ms(self) -> int:
        return self._owner.now_ms()

    def stage(self, records: int) -> Stage:
        return self._owner.stage(records)

    def mint_token(self) -> bytes:
        return self._owner.mint_token(self.index)

    def fetch(self, sub_queue: SubQueue) -> None:
        self._owner.fetch(sub_queue)

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None:
        self._owner.lock_due(sub_queue, due_ms)

    def expiry_due(self, due_ms: int) -> None:
        self._owner.expiry_due(due_ms)

    # Commands.

    def enqueue(self, messages: Sequence[Message], replies: Replies, tag: int) -> None:
        """Number and stage the messages, as one: all of them or none (MSG-2, MSG-7)."""
        queue = self.queue
        now_ms = self._owner.now_ms()
        size = sum(message.size for message in messages)
        if self.size_bytes + size > queue.max_size_bytes:
            raise BusError(
                QUOTA_EXCEEDED,
                refused=True,
                entity_type="Queue",
                name=queue.path,
                size_bytes=self.size_bytes,
                max_bytes=queue.max_size_bytes,
            )
        main = self.sub_queue(SubQueueKind.MAIN)
        stage = self._owner.stage(len(messages), size)
        for message in messages:
            message.number = sequence_number(self.index, main.next_counter)
            main.next_counter += 1
            message.enqueued_ms = now_ms
            message.expires_ms = _expiry(message.ttl_ms, queue.default_ttl_ms, now_ms)
            stage.put(main, message)
        stage.answer(replies, tag)

    def settle(
        self, sub_queue: SubQueue, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        message = sub_queue.locks.get(token)
        if message is None:
            raise BusError(LOCK_LOST)
        if message.staged is not None:
            # Settled twice, or its lock is running out: the first outcome decides (D-1).
            assert isinstance(message.staged, Stage)
            again = partial(self._owner.settle, sub_queue.key, token, settlement, replies, tag)
            message.staged.waiting.append(again)
            return
        if message.locked_until_ms <= self._owner.now_ms():
            raise BusError(LOCK_LOST)  # LOCK-5
        outcome = MOVES[message.state, settlement.kind]
        if outcome is Outcome.REMOVED:
            stage = self._owner.stage(1)
            stage.delete(sub_queue, message)
            stage.answer(replies, tag)
        elif outcome is Outcome.RETURNED:
            self.release(sub_queue, message)
            replies.committed([tag])
        else:
            self._stage_outcome(sub_queue, message, outcome, settlement).answer(replies, tag)

    def release(self, sub_queue: SubQueue, message: Message) -> None:
        """Unlock without counting the delivery (DLV-1); nothing to commit (D-5)."""
        sub_queue.locks.drop(message)
        if self._expired(message):
            self.expire(sub_queue, message)  # TTL-5
            return
        sub_queue.released(message)
        sub_queue.wake()

    def renew(self, sub_queue: SubQueue, tokens: Sequence[bytes]) -> list[int]:
        """LOCK-3, all or none."""
        now_ms = self._owner.now_ms()
        messages: list[Message] = []
        for token in tokens:
            message = sub_queue.locks.get(token)
            if message is None or message.staged is not None or message.locked_until_ms <= now_ms:
                raise BusError(LOCK_LOST)
            messages.append(message)
        duration_ms = self.queue.lock_duration_ms
        self._owner.lock_due(sub_queue, now_ms + duration_ms)
        return [sub_queue.locks.renew(message, now_ms, duration_ms) for message in messages]

    def lock_deferred(self, sub_queue: SubQueue, messages: Sequence[Message]) -> None:
        """DEF-2: deferred messages, read from the store, become locked."""
        now_ms = self._owner.now_ms()
        duration_ms = self.queue.lock_duration_ms
        for message in messages:
            sub_queue.adopt(message)
            sub_queue.locks.take(message, self.mint_token(), now_ms, duration_ms)
        self._owner.lock_due(sub_queue, now_ms + duration_ms)

    # What time does.

    def expire_locks(self, sub_queue: SubQueue) -> None:
        """LOCK-4: as if abandoned."""
        abandon = Settlement(SettlementKind.ABANDON)
        for message in sub_queue.locks.expired(self._owner.now_ms()):
            outcome = MOVES[message.state, abandon.kind]
            self._stage_outcome(sub_queue, message, outcome, abandon)

    def expire(self, sub_queue: SubQueue, message: Message) -> None:
        """TTL-4, TTL-6: an active message whose time to live is over."""
        if self.queue.dead_lettering_on_expiration:
            self._dead_letter(sub_queue, message, message.delivery_count, dead_letters.expired())
        else:
            self._owner.stage(1).delete(sub_queue, message)

    # The parts of an outcome.

    def _stage_outcome(
        self, sub_queue: SubQueue, message: Message, outcome: Outcome, settlement: Settlement
    ) -> Stage:
        count = message.delivery_count
        changes = settlement.changes
        if outcome is Outcome.DEAD_LETTERED:
            if sub_queue.key.kind is not SubQueueKind.MAIN:
                raise BusError(DEAD_LETTER_TWICE)
            return self._dead_letter(sub_queue, message, count, changes)
        if outcome is Outcome.DEFERRED:
            return self._update(sub_queue, message, MessageState.DEFERRED, count, changes)
        count += 1
        if outcome is Outcome.DEFERRED_COUNTED:
            return self._update(sub_queue, message, MessageState.DEFERRED, count, changes)
        if sub_queue.key.kind is not SubQueueKind.MAIN:  # DLV-6, TTL-8
            return self._update(sub_queue, message, MessageState.ACTIVE, count, changes)
        queue = self.queue
        if count >= queue.max_delivery_count:  # DLV-3
            reason = dead_letters.delivered_too_often(queue.max_delivery_count)
            return self._dead_letter(sub_queue, message, count, {**changes, **reason})
        if self._expired(message):  # TTL-5
            if queue.dead_lettering_on_expiration:
                return self._dead_letter(
                    sub_queue, message, count, {**changes, **dead_letters.expired()}
                )
            stage = self._owner.stage(1)
            stage.delete(sub_queue, message)
            return stage
        return self._update(sub_queue, message, MessageState.ACTIVE, count, changes)

    def _expired(self, message: Message) -> bool:
        return message.expires_ms is not None and message.expires_ms <= self._owner.now_ms()

    def _update(
        self,
        sub_queue: SubQueue,
        message: Message,
        state: MessageState,
        delivery_count: int,
        changes: dict[str, object],
    ) -> Stage:
        expires_ms = message.expires_ms if state is MessageState.ACTIVE else None  # TTL-7
        merged = merge_changes(message.changes, changes) if changes else message.changes
        stage = self._owner.stage(1)
        stage.update(sub_queue, message, Change(state, delivery_count, expires_ms, merged))
        return stage

    def _dead_letter(
        self,
        sub_queue: SubQueue,
        message: Message,
        delivery_count: int,
        changes: dict[str, object] | dict[str, str],
    ) -> Stage:
        """DLQ-2: one move, with the same number and the reason among its properties."""
        merged = merge_changes(message.changes, dict(changes)) if changes else message.changes
        stage = self._owner.stage(1)
        stage.move(
            sub_queue,
            self.sub_queue(SubQueueKind.DEAD_LETTER),
            message,
            Change(MessageState.ACTIVE, delivery_count, None, merged),
        )
        return stage


def _expiry(ttl_ms: int | None, default_ms: int | None, now_ms: int) -> int | None:
    """TTL-1, TTL-3: the smaller of the message's and the entity's."""
    if ttl_ms is None:
        return None if default_ms is None else now_ms + default_ms
    return now_ms + (ttl_ms if default_ms is None else min(ttl_ms, default_ms))
