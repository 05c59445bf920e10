"""A partition: what may happen to a message in it, and what it becomes (semantics 1 to 7 and 9).

A synchronous state machine. Time comes from its owner, every change goes into the owner's open
stage, and nothing is true before the commit (D-1, D-5). How messages get in is `intake.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import Any, Protocol

from busway.amqp.sections import merge_changes
from busway.broker import dead_letters
from busway.broker.counting import Event
from busway.broker.journal import COMPLETED, Journal
from busway.broker.line import Line
from busway.broker.seams import Replies, SessionLock, Settlement, SettlementKind
from busway.broker.staging import Change, Stage, changed_copy
from busway.broker.sub_queue import SubQueue
from busway.broker.tally import Tally
from busway.model.durations import MINUTE_MS
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import DEAD_LETTER_TWICE, LOCK_LOST, SESSION_LOCK_LOST, BusError
from busway.model.limits import FORWARDING_HOPS_MAX
from busway.model.message import Message, MessageState, sequence_number
from busway.store.base import SubQueueKey, SubQueueKind


class Owner(Protocol):
    """What a partition asks of the broker that runs it."""

    @property
    def available(self) -> bool: ...

    def now_ms(self) -> int: ...

    def entity(self, incarnation: int) -> Entity: ...

    def is_deleted(self, incarnation: int) -> bool: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def notes(self) -> Stage: ...

    def mint_token(self, partition: int) -> bytes: ...

    def fetch(self, sub_queue: SubQueue, line: Line) -> None: ...

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
    DEFERRED = "deferred, its delivery count one higher"
    DEAD_LETTERED = "moved to the dead-letter queue"


# MSG-3: from a locked message's state, by what the client decided.
MOVES: dict[MessageState, dict[SettlementKind, Outcome]] = {
    MessageState.ACTIVE: {
        SettlementKind.COMPLETE: Outcome.REMOVED,
        SettlementKind.ABANDON: Outcome.COUNTED,
        SettlementKind.RELEASE: Outcome.RETURNED,
        SettlementKind.DEFER: Outcome.DEFERRED,
        SettlementKind.DEAD_LETTER: Outcome.DEAD_LETTERED,
    },
    MessageState.DEFERRED: {
        SettlementKind.COMPLETE: Outcome.REMOVED,
        SettlementKind.ABANDON: Outcome.DEFERRED,  # DEF-2
        SettlementKind.RELEASE: Outcome.RETURNED,
        SettlementKind.DEFER: Outcome.DEFERRED,
        SettlementKind.DEAD_LETTER: Outcome.DEAD_LETTERED,
    },
}

ABANDONED = Settlement(SettlementKind.ABANDON)


class Partition:
    """One of the pieces of an entity, with sequence numbers of its own (P-31)."""

    __slots__ = ("_owner", "_sub_queues", "incarnation", "index", "journal", "tally")

    def __init__(self, owner: Owner, incarnation: int, index: int, tally: Tally) -> None:
        self._owner = owner
        self._sub_queues: dict[SubQueueKind, SubQueue] = {}
        self.incarnation = incarnation
        self.index = index
        self.tally = tally
        self.journal: Journal | None = None
        """While the entity is captured: where to tell what happens (D-31)."""

    # What it is made of.

    @property
    def entity(self) -> Entity:
        """The entity's newest version; raises *not found* once it is deleted (D-16)."""
        return self._owner.entity(self.incarnation)

    @property
    def holder(self) -> Queue | Subscription:
        """The entity, where it is one that holds messages for receivers."""
        entity = self.entity
        assert not isinstance(entity, Topic)
        return entity

    @property
    def lock_duration_ms(self) -> int:
        entity = self.entity
        # A topic holds nothing for receivers but what it could not transfer (FWD-5).
        return MINUTE_MS if isinstance(entity, Topic) else entity.lock_duration_ms

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

    def next_number(self, stage: Stage) -> int:
        """Given out for good when the stage is committed (SEQ-1, SEQ-4)."""
        main = self.sub_queue(SubQueueKind.MAIN)
        number = sequence_number(self.index, main.next_counter)
        main.next_counter += 1
        stage.touched[main] = None
        return number

    def reserve_numbers(self, count: int) -> list[int]:
        """For a transaction that tells its client numbers before it is committed. One that is
        rolled back leaves a gap (SEQ-4)."""
        main = self.sub_queue(SubQueueKind.MAIN)
        first = main.next_counter
        main.next_counter += count
        return [sequence_number(self.index, first + each) for each in range(count)]

    # What its sub-queues ask of the owner.

    @property
    def available(self) -> bool:
        return self._owner.available

    def now_ms(self) -> int:
        return self._owner.now_ms()

    def stage(self, records: int) -> Stage:
        return self._owner.stage(records)

    def notes(self) -> Stage:
        return self._owner.notes()

    def mint_token(self) -> bytes:
        return self._owner.mint_token(self.index)

    def fetch(self, sub_queue: SubQueue, line: Line) -> None:
        self._owner.fetch(sub_queue, line)

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None:
        self._owner.lock_due(sub_queue, due_ms)

    def expiry_due(self, due_ms: int) -> None:
        self._owner.expiry_due(due_ms)

    # Settlement.

    def settle(
        self, sub_queue: SubQueue, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        message = self.locked(sub_queue, token)
        if message.staged is not None:
            # Settled twice, or its lock is running out: the first outcome decides (D-1).
            assert isinstance(message.staged, Stage)
            again = partial(self._owner.settle, sub_queue.key, token, settlement, replies, tag)
            message.staged.waiting.append(again)
            return
        stage = self.stage_settlement(sub_queue, message, settlement)
        if stage is None:
            replies.committed([tag])
        else:
            stage.answer(replies, tag)

    def locked(self, sub_queue: SubQueue, token: bytes) -> Message:
        """The message that this token locks; raises when the lock is lost (LOCK-5)."""
        message = sub_queue.locks.get(token)
        if message is None:
            # Settled already, or its session was lost: whoever asks knows whether it holds that.
            raise BusError(LOCK_LOST)
        sessions = sub_queue.sessions
        lock: Message | SessionLock | None = message
        if sessions is not None:
            lock = sessions.lock_of(message)  # SES-5: the session's time is the message's
        if lock is None or self._is_over(lock, message):
            raise BusError(LOCK_LOST if sessions is None else SESSION_LOCK_LOST)
        return message

    def _is_over(self, lock: Message | SessionLock, message: Message) -> bool:
        return lock.locked_until_ms <= self._owner.now_ms() and message.staged is None

    def check_settlement(self, sub_queue: SubQueue, settlement: Settlement) -> None:
        """Raise what can be known without a message: in a transaction it is too late when others
        are staged already."""
        self._owner.entity(self.incarnation)  # what is being purged cannot be settled too (D-16)
        is_main = sub_queue.key.kind is SubQueueKind.MAIN
        if settlement.kind is SettlementKind.DEAD_LETTER and not is_main:
            raise BusError(DEAD_LETTER_TWICE)

    def stage_settlement(
        self, sub_queue: SubQueue, message: Message, settlement: Settlement
    ) -> Stage | None:
        """Stage what becomes of a locked message; None if there is nothing to commit (D-5)."""
        outcome = MOVES[message.state][settlement.kind]
        if outcome is Outcome.REMOVED:
            stage = self._owner.stage(1)
            if self.journal is not None:
                self.journal.happened(stage, COMPLETED, sub_queue, message)
            stage.delete(sub_queue, message)
            return stage
        if outcome is Outcome.RETURNED:
            self.release(sub_queue, message)
            sub_queue.wake()
            return None
        stage = self._stage_outcome(sub_queue, message, outcome, settlement)
        if settlement.kind is SettlementKind.ABANDON:
            stage.noted.append((sub_queue, Event.ABANDONED))
        return stage

    def release(self, sub_queue: SubQueue, message: Message) -> None:
        """Unlock without counting the delivery (DLV-1); nothing to commit (D-5)."""
        sub_queue.unlock(message)
        if self._expired(message):
            self.expire(sub_queue, message)  # TTL-5
        else:
            sub_queue.released(message)

    def renew(self, sub_queue: SubQueue, tokens: Sequence[bytes]) -> list[int]:
        """LOCK-3, all or none."""
        now_ms = self._owner.now_ms()
        messages = [self.locked(sub_queue, token) for token in tokens]
        if sub_queue.sessions is not None or any(each.staged is not None for each in messages):
            raise BusError(LOCK_LOST)  # SES-5: the session's lock is the one to renew
        duration_ms = self.lock_duration_ms
        self._owner.lock_due(sub_queue, now_ms + duration_ms)
        return [sub_queue.locks.renew(message, now_ms, duration_ms) for message in messages]

    def lock_deferred(
        self, sub_queue: SubQueue, messages: Sequence[Message], session: SessionLock | None
    ) -> None:
        """DEF-2: deferred messages, read from the store, become locked."""
        now_ms = self._owner.now_ms()
        duration_ms = self.lock_duration_ms
        for message in messages:
            sub_queue.adopt(message)
            if session is not None:
                sub_queue.locks.take_in_session(message, self.mint_token(), session)
            else:
                sub_queue.locks.take(message, self.mint_token(), now_ms, duration_ms)
        if self.journal is not None:
            self.journal.delivered(self._owner.notes(), sub_queue, messages)
        self._owner.lock_due(sub_queue, now_ms + duration_ms)

    # What time does.

    def expire_locks(self, sub_queue: SubQueue) -> None:
        """LOCK-4, SES-8: as if abandoned."""
        now_ms = self._owner.now_ms()
        for message in sub_queue.locks.expired(now_ms):
            self._abandon(sub_queue, message)
        if sub_queue.sessions is not None:
            for lock in sub_queue.sessions.expired(now_ms):
                lock.ran_out = True
                for message in sub_queue.sessions.leave(lock):
                    self._abandon(sub_queue, message)
                lock.holder.session_lost(BusError(SESSION_LOCK_LOST))
            sub_queue.wake()

    def leave_session(self, sub_queue: SubQueue, lock: SessionLock) -> None:
        """SES-9: the holder goes; what it had returns, uncounted."""
        assert sub_queue.sessions is not None
        for message in sub_queue.sessions.leave(lock):
            self.release(sub_queue, message)
        sub_queue.wake()

    def expire(self, sub_queue: SubQueue, message: Message) -> None:
        """TTL-4, TTL-6: an active message whose time to live is over."""
        if self.holder.dead_lettering_on_expiration:
            reason = dead_letters.expired()
            stage = self.dead_letter(sub_queue, message, message.delivery_count, reason)
            stage.noted.append((sub_queue, Event.EXPIRED))
        else:
            self._drop_expired(sub_queue, message, message.delivery_count)

    def _drop_expired(self, sub_queue: SubQueue, message: Message, count: int) -> Stage:
        stage = self._owner.stage(1)
        if self.journal is not None:
            self.journal.expired(stage, sub_queue, message, count)
        stage.discard(sub_queue, message, Event.EXPIRED)
        return stage

    # The parts of an outcome.

    def _abandon(self, sub_queue: SubQueue, message: Message) -> None:
        outcome = MOVES[message.state][SettlementKind.ABANDON]
        stage = self._stage_outcome(sub_queue, message, outcome, ABANDONED)
        stage.noted.append((sub_queue, Event.LOCK_EXPIRED))

    def _stage_outcome(
        self, sub_queue: SubQueue, message: Message, outcome: Outcome, settlement: Settlement
    ) -> Stage:
        count = message.delivery_count
        changes = settlement.changes
        if outcome is Outcome.DEAD_LETTERED:
            if sub_queue.key.kind is not SubQueueKind.MAIN:
                raise BusError(DEAD_LETTER_TWICE)
            return self.dead_letter(sub_queue, message, count, changes)
        count += 1
        if self.journal is not None:
            stage = self._owner.stage(1)
            if settlement.kind is SettlementKind.DEFER:
                self.journal.deferred(stage, sub_queue, message, count)
            else:
                by_clock = settlement is ABANDONED
                self.journal.abandoned(stage, sub_queue, message, count, lock_expired=by_clock)
        if outcome is Outcome.DEFERRED:
            # DLV-1: it counts as a delivery, and is never one too many (DLV-3).
            return self._update(sub_queue, message, MessageState.DEFERRED, count, changes)
        if sub_queue.key.kind is not SubQueueKind.MAIN:  # DLV-6, TTL-8
            return self._update(sub_queue, message, MessageState.ACTIVE, count, changes)
        holder = self.holder
        if count >= holder.max_delivery_count:  # DLV-3
            reason = dead_letters.delivered_too_often(holder.max_delivery_count)
            return self.dead_letter(sub_queue, message, count, {**changes, **reason})
        if self._expired(message):  # TTL-5
            if holder.dead_lettering_on_expiration:
                reason = dead_letters.expired()
                stage = self.dead_letter(sub_queue, message, count, {**changes, **reason})
                stage.noted.append((sub_queue, Event.EXPIRED))
                return stage
            return self._drop_expired(sub_queue, message, count)
        return self._update(sub_queue, message, MessageState.ACTIVE, count, changes)

    def _expired(self, message: Message) -> bool:
        return (
            message.state is MessageState.ACTIVE
            and message.expires_ms is not None
            and message.expires_ms <= self._owner.now_ms()
        )

    def _update(
        self,
        sub_queue: SubQueue,
        message: Message,
        state: MessageState,
        delivery_count: int,
        changes: dict[str, Any],
    ) -> Stage:
        expires_ms = message.expires_ms if state is MessageState.ACTIVE else None  # TTL-7
        merged = merge_changes(message.changes, changes) if changes else message.changes
        stage = self._owner.stage(1)
        stage.update(sub_queue, message, Change(state, delivery_count, expires_ms, merged))
        return stage

    def way_of_dead_letters(self, message: Message) -> str | None:
        """Where its holder forwards dead letters to, or None: DLQ-4, FWD-3.

        One that was forwarded too often is forwarded once more, because who collects dead letters
        wants it, too, and then stays: or a holder that collects its own would never be done.
        """
        return None if message.hops > FORWARDING_HOPS_MAX else self.holder.forward_dead_letters_to

    def dead_letter(
        self,
        sub_queue: SubQueue,
        message: Message,
        delivery_count: int,
        changes: dict[str, Any],
        *,
        by_receiver: bool = True,
    ) -> Stage:
        """DLQ-2: one move, with the same number and the reason among its properties.

        Where dead letters are forwarded, they start on their way instead (DLQ-4). `by_receiver` is
        False for what was taken to be forwarded: nobody was given its lock.
        """
        merged = merge_changes(message.changes, dict(changes)) if changes else message.changes
        stage = self._owner.stage(1)
        stage.noted.append((sub_queue, Event.DEAD_LETTERED))
        change = Change(MessageState.ACTIVE, delivery_count, None, merged)
        forward_to = self.way_of_dead_letters(message)
        if forward_to is None:
            moved = changed_copy(message, change)
            moved.destination = None
            target = self.sub_queue(SubQueueKind.DEAD_LETTER)
        else:
            moved = changed_copy(message, change, number=self.next_number(stage))
            moved.enqueued_number = message.enqueued_number or message.number
            moved.dead_letter_source = self.holder.path
            moved.destination = forward_to
            target = self.sub_queue(SubQueueKind.TRANSFER)
        if self.journal is not None:
            becomes = 0 if forward_to is None else moved.number
            kind = target.key.kind
            self.journal.dead_lettered(
                stage, message, delivery_count, changes, kind, becomes, by_receiver=by_receiver
            )
        stage.move(sub_queue, target, message, moved)
        return stage
