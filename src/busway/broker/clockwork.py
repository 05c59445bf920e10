"""What time does to a broker's messages: one timer for everything that falls due (D-10).

Locks of messages and sessions run out; messages expire; scheduled ones become active; journals are
trimmed. The heap of lock times, the sweep of the store's due times and the keeper of journals share
the timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from busway.broker.dues import Dues
from busway.broker.expiry import ExpirySweep, due_now
from busway.broker.journal_keeper import LOOK_MS, JournalKeeper, KeeperOwner
from busway.broker.partition import Partition
from busway.broker.seams import Host, Timer
from busway.broker.sub_queue import SubQueue
from busway.model.errors import BusError
from busway.model.message import Message, MessageState
from busway.store.base import Expiring, ExpiryPage, MessagingStore, SubQueueKey

T = TypeVar("T")


class ClockworkOwner(KeeperOwner, Protocol):
    @property
    def available(self) -> bool: ...

    def exists(self, incarnation: int) -> bool: ...

    def stands_still(self, incarnation: int) -> bool: ...

    def partition(self, incarnation: int, index: int) -> Partition: ...

    def sub_queue_in(self, slot: int) -> SubQueue | None: ...

    slice_copies: int
    """How many copies are made in one piece."""

    def waits_for_commits(self, again: Callable[[], None]) -> bool:
        """Whether enough waits for its commit already; then `again` is called after one."""

    def copies_of_one(self, incarnation: int) -> int:
        """How many copies one message may become there: 1, unless it is a topic."""

    def due(self, partition: Partition, sub_queue: SubQueue, message: Message) -> None: ...

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | BusError], None]
    ) -> None: ...


class Clockwork:
    def __init__(self, owner: ClockworkOwner, host: Host) -> None:
        self._owner = owner
        self._host = host
        self._dues = Dues()
        self._activations: deque[tuple[SubQueue, Message]] = deque()
        """Scheduled messages of topics whose time has come: a slice of them in each round."""
        self._sweep = ExpirySweep(self)
        self._keeper = JournalKeeper(owner, self._arm)
        self._timer: Timer | None = None
        self._timer_due_ms: int | None = None

    # What it is told.

    def forget(self) -> None:
        """Every lock is void (D-5)."""
        self._dues = Dues()
        self._activations.clear()

    def restart(self) -> None:
        """The store serves, or serves again: look at everything that may have fallen due."""
        self._activations.clear()  # the sweep finds them again
        self._sweep.restart()
        self._keeper.restart(self._host.now_ms())
        self._arm()

    def lock_due(self, sub_queue: SubQueue, due_ms: int) -> None:
        if self._dues.expect(sub_queue, due_ms):
            self._arm()

    def message_due(self, due_ms: int) -> None:
        self._sweep.expects(due_ms)
        self._arm()

    def journal_there(self) -> None:
        """A journal that has to be looked at from now on."""
        self._keeper.expects(self._host.now_ms() + LOOK_MS)
        self._arm()

    # A clock that is moved.

    def next_due_ms(self) -> int | None:
        """When a message or a lock falls due next; journals are looked at all the time."""
        if not self._owner.available:
            return None
        known = (self._sweep.due_ms, self._dues.next_ms())
        return min((each for each in known if each is not None), default=None)

    @property
    def is_behind(self) -> bool:
        """Whether some of what has fallen due waits for its turn."""
        return self._owner.available and self._sweep.is_behind

    def look(self) -> None:
        """The clock was moved: see what has fallen due."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_time()

    # The timer.

    def _arm(self) -> None:
        known = (self._sweep.due_ms, self._dues.next_ms(), self._keeper.due_ms)
        dues = [each for each in known if each is not None]
        if not dues or not self._owner.available:
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
        if not self._owner.available:
            return
        now_ms = self._host.now_ms()
        for sub_queue in self._dues.over(now_ms):
            if self._owner.exists(sub_queue.key.incarnation):
                self._partition(sub_queue.key).expire_locks(sub_queue)
                next_ms = sub_queue.next_due_ms()
                if next_ms is not None:
                    self._dues.expect(sub_queue, max(next_ms, now_ms + 1))
        self._sweep.run(now_ms)
        self._keeper.run(now_ms)
        self._arm()

    def _partition(self, key: SubQueueKey) -> Partition:
        return self._owner.partition(key.incarnation, key.partition)

    # What the sweep asks.

    def sub_queue_in(self, slot: int) -> SubQueue | None:
        sub_queue = self._owner.sub_queue_in(slot)
        still = sub_queue is not None and self._owner.stands_still(sub_queue.key.incarnation)
        return None if still else sub_queue

    def due(self, sub_queue: SubQueue, message: Message) -> None:
        if not self._owner.exists(sub_queue.key.incarnation):
            return
        scheduled = message.state is MessageState.SCHEDULED
        if scheduled and self._owner.copies_of_one(sub_queue.key.incarnation) > 1:
            if not self._activations:
                self._host.next_round(self._activate)
            self._activations.append((sub_queue, message))
        else:
            self._owner.due(self._partition(sub_queue.key), sub_queue, message)

    def _activate(self) -> None:
        """One slice of those that become copies; each is looked at again, for it was waiting."""
        if not self._owner.available:
            self._activations.clear()
        if self._activations and self._owner.waits_for_commits(self._activate):
            return
        left = self._owner.slice_copies
        while self._activations and left > 0:
            sub_queue, message = self._activations.popleft()
            incarnation = sub_queue.key.incarnation
            if (
                self._owner.exists(incarnation)
                and not self._owner.stands_still(incarnation)
                and message.state is MessageState.SCHEDULED
                and due_now(message)
                and sub_queue.known.get(message.number) is message
            ):
                left -= self._owner.copies_of_one(incarnation) + 1
                self._owner.due(self._partition(sub_queue.key), sub_queue, message)
        if self._activations:
            self._host.next_round(self._activate)

    def read_expiry_page(self, after: Expiring | None, until_ms: int, rows: int) -> None:
        def done(outcome: ExpiryPage | BusError) -> None:
            self._sweep.paged(outcome, after, self._host.now_ms())
            self._arm()

        self._owner.read(lambda store: store.read_expiring(after, until_ms, rows), done)

    def read_expiring(self, rows: dict[int, list[int]]) -> None:
        """Messages that only the store holds: read them, then see to them."""
        for slot, numbers in rows.items():
            sub_queue = self.sub_queue_in(slot)
            if sub_queue is not None:
                self._read_numbers(sub_queue, numbers)

    def _read_numbers(self, sub_queue: SubQueue, numbers: list[int]) -> None:
        def done(outcome: list[Message] | BusError) -> None:
            if isinstance(outcome, BusError):
                return  # the sweep starts anew when the store is back
            if self._owner.stands_still(sub_queue.key.incarnation):
                return
            for row in outcome:
                # A page may have brought it into memory meanwhile: then it is that one.
                message = sub_queue.known.get(row.number)
                if message is None and due_now(row):
                    message = row
                    sub_queue.adopt(message)
                if message is not None and due_now(message):
                    self.due(sub_queue, message)

        self._owner.read(lambda store: store.read_numbers(sub_queue.slot, numbers), done)
