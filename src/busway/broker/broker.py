"""A message broker: the one owner of a messaging store, and of all partitions in it (P-1, P-2).

Commands come from gateways by sub-queue key. They stage; the commit way (`commits.py`) makes them
durable; then they are answered. After an outcome that nobody knows, all memory is dropped and
read again from the store, so what is served is always what is there (D-3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from busway.broker.commits import CommitWay, WayState
from busway.broker.dues import Dues
from busway.broker.expiry import ExpirySweep, expirable
from busway.broker.locks import TokenMint
from busway.broker.partition import Partition
from busway.broker.purge import Purge
from busway.broker.seams import (
    Entities,
    Grant,
    Host,
    Replies,
    Settlement,
    StorePort,
    Timer,
    Watcher,
)
from busway.broker.staging import Stage
from busway.broker.sub_queue import SubQueue
from busway.broker.window import WindowBudget
from busway.model.entities import Queue
from busway.model.errors import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    SERVER_BUSY,
    STORE_FULL,
    BusError,
)
from busway.model.message import Message, MessageState
from busway.store.base import (
    READ_BYTES_MAX,
    READ_ROWS_MAX,
    Counters,
    Expiring,
    ExpiryPage,
    MessagingStore,
    Opened,
    StoreError,
    SubQueueKey,
    SubQueueKind,
)

UNCOMMITTED_BYTES_MAX = 32 * 1024 * 1024
"""A store's share of what waits for commits; beyond it, new work is refused (D-8)."""
WINDOWS_BYTES_MAX = 64 * 1024 * 1024
"""What is ready and in memory, over all sub-queues of the store."""

Found = list[Message] | BusError


class Broker:
    """Owns one store. `start` opens it; `available` says whether it serves."""

    def __init__(self, port: StorePort, host: Host, entities: Entities) -> None:
        self._port = port
        self._host = host
        self._entities = entities
        self._way = CommitWay(port, host, self)
        self._sweep = ExpirySweep(self)
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._sub_queues: dict[SubQueueKey, SubQueue] = {}
        self._by_slot: dict[int, SubQueue] = {}
        self._watchers: dict[SubQueueKey, dict[Watcher, None]] = {}
        """Outlive the memory of partitions: a gateway watches through a store's absence."""
        self._mint = TokenMint(0, host.random_bytes)
        self._epoch = 0
        self._next_slot = 1
        self._dues = Dues()
        self._budget = WindowBudget(WINDOWS_BYTES_MAX)
        self._timer: Timer | None = None
        self._timer_due_ms: int | None = None
        self.store_id: str | None = None
        self.on_availability: Callable[[], None] | None = None

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
    def epoch(self) -> int:
        return self._epoch

    @property
    def uncommitted_bytes(self) -> int:
        return self._way.uncommitted_bytes

    # Commands.

    def send(
        self, key: SubQueueKey, messages: Sequence[Message], replies: Replies, tag: int
    ) -> None:
        try:
            self._take_work()
            if self._way.disk_full:
                self._way.stage(0, 0).after.append(_nothing)  # a commit looks at the disk again
                raise BusError(STORE_FULL, refused=True)
            if self._way.uncommitted_bytes > UNCOMMITTED_BYTES_MAX:
                raise BusError(SERVER_BUSY, refused=True)
            self._partition(key).enqueue(messages, replies, tag)
        except BusError as error:
            replies.failed(tag, error)

    def grant(self, grant: Grant) -> None:
        if not self.available or self._entities.get(grant.key.incarnation) is None:
            grant.left = 0
            grant.receiver.finished(grant)
            return
        sub_queue = self._sub_queues.get(grant.key)
        if sub_queue is None:
            sub_queue = self._partition(grant.key).sub_queue(grant.key.kind)
        sub_queue.grant(grant)

    def recall(self, grant: Grant) -> None:
        sub_queue = self._sub_queues.get(grant.key)
        if sub_queue is not None:
            sub_queue.recall(grant)

    def watch(self, key: SubQueueKey, watcher: Watcher) -> None:
        self._watchers.setdefault(key, {})[watcher] = None
        sub_queue = self._sub_queues.get(key)
        if sub_queue is not None and self.available:
            sub_queue.wake()

    def unwatch(self, key: SubQueueKey, watcher: Watcher) -> None:
        self._watchers.get(key, {}).pop(watcher, None)

    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None:
        try:
            self._take_work()
            self.queue(key.incarnation)  # what is being purged cannot be settled too (D-16)
            sub_queue = self._sub_queues.get(key)
            if sub_queue is None:
                raise BusError(LOCK_LOST)
            self._partition(key).settle(sub_queue, token, settlement, replies, tag)
        except BusError as error:
            replies.failed(tag, error)

    def renew(self, key: SubQueueKey, tokens: Sequence[bytes]) -> list[int]:
        self._take_work()
        sub_queue = self._sub_queues.get(key)
        if sub_queue is None:
            raise BusError(LOCK_LOST)
        return self._partition(key).renew(sub_queue, tokens)

    def peek(
        self,
        key: SubQueueKey,
        from_number: int,
        count: int,
        size: int,
        done: Callable[[Found], None],
    ) -> None:
        """PEEK-1: what is committed, from a number on, whatever its state; touches nothing."""
        if not self.available:
            done(BusError(SERVER_BUSY))
            return
        sub_queue = self._sub_queues.get(key)
        if sub_queue is None or not sub_queue.stored:
            done([])
            return
        slot, rows, size = sub_queue.slot, min(count, READ_ROWS_MAX), min(size, READ_BYTES_MAX)
        self._read(
            lambda store: store.read_page(slot, from_number - 1, state=None, rows=rows, size=size),
            done,
        )

    def receive_deferred(
        self,
        key: SubQueueKey,
        numbers: Sequence[int],
        delete: bool,
        done: Callable[[Found], None],
    ) -> None:
        """DEF-2 to DEF-4: all of these deferred messages, locked or removed, or none."""
        if not self.available:
            done(BusError(SERVER_BUSY))
            return
        sub_queue = self._sub_queues.get(key)
        if sub_queue is None or not sub_queue.stored or len(set(numbers)) != len(numbers):
            done(BusError(MESSAGE_NOT_FOUND))
            return
        for number in numbers:
            known = sub_queue.known.get(number)
            if known is not None and isinstance(known.staged, Stage):
                # Being deferred, or returned, right now: ask again when that is done (D-1).
                known.staged.waiting.append(
                    lambda: self.receive_deferred(key, numbers, delete, done)
                )
                return
        slot, wanted = sub_queue.slot, list(numbers)
        self._read(
            lambda store: store.read_numbers(slot, wanted),
            lambda found: self._deferred_read(sub_queue, wanted, delete, found, done),
        )

    def counters(self, incarnation: int, partition: int) -> dict[SubQueueKind, Counters]:
        found = self._partitions.get((incarnation, partition))
        if found is None:
            return {}
        return {kind: each.committed.copy() for kind, each in found.sub_queues.items()}

    def purge(self, incarnation: int, done: Callable[[], None]) -> None:
        """Forget a deleted entity's messages in small steps; `done` when none are left (D-16)."""
        Purge(self, self._host, incarnation, done).start()

    # What partitions ask of their owner.

    def now_ms(self) -> int:
        return self._host.now_ms()

    def queue(self, incarnation: int) -> Queue:
        queue = self._entities.get(incarnation)
        if queue is None:
            raise BusError(NOT_FOUND, uri=f"incarnation {incarnation}")
        return queue

    def is_deleted(self, incarnation: int) -> bool:
        return self._entities.get(incarnation) is None

    def stage(self, records: int, size: int = 0) -> Stage:
        return self._way.stage(records, size)

    def mint_token(self, partition: int) -> bytes:
        return self._mint.make(partition)

    def fetch(self, sub_queue: SubQueue) -> None:
        slot, after, epoch = sub_queue.slot, sub_queue.window.cursor, self._epoch

        def done(outcome: list[Message] | StoreError) -> None:
            if epoch != self._epoch:
                return  # that memory was dropped meanwhile
            if isinstance(outcome, StoreError):
                sub_queue.paging = False
                self._way.read_failed(outcome)
            else:
                sub_queue.paged(outcome, after)

        self._port.call(lambda store: store.read_page(slot, after), done)

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None:
        if self._dues.expect(sub_queue, due_ms):
            self._arm()

    def expiry_due(self, due_ms: int) -> None:
        self._sweep.expects(due_ms)
        self._arm()

    def make_sub_queue(self, partition: Partition, kind: SubQueueKind) -> SubQueue:
        key = SubQueueKey(partition.incarnation, partition.index, kind)
        slot, self._next_slot = self._next_slot, self._next_slot + 1
        return self._add_sub_queue(key, partition, slot, None)

    # What the commit way tells (its `Memory`).

    def loaded(self, opened: Opened) -> None:
        self.store_id = opened.store_id
        self._epoch = opened.epoch
        self._mint = TokenMint(opened.epoch, self._host.random_bytes)
        self._next_slot = max((each.slot for each in opened.sub_queues), default=0) + 1
        for record in opened.sub_queues:
            partition = self._partition(record.key)
            partition.sub_queues[record.key.kind] = self._add_sub_queue(
                record.key, partition, record.slot, record.counters
            )
        self._sweep.restart()

    def dropped(self) -> None:
        """All locks are void, and nothing in memory is to be believed (D-3, D-5)."""
        sub_queues = list(self._sub_queues.values())
        self._partitions.clear()
        self._sub_queues.clear()
        self._by_slot.clear()
        self._dues = Dues()
        self._budget = WindowBudget(WINDOWS_BYTES_MAX)
        for sub_queue in sub_queues:
            sub_queue.finish_all()

    def availability_changed(self) -> None:
        if self.available:
            self._sweep.restart()
            self._arm()
            for sub_queue in list(self._sub_queues.values()):
                sub_queue.wake()
        else:
            for sub_queue in list(self._sub_queues.values()):
                sub_queue.finish_all()
        if self.on_availability is not None:
            self.on_availability()

    # Time.

    def _arm(self) -> None:
        """One timer for everything that falls due (D-10)."""
        dues = [each for each in (self._sweep.due_ms, self._dues.next_ms()) if each is not None]
        if not dues or not self.available:
            return
        due_ms = min(dues)
        if self._timer_due_ms is not None and self._timer_due_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        self._timer = self._host.at(due_ms, self._on_time)

    def _on_time(self) -> None:
        self._timer = self._timer_due_ms = None
        if not self.available:
            return
        now_ms = self._host.now_ms()
        for sub_queue in self._dues.over(now_ms):
            if self._entities.get(sub_queue.key.incarnation) is not None:
                self._partition(sub_queue.key).expire_locks(sub_queue)
                next_ms = sub_queue.locks.next_due_ms()
                if next_ms is not None:
                    self._dues.expect(sub_queue, max(next_ms, now_ms + 1))
        self._sweep.run(now_ms)
        self._arm()

    def read_expiring(self, sub_queue_rows: dict[int, list[int]]) -> None:
        """The sweep found messages that only the store holds: read them, then expire them."""
        for slot, numbers in sub_queue_rows.items():
            sub_queue = self._by_slot.get(slot)
            if sub_queue is not None:
                self._read_expiring(sub_queue, numbers)

    def read_expiry_page(self, after: Expiring | None, until_ms: int, rows: int) -> None:
        epoch = self._epoch

        def done(outcome: ExpiryPage | StoreError) -> None:
            if epoch != self._epoch:
                return
            self._sweep.paged(outcome, after, self._host.now_ms())
            if isinstance(outcome, StoreError):
                self._way.read_failed(outcome)
            self._arm()

        self._port.call(lambda store: store.read_expiring(after, until_ms, rows), done)

    def sub_queue_in(self, slot: int) -> SubQueue | None:
        return self._by_slot.get(slot)

    def expire(self, sub_queue: SubQueue, message: Message) -> None:
        if self._entities.get(sub_queue.key.incarnation) is not None:
            self._partition(sub_queue.key).expire(sub_queue, message)

    # What a purge asks.

    def sub_queues_of(self, incarnation: int) -> list[SubQueue]:
        return [each for key, each in self._sub_queues.items() if key.incarnation == incarnation]

    def forget(self, sub_queue: SubQueue) -> None:
        self._sub_queues.pop(sub_queue.key, None)
        self._by_slot.pop(sub_queue.slot, None)
        self._partitions.pop(sub_queue.key[:2], None)
        sub_queue.window.clear()  # its share of the budget is for others

    # The parts.

    def _take_work(self) -> None:
        if not self._way.serving:
            raise BusError(SERVER_BUSY, refused=True)

    def _partition(self, key: SubQueueKey) -> Partition:
        partition = self._partitions.get(key[:2])
        if partition is None:
            partition = Partition(self, key.incarnation, key.partition)
            self._partitions[key[:2]] = partition
        return partition

    def _add_sub_queue(
        self, key: SubQueueKey, partition: Partition, slot: int, counters: Counters | None
    ) -> SubQueue:
        watchers = self._watchers.setdefault(key, {})
        sub_queue = SubQueue(key, partition, slot, counters, watchers, self._budget)
        self._sub_queues[key] = sub_queue
        self._by_slot[slot] = sub_queue
        return sub_queue

    def _read(
        self,
        operation: Callable[[MessagingStore], list[Message]],
        done: Callable[[Found], None],
    ) -> None:
        epoch = self._epoch

        def answered(outcome: list[Message] | StoreError) -> None:
            if isinstance(outcome, StoreError):
                self._way.read_failed(outcome)
                done(BusError(SERVER_BUSY))
            elif epoch != self._epoch or not self.available:
                done(BusError(SERVER_BUSY))
            else:
                done(outcome)

        self._port.call(operation, answered)

    def _deferred_read(
        self,
        sub_queue: SubQueue,
        numbers: list[int],
        delete: bool,
        found: Found,
        done: Callable[[Found], None],
    ) -> None:
        if isinstance(found, BusError):
            done(found)
            return
        free = [
            message
            for message in found
            if message.state is MessageState.DEFERRED and message.number not in sub_queue.known
        ]
        if len(free) != len(numbers) or self._entities.get(sub_queue.key.incarnation) is None:
            done(BusError(MESSAGE_NOT_FOUND))
        elif delete:
            stage = self._way.stage(len(free), 0)
            for message in free:
                sub_queue.adopt(message)
                stage.delete(sub_queue, message)
            stage.after.append(lambda error: done(free if error is None else error))
        else:
            self._partition(sub_queue.key).lock_deferred(sub_queue, free)
            done(free)

    def _read_expiring(self, sub_queue: SubQueue, numbers: list[int]) -> None:
        epoch = self._epoch

        def done(outcome: list[Message] | StoreError) -> None:
            if epoch != self._epoch:
                return
            if isinstance(outcome, StoreError):
                self._way.read_failed(outcome)
                return
            if not self.available:
                return
            for row in outcome:
                message = sub_queue.known.get(row.number)
                if message is None and row.state is MessageState.ACTIVE:
                    message = row
                    sub_queue.adopt(message)
                # A page may have brought it into memory meanwhile: then it is that one.
                if message is not None and expirable(message):
                    self.expire(sub_queue, message)

        self._port.call(lambda store: store.read_numbers(sub_queue.slot, numbers), done)


def _nothing(_: BusError | None) -> None:
    """An answer that nobody waits for."""
