"""The journal of a partition: what its owner stages about each change of a captured entity (D-31).

An event is staged with the change that it tells of and is in the same commit. Only `delivered`,
which changes nothing durable, rides along with whatever is committed next. Offsets are given when
a batch is closed, from the last committed one: whatever fails leaves no gap.

`Partition.journal` is None while its entity is not captured: that test is all that capture costs
then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from busway.amqp.codec import decode_value
from busway.amqp.sections import drop_body
from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.broker.session_keys import spelt_session_id
from busway.model.journal import LOCK_EXPIRED, MIGRATED, JournalEvent
from busway.model.message import Message, MessageState
from busway.model.names import SubQueueKind
from busway.store.journal import JournalContent, JournalHead, JournalHold, JournalRecord

if TYPE_CHECKING:
    from busway.broker.partition import Partition
    from busway.broker.staging import Stage
    from busway.broker.sub_queue import SubQueue

ABANDONED = JournalEvent.ABANDONED
CANCELLED = JournalEvent.CANCELLED
COMPLETED = JournalEvent.COMPLETED
DEAD_LETTERED = JournalEvent.DEAD_LETTERED
DEFERRED = JournalEvent.DEFERRED
DELIVERED = JournalEvent.DELIVERED
DUPLICATE_DROPPED = JournalEvent.DUPLICATE_DROPPED
ENQUEUED = JournalEvent.ENQUEUED
EXPIRED = JournalEvent.EXPIRED
FORWARDED = JournalEvent.FORWARDED
MOVED = JournalEvent.MOVED
PURGED = JournalEvent.PURGED
SCHEDULED = JournalEvent.SCHEDULED

MAIN = SubQueueKind.MAIN


class Draft(NamedTuple):
    """An event that is staged and has no offset yet."""

    journal: Journal
    event: JournalEvent
    time_ms: int
    kind: SubQueueKind
    number: int
    delivery_count: int = 0
    lock_token: bytes | None = None
    related_number: int = 0
    reason: str | None = None
    description: str | None = None
    carried: Message | None = None
    """The message that it carries. Its number is read when the batch is closed: a transaction
    gives it another one until then."""
    moved: bool = False
    """The message is in the store already: a body that it has for itself cannot be shared."""

    def record(self, slot: int, offset: int, body_id: int | None) -> JournalRecord:
        carried = self.carried
        if carried is None or body_id is None:
            number, content = self.number, None
        else:
            number = self.number or carried.number
            content = JournalContent(
                body_id,
                carried.size,
                carried.header,
                carried.ttl_ms,
                carried.annotations,
                carried.annotation_items,
                None if carried.session_id is None else spelt_session_id(carried),
                carried.enqueued_ms,
                carried.expires_ms,
                carried.enqueued_number,
                carried.changes,
                carried.dead_letter_source,
                carried.destination,
            )
        return JournalRecord(
            slot,
            offset,
            self.event,
            self.time_ms,
            self.kind,
            number,
            self.delivery_count,
            self.lock_token,
            self.related_number,
            self.reason,
            self.description,
            content,
        )


class Journal:
    """One partition's. Outlives its switch: what was captured is kept and trimmed."""

    __slots__ = ("_partition", "gone", "head", "holds", "trimming")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.head = JournalHead()
        """What is committed."""
        self.holds: dict[str, JournalHold] = {}
        self.trimming = False
        """A step is on its way."""
        self.gone = False
        """Its entity was deleted and its rows are purged (D-16)."""

    @property
    def main(self) -> SubQueue:
        """Its slot is the journal's."""
        return self._partition.sub_queue(MAIN)

    @property
    def partition(self) -> Partition:
        return self._partition

    # Arrivals: they carry the message.

    def enqueued(
        self,
        stage: Stage,
        message: Message,
        kind: SubQueueKind = MAIN,
        *,
        was: int = 0,
        moved: bool = False,
    ) -> None:
        """`was` is the number under which it was scheduled until now (SCH-3)."""
        stage.journal.append(
            Draft(
                self,
                ENQUEUED,
                self._partition.now_ms(),
                kind,
                0,
                message.delivery_count,
                related_number=was,
                carried=message,
                moved=moved,
            )
        )

    def scheduled(self, stage: Stage, message: Message) -> None:
        now_ms = self._partition.now_ms()
        stage.journal.append(Draft(self, SCHEDULED, now_ms, MAIN, 0, carried=message))

    def duplicates_dropped(
        self, stage: Stage, messages: Sequence[Message], kept: Sequence[Message]
    ) -> None:
        """DUP-3: what says whose duplicate each is goes with it, its body does not."""
        now_ms = self._partition.now_ms()
        fresh = {id(message) for message in kept}
        for message in messages:
            if id(message) not in fresh:
                bare = drop_body(message.bare)
                told = Message(bare=bare, size=message.size, session_id=message.session_id)
                told.annotations = message.annotations
                told.annotation_items = message.annotation_items
                draft = Draft(self, DUPLICATE_DROPPED, now_ms, MAIN, 0, carried=told)
                stage.journal.append(draft)

    # What happens to messages that are there.

    def happened(
        self, stage: Stage, event: JournalEvent, sub_queue: SubQueue, message: Message
    ) -> None:
        """Completed, cancelled, purged."""
        stage.journal.append(
            Draft(
                self,
                event,
                self._partition.now_ms(),
                sub_queue.key.kind,
                message.number,
                message.delivery_count,
                message.lock_token,
            )
        )

    def delivered(self, stage: Stage, sub_queue: SubQueue, messages: Iterable[Message]) -> None:
        now_ms, kind, drafts = self._partition.now_ms(), sub_queue.key.kind, stage.journal
        for message in messages:
            drafts.append(
                Draft(
                    self,
                    DELIVERED,
                    now_ms,
                    kind,
                    message.number,
                    message.delivery_count,
                    message.lock_token,
                )
            )

    def abandoned(
        self, stage: Stage, sub_queue: SubQueue, message: Message, count: int, *, lock_expired: bool
    ) -> None:
        stage.journal.append(
            Draft(
                self,
                ABANDONED,
                self._partition.now_ms(),
                sub_queue.key.kind,
                message.number,
                count,
                message.lock_token,
                reason=LOCK_EXPIRED if lock_expired else None,
            )
        )

    def deferred(self, stage: Stage, sub_queue: SubQueue, message: Message, count: int) -> None:
        now_ms, kind = self._partition.now_ms(), sub_queue.key.kind
        token = message.lock_token
        stage.journal.append(Draft(self, DEFERRED, now_ms, kind, message.number, count, token))

    def expired(self, stage: Stage, sub_queue: SubQueue, message: Message, count: int) -> None:
        now_ms, kind = self._partition.now_ms(), sub_queue.key.kind
        token = message.lock_token
        stage.journal.append(Draft(self, EXPIRED, now_ms, kind, message.number, count, token))

    def dead_lettered(
        self,
        stage: Stage,
        message: Message,
        count: int,
        properties: Mapping[str, Any],
        kind: SubQueueKind,
        becomes: int = 0,
        *,
        by_receiver: bool = True,
    ) -> None:
        """`kind` is where it goes to; `becomes` is the number under which it is forwarded, if dead
        letters are (DLQ-4)."""
        stage.journal.append(
            Draft(
                self,
                DEAD_LETTERED,
                self._partition.now_ms(),
                kind,
                message.number,
                count,
                message.lock_token if by_receiver else None,
                related_number=becomes,
                reason=_text(properties.get(REASON)),
                description=_text(properties.get(DESCRIPTION)),
            )
        )

    def forwarded(self, stage: Stage, sub_queue: SubQueue, message: Message) -> None:
        """Its description is where it went."""
        stage.journal.append(
            Draft(
                self,
                FORWARDED,
                self._partition.now_ms(),
                sub_queue.key.kind,
                message.number,
                message.delivery_count,
                description=message.destination,
            )
        )

    # Moving to a twin, and from one.

    def moved(self, stage: Stage, kind: SubQueueKind, message: Message, twin: str) -> None:
        """With the message as it was here, so that readers can compare."""
        carried = copy(message)
        carried.body_id = None  # its body goes with it
        stage.journal.append(
            Draft(
                self,
                MOVED,
                self._partition.now_ms(),
                kind,
                message.number,
                message.delivery_count,
                reason=message.state.name.lower(),
                description=twin,
                carried=carried,
                moved=True,
            )
        )

    def arrived(self, stage: Stage, kind: SubQueueKind, message: Message, was: int) -> None:
        """Moved here as it was, where it had the number `was`."""
        now_ms, count = self._partition.now_ms(), message.delivery_count
        event = SCHEDULED if message.state is MessageState.SCHEDULED else ENQUEUED
        stage.journal.append(
            Draft(
                self,
                event,
                now_ms,
                kind,
                0,
                count,
                related_number=was,
                reason=MIGRATED,
                carried=message,
            )
        )
        if message.state is MessageState.DEFERRED:
            stage.journal.append(Draft(self, DEFERRED, now_ms, kind, message.number, count))
        if kind is SubQueueKind.DEAD_LETTER:
            changes, _ = decode_value(message.changes) if message.changes else ({}, 0)
            self.dead_lettered(stage, message, count, changes, kind, by_receiver=False)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
