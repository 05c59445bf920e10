"""How messages get into a partition: sends, scheduled ones whose time has come, transfers.

Numbering, duplicates, quotas, the fan-out of a topic and the first step of forwarding are decided
here, all in one stage, so that one commit makes all of it true (MSG-2, MSG-7, D-27, D-30).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from busway.amqp.sections import LATEST_MS, merge_changes
from busway.broker import dead_letters
from busway.broker.counting import Event
from busway.broker.duplicates import DuplicateHistory
from busway.broker.fan_outs import FanOuts, smaller
from busway.broker.partition import Partition
from busway.broker.seams import Replies, TransferSource
from busway.broker.session_keys import session_key_at
from busway.broker.staging import Change, Stage, changed_copy
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Entity, Queue, Subscription, Topic, stands_still
from busway.model.errors import (
    QUOTA_EXCEEDED,
    SEND_DISABLED,
    SERVER_BUSY,
    BusError,
)
from busway.model.limits import FORWARDING_HOPS_MAX
from busway.model.message import Message, MessageState
from busway.model.session_ids import session_key
from busway.store.base import SubQueueKey, SubQueueKind, TransferMark

if TYPE_CHECKING:
    from busway.filters.rules import TopicRules


class IntakeOwner(Protocol):
    def now_ms(self) -> int: ...

    def entity(self, incarnation: int) -> Entity: ...

    def topic_rules(self, incarnation: int) -> TopicRules: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def next_round(self, callback: Callable[[], None]) -> None: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def duplicates(self, sub_queue: SubQueue) -> DuplicateHistory: ...

    def send(
        self, key: SubQueueKey, messages: Sequence[Message], replies: Replies, tag: int
    ) -> None: ...

    def transfer(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: Sequence[Message],
        done: Callable[[BusError | None], None],
    ) -> None: ...

    def transfer_mark(self, slot: int, source: TransferSource) -> int: ...

    def transferred(self, slot: int, source: TransferSource, number: int) -> None: ...


class Intake:
    def __init__(self, owner: IntakeOwner, fan_outs: FanOuts) -> None:
        self._owner = owner
        self.fan_outs = fan_outs
        self._transfers: dict[tuple[int, TransferSource], Stage] = {}
        """By slot of the destination: what is being taken, and no commit has decided yet."""

    # Sends.

    def send(
        self, partition: Partition, messages: Sequence[Message], replies: Replies, tag: int
    ) -> None:
        """All of the messages or none; duplicates among them are accepted and dropped (DUP-3)."""
        key = SubQueueKey(partition.incarnation, partition.index, SubQueueKind.MAIN)
        again = partial(self._owner.send, key, messages, replies, tag)
        if self.fan_outs.waits(partition, messages, messages, again):
            return
        if self.waits_for_history(partition, messages, messages, again):
            return
        stage = self.take_in(partition, messages)
        if stage is None:
            replies.committed([tag])  # nothing but duplicates
        else:
            stage.answer(replies, tag)

    def take_in(self, partition: Partition, messages: Sequence[Message]) -> Stage | None:
        """Stage the messages, without those that are duplicates; None if that leaves nothing to
        commit."""
        entity = partition.entity
        if stands_still(entity):
            raise BusError(SEND_DISABLED, uri=entity.path)
        now_ms = self._owner.now_ms()
        main = partition.sub_queue(SubQueueKind.MAIN)
        history = self.history(partition, entity)
        sent, duplicates = messages, 0
        if history is not None:
            messages = history.fresh(messages, now_ms)
            duplicates = len(sent) - len(messages)
            if not messages and partition.journal is None:
                main.movements.count(Event.DUPLICATE, duplicates)
                return None
        size = sum(message.size for message in messages)
        self.check_room(partition, entity, size)
        stage = self._owner.stage(len(messages), size)
        if duplicates and partition.journal is not None:
            partition.journal.duplicates_dropped(stage, sent, messages)
        for message in messages:
            self._take_one(stage, partition, entity, message, now_ms)
        if history is not None:
            assert isinstance(entity, Queue | Topic)
            history.stage(stage, messages, now_ms + entity.duplicate_window_ms)
            stage.noted.extend([(main, Event.DUPLICATE)] * duplicates)
        return stage

    def waits_for_history(
        self,
        partition: Partition,
        command: object,
        messages: Sequence[Message],
        again: Callable[[], None],
    ) -> bool:
        """Whether duplicates can only be told later; then `again` is called (D-1, D-13)."""
        history = self.history(partition, partition.entity)
        return history is not None and history.waits(command, messages, again)

    def history(self, partition: Partition, entity: Entity) -> DuplicateHistory | None:
        if isinstance(entity, Subscription) or not entity.requires_duplicate_detection:
            return None
        return self._owner.duplicates(partition.sub_queue(SubQueueKind.MAIN))

    def remember_id(self, stage: Stage, partition: Partition, message: Message) -> None:
        """Of a message that was moved here: whoever sends it again is still noticed (DUP-3)."""
        entity = partition.entity
        history = self.history(partition, entity)
        if history is not None:
            assert isinstance(entity, Queue | Topic)
            until_ms = message.enqueued_ms + entity.duplicate_window_ms
            if until_ms > self._owner.now_ms():
                history.stage(stage, [message], until_ms)
                stage.touched[partition.sub_queue(SubQueueKind.MAIN)] = None

    def check_room(self, partition: Partition, entity: Entity, size: int) -> None:
        """D-17: each partition has the chosen size as its own limit."""
        assert isinstance(entity, Queue | Topic)
        total = partition.tally.total
        if total + size > entity.max_size_bytes:
            raise BusError(
                QUOTA_EXCEEDED,
                refused=True,
                entity_type=entity.entity_type,
                name=entity.path,
                size_bytes=total,
                max_bytes=entity.max_size_bytes,
            )

    def _take_one(
        self, stage: Stage, partition: Partition, entity: Entity, message: Message, now_ms: int
    ) -> None:
        if message.session_id is not None:
            message.session_id = session_key(entity, message.session_id)
        if message.state is MessageState.SCHEDULED:
            due_ms = message.expires_ms
            if due_ms is not None and (due_ms > now_ms or message.copies is not None):
                message.copies = None
                message.number = partition.next_number(stage)
                message.enqueued_ms = now_ms
                stage.put(partition.sub_queue(SubQueueKind.MAIN), message)
                if partition.journal is not None:
                    partition.journal.scheduled(stage, message)
                return
            message.state = MessageState.ACTIVE  # SCH-1: its time is already over
        if isinstance(entity, Topic):
            stage.passing.append(partition.sub_queue(SubQueueKind.MAIN))
            self._fan_out(stage, partition, entity, message, now_ms)
        else:
            self._place(stage, partition, entity, message, now_ms)

    def _place(
        self,
        stage: Stage,
        partition: Partition,
        entity: Queue | Subscription,
        message: Message,
        now_ms: int,
    ) -> None:
        """Into the main queue, or on its way to where the entity forwards to (D-27)."""
        message.number = partition.next_number(stage)
        message.enqueued_ms = now_ms
        message.expires_ms = _expiry(message.ttl_ms, entity.default_ttl_ms, now_ms)
        kind = SubQueueKind.MAIN
        if entity.forward_to is not None:
            if message.hops >= FORWARDING_HOPS_MAX:
                reason = dead_letters.forwarded_too_often(FORWARDING_HOPS_MAX)
                self._place_dead(stage, partition, message, reason)
                return
            message.destination = entity.forward_to
            message.expires_ms = None  # its time to live begins anew where it arrives (FWD-2)
            kind = SubQueueKind.TRANSFER
        elif _lacks_session(entity, message):
            self._place_dead(stage, partition, message, dead_letters.without_session())
            return
        stage.put(partition.sub_queue(kind), message)
        if partition.journal is not None:
            partition.journal.enqueued(stage, message, kind)

    def _place_dead(
        self, stage: Stage, partition: Partition, message: Message, reason: dict[str, str]
    ) -> None:
        message.expires_ms = None  # TTL-8
        message.changes = merge_changes(message.changes, dict(reason))
        kind = SubQueueKind.DEAD_LETTER
        forward_to = partition.way_of_dead_letters(message)
        if forward_to is not None:
            message.destination = forward_to
            message.dead_letter_source = partition.holder.path
            kind = SubQueueKind.TRANSFER
        stage.put(partition.sub_queue(kind), message)
        stage.noted.append((partition.sub_queue(SubQueueKind.MAIN), Event.DEAD_LETTERED))
        if partition.journal is not None:
            partition.journal.enqueued(stage, message, kind)
            count = message.delivery_count
            partition.journal.dead_lettered(stage, message, count, reason, kind)

    # Topics (RUL-2, RUL-3, D-30).

    def _fan_out(
        self,
        stage: Stage,
        partition: Partition,
        topic: Topic,
        message: Message,
        now_ms: int,
        was: int = 0,
    ) -> None:
        """A copy for each subscription that wants one; a body that several share is stored once.
        `was` is the number under which it was scheduled until now."""
        if message.copies is None or message.copies[0] is not partition:
            message.number = partition.next_number(stage)
        else:
            stage.touched[partition.sub_queue(SubQueueKind.MAIN)] = None
        message.enqueued_ms = now_ms
        if partition.journal is not None:
            partition.journal.enqueued(stage, message, was=was)
        sharing: list[Message] = []
        for one, incarnation, shares_body, error in self.fan_outs.copies_of(
            partition, topic, message
        ):
            subscription = self._owner.entity(incarnation)
            assert isinstance(subscription, Subscription)
            target = self._owner.partition(incarnation, partition.index)
            one.enqueued_number = message.number
            if shares_body:
                sharing.append(one)
            if error is None:
                self._place(stage, target, subscription, one, now_ms)
            else:
                one.number = target.next_number(stage)
                one.enqueued_ms = now_ms
                self._place_dead(stage, target, one, dead_letters.filter_failed(*error))
        if partition.journal is not None:
            sharing.append(message)  # not stored, but its body is: the journal carries it
        if len(sharing) > 1:
            stage.shared.append((message.bare, sharing))

    # Scheduled messages (SCH-3, SCH-4).

    def activate(self, partition: Partition, sub_queue: SubQueue, message: Message) -> None:
        """Its time has come: it gets a new number, and from now on it lives."""
        entity = partition.entity
        now_ms = self._owner.now_ms()
        if isinstance(entity, Topic):
            stage = self._owner.stage(1, message.size)
            stage.discard(sub_queue, message, Event.ACTIVATED)
            active = Change(MessageState.ACTIVE, 0, None, message.changes)
            if partition.journal is None:
                self._fan_out(stage, partition, entity, changed_copy(message, active), now_ms)
                return
            sent = changed_copy(message, active)
            sent.body_id = None  # that body may go with the scheduled message
            self._fan_out(stage, partition, entity, sent, now_ms, was=message.number)
            return
        stage = self._owner.stage(1)
        expires_ms = _expiry(message.ttl_ms, entity.default_ttl_ms, now_ms)
        change = Change(MessageState.ACTIVE, message.delivery_count, expires_ms, message.changes)
        moved = changed_copy(message, change, number=partition.next_number(stage))
        moved.enqueued_ms = now_ms
        target = sub_queue
        if entity.forward_to is not None:
            moved.destination = entity.forward_to
            moved.expires_ms = None
            target = partition.sub_queue(SubQueueKind.TRANSFER)
        if partition.journal is not None:
            kind = target.key.kind
            partition.journal.enqueued(stage, moved, kind, was=message.number, moved=True)
        stage.move(sub_queue, target, message, moved)
        stage.noted.append((sub_queue, Event.ACTIVATED))

    # Transfers from other entities (D-27).

    def transfer(
        self,
        partition: Partition,
        source: TransferSource,
        messages: Sequence[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        """Take what a source partition hands over, each number once; to a topic with many
        subscriptions, a slice of it with each commit.

        What is already here is *done*, before status, quota or duplicates are looked at.
        """
        entity = partition.entity
        main = partition.sub_queue(SubQueueKind.MAIN)
        again = partial(self._owner.transfer, main.key, source, messages, done)
        under_way = self._transfers.get((main.slot, source))
        if under_way is not None:
            # Its source has come back and hands over again: the first outcome decides (D-1).
            under_way.waiting.append(again)
            return
        last = self._owner.transfer_mark(main.slot, source)
        new = [_arriving(message, entity) for message in messages if message.number > last]
        if not new:
            done(None)
            return
        if stands_still(entity):
            raise BusError(SERVER_BUSY)  # its path will soon be another's, who takes it
        if isinstance(entity, Subscription) or not entity.status.can_send:
            raise BusError(SEND_DISABLED, uri=entity.path)
        left = len(new)
        new = new[: self.fan_outs.messages_per_slice(entity)]
        left -= len(new)
        number = new[-1].number
        if self.waits_for_history(partition, messages, new, again):
            return
        stage = self.take_in(partition, new) or self._owner.stage(1)
        stage.touched[main] = None
        stage.transfers.append(
            TransferMark(main.slot, source.incarnation, source.partition, number)
        )

        def committed(error: BusError | None) -> None:
            del self._transfers[main.slot, source]
            if error is None:
                self._owner.transferred(main.slot, source, number)
            if error is None and left:
                self._owner.next_round(again)  # the rest: what is here is not taken again
            else:
                done(error)

        self._transfers[main.slot, source] = stage
        stage.after.append(committed)


def _arriving(message: Message, entity: Entity) -> Message:
    """A forwarded message as it begins at its destination (FWD-2, DLQ-4)."""
    change = Change(MessageState.ACTIVE, 0, None, message.changes)
    if message.state is MessageState.SCHEDULED:  # its time is looked at again there (RUL-7)
        change = Change(MessageState.SCHEDULED, 0, message.expires_ms, message.changes)
    arriving = changed_copy(message, change)
    arriving.enqueued_number = message.enqueued_number or message.number
    arriving.hops = message.hops + 1
    arriving.session_id = session_key_at(entity, message)
    arriving.destination = None
    arriving.body_id = None
    arriving.digest = message.digest
    return arriving


def _lacks_session(entity: Queue | Subscription, message: Message) -> bool:
    """SES-1: at a queue the gateway refuses such a message; a copy has nobody to refuse it to."""
    return entity.requires_session and message.session_id is None


def _expiry(ttl_ms: int | None, default_ms: int | None, now_ms: int) -> int | None:
    """TTL-1, TTL-3: the smaller of the message's and the entity's."""
    lives_ms = smaller(ttl_ms, default_ms)
    return None if lives_ms is None else min(now_ms + lives_ms, LATEST_MS)
