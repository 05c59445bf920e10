"""From a message to a partition, from a partition to its owner.

This file owns the way of a send (P-17 to P-24, D-4, D-17): with a key the partition follows from
the key alone, and a send fails when that partition cannot take it; without one the partitions take
turns, and the next is asked when one is unavailable, full, or certainly did not store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from busway.broker.seams import Grant, Replies, Settlement, Watcher
from busway.model.entities import Queue
from busway.model.errors import PARTITION_UNAVAILABLE, QUOTA_EXCEEDED, SERVER_BUSY, BusError
from busway.model.message import Message
from busway.model.names import Address
from busway.store.base import SubQueueKey, SubQueueKind


class Owner(Protocol):
    """A message broker as gateways see it: here, or behind a link to another node."""

    @property
    def available(self) -> bool: ...

    def send(
        self, key: SubQueueKey, messages: list[Message], replies: Replies, tag: int
    ) -> None: ...
    def grant(self, grant: Grant) -> None: ...
    def recall(self, grant: Grant) -> None: ...
    def watch(self, key: SubQueueKey, watcher: Watcher) -> None: ...
    def unwatch(self, key: SubQueueKey, watcher: Watcher) -> None: ...
    def settle(
        self, key: SubQueueKey, token: bytes, settlement: Settlement, replies: Replies, tag: int
    ) -> None: ...
    def renew(self, key: SubQueueKey, tokens: list[bytes]) -> list[int]: ...
    def peek(
        self,
        key: SubQueueKey,
        from_number: int,
        count: int,
        size: int,
        done: Callable[[list[Message] | BusError], None],
    ) -> None: ...
    def receive_deferred(
        self,
        key: SubQueueKey,
        numbers: list[int],
        delete: bool,
        done: Callable[[list[Message] | BusError], None],
    ) -> None: ...


def kind_of(address: Address) -> SubQueueKind:
    """The sub-queue that an address names, as stores and brokers write it."""
    return SubQueueKind(address.sub_queue)


class PendingSend:
    """A send that is on its way to a commit; what a second choice of partition needs to know."""

    __slots__ = ("deadline_ms", "messages", "partition", "pinned", "size", "some_busy", "tried")

    def __init__(
        self, messages: list[Message], size: int, deadline_ms: int, pinned: int | None
    ) -> None:
        self.messages = messages
        self.size = size
        """Bytes of the transfer, held against the budget until it is answered."""
        self.deadline_ms = deadline_ms
        self.pinned = pinned
        """The partition that the key says; None if any will do."""
        self.partition = -1
        self.tried = 0
        """A bit for each partition that is unavailable, full or has refused it."""
        self.some_busy = False
        """Whether one of them may take it later: then the answer is *busy*, not *full* (D-17)."""


class Router:
    """Knows the owners of stores and whose turn it is among the partitions of each entity."""

    def __init__(self, owners: Mapping[str, Owner]) -> None:
        self.owners = owners
        """By store id; changes when a store is leased or lost."""
        self._turns: dict[int, int] = {}
        """By incarnation: the partition that the next send without a key tries first (P-22)."""

    def owner(self, queue: Queue, partition: int) -> Owner | None:
        """The owner of a partition, None while nobody here knows one."""
        if not 0 <= partition < len(queue.placement):
            return None
        return self.owners.get(queue.placement[partition])

    def available_owner(self, queue: Queue, partition: int) -> Owner:
        """The owner, for a command that can go nowhere else (P-24)."""
        owner = self.owner(queue, partition)
        if owner is None or not owner.available:
            raise BusError(PARTITION_UNAVAILABLE, refused=True, partition=partition, uri=queue.path)
        return owner

    def forget(self, incarnation: int) -> None:
        self._turns.pop(incarnation, None)

    def send(self, queue: Queue, pending: PendingSend, replies: Replies, tag: int) -> None:
        """Hand the messages to a partition. Raises when none can take them now."""
        if pending.pinned is not None:
            partition = pending.pinned
            owner = self.available_owner(queue, partition)
        else:
            partition, owner = self._next(queue, pending)
        pending.partition = partition
        key = SubQueueKey(queue.incarnation, partition, SubQueueKind.MAIN)
        owner.send(key, pending.messages, replies, tag)

    def send_elsewhere(
        self, queue: Queue, pending: PendingSend, error: BusError, replies: Replies, tag: int
    ) -> None:
        """A partition has answered `error`: try the next one if that is safe, else raise (D-4)."""
        full = error.kind is QUOTA_EXCEEDED
        if pending.pinned is not None or not error.refused or not (full or error.kind.retryable):
            raise error
        pending.tried |= 1 << pending.partition
        pending.some_busy = pending.some_busy or not full
        try:
            self.send(queue, pending, replies, tag)
        except BusError:
            if full and not pending.some_busy:
                raise error from None  # the partition's own numbers, all others being full as well
            raise

    def _next(self, queue: Queue, pending: PendingSend) -> tuple[int, Owner]:
        count = len(queue.placement)
        turn = self._turns.get(queue.incarnation, 0)
        for step in range(count):
            partition = (turn + step) % count
            if pending.tried >> partition & 1:
                continue
            owner = self.owners.get(queue.placement[partition])
            if owner is not None and owner.available:
                self._turns[queue.incarnation] = (partition + 1) % count
                return partition, owner
            pending.tried |= 1 << partition
            pending.some_busy = True
        raise BusError(SERVER_BUSY, refused=True)
