"""A message broker: the one owner of a messaging store, and of all partitions in it (P-1, P-2).

Commands come from gateways by sub-queue key. They stage; the commit way (`commits.py`) makes them
durable; then they are answered. After an outcome that nobody knows, all memory is dropped and
read again from the store, so what is served is always what is there (D-3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from busway.broker.clockwork import Clockwork
from busway.broker.commits import CommitWay, WayState, why_unread
from busway.broker.counting import CommitTimes, Movements
from busway.broker.diversion import Diversion
from busway.broker.duplicates import DuplicateHistory, Duplicates
from busway.broker.fan_outs import SLICE_COPIES, FanOuts
from busway.broker.forwarding import Pump
from busway.broker.intake import Intake
from busway.broker.journals import Journals
from busway.broker.line import Line
from busway.broker.locks import TokenMint
from busway.broker.lookups import Lookups
from busway.broker.move_in import MoveIn
from busway.broker.moving import Movers
from busway.broker.orders import Orders
from busway.broker.partition import Partition
from busway.broker.purge import Purge
from busway.broker.resubmission import Resubmission
from busway.broker.seams import (
    Entities,
    Exchange,
    Grant,
    Host,
    Replies,
    Settlement,
    StorePort,
    TransferSource,
    Watcher,
)
from busway.broker.session_commands import SessionCommands
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.broker.tally import Tally
from busway.broker.transactions import Transaction, Transactions
from busway.broker.window import WindowBudget
from busway.model.entities import Entity, Subscription, Topic, stands_still
from busway.model.errors import LOCK_LOST, NOT_FOUND, OVERLOADED, SERVER_BUSY, STORE_FULL, BusError
from busway.model.journal import JournalLimits
from busway.model.message import Message, MessageState
from busway.store.base import (
    Counters,
    MessagingStore,
    Opened,
    StoreError,
    StoreUnavailable,
    SubQueueKey,
    SubQueueKind,
    TransactionMark,
)

if TYPE_CHECKING:
    from busway.filters.rules import TopicRules

T = TypeVar("T")

UNCOMMITTED_BYTES_MAX = 32 * 1024 * 1024
"""A store's share of what waits for commits; beyond it, new work is refused (D-8)."""
DEFAULT_JOURNAL_LIMITS = JournalLimits()
WINDOWS_BYTES_MAX = 64 * 1024 * 1024
"""What is ready and in memory, over all sub-queues of the store."""


class Broker:
    """Owns one store. `start` opens it; `available` says whether it serves."""

    windows_bytes_max = WINDOWS_BYTES_MAX
    slice_copies = SLICE_COPIES

    def __init__(
        self,
        port: StorePort,
        host: Host,
        entities: Entities,
        exchange: Exchange | None = None,
        *,
        journal_limits: JournalLimits = DEFAULT_JOURNAL_LIMITS,
    ) -> None:
        self._host = host
        self._entities = entities
        self.exchange = exchange
        """The way to other entities; whoever builds the gateway sets it."""
        self.journal_limits = journal_limits
        self._way = self.way = CommitWay(port, host, self)
        self._clockwork = self.clockwork = Clockwork(self, host)
        self.journals = Journals(self, self._clockwork.journal_there)
        self.hold_journal = self.journals.hold
        self._fan_outs = FanOuts(self, host, self._way)
        self.copies_of_one = self._fan_outs.copies_of_one
        self.waits_for_commits = self._fan_outs.waits_for_commits
        self._intake = Intake(self, self._fan_outs)
        self.next_round = host.next_round
        self._orders = Orders(self, host, entities)
        self.movers, arrivals = Movers(self, host), MoveIn(self, self._intake)
        self.move_in, self.move_states_in = arrivals.messages, arrivals.states
        lookups = Lookups(self)
        self.peek = lookups.peek
        self.receive_deferred = lookups.receive_deferred
        self.cancel_scheduled = lookups.cancel_scheduled
        self.missing_scheduled = lookups.missing_scheduled
        self.delete_batch = lookups.delete_batch
        self.oldest = lookups.oldest
        self.resubmit = Resubmission(self, self._intake).resubmit
        sessions = SessionCommands(self, self._intake)
        self.session_offer = sessions.offer
        self.accept_session = sessions.accept
        self.leave_session = sessions.leave
        self.renew_session = sessions.renew
        self.set_session_state = sessions.set_state
        self.session_state = sessions.state
        self.peek_session_state = sessions.peek_state
        self.sessions = sessions.listed
        self._transactions = Transactions(self, self._intake, sessions, lookups, self._orders)
        self._watchers: dict[SubQueueKey, dict[Watcher, None]] = {}
        """Outlive the memory of partitions: a gateway watches through a store's absence."""
        self._movements: dict[tuple[int, int], dict[SubQueueKind, Movements]] = {}
        """By partition; they outlive it as well."""
        self._mint = TokenMint(0, host.random_bytes)
        self._epoch, self._next_slot = 0, 1
        self._forget_everything()
        self.store_id: str | None = None
        self.quarantined = 0  # damaged messages that its store has set aside
        self.on_availability: Callable[[], None] | None = None

    def _forget_everything(self) -> None:
        """What is known of the store, and void when the store was lost."""
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._sub_queues: dict[SubQueueKey, SubQueue] = {}
        self._by_slot: dict[int, SubQueue] = {}
        self._duplicates = Duplicates(self)
        self._pumps: dict[SubQueue, Pump | Diversion] = {}
        self.journals.clear()
        self._transfers: dict[tuple[int, TransferSource], int] = {}
        self._carried_out: dict[bytes, int] = {}
        self._budget = WindowBudget(self.windows_bytes_max)

    # Life.

    def start(self) -> None:
        self._way.open()

    def stop(self, done: Callable[[], None]) -> None:
        self._way.stop(done)

    @property
    def available(self) -> bool:
        """False while the store is ill, gone or being opened; then nothing is handed over (D-4)."""
        return self._way.serving

    @property
    def state(self) -> WayState:
        return self._way.state

    @property
    def problem(self) -> StoreUnavailable | None:
        return self._way.problem

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def disk_full(self) -> bool:
        """Sends are refused, so that there is room for receiving (D-9)."""
        return self._way.disk_full

    @property
    def uncommitted_bytes(self) -> int:
        return self._way.uncommitted_bytes

    # Commands.

    def send(
        self, key: SubQueueKey, messages: Sequence[Message], replies: Replies, tag: int
    ) -> None:
        try:
            self._take_sends()
            partition = self.partition(key.incarnation, key.partition)
            self._intake.send(partition, messages, replies, tag)
        except BusError as error:
            replies.failed(tag, error)

    def transfer(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: Sequence[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        """Messages that another entity forwards to this one (D-27)."""
        try:
            self._take_sends()
            partition = self.partition(key.incarnation, key.partition)
            self._intake.transfer(partition, source, messages, done)
        except BusError as error:
            done(error)

    def transact(self, transaction: Transaction, replies: Replies, tag: int) -> None:
        try:
            self.take_work()
            self._transactions.carry_out(transaction, replies, tag)
        except BusError as error:
            self._transactions.give_up(transaction)
            replies.failed(tag, error)

    def check_room(self, key: SubQueueKey, size: int) -> None:
        """Raises *quota exceeded* if a send of this size would be refused now (D-17)."""
        entity = self.entity(key.incarnation)
        partition = self._partitions.get((key.incarnation, key.partition))
        if partition is not None:
            self._intake.check_room(partition, entity, size)

    def reserve_numbers(self, key: SubQueueKey, count: int) -> list[int]:
        """Good for a transaction of this epoch."""
        self.take_work()
        self.entity(key.incarnation)  # nothing is made for what was deleted (D-16)
        return self.partition(key.incarnation, key.partition).reserve_numbers(count)

    def grant(self, grant: Grant) -> None:
        incarnation = grant.key.incarnation
        if not self.available or not self.exists(incarnation) or self.stands_still(incarnation):
            grant.left = 0
            grant.receiver.finished(grant)
            return
        sub_queue = self._sub_queues.get(grant.key)
        if sub_queue is None:
            key = grant.key
            sub_queue = self.partition(key.incarnation, key.partition).sub_queue(key.kind)
        sub_queue.grant(grant)

    def recall(self, grant: Grant) -> None:
        sub_queue = self._sub_queues.get(grant.key)
        if sub_queue is not None:
            sub_queue.recall(grant)

    def watch(self, key: SubQueueKey, watcher: Watcher) -> None:
        """Tell the watcher when the sub-queue may have something to give: messages, or, where the
        entity has sessions, one that nobody holds (D-24)."""
        self._watchers.setdefault(key, {})[watcher] = None
        sub_queue = self._sub_queues.get(key)
        if sub_queue is not None and self.available:
            sub_queue.wake()

    def unwatch(self, key: SubQueueKey, watcher: Watcher) -> None:
        watchers = self._watchers.get(key, {})
        watchers.pop(watcher, None)
        if not watchers and key not in self._sub_queues:
            self._watchers.pop(key, None)  # a sub-queue would keep its own, and use it again

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        try:
            self.take_work()
            self.entity(key.incarnation)  # what is being purged cannot be settled too (D-16)
            sub_queue = self._sub_queues.get(key)
            if sub_queue is None:
                raise BusError(LOCK_LOST)
            partition = self.partition(key.incarnation, key.partition)
            partition.settle(sub_queue, token, settlement, replies, tag)
        except BusError as error:
            replies.failed(tag, error)

    def locked(self, key: SubQueueKey, token: bytes) -> Message:
        """The message that a token locks; raises when the lock is lost (LOCK-5)."""
        self.take_work()
        sub_queue = self._sub_queues.get(key)
        if sub_queue is None:
            raise BusError(LOCK_LOST)
        return self.partition(key.incarnation, key.partition).locked(sub_queue, token)

    def renew(self, key: SubQueueKey, tokens: Sequence[bytes]) -> list[int]:
        self.take_work()
        sub_queue = self._sub_queues.get(key)
        if sub_queue is None:
            raise BusError(LOCK_LOST)
        return self.partition(key.incarnation, key.partition).renew(sub_queue, tokens)

    def counters(self, incarnation: int, partition: int) -> dict[SubQueueKind, Counters]:
        found = self._partitions.get((incarnation, partition))
        if found is None:
            return {}
        return {kind: each.committed.copy() for kind, each in found.sub_queues.items()}

    def size_bytes(self, incarnation: int, partition: int) -> int:
        """What counts against its quota there (D-17); a topic's with all of its subscriptions."""
        found = self._partitions.get((incarnation, partition))
        return 0 if found is None else found.tally.bytes

    def movements(self, incarnation: int, partition: int) -> dict[SubQueueKind, Movements]:
        """What was counted since the process started, by the sub-queues that were used."""
        return self._movements.get((incarnation, partition), {})

    @property
    def commit_times(self) -> CommitTimes:
        return self._way.times

    def probe(self, done: Callable[[BusError | None], None]) -> None:
        """An empty commit, to the disk and back. Raises *server busy* where none would be taken."""
        self.take_work()
        self._way.stage(0, 0).after.append(done)

    def purge(self, incarnation: int, done: Callable[[], None]) -> None:
        """Forget a deleted entity's messages in small steps; `done` when none are left (D-16)."""
        Purge(self, self._host, incarnation, done).start()

    # Journals (D-31).

    def entity_changed(self, entity: Entity) -> None:
        """A new version of an entity: from here on it is captured, or stands still, or not; and
        what it holds may have to be forwarded."""
        partitions = self._partitions_of(entity)
        for partition in partitions:
            self.journals.switch(partition, entity)
        if self.movers.entity_changed(entity, partitions):
            self._clockwork.restart()
        for sub_queue in self.sub_queues_of(entity.incarnation):
            sub_queue.wake()

    def _partitions_of(self, entity: Entity) -> list[Partition]:
        named = ((entity.incarnation, index) for index in range(len(entity.placement)))
        return [self._partitions[name] for name in named if name in self._partitions]

    def entity_or_none(self, incarnation: int) -> Entity | None:
        return self._entities.get(incarnation)

    def partition_in(self, slot: int) -> Partition:
        return self.partition(*self._by_slot[slot].key[:2])

    def notes(self) -> Stage:
        return self._way.notes()

    # What partitions and the other parts ask of their owner.

    def now_ms(self) -> int:
        return self._host.now_ms()

    def entity(self, incarnation: int) -> Entity:
        entity = self._entities.get(incarnation)
        if entity is None:
            raise BusError(NOT_FOUND, uri=f"incarnation {incarnation}")
        return entity

    def exists(self, incarnation: int) -> bool:
        return self._entities.get(incarnation) is not None

    def stands_still(self, incarnation: int) -> bool:
        return stands_still(self._entities.get(incarnation))

    def topic_rules(self, incarnation: int) -> TopicRules:
        return self._entities.topic_rules(incarnation)

    def partition(self, incarnation: int, index: int) -> Partition:
        partition = self._partitions.get((incarnation, index))
        if partition is None:
            entity = self._entities.get(incarnation)
            tally = Tally()
            if isinstance(entity, Subscription):
                tally = self.partition(entity.topic_incarnation, index).tally
            partition = Partition(self, incarnation, index, tally)
            self._partitions[incarnation, index] = partition
            self.journals.switch(partition, entity)
        return partition

    def sub_queue_in(self, slot: int) -> SubQueue | None:
        return self._by_slot.get(slot)

    def find_sub_queue(self, key: SubQueueKey) -> SubQueue | None:
        return self._sub_queues.get(key)

    def stored_sub_queue(self, key: SubQueueKey) -> SubQueue | None:
        sub_queue = self._sub_queues.get(key)
        return sub_queue if sub_queue is not None and sub_queue.stored else None

    def is_deleted(self, incarnation: int) -> bool:
        return self._entities.get(incarnation) is None

    def stage(self, records: int, size: int = 0) -> Stage:
        return self._way.stage(records, size)

    def whole_stage(self, records: int, size: int, fill: Callable[[Stage], None]) -> None:
        with self._way.one_stage(records, size) as stage:
            fill(stage)

    def mint_token(self, partition: int) -> bytes:
        return self._mint.make(partition)

    def was_carried_out(self, transaction_id: bytes) -> bool:
        return transaction_id in self._carried_out

    def carried_out(self, mark: TransactionMark) -> None:
        now_ms = self.now_ms()
        over = []
        for transaction_id, until_ms in self._carried_out.items():
            if until_ms > now_ms:
                break
            over.append(transaction_id)
        for transaction_id in over:
            del self._carried_out[transaction_id]
        self._carried_out[mark.transaction_id] = mark.until_ms

    @property
    def has_orders(self) -> bool:
        return self._orders.under_way

    def transfer_mark(self, slot: int, source: TransferSource) -> int:
        return self._transfers.get((slot, source), 0)

    def transferred(self, slot: int, source: TransferSource, number: int) -> None:
        self._transfers[slot, source] = number

    def duplicates(self, sub_queue: SubQueue) -> DuplicateHistory:
        return self._duplicates.history(sub_queue)

    def fetch(self, sub_queue: SubQueue, line: Line) -> None:
        slot, after, epoch = sub_queue.slot, line.window.cursor, self._epoch
        session_id = line.session_id

        def done(outcome: list[Message] | StoreError) -> None:
            if epoch != self._epoch:
                return  # that memory was dropped meanwhile
            if isinstance(outcome, StoreError):
                line.paging = False
            elif not sub_queue.paged(line, outcome, after):
                self._way.read(lambda store: store.recount(slot), lambda _: None)

        self._way.read(lambda store: store.read_page(slot, after, session_id=session_id), done)

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None:
        """A read whose answer is worth nothing once the store was lost."""
        epoch = self._epoch

        def answered(outcome: T | StoreError) -> None:
            if isinstance(outcome, StoreError) or epoch != self._epoch or not self.available:
                done(why_unread(outcome))
            else:
                done(outcome)

        self._way.read(operation, answered)

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None:
        self._clockwork.lock_due(sub_queue, due_ms)

    def expiry_due(self, due_ms: int) -> None:
        self._clockwork.message_due(due_ms)

    def due(self, partition: Partition, sub_queue: SubQueue, message: Message) -> None:
        """A message that expires, or, if it is scheduled, becomes active."""
        if message.state is MessageState.SCHEDULED:
            self._intake.activate(partition, sub_queue, message)
        else:
            partition.expire(sub_queue, message)

    def make_sub_queue(self, partition: Partition, kind: SubQueueKind) -> SubQueue:
        key = SubQueueKey(partition.incarnation, partition.index, kind)
        slot, self._next_slot = self._next_slot, self._next_slot + 1
        return self._add_sub_queue(key, partition, slot, None)

    # What the commit way tells (its `Memory`).

    def loaded(self, opened: Opened) -> None:
        self.store_id, self.quarantined = opened.store_id, opened.quarantined
        self._epoch = opened.epoch
        self._mint = TokenMint(opened.epoch, self._host.random_bytes)
        self._next_slot = max((each.slot for each in opened.sub_queues), default=0) + 1
        for record in opened.sub_queues:
            partition = self.partition(record.key.incarnation, record.key.partition)
            partition.sub_queues[record.key.kind] = self._add_sub_queue(
                record.key, partition, record.slot, record.counters
            )
        self.journals.load(opened)
        for session in opened.sessions:
            sub_queue = self._by_slot.get(session.slot)
            if sub_queue is not None and sub_queue.sessions is not None:
                sub_queue.sessions.load(session)
        for mark in opened.transfers:
            source = TransferSource(mark.source_incarnation, mark.source_partition)
            self._transfers[mark.slot, source] = mark.number
        for transaction in opened.transactions:
            self._carried_out[transaction.transaction_id] = transaction.until_ms
        self._orders.opened(opened.transactions)

    def dropped(self) -> None:
        """All locks are void, and nothing in memory is to be believed (D-3, D-5)."""
        sub_queues, pumps = list(self._sub_queues.values()), list(self._pumps.values())
        duplicates = self._duplicates
        self.movers.clear()
        self._forget_everything()
        self._clockwork.forget()
        for pump in pumps:
            pump.stop()
        for sub_queue in sub_queues:
            sub_queue.finish_all()
            if sub_queue.sessions is not None:
                sub_queue.sessions.void()
        duplicates.give_up()  # once: what is read for them finds nobody any more
        self._fan_outs.give_up()

    def availability_changed(self) -> None:
        if self.available:
            self._clockwork.restart()
            for sub_queue in list(self._sub_queues.values()):
                if sub_queue.sessions is not None:
                    sub_queue.sessions.wake_all()
                sub_queue.wake()
            for incarnation in {named[0] for named in self._partitions}:
                entity = self._entities.get(incarnation)
                if stands_still(entity) and entity is not None:
                    self.movers.entity_changed(entity, self._partitions_of(entity))
        else:
            for sub_queue in list(self._sub_queues.values()):
                sub_queue.finish_all()
            self._duplicates.give_up()  # nothing queues behind a store that is not well (D-8)
            self._fan_outs.give_up()
            if self.state is WayState.FENCED:
                self._orders.stop()
            if self.state is WayState.STOPPED:
                for pump in self._pumps.values():
                    pump.stop()  # its messages are the next owner's to hand over (D-27)
        if self.on_availability is not None:
            self.on_availability()

    # What a purge asks.

    def sub_queues_of(self, incarnation: int) -> list[SubQueue]:
        return [each for key, each in self._sub_queues.items() if key.incarnation == incarnation]

    def forget(self, sub_queue: SubQueue) -> None:
        self._sub_queues.pop(sub_queue.key, None)
        self._watchers.pop(sub_queue.key, None)
        self._by_slot.pop(sub_queue.slot, None)
        self._partitions.pop(sub_queue.key[:2], None)
        self._movements.pop(sub_queue.key[:2], None)
        self._duplicates.forget(sub_queue)
        self.journals.forget(sub_queue.key)
        self.movers.forget(sub_queue.key.incarnation)
        for line in sub_queue.lines:
            line.window.clear()  # its share of the budget is for others
        pump = self._pumps.pop(sub_queue, None)
        if pump is not None:
            pump.stop()

    # The parts.

    def take_work(self) -> None:
        if not self._way.serving:
            raise BusError(SERVER_BUSY, refused=True)

    def _take_sends(self) -> None:
        self.take_work()
        if self._way.disk_full:
            self._way.refuse_send()
            raise BusError(STORE_FULL, refused=True)
        if self._way.uncommitted_bytes + self._fan_outs.waiting_bytes > UNCOMMITTED_BYTES_MAX:
            raise BusError(OVERLOADED, refused=True)

    def _add_sub_queue(
        self, key: SubQueueKey, partition: Partition, slot: int, counters: Counters | None
    ) -> SubQueue:
        entity = self._entities.get(key.incarnation)
        has_sessions = (
            key.kind is SubQueueKind.MAIN
            and entity is not None
            and not isinstance(entity, Topic)
            and entity.requires_session
        )
        movements = self._movements.setdefault(key[:2], {}).setdefault(key.kind, Movements())
        sub_queue = SubQueue(
            key,
            partition,
            slot,
            counters,
            self._watchers.setdefault(key, {}),
            self._budget,
            movements,
            has_sessions=has_sessions,
            folds_session_ids=entity is not None and entity.folds_session_ids,
        )
        self._sub_queues[key] = sub_queue
        self._by_slot[slot] = sub_queue
        if key.kind is SubQueueKind.TRANSFER and self.exchange is not None:
            sub_queue.pump = self._pumps[sub_queue] = Pump(
                self, self._host, self.exchange, sub_queue
            )
        elif key.kind is SubQueueKind.MAIN and not has_sessions:
            sub_queue.pump = self._pumps[sub_queue] = Diversion(self, self._host, sub_queue)
        return sub_queue
