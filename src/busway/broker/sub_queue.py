"""One message queue of a partition: a main queue or a dead-letter queue (ARCHITECTURE section 4).

Here are delivery, and what a commit's outcome does to the messages in memory. The rules of
settlement and expiry are the partition's; the order of messages is the line's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from busway.broker.counting import Movements
from busway.broker.journal import COMPLETED
from busway.broker.line import Line
from busway.broker.locks import LockTable
from busway.broker.seams import Grant, SessionLock, Watcher
from busway.broker.sessions import SessionTable
from busway.broker.staging import Change
from busway.broker.window import WindowBudget
from busway.model.message import ACTIVE, Message
from busway.store.base import Counters, SubQueueKey

if TYPE_CHECKING:
    from busway.broker.diversion import Diversion
    from busway.broker.forwarding import Pump
    from busway.broker.partition import Partition


class SubQueue:
    """The messages of one sub-queue that are in memory, and how many there are at all."""

    __slots__ = (
        "_line",
        "_partition",
        "_watchers",
        "committed",
        "key",
        "known",
        "locks",
        "movements",
        "next_counter",
        "pump",
        "sessions",
        "slot",
        "stored",
        "tally",
        "was_taken_from",
    )

    def __init__(
        self,
        key: SubQueueKey,
        partition: Partition,
        slot: int,
        counters: Counters | None,
        watchers: dict[Watcher, None],
        budget: WindowBudget,
        movements: Movements,
        *,
        has_sessions: bool = False,
        folds_session_ids: bool = False,
    ) -> None:
        self.key = key
        self.slot = slot
        self.stored = counters is not None
        """Whether the store knows the slot; it is told in the first commit that uses it."""
        self.committed = counters or Counters()
        self.next_counter = self.committed.next_counter
        """Runs ahead of what is committed; numbers are never given twice (D-2)."""
        self.movements = movements
        self.tally = partition.tally
        self.tally.bytes += self.committed.bytes
        self.known: dict[int, Message] = {}
        """Every message of it that is in memory, by number: ready, locked or marked."""
        self.locks = LockTable()
        self.sessions = (
            SessionTable(self, budget, folds=folds_session_ids) if has_sessions else None
        )
        self._line = Line(self, budget, 0 if has_sessions else self.committed.active)
        self.pump: Pump | Diversion | None = None
        """Of a transfer queue: who hands its messages over (D-27). Of a main queue: who takes what
        lies in it once its entity forwards."""
        self._partition = partition
        self._watchers = watchers
        self.was_taken_from = False
        """Since the watchers were told that there is something."""

    def line_of(self, message: Message) -> Line:
        return self._line if self.sessions is None else self.sessions.of(message).line

    def _line_of(self, session: SessionLock) -> Line:
        return self._line if self.sessions is None else self.sessions.get(session.session_id).line

    @property
    def lines(self) -> Iterable[Line]:
        return (self._line,) if self.sessions is None else self.sessions.lines()

    # Delivery (D-22).

    def grant(self, grant: Grant) -> None:
        if grant.session is None or self.sessions is None:
            self._line.grant(grant)
        elif grant.session.valid:
            self._line_of(grant.session).grant(grant)
        else:
            grant.left = 0
            grant.receiver.finished(grant)

    def recall(self, grant: Grant) -> None:
        session = grant.session
        if session is None or self.sessions is None:
            self._line.recall(grant)
        elif self.sessions.has(session.session_id):
            self._line_of(session).recall(grant)
        else:
            grant.left = 0

    def finish_all(self) -> None:
        for line in self.lines:
            line.finish_all()

    def wake(self) -> None:
        """Something may have become ready: waiting grants first, then whoever watches."""
        if not self._partition.available:
            return  # everybody is woken when the store is back
        if self._partition.deleted:
            self.finish_all()  # its rows are being purged: nothing is given any more (D-16)
            return
        if self.sessions is not None:
            somebody_should_come = self.sessions.wake()
        else:
            self._line.serve_waiting()
            somebody_should_come = self._line.may_have_more
            if self.pump is not None and somebody_should_come:
                self.pump.run()
        if somebody_should_come:
            self._call_watchers()

    def _call_watchers(self) -> None:
        """Gateways take turns: who is called first takes what there is."""
        watchers = self._watchers
        if self.was_taken_from and len(watchers) > 1:
            first = next(iter(watchers))
            del watchers[first]
            watchers[first] = None
        self.was_taken_from = False
        for watcher in tuple(watchers):
            watcher.ready(self.key)

    def now_ms(self) -> int:
        return self._partition.now_ms()

    def serve(self, line: Line, grant: Grant) -> None:
        partition = self._partition
        window, locks, mint = line.window, self.locks, partition.mint_token
        now_ms = partition.now_ms()
        session = grant.session
        if session is not None and session.locked_until_ms <= now_ms:
            return  # its time is over, although nobody has noticed yet (SES-8)
        duration_ms = partition.lock_duration_ms
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
                if session is not None and self.sessions is not None:
                    self.sessions.remove_for(session, message)
            elif session is None:
                locks.take(message, mint(), now_ms, duration_ms)
            else:
                locks.take_in_session(message, mint(), session)
        if not taken:
            return
        grant.left -= len(taken)
        self.was_taken_from = True
        # What is taken to be forwarded is delivered to nobody.
        journal = None if grant.receiver is self.pump else partition.journal
        if stage is not None:
            if journal is not None:
                for message in taken:
                    journal.happened(stage, COMPLETED, self, message)
            stage.reserve(grant, taken)
            return
        if journal is not None:
            journal.delivered(partition.notes(), self, taken)
        if session is None:
            partition.lock_due(self, now_ms + duration_ms)
        grant.receiver.deliver(grant, taken)

    def fetch(self, line: Line) -> None:
        self._partition.fetch(self, line)

    def next_due_ms(self) -> int | None:
        """When a lock of a message or session may run out."""
        dues = [self.locks.next_due_ms()]
        if self.sessions is not None:
            dues.append(self.sessions.next_due_ms())
        return min((due for due in dues if due is not None), default=None)

    def oldest_in_memory(self) -> Message | None:
        """The active message of the lowest number, where that can be told without the store."""
        if self.sessions is not None or self.locks:
            return None
        first = self._line.window.first
        if first is not None and self._line.in_store and first.number > self._line.window.cursor:
            return None  # some of those in the store may come before it (D-12)
        return first

    @property
    def somebody_receives(self) -> bool:
        return bool(self.locks)

    def paged(self, line: Line, messages: Iterable[Message], asked_after: int) -> bool:
        """False if the store does not hold what its counters say."""
        if not line.paged(messages, asked_after):
            return False
        if self.sessions is not None:
            self.sessions.touched(line)
        self.wake()
        return True

    def adopt(self, message: Message) -> None:
        """A message that was in the store only is now in memory, too."""
        if message.state is ACTIVE:
            self.line_of(message).adopt(message)
        else:
            self.known[message.number] = message

    # What a commit's outcome does (called by the stage).

    def arrived(self, message: Message) -> None:
        if message.expires_ms is not None:
            self._partition.expiry_due(message.expires_ms)
        if message.state is ACTIVE:
            line = self.line_of(message)
            line.arrived(message)
            if self.sessions is not None:
                self.sessions.touched(line)

    def removed(self, message: Message) -> None:
        """It is gone from here. It keeps its mark, so that a stale entry passes it over."""
        if message.lock_token is not None:
            self.unlock(message)
        del self.known[message.number]
        if self.sessions is not None:
            self.sessions.removal_decided(message)
            self.sessions.touched(self.line_of(message))

    def updated(self, message: Message, change: Change) -> None:
        if message.lock_token is not None:
            self.unlock(message)
        if change.state is not ACTIVE:
            del self.known[message.number]  # deferred: only its number brings it back (DEF-1)
            return
        message.staged = None
        message.delivery_count = change.delivery_count
        message.changes = change.changes
        if message.expires_ms is not None:
            # The sweep passes marked messages by; it may have done so meanwhile (TTL-5).
            self._partition.expiry_due(message.expires_ms)
        self._offer(message)  # MSG-6

    def restored(self, message: Message) -> None:
        """The commit that would have changed it failed."""
        message.staged = None
        if self.sessions is not None:
            self.sessions.removal_decided(message)
        if message.lock_token is None:
            self.released(message)
            return
        session = self.locks.session_of(message)
        if session is None or session.ran_out:
            self.locks.watch_again(message)
            self._partition.lock_due(self, message.locked_until_ms)
        elif not session.valid:
            self.unlock(message)  # its session was left meanwhile
            self.released(message)

    def unlock(self, message: Message) -> None:
        session = self.locks.drop(message)
        if session is not None and not session.valid and self.sessions is not None:
            self.sessions.outcome_known(message)

    def released(self, message: Message) -> None:
        """Neither locked nor marked any more."""
        if message.state is ACTIVE:
            self._offer(message)
        else:
            message.staged = self
            del self.known[message.number]

    def _offer(self, message: Message) -> None:
        line = self.line_of(message)
        line.window.offer(message)
        if self.sessions is not None:
            self.sessions.touched(line)
