"""One message queue of a partition: its main queue or a dead-letter queue (ARCHITECTURE section 4).

Here are delivery, paging and what a commit's outcome does to the messages in memory. The rules of
settlement and expiry are the partition's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from busway.broker.locks import LockTable
from busway.broker.seams import Grant, Watcher
from busway.broker.staging import Change
from busway.broker.window import LOW_MESSAGES, ReadyWindow, WindowBudget
from busway.model.message import Message, MessageState
from busway.store.base import Counters, SubQueueKey

if TYPE_CHECKING:
    from busway.broker.partition import Partition


class SubQueue:
    """Messages in the order of their numbers, and the grants that wait for them."""

    __slots__ = (
        "_grants",
        "_partition",
        "_watchers",
        "committed",
        "in_store",
        "key",
        "known",
        "locks",
        "next_counter",
        "paging",
        "slot",
        "staged_bytes",
        "stored",
        "window",
    )

    def __init__(
        self,
        key: SubQueueKey,
        partition: Partition,
        slot: int,
        counters: Counters | None,
        watchers: dict[Watcher, None],
        budget: WindowBudget,
    ) -> None:
        self.key = key
        self.slot = slot
        self.stored = counters is not None
        """Whether the store knows the slot; it is told in the first commit that uses it."""
        self.committed = counters or Counters()
        self.next_counter = self.committed.next_counter
        """Runs ahead of what is committed; numbers are never given twice (D-2)."""
        self.staged_bytes = 0
        self.known: dict[int, Message] = {}
        """Every message of it that is in memory, by number: ready, locked or marked."""
        self.in_store = self.committed.active
        """Active messages that are not in memory."""
        self.window = ReadyWindow(budget)
        self.locks = LockTable()
        self.paging = False
        self._partition = partition
        self._grants: deque[Grant] = deque()
        """Grants that wait for a page of the store."""
        self._watchers = watchers

    # Delivery (D-22).

    def grant(self, grant: Grant) -> None:
        """Deliver what there is; wait only for what the store still has; then say *finished*."""
        self._serve(grant)
        if grant.left == 0:
            if grant.reserved == 0:
                grant.receiver.finished(grant)
        elif self.in_store or self.paging:
            self._grants.append(grant)
        else:
            self._finish(grant)
        self._read_ahead()

    def recall(self, grant: Grant) -> None:
        """The credit is wanted back. What is reserved already still comes (D-6)."""
        if grant in self._grants:
            self._grants.remove(grant)
            self._finish(grant)
        else:
            grant.left = 0

    def finish_all(self) -> None:
        """The store is not to be had: nobody should wait for it here."""
        grants, self._grants = self._grants, deque()
        for grant in grants:
            self._finish(grant)

    def wake(self) -> None:
        """Something may have become ready: waiting grants first, then whoever watches."""
        if not self._partition.available:
            return  # everybody is woken when the store is back
        if self._partition.deleted:
            self.finish_all()  # its rows are being purged: nothing is given any more (D-16)
            return
        grants = self._grants
        while grants and len(self.window):
            grant = grants[0]
            self._serve(grant)
            if grants and grants[0] is grant:
                if grant.left:
                    break
                grants.popleft()
                if grant.reserved == 0:
                    grant.receiver.finished(grant)
        if grants and not self.in_store and not self.paging:
            self.finish_all()
        self._read_ahead()
        if len(self.window) or self.in_store:
            for watcher in tuple(self._watchers):
                watcher.ready(self.key)

    def _serve(self, grant: Grant) -> None:
        partition = self._partition
        window, locks, mint = self.window, self.locks, partition.mint_token
        now_ms = partition.now_ms()
        duration_ms = partition.queue.lock_duration_ms
        stage = partition.stage(min(grant.left, len(window))) if grant.delete else None
        taken: list[Message] = []
        while len(taken) < grant.left:
            message = window.pop()
            if message is None:
                break
            if message.expires_ms is not None and message.expires_ms <= now_ms:
                partition.expire(self, message)  # TTL-4
                continue
            taken.append(message)
            if stage is not None:
                stage.delete(self, message)
            else:
                locks.take(message, mint(), now_ms, duration_ms)
        if not taken:
            return
        grant.left -= len(taken)
        if stage is not None:
            stage.reserve(grant, taken)
        else:
            partition.lock_due(self, now_ms + duration_ms)
            grant.receiver.deliver(grant, taken)

    def _finish(self, grant: Grant) -> None:
        grant.left = 0
        if grant.reserved == 0:
            grant.receiver.finished(grant)

    # Paging (D-11, D-12).

    def _read_ahead(self) -> None:
        """Page only for somebody: a grant that waits, or a receiver that is emptying the window."""
        if self.in_store and not self.paging and (self._grants or self._wants_more()):
            self.paging = True
            self._partition.fetch(self)

    def _wants_more(self) -> bool:
        return bool(self.locks) and len(self.window) < LOW_MESSAGES

    def paged(self, messages: Iterable[Message], asked_after: int) -> None:
        """A page has come. What memory already holds is newer than the page (D-11)."""
        self.paging = False
        last = None
        for message in messages:
            last = message.number
            if last not in self.known:
                self.adopt(message)
                self.window.offer(message)
        if last is None:
            # Nothing above the cursor although something is stored: it lies below (D-12).
            assert asked_after or not self.in_store, f"{self.key}: the counters lie"
            self.window.cursor = 0
        elif self.window.cursor == asked_after:
            self.window.cursor = last
        self.wake()

    def adopt(self, message: Message) -> None:
        """A message that was in the store only is now in memory, too."""
        self.known[message.number] = message
        if message.state is MessageState.ACTIVE:
            self.in_store -= 1
            assert self.in_store >= 0

    # What a commit's outcome does (called by the stage).

    def arrived(self, message: Message) -> None:
        if message.expires_ms is not None:
            self._partition.expiry_due(message.expires_ms)
        if self.in_store == 0 and self.window.has_room and not self.paging:
            self.known[message.number] = message
            self.window.offer(message)
            self.window.cursor = max(self.window.cursor, message.number)
        else:
            self.in_store += 1
            if message.number <= self.window.cursor:
                self.window.cursor = message.number - 1  # D-12

    def removed(self, message: Message) -> None:
        """It is gone from here. It keeps its mark, so that a stale entry passes it over."""
        if message.lock_token is not None:
            self.locks.drop(message)
        del self.known[message.number]

    def updated(self, message: Message, change: Change) -> None:
        if message.lock_token is not None:
            self.locks.drop(message)
        if change.state is not MessageState.ACTIVE:
            del self.known[message.number]  # deferred: only its number brings it back (DEF-1)
            return
        message.staged = None
        message.delivery_count = change.delivery_count
        message.changes = change.changes
        if message.expires_ms is not None:
            # The sweep passes marked messages by; it may have done so meanwhile (TTL-5).
            self._partition.expiry_due(message.expires_ms)
        self.window.offer(message)  # MSG-6

    def restored(self, message: Message) -> None:
        """The commit that would have changed it failed."""
        message.staged = None
        if message.lock_token is not None:
            self.locks.watch_again(message)
            self._partition.lock_due(self, message.locked_until_ms)
        else:
            self.released(message)

    def released(self, message: Message) -> None:
        """Neither locked nor marked any more."""
        if message.state is MessageState.ACTIVE:
            self.window.offer(message)
        else:
            message.staged = self
            del self.known[message.number]
