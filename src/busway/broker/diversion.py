"""What an entity held before it was told to forward (FWD-1): it goes after what comes now.

Arrivals of a forwarding entity never see its main queue. Whatever lies there all the same (from
before, or come back from a receiver that had it locked) is moved to the transfer queue, with a new
number: the destination takes numbers of one source only upwards (D-27).
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from busway.broker import dead_letters
from busway.broker.partition import Partition
from busway.broker.seams import Grant, Host, SessionLock
from busway.broker.staging import Change, Stage, changed_copy
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Topic, stands_still
from busway.model.errors import BusError
from busway.model.limits import FORWARDING_HOPS_MAX
from busway.model.message import Message, MessageState
from busway.store.base import SubQueueKind

TAKEN_MESSAGES_MAX = 256
FOREVER_MS = 1 << 62


class DiversionOwner(Protocol):
    @property
    def available(self) -> bool: ...

    def is_deleted(self, incarnation: int) -> bool: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...


class Diversion:
    """The internal receiver of one main queue; takes nothing while its entity does not forward."""

    __slots__ = ("_hold", "_host", "_open", "_owner", "_sub_queue")

    def __init__(self, owner: DiversionOwner, host: Host, sub_queue: SubQueue) -> None:
        self._owner = owner
        self._host = host
        self._sub_queue = sub_queue
        # What it takes is locked by nobody's clock: only a lost store voids it.
        self._hold = SessionLock(sub_queue.key, "", self, FOREVER_MS)
        self._open = 0
        """Messages whose move is not decided, and one more while a grant is out."""

    def stop(self) -> None:
        """The memory of the queue is being dropped."""
        self._hold.valid = False

    @property
    def _alive(self) -> bool:
        return self._hold.valid and not self._owner.is_deleted(self._sub_queue.key.incarnation)

    @property
    def _partition(self) -> Partition:
        key = self._sub_queue.key
        return self._owner.partition(key.incarnation, key.partition)

    def _destination(self) -> str | None:
        """None for an entity with sessions: what was there before is for who accepts them. What is
        migrated is moved as it is, and the twin forwards it."""
        entity = self._partition.entity
        if isinstance(entity, Topic) or entity.requires_session or stands_still(entity):
            return None
        return entity.forward_to

    def run(self) -> None:
        if self._open == 0 and self._alive and self._destination() and self._owner.available:
            self._open = 1
            grant = Grant(self, self._sub_queue.key, TAKEN_MESSAGES_MAX, delete=False)
            grant.session = self._hold
            self._sub_queue.grant(grant)

    # The receiver of its own grants.

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        for message in messages:
            self._open += 1
            self._divert(message)
        self._sub_queue.recall(grant)

    def finished(self, grant: Grant) -> None:
        self._open -= 1

    def session_ready(self) -> None:
        """Nobody calls this: sessions are left alone."""

    def session_lost(self, error: BusError) -> None:
        """Nobody calls this either."""

    # Moves.

    def _divert(self, message: Message) -> None:
        partition, destination = self._partition, self._destination()
        if message.hops >= FORWARDING_HOPS_MAX:  # FWD-3
            reason = dead_letters.forwarded_too_often(FORWARDING_HOPS_MAX)
            count = message.delivery_count
            stage = partition.dead_letter(
                self._sub_queue, message, count, dict(reason), by_receiver=False
            )
        else:
            stage = self._owner.stage(1)
            # Its time to live begins anew where it arrives (FWD-2).
            change = Change(MessageState.ACTIVE, message.delivery_count, None, message.changes)
            moved = changed_copy(message, change, number=partition.next_number(stage))
            moved.enqueued_number = message.enqueued_number or message.number
            moved.destination = destination
            target = partition.sub_queue(SubQueueKind.TRANSFER)
            if partition.journal is not None:
                kind = SubQueueKind.TRANSFER
                partition.journal.enqueued(stage, moved, kind, was=message.number, moved=True)
            stage.move(self._sub_queue, target, message, moved)
        stage.after.append(partial(self._decided, message))

    def _decided(self, message: Message, error: BusError | None) -> None:
        self._open -= 1
        if not self._alive:
            return
        if error is not None:
            self._partition.release(self._sub_queue, message)  # taken again when the store is well
        elif self._open == 0:
            self._host.soon(self.run)
