"""Moving messages from transfer queues to their destinations, exactly once (FWD, D-27).

A forwarding entity stores what arrives in its transfer queue. From there each partition's `Pump`
hands it over in the order of numbers, grouped by destination partition: one group at a time, all
of it or nothing. The destination remembers the last number that it took of each source, so a group
that is handed over again after a crash is answered *done*. Then the source forgets it.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from busway.broker import dead_letters
from busway.broker.partition import Partition
from busway.broker.seams import Exchange, Grant, Host, SessionLock, TransferSource
from busway.broker.staging import Change, Stage, changed_copy
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Topic
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.store.base import SubQueueKey, SubQueueKind

GROUP_MESSAGES_MAX = 256
RETRY_MS = 500
"""A destination that is unavailable is asked again after this; its messages wait (D-27)."""
FOREVER_MS = 1 << 62


class ForwardingOwner(Protocol):
    @property
    def available(self) -> bool: ...

    def is_deleted(self, incarnation: int) -> bool: ...

    def stage(self, records: int, size: int = 0) -> Stage: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...


class Pump:
    """The internal receiver of one transfer queue."""

    __slots__ = (
        "_exchange",
        "_groups",
        "_hold",
        "_host",
        "_owner",
        "_source",
        "_sub_queue",
        "_took_some",
    )

    def __init__(
        self, owner: ForwardingOwner, host: Host, exchange: Exchange, sub_queue: SubQueue
    ) -> None:
        self._owner = owner
        self._host = host
        self._exchange = exchange
        self._sub_queue = sub_queue
        key = sub_queue.key
        self._source = TransferSource(key.incarnation, key.partition)
        # What it takes is locked by nobody's clock: only a lost store voids it.
        self._hold = SessionLock(key, "", self, FOREVER_MS)
        self._groups = 0
        """How many groups are on their way; the next are taken when all are done."""
        self._took_some = False
        """Whether there was anything the last time; if not, the queue says when there is."""

    def stop(self) -> None:
        """The memory of the transfer queue is being dropped."""
        self._hold.valid = False

    @property
    def _alive(self) -> bool:
        """Whether these messages are still its own: a deleted entity's are purged (D-16), and those
        of a lost store are handed over again by their next owner."""
        return self._hold.valid and not self._owner.is_deleted(self._source.incarnation)

    def run(self) -> None:
        """Take what there is, unless some is on its way already."""
        if self._groups == 0 and self._alive and self._owner.available:
            self._groups = 1
            grant = Grant(self, self._sub_queue.key, GROUP_MESSAGES_MAX, delete=False)
            grant.session = self._hold
            self._sub_queue.grant(grant)

    # The receiver of its own grants.

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        self._took_some = True
        groups: dict[SubQueueKey, list[Message]] = {}
        for message in messages:
            try:
                key = self._exchange.destination(message)
            except BusError as error:
                self._groups += 1
                self._host.soon(partial(self._answered, None, [message], [], error))
            else:
                groups.setdefault(key, []).append(message)
        for key, group in groups.items():
            self._groups += 1
            self._hand_over(key, group)
        # More would come on this grant when a page is read, and overtake a group that has to wait.
        self._sub_queue.recall(grant)

    def finished(self, grant: Grant) -> None:
        self._group_done()

    def session_ready(self) -> None:
        """Nobody calls this: a transfer queue has no sessions."""

    def session_lost(self, error: BusError) -> None:
        """Nobody calls this either."""

    # Groups.

    def _hand_over(
        self, key: SubQueueKey, group: list[Message], behind: list[Message] | None = None
    ) -> None:
        """Hand a group over; what is `behind` it goes to the same place, when it is answered.

        Never side by side: the destination takes a number only if it took no higher one.
        """
        if self._alive:
            answered = partial(self._answered, key, group, behind or [])
            self._exchange.transfer(key, self._source, group, answered)

    def _answered(
        self,
        key: SubQueueKey | None,
        group: list[Message],
        behind: list[Message],
        error: BusError | None,
    ) -> None:
        if not self._alive:
            return
        if error is not None and key is not None:
            if error.kind.retryable:
                due_ms = self._host.now_ms() + RETRY_MS
                self._host.at(due_ms, partial(self._again, [*group, *behind]))
                return
            if len(group) > 1:
                # One of them may be one too many: ask for each, in order.
                self._hand_over(key, group[:1], [*group[1:], *behind])
                return
        if error is None:
            self._forget(group)
        else:
            self._give_up(group[0], error)
        if behind and key is not None:
            self._groups += 1
            self._hand_over(key, behind)

    def _again(self, group: list[Message]) -> None:
        """The destination may be another entity by now."""
        if not self._alive:
            return
        try:
            key = self._exchange.destination(group[0])
        except BusError as error:
            self._groups += len(group) - 1
            for message in group:
                self._answered(None, [message], [], error)
            return
        self._hand_over(key, group)

    def _forget(self, group: list[Message]) -> None:
        journal = self._owner.partition(*self._source).journal
        stage = self._owner.stage(len(group))
        for message in group:
            if journal is not None:
                journal.forwarded(stage, self._sub_queue, message)
            stage.delete(self._sub_queue, message)
        stage.after.append(partial(self._settled, group, None))

    def _give_up(self, message: Message, error: BusError) -> None:
        """FWD-4, FWD-5: to the source's dead-letter queue, or a transaction's to its own."""
        partition = self._owner.partition(self._source.incarnation, self._source.partition)
        entity = partition.entity
        forwards = not isinstance(entity, Topic) and message.destination in (
            entity.forward_to,
            entity.forward_dead_letters_to,
        )
        kind = SubQueueKind.DEAD_LETTER if forwards else SubQueueKind.TRANSFER_DEAD_LETTER
        reason = dead_letters.not_forwarded(error)
        change = Change(
            MessageState.ACTIVE,
            message.delivery_count,
            None,
            dead_letters.merged(message.changes, reason),
        )
        moved = changed_copy(message, change)
        moved.destination = None
        stage = self._owner.stage(1)
        if partition.journal is not None:
            count = message.delivery_count
            partition.journal.dead_lettered(stage, message, count, reason, kind, by_receiver=False)
        stage.move(self._sub_queue, partition.sub_queue(kind), message, moved)
        stage.after.append(partial(self._settled, [message], error))

    def _settled(
        self, group: list[Message], given_up: BusError | None, error: BusError | None
    ) -> None:
        """The commit that ends the source's part is done, or has to be tried again."""
        if error is None:
            self._group_done()
        elif self._alive:
            due_ms = self._host.now_ms() + RETRY_MS
            retry = (
                partial(self._retry_forget, group)
                if given_up is None
                else partial(self._retry_give_up, group[0], given_up)
            )
            self._host.at(due_ms, retry)

    def _retry_forget(self, group: list[Message]) -> None:
        if self._alive:
            self._forget(group)

    def _retry_give_up(self, message: Message, error: BusError) -> None:
        if self._alive:
            self._give_up(message, error)

    def _group_done(self) -> None:
        self._groups -= 1
        if self._groups == 0 and self._took_some:
            self._took_some = False
            self._host.soon(self.run)
