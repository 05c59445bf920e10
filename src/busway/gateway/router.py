"""From a message to a partition, from a partition to its owner.

This file owns the way of a send (P-17 to P-24, D-4, D-17): with a key the partition follows from
the key alone, and a send fails when that partition cannot take it; without one the partitions take
turns, and the next is asked when one is unavailable, full, or certainly did not store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from busway.broker.moving import Movers
from busway.broker.seams import (
    Grant,
    Replies,
    SessionHolder,
    SessionLock,
    SessionStateMove,
    Settlement,
    TransferSource,
    Watcher,
)
from busway.broker.transactions import Transaction
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import PARTITION_UNAVAILABLE, QUOTA_EXCEEDED, SERVER_BUSY, BusError
from busway.model.message import Message, MessageState
from busway.store.base import Counters, SubQueueKey, SubQueueKind

Destination = Queue | Topic
"""What messages can be sent to."""


def is_partitioned(entity: Entity) -> bool:
    """A subscription is as its topic is."""
    if isinstance(entity, Subscription):
        return len(entity.placement) > 1
    return bool(entity.enable_partitioning)


class Owner(Protocol):
    """A message broker as gateways see it: here, or behind a link to another node."""

    @property
    def available(self) -> bool: ...

    @property
    def epoch(self) -> int: ...

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
    def move_in(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: Sequence[Message],
        done: Callable[[BusError | None], None],
    ) -> None: ...
    def move_states_in(
        self,
        key: SubQueueKey,
        source: TransferSource,
        states: Sequence[SessionStateMove],
        done: Callable[[BusError | None], None],
    ) -> None: ...
    @property
    def movers(self) -> Movers: ...
    def transact(self, transaction: Transaction, replies: Replies, tag: int) -> None: ...
    def check_room(self, key: SubQueueKey, size: int) -> None: ...
    def reserve_numbers(self, key: SubQueueKey, count: int) -> list[int]: ...
    def grant(self, grant: Grant) -> None: ...
    def recall(self, grant: Grant) -> None: ...
    def watch(self, key: SubQueueKey, watcher: Watcher) -> None: ...
    def unwatch(self, key: SubQueueKey, watcher: Watcher) -> None: ...
    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None: ...
    def locked(self, key: SubQueueKey, token: bytes) -> Message: ...
    def renew(self, key: SubQueueKey, tokens: Sequence[bytes]) -> list[int]: ...
    def counters(self, incarnation: int, partition: int) -> dict[SubQueueKind, Counters]: ...
    def size_bytes(self, incarnation: int, partition: int) -> int: ...
    def hold_journal(
        self,
        incarnation: int,
        partition: int,
        name: str,
        offset: int | None,
        until_ms: int,
        done: Callable[[BusError | None], None],
    ) -> None: ...

    def session_offer(self, key: SubQueueKey) -> int | None: ...
    def accept_session(
        self, key: SubQueueKey, session_id: str | None, holder: SessionHolder
    ) -> SessionLock | None: ...
    def leave_session(self, lock: SessionLock) -> None: ...
    def renew_session(self, lock: SessionLock) -> int: ...
    def set_session_state(
        self, lock: SessionLock, state: bytes | None, replies: Replies, tag: int
    ) -> None: ...
    def session_state(
        self, lock: SessionLock, done: Callable[[bytes | BusError | None], None]
    ) -> None: ...
    def sessions(self, key: SubQueueKey, updated_after_ms: int | None) -> list[str]: ...
    def peek_session_state(
        self,
        key: SubQueueKey,
        session_id: str,
        done: Callable[[bytes | BusError | None], None],
    ) -> None:
        """Without holding the session: for people who look at it."""

    # These read first: the broker has them as attributes.

    @property
    def peek(self) -> Peek: ...
    @property
    def receive_deferred(self) -> ReceiveDeferred: ...
    @property
    def cancel_scheduled(self) -> CancelScheduled: ...
    @property
    def missing_scheduled(self) -> MissingScheduled: ...
    @property
    def delete_batch(self) -> DeleteBatch: ...
    @property
    def resubmit(self) -> Resubmit: ...


class Peek(Protocol):
    def __call__(
        self,
        key: SubQueueKey,
        from_number: int,
        count: int,
        size: int,
        done: Callable[[list[Message] | BusError], None],
        session_id: str | None = None,
        state: MessageState | None = None,
    ) -> None: ...


class Resubmit(Protocol):
    def __call__(
        self,
        key: SubQueueKey,
        numbers: Sequence[int] | None,
        count: int,
        done: Callable[[int | BusError], None],
    ) -> None: ...


class ReceiveDeferred(Protocol):
    def __call__(
        self,
        key: SubQueueKey,
        numbers: Sequence[int],
        delete: bool,
        done: Callable[[list[Message] | BusError], None],
        session: SessionLock | None = None,
    ) -> None: ...


class CancelScheduled(Protocol):
    def __call__(
        self, key: SubQueueKey, numbers: Sequence[int], done: Callable[[BusError | None], None]
    ) -> None: ...


class MissingScheduled(Protocol):
    def __call__(
        self,
        key: SubQueueKey,
        numbers: Sequence[int],
        done: Callable[[list[int] | BusError], None],
    ) -> None: ...


class DeleteBatch(Protocol):
    def __call__(
        self,
        key: SubQueueKey,
        count: int,
        before_ms: int,
        session_id: str | None,
        done: Callable[[int | BusError], None],
        state: MessageState = MessageState.ACTIVE,
    ) -> None: ...


class Detours:
    """What became of sends to an entity while partitions could not take them; since the start."""

    __slots__ = ("refused", "rerouted")

    def __init__(self) -> None:
        self.rerouted = 0
        """Messages without a key that another partition took (P-23)."""
        self.refused: dict[int, int] = {}
        """By partition: messages whose key pins them to it (P-24)."""


class PendingSend:
    """A send that is on its way to a commit; what a second choice of partition needs to know."""

    __slots__ = (
        "deadline_ms",
        "messages",
        "partition",
        "pinned",
        "rerouted",
        "size",
        "some_busy",
        "tried",
    )

    def __init__(
        self,
        messages: list[Message],
        pinned: int | None,
        size: int = 0,
        deadline_ms: int = 0,
    ) -> None:
        self.messages = messages
        self.pinned = pinned
        """The partition that the key says; None if any will do."""
        self.size = size
        """Bytes of the transfer, held against the budget until it is answered."""
        self.deadline_ms = deadline_ms
        self.partition = -1
        self.tried = 0
        """A bit for each partition that is unavailable, full or has refused it."""
        self.some_busy = False
        """Whether one of them may take it later: then the answer is *busy*, not *full* (D-17)."""
        self.rerouted = False
        """Whether it is counted as such."""


class Router:
    """Knows the owners of stores and whose turn it is among the partitions of each entity."""

    def __init__(self, owners: Mapping[str, Owner]) -> None:
        self.owners = owners
        """By store id; changes when a store is leased or lost."""
        self._turns: dict[int, int] = {}
        """By incarnation: the partition that the next send without a key tries first (P-22)."""
        self._detours: dict[int, Detours] = {}
        """By incarnation, of those that had any."""

    def owner(self, entity: Entity, partition: int) -> Owner | None:
        """The owner of a partition, None while nobody here knows one."""
        if not 0 <= partition < len(entity.placement):
            return None
        return self.owners.get(entity.placement[partition])

    def available_owner(self, entity: Entity, partition: int) -> Owner:
        """The owner, for a command that can go nowhere else (P-24)."""
        owner = self.owner(entity, partition)
        if owner is None or not owner.available:
            raise unavailable(entity, partition, refused=True)
        return owner

    def some_partition(self, entity: Destination) -> int:
        """One that is available, for what may be in any. Raises when none is."""
        return self._next(entity, PendingSend([], None))[0]

    def forget(self, incarnation: int) -> None:
        self._turns.pop(incarnation, None)
        self._detours.pop(incarnation, None)

    def detours(self, entity: Entity) -> Detours:
        """For those who look at it."""
        return self._detours.get(entity.incarnation) or Detours()

    def send(self, entity: Destination, pending: PendingSend, replies: Replies, tag: int) -> None:
        """Hand the messages to a partition. Raises when none can take them now."""
        if pending.pinned is not None:
            partition = pending.pinned
            found = self.owner(entity, partition)
            if found is None or not found.available:
                raise self._pinned(entity, pending, refused=True)
            owner = found
        else:
            partition, owner = self._next(entity, pending)
        pending.partition = partition
        key = SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN)
        owner.send(key, pending.messages, replies, tag)

    def send_elsewhere(
        self, entity: Destination, pending: PendingSend, error: BusError, replies: Replies, tag: int
    ) -> None:
        """A partition has answered `error`: try the next one if that is safe, else raise (D-4)."""
        full = error.kind is QUOTA_EXCEEDED
        if pending.pinned is not None and error.kind is SERVER_BUSY:
            # Its store, not the server: what has other keys goes on (P-41).
            raise self._pinned(entity, pending, refused=error.refused)
        if pending.pinned is not None or not error.refused or not (full or error.kind.retryable):
            raise error
        pending.tried |= 1 << pending.partition
        pending.some_busy = pending.some_busy or not full
        try:
            self.send(entity, pending, replies, tag)
        except BusError:
            if full and not pending.some_busy:
                raise error from None  # the partition's own numbers, all others being full as well
            raise

    def _next(self, entity: Destination, pending: PendingSend) -> tuple[int, Owner]:
        count = len(entity.placement)
        turn = self._turns.get(entity.incarnation, 0)
        for step in range(count):
            partition = (turn + step) % count
            if pending.tried >> partition & 1:
                continue
            owner = self.owners.get(entity.placement[partition])
            if owner is not None and owner.available:
                self._turns[entity.incarnation] = (partition + 1) % count
                if pending.tried and not pending.rerouted:
                    pending.rerouted = True
                    self._detours_of(entity).rerouted += len(pending.messages)
                return partition, owner
            pending.tried |= 1 << partition
            pending.some_busy = True
        raise BusError(SERVER_BUSY, refused=True)

    def _pinned(self, entity: Destination, pending: PendingSend, *, refused: bool) -> BusError:
        """It can go nowhere else (P-24)."""
        assert pending.pinned is not None
        counted = self._detours_of(entity).refused
        counted[pending.pinned] = counted.get(pending.pinned, 0) + len(pending.messages)
        return unavailable(entity, pending.pinned, refused=refused)

    def _detours_of(self, entity: Entity) -> Detours:
        return self._detours.setdefault(entity.incarnation, Detours())


def unavailable(entity: Entity, partition: int, *, refused: bool) -> BusError:
    return BusError(PARTITION_UNAVAILABLE, refused=refused, partition=partition, uri=entity.path)


class Dispatch:
    """Several sends that are one to the client: done when all are committed, or one is not.

    A part that fails does not undo the others. The client is told an error that passes, sends it
    all again, and duplicate detection absorbs what is already there (D-29).
    """

    def __init__(
        self,
        router: Router,
        entity: Destination,
        parts: Sequence[PendingSend],
        done: Callable[[BusError | None], None],
    ) -> None:
        self._router = router
        self._entity = entity
        self._parts = parts
        self._done = done
        self._open = len(parts)
        self._error: BusError | None = None

    def start(self) -> None:
        for tag, part in enumerate(self._parts):
            try:
                self._router.send(self._entity, part, self, tag)
            except BusError as error:
                self._answered(1, error)

    def committed(self, tags: list[int]) -> None:
        self._answered(len(tags), None)

    def failed(self, tag: int, error: BusError) -> None:
        try:
            self._router.send_elsewhere(self._entity, self._parts[tag], error, self, tag)
        except BusError as final:
            self._answered(1, final)

    def _answered(self, count: int, error: BusError | None) -> None:
        self._open -= count
        if error is not None:
            if len(self._parts) > 1:
                # Other parts may be there.
                error = error if error.kind.retryable else BusError(SERVER_BUSY)
                error.refused = False
            self._error = error
        if self._open == 0:
            self._done(self._error)
