"""Carrying out a transaction: one broker, one commit, all or nothing (TXN, P-33 to P-38, D-28).

The gateway has collected the operations and checked what can be checked without a partition.
Here locks, quota and duplicates are looked at; if all is well everything is staged at once, under
one mark that says that this transaction was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from busway.broker.duplicates import DuplicateHistory
from busway.broker.intake import Intake
from busway.broker.lookups import Lookups
from busway.broker.orders import Orders
from busway.broker.partition import Partition
from busway.broker.seams import Replies, SessionLock, Settlement
from busway.broker.session_commands import SessionCommands
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.model.entities import Entity
from busway.model.errors import LOCK_LOST, TRANSACTION_ROLLBACK, BusError
from busway.model.message import Message, MessageState
from busway.store.base import SubQueueKey, SubQueueKind, TransactionMark

OUTCOME_KEPT_MS = 5 * 60_000


@dataclass(slots=True)
class Transaction:
    """What one transaction does in one store."""

    transaction_id: bytes
    """Unique for all time: the coordinator's name and its number."""
    sends: list[tuple[SubQueueKey, list[Message]]] = field(default_factory=list)
    transfers: list[tuple[SubQueueKey, list[Message]]] = field(default_factory=list)
    """Messages to other entities, with their `destination`: stored in this entity's transfer queue
    in the same commit, and moved afterwards (TXN-3)."""
    settlements: list[tuple[SubQueueKey, bytes, Settlement]] = field(default_factory=list)
    schedules: list[tuple[SubQueueKey, list[Message], list[int]]] = field(default_factory=list)
    """Scheduled messages with the numbers that were reserved for them: the client has them."""
    session_states: list[tuple[SessionLock, bytes | None]] = field(default_factory=list)
    """What sessions are to remember, set under their locks (SES-10)."""
    cancels: list[tuple[SubQueueKey, list[int]]] = field(default_factory=list)
    """Scheduled messages that are not to be sent, by their numbers (SCH-2)."""
    reserved: list[tuple[SubQueue, Message]] | None = None
    """The broker's own: the messages of `cancels`, from when they were found until the commit."""
    orders: bytes | None = None
    """What is done in the catalog once it is committed: rule changes (D-28)."""
    epoch: int | None = None
    """The store's, when numbers were reserved: after it they may have been given to others."""

    @property
    def is_empty(self) -> bool:
        return self.records == 0 and self.orders is None

    @property
    def batches(self) -> list[tuple[SubQueueKey, list[Message]]]:
        """Everything that becomes a message."""
        scheduled = [(key, messages) for key, messages, _ in self.schedules]
        return [*self.sends, *self.transfers, *scheduled]

    @property
    def records(self) -> int:
        cancelled = sum(len(numbers) for _, numbers in self.cancels)
        others = len(self.settlements) + len(self.session_states) + cancelled
        return sum(len(messages) for _, messages in self.batches) + others

    @property
    def bytes(self) -> int:
        states = sum(len(state or b"") for _, state in self.session_states)
        return states + sum(message.size for _, messages in self.batches for message in messages)


class TransactionOwner(Protocol):
    @property
    def epoch(self) -> int: ...

    def now_ms(self) -> int: ...

    def entity(self, incarnation: int) -> Entity: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def find_sub_queue(self, key: SubQueueKey) -> SubQueue | None: ...

    def was_carried_out(self, transaction_id: bytes) -> bool: ...

    def carried_out(self, mark: TransactionMark) -> None: ...

    def transact(self, transaction: Transaction, replies: Replies, tag: int) -> None: ...

    def whole_stage(self, records: int, size: int, fill: Callable[[Stage], None]) -> None:
        """Fill one stage; everything that is staged meanwhile goes into it, too."""


class Transactions:
    def __init__(
        self,
        owner: TransactionOwner,
        intake: Intake,
        sessions: SessionCommands,
        lookups: Lookups,
        orders: Orders,
    ) -> None:
        self._owner = owner
        self._intake = intake
        self._sessions = sessions
        self._lookups = lookups
        self._orders = orders
        self._under_way: dict[bytes, Stage] = {}
        """Transactions that no commit has decided yet: a repeated one waits for it (D-1)."""

    def carry_out(self, transaction: Transaction, replies: Replies, tag: int) -> None:
        """Raises *rollback* if any part cannot be done; then nothing is."""
        if self._owner.was_carried_out(transaction.transaction_id):
            answer = partial(replies.committed, [tag])
            self._orders.when_done(transaction.transaction_id, answer)
            return
        if transaction.epoch not in (None, self._owner.epoch):
            raise BusError(TRANSACTION_ROLLBACK, reason="its messaging store was lost meanwhile.")
        again = partial(self._owner.transact, transaction, replies, tag)
        under_way = self._under_way.get(transaction.transaction_id)
        if under_way is not None:
            under_way.waiting.append(again)
            return
        if self._waits_for_copies(transaction, again):
            return
        if transaction.cancels and transaction.reserved is None:
            self._find_cancelled(transaction, replies, tag)
            return
        try:
            locked = self._locked(transaction, again)
            if locked is None:
                return
            self._check_room(transaction)
        except BusError as error:
            raise BusError(TRANSACTION_ROLLBACK, reason=error.text) from error
        if self._waits_for_history(transaction, again):
            return

        def fill(stage: Stage) -> None:
            for (key, _, settlement), (sub_queue, message) in zip(
                transaction.settlements, locked, strict=True
            ):
                partition = self._owner.partition(key.incarnation, key.partition)
                partition.stage_settlement(sub_queue, message, settlement)
            for key, messages in transaction.sends:
                partition = self._owner.partition(key.incarnation, key.partition)
                self._intake.take_in(partition, messages)
            for key, messages, numbers in transaction.schedules:
                partition = self._owner.partition(key.incarnation, key.partition)
                self._intake.take_in(partition, messages)
                for message, number in zip(messages, numbers, strict=True):
                    if message.state is MessageState.SCHEDULED:
                        message.number = number
            for key, messages in transaction.transfers:
                self._stage_transfer(stage, key, messages)
            for lock, state in transaction.session_states:
                self._sessions.stage_state(stage, lock, state)
            for sub_queue, message in transaction.reserved or ():
                self._lookups.stage_cancel(stage, sub_queue, message)
            transaction.reserved = None  # they are marked by the stage from here on
            until_ms = self._owner.now_ms() + OUTCOME_KEPT_MS
            mark = TransactionMark(transaction.transaction_id, until_ms, transaction.orders)
            stage.mark_transaction(mark)
            stage.after.append(partial(self._committed, mark, replies, tag))
            self._under_way[transaction.transaction_id] = stage
            if mark.orders is None:
                stage.answer(replies, tag)

        self._owner.whole_stage(transaction.records, transaction.bytes, fill)

    def _committed(
        self, mark: TransactionMark, replies: Replies, tag: int, error: BusError | None
    ) -> None:
        del self._under_way[mark.transaction_id]
        if error is None:
            self._owner.carried_out(mark)
        if mark.orders is not None:
            if error is None:
                self._orders.carry_out(mark, partial(replies.committed, [tag]))
            else:
                replies.failed(tag, error)

    def give_up(self, transaction: Transaction) -> None:
        """It was not carried out, and nobody tries again: what was found for it is free."""
        reserved, transaction.reserved = transaction.reserved, None
        for sub_queue, message in reserved or ():
            self._lookups.let_go(sub_queue, message)

    def _find_cancelled(self, transaction: Transaction, replies: Replies, tag: int) -> None:
        """What is scheduled is in the store only. Once found it is marked, because time may pass
        before it is staged, and must not make it active (D-1)."""
        open_reads = list(transaction.cancels)
        found: list[tuple[SubQueue, Message]] = []

        def next_one() -> None:
            if not open_reads:
                transaction.reserved, transaction.epoch = found, self._owner.epoch
                self._owner.transact(transaction, replies, tag)
                return
            key, numbers = open_reads.pop()
            self._lookups.reserve_scheduled(key, numbers, transaction, read)

        def read(outcome: list[tuple[SubQueue, Message]] | BusError) -> None:
            if not isinstance(outcome, BusError):
                found.extend(outcome)
                next_one()
                return
            transaction.reserved = found
            self.give_up(transaction)
            if not outcome.kind.retryable:
                outcome = BusError(TRANSACTION_ROLLBACK, reason=outcome.text)
            replies.failed(tag, outcome)

        next_one()

    def _locked(
        self, transaction: Transaction, again: Callable[[], None]
    ) -> Sequence[tuple[SubQueue, Message]] | None:
        """The messages to settle; None if one of them waits for another commit (D-1)."""
        found: list[tuple[SubQueue, Message]] = []
        tokens: set[bytes] = set()
        for key, token, settlement in transaction.settlements:
            sub_queue = self._owner.find_sub_queue(key)
            if sub_queue is None or token in tokens:
                raise BusError(LOCK_LOST)
            tokens.add(token)
            partition = self._owner.partition(key.incarnation, key.partition)
            partition.check_settlement(sub_queue, settlement)
            message = partition.locked(sub_queue, token)
            if message.staged is not None:
                assert isinstance(message.staged, Stage)
                message.staged.waiting.append(again)
                return None
            found.append((sub_queue, message))
        return found

    def _check_room(self, transaction: Transaction) -> None:
        sizes: dict[SubQueueKey, int] = {}
        for key, messages in transaction.batches:
            sizes[key] = sizes.get(key, 0) + sum(message.size for message in messages)
        for key, size in sizes.items():
            partition = self._owner.partition(key.incarnation, key.partition)
            self._intake.check_room(partition, partition.entity, size)
        for lock, state in transaction.session_states:
            self._sessions.check_state(lock, state)
        for key, _ in transaction.cancels:
            self._owner.entity(key.incarnation)  # what is being purged is not cancelled too (D-16)

    def _waits_for_copies(self, transaction: Transaction, again: Callable[[], None]) -> bool:
        """Of what it sends to a topic, all together; it is in one partition (P-33)."""
        scheduled = [(key, messages) for key, messages, _ in transaction.schedules]
        by_key: dict[SubQueueKey, list[Message]] = {}
        for key, messages in (*transaction.sends, *scheduled):
            by_key.setdefault(key, []).extend(messages)
        try:
            for key, messages in by_key.items():
                partition = self._owner.partition(key.incarnation, key.partition)
                if self._intake.fan_outs.waits(partition, transaction, messages, again):
                    return True
        except BusError as error:
            raise BusError(TRANSACTION_ROLLBACK, reason=error.text) from error
        return False

    def _waits_for_history(self, transaction: Transaction, again: Callable[[], None]) -> bool:
        scheduled = [(key, messages) for key, messages, _ in transaction.schedules]
        by_key: dict[SubQueueKey, list[Message]] = {}
        for key, messages in (*transaction.sends, *scheduled):
            by_key.setdefault(key, []).extend(messages)
        passed: list[DuplicateHistory] = []
        for key in sorted(by_key):  # in one order for all, so that no two wait for each other
            partition = self._owner.partition(key.incarnation, key.partition)
            history = self._intake.history(partition, partition.entity)
            if history is None:
                continue
            if history.waits(transaction, by_key[key], again):
                for each in passed:
                    each.hold(transaction)
                return True
            passed.append(history)
            if history.is_trying(transaction):
                again = history.go_on  # it has its place there until all of them let it through
        return False

    def _stage_transfer(self, stage: Stage, key: SubQueueKey, messages: list[Message]) -> None:
        partition = self._owner.partition(key.incarnation, key.partition)
        target = partition.sub_queue(SubQueueKind.TRANSFER)
        for message in messages:
            message.number = partition.next_number(stage)
            message.enqueued_ms = self._owner.now_ms()
            stage.put(target, message)
            if partition.journal is not None:
                partition.journal.enqueued(stage, message, SubQueueKind.TRANSFER)
