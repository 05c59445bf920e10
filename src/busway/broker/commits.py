"""The way of a broker's batches to its store, and what each outcome means (D-1, D-3, D-7, D-8).

One commit is in flight; whatever is staged meanwhile is the next batch; there are no timers in the
good case. The states of the way are a table:

    OPENING    the store is being opened; nothing is served
    SERVING    commits go through
    HUNG       a commit or a read is out for longer than PATIENCE_MS; its answer decides (D-8)
    REFUSING   the store refused a commit; an empty one is tried until it takes one
    FENCED     another owner has the store; for good
    STOPPED    closed on purpose; for good
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Protocol, TypeVar

from busway.broker.counting import CommitTimes
from busway.broker.journal import DELIVERED
from busway.broker.seams import Host, StorePort
from busway.broker.staging import Stage
from busway.model.errors import DATA_DAMAGED, SERVER_BUSY, BusError
from busway.store.base import (
    Batch,
    CommitRefused,
    CommitUnknown,
    DataDamaged,
    MessagingStore,
    Opened,
    StoreError,
    StoreFenced,
    StoreUnavailable,
)

log = logging.getLogger("busway.broker")

T = TypeVar("T")

PATIENCE_MS = 5_000
LOOK_AGAIN_MS = 500
RETRY_FIRST_MS = 50
RETRY_MAX_MS = 1_000
NOTES_WAIT_MS = 200
"""How long a delivery that is to be told of waits for a commit to ride along with (D-31)."""
DISK_RESERVE_BYTES = 256 * 1024 * 1024
"""Below this sends are refused, so that a full broker can be drained (D-9)."""


class WayState(Enum):
    OPENING = "opening"
    SERVING = "serving"
    HUNG = "hung"
    REFUSING = "refusing"
    FENCED = "fenced"
    STOPPED = "stopped"


class Memory(Protocol):
    """What the broker keeps of its store, told when it begins and ends to be true."""

    def loaded(self, opened: Opened) -> None: ...

    def dropped(self) -> None: ...

    def availability_changed(self) -> None: ...


class CommitWay:
    """Carries stages to the store in order, one at a time, and settles each exactly once."""

    def __init__(self, port: StorePort, host: Host, memory: Memory) -> None:
        self._port = port
        self._host = host
        self._memory = memory
        self.state = WayState.OPENING
        self.serving = False
        """Whether the state is SERVING."""
        self.disk_full = False
        self.problem: StoreUnavailable | None = None
        """Why the store cannot be opened, if the last try failed."""
        self.times = CommitTimes()
        self._commit_number = 0
        self._open = Stage()
        self._queued: deque[Stage] = deque()
        self._in_flight: Stage | None = None
        self._in_flight_since_ms = 0
        self._reads: deque[int] = deque()
        """When each read was asked for that has not been answered; they are in order (D-11)."""
        self._answered_ms = 0
        """When the store was last heard: it was not at any later call before that."""
        self._doubtful: tuple[int, Stage] | None = None
        """A batch whose outcome nobody knows, with its number; the next `open` settles it (D-3)."""
        self._whole = False
        """While a transaction is being staged: it must not be split."""
        self._flush_soon = False
        self._patience_watch = False
        self._notes_watch = False
        self._retry_ms = RETRY_FIRST_MS
        self._stopping: Callable[[], None] | None = None

    @property
    def uncommitted_bytes(self) -> int:
        """Asked for every send, when there is seldom more than what is open and in flight."""
        total = self._open.bytes
        if self._in_flight is not None:
            total += self._in_flight.bytes
        if self._queued:
            total += sum(stage.bytes for stage in self._queued)
        return total

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way to the store; so it is with a store that is not well."""
        if not self.serving:
            return True
        waiting = self._in_flight is not None or self._queued or self._reads
        return not waiting and not self._flush_soon and self._open.empty

    @property
    def waiting_records(self) -> int:
        """Staged, and not committed."""
        total = self._open.records
        if self._in_flight is not None:
            total += self._in_flight.records
        return total + sum(stage.records for stage in self._queued)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call once, when the outcome of the next commit is known."""
        stage = self._in_flight
        if stage is None:
            stage = self._queued[0] if self._queued else self._open
        stage.waiting.append(callback)

    # Staging.

    @contextmanager
    def one_stage(self, records: int, size: int) -> Iterator[Stage]:
        """Whatever is staged in here goes into one batch, however large it becomes."""
        stage = self.stage(records, size)
        self._whole = True
        try:
            yield stage
        finally:
            self._whole = False

    def stage(self, records: int, size: int) -> Stage:
        """The open stage, with room for this much (D-7)."""
        if not self._whole and not self._open.has_room(records, size):
            self._queued.append(self._open)
            self._open = Stage()
        if not self._flush_soon and self._in_flight is None:
            self._flush_soon = True
            self._host.soon(self._flush)
        return self._open

    def refuse_send(self) -> None:
        """One that the disk has no room for. A commit, for which nobody waits, looks again."""
        self.times.sends_refused += 1
        self.stage(0, 0).after.append(_nothing)

    def notes(self) -> Stage:
        """The open stage, for what goes with the next commit and asks for none (D-31)."""
        if not self._notes_watch:
            self._notes_watch = True
            self._host.at(self._host.now_ms() + NOTES_WAIT_MS, self._notes_waited)
        return self._open

    def _notes_waited(self) -> None:
        self._notes_watch = False
        if self._open.journal:
            self._open.journal_due = True
            self._flush()

    def _keep_notes(self, failed: Iterable[Stage]) -> None:
        """A new open stage. What failed is undone, but a delivery has happened all the same."""
        self._open = Stage()
        told = [draft for stage in failed for draft in stage.journal if draft.event is DELIVERED]
        if told:
            self.notes().journal.extend(told)

    def _flush(self) -> None:
        self._flush_soon = False
        if self._in_flight is None and self.state is WayState.SERVING:
            self._submit_next()
            self._stop_if_done()

    def _submit_next(self) -> None:
        if not self._queued:
            if self._open.empty and not (self._stopping is not None and self._open.journal):
                return
            self._queued.append(self._open)
            self._open = Stage()
        stage = self._queued.popleft()
        batch = stage.batch(self._commit_number + 1, self._host.now_ms())
        self._in_flight = stage
        self._in_flight_since_ms = batch.time_ms
        self._watch_patience()
        self._port.call(_Commit(batch), self._commit_done)

    # Outcomes.

    def _commit_done(self, outcome: int | StoreError | None) -> None:
        stage, self._in_flight = self._in_flight, None
        assert stage is not None
        if isinstance(outcome, StoreError):
            self._commit_failed(stage, outcome)
            return
        self._commit_number += 1
        self._answered_ms = self._host.now_ms()
        self.times.took(self._answered_ms - self._in_flight_since_ms)
        self._look_at_room(outcome)
        stage.settle_counters(self._answered_ms)
        if self.state in (WayState.HUNG, WayState.REFUSING):
            self._become(WayState.SERVING)
        self._submit_next()  # the disk works while we reveal what it has done
        stage.apply()
        self._flush()

    def _look_at_room(self, free_bytes: int | None) -> None:
        """How much room a commit has left (D-9). Logged when the disk is full, and when not any
        more."""
        self.times.free_bytes = free_bytes
        full = free_bytes is not None and free_bytes < DISK_RESERVE_BYTES
        if full is not self.disk_full:
            self.disk_full = full
            if full:
                log.error(
                    "disk full: %d MB are free and sends are refused below %d MB; messages can be "
                    "received and settled",
                    (free_bytes or 0) >> 20,
                    DISK_RESERVE_BYTES >> 20,
                )
            else:
                log.info("the disk has room again: sends are taken")

    def _commit_failed(self, stage: Stage, outcome: StoreError) -> None:
        self.times.failed += 1
        behind = [*self._queued, self._open]
        self._queued.clear()
        self._open = Stage()
        refused = BusError(SERVER_BUSY, refused=True)
        if isinstance(outcome, CommitRefused):
            self._keep_notes((stage, *behind))
            log.warning("store refused a commit: %s", outcome)
            self._become(WayState.REFUSING)
            for failed in (stage, *behind):
                failed.undo(refused)
            self._host.soon(self._probe)
            return
        if isinstance(outcome, StoreFenced):
            log.error("store has another owner: %s", outcome)
            self._become(WayState.FENCED)
            self._memory.dropped()
            for failed in (stage, *behind):
                failed.tell(refused)
            return
        log.warning("store lost, opening it again: %s", outcome)
        self._become(WayState.OPENING)
        self._memory.dropped()
        if isinstance(outcome, CommitUnknown):
            self._doubtful = (self._commit_number + 1, stage)
        else:
            stage.tell(refused)
        for failed in behind:
            failed.tell(refused)
        self.open()

    # Reads.

    def read(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | StoreError], None]
    ) -> None:
        """A call that changes nothing; the store is as ill as in a commit if it never ends."""

        def answered(outcome: T | StoreError) -> None:
            self._reads.popleft()
            self._answered_ms = self._host.now_ms()
            if isinstance(outcome, DataDamaged):
                log.error("a read was refused: %s", outcome)
            elif isinstance(outcome, StoreError):
                self._read_failed(outcome)
            elif self.state is WayState.HUNG and self._in_flight is None:
                self._serve()
            done(outcome)

        self._reads.append(self._host.now_ms())
        self._watch_patience()
        self._port.call(operation, answered)

    def _read_failed(self, outcome: StoreError) -> None:
        """Find out by a commit whether the handle still lives."""
        if self.state in (WayState.SERVING, WayState.HUNG):
            log.warning("store cannot be read: %s", outcome)
            self._become(WayState.REFUSING)
            self._refuse_behind()
            if self._in_flight is None:
                self._host.soon(self._probe)

    # Refusing: an empty commit tells when the store takes work again.

    def _probe(self) -> None:
        if self.state is WayState.REFUSING and self._in_flight is None:
            self._in_flight = Stage()
            self._in_flight_since_ms = self._host.now_ms()
            batch = Batch(number=self._commit_number + 1, time_ms=self._in_flight_since_ms)
            self._port.call(_Commit(batch), self._probe_done)

    def _probe_done(self, outcome: int | StoreError | None) -> None:
        probe, self._in_flight = self._in_flight, None
        assert probe is not None
        self._answered_ms = self._host.now_ms()
        if isinstance(outcome, CommitRefused):
            self._host.at(self._host.now_ms() + self._next_retry_ms(), self._probe)
            self._stop_if_done()
        elif isinstance(outcome, StoreError):
            self._commit_failed(probe, outcome)
        else:
            self._commit_number += 1
            self._look_at_room(outcome)
            self._serve()

    # Opening.

    def open(self) -> None:
        """Take the store, as its newest owner; try until it lets itself be taken."""
        if self.state is WayState.OPENING:
            self._port.call(_reopen, self._open_done)

    def _open_done(self, outcome: Opened | StoreError) -> None:
        if self.state is not WayState.OPENING:
            return
        if isinstance(outcome, StoreError):
            if self._stopping is not None:
                self._become(WayState.STOPPED)
                self._settle_doubt(None)
                self._stopping()
                return
            self._note_problem(outcome)
            self._host.at(self._host.now_ms() + self._next_retry_ms(), self.open)
            return
        self.problem = None
        self._answered_ms = self._host.now_ms()
        self._commit_number = outcome.commit_number
        self._memory.loaded(outcome)
        self._settle_doubt(outcome.commit_number)
        self._serve()

    def _note_problem(self, outcome: StoreError) -> None:
        """Logged once, not with each of the tries that follow."""
        if not isinstance(outcome, StoreUnavailable):
            return
        if self.problem is None or str(self.problem) != str(outcome):
            log.error("store cannot be opened, trying again: %s", outcome)
            self.problem = outcome

    def _settle_doubt(self, commit_number: int | None) -> None:
        if self._doubtful is not None:
            (number, stage), self._doubtful = self._doubtful, None
            if commit_number is None:
                stage.tell(BusError(SERVER_BUSY))
            else:
                done = commit_number >= number
                if done:
                    stage.count_movements(self._host.now_ms())
                stage.tell(None if done else BusError(SERVER_BUSY, refused=True))

    def _serve(self) -> None:
        self._retry_ms = RETRY_FIRST_MS
        self._become(WayState.SERVING)
        self._flush()

    # A store that hangs (D-8).

    def _watch_patience(self) -> None:
        since_ms = self._waiting_since_ms()
        if since_ms is not None and not self._patience_watch:
            self._patience_watch = True
            self._host.at(since_ms + PATIENCE_MS, self._patience_over)

    def _waiting_since_ms(self) -> int | None:
        """Since when the store owes an answer: to a commit, or to the read that it is at."""
        commit_ms = None if self._in_flight is None else self._in_flight_since_ms
        if not self._reads:
            return commit_ms
        read_ms = max(self._reads[0], self._answered_ms)
        return read_ms if commit_ms is None else min(commit_ms, read_ms)

    def _patience_over(self) -> None:
        self._patience_watch = False
        since_ms = self._waiting_since_ms()
        if since_ms is None:
            return
        if self._host.now_ms() - since_ms < PATIENCE_MS:
            self._watch_patience()
        elif self._port.busy_ms() < PATIENCE_MS:
            # Not the store was slow, but whoever hears its answers: it has answered, or is at a
            # later call than the one that we wait for.
            self._patience_watch = True
            self._host.at(self._host.now_ms() + LOOK_AGAIN_MS, self._patience_over)
        elif self.state is WayState.SERVING:
            log.warning("store does not answer; refusing work for it")
            self._become(WayState.HUNG)
            self._refuse_behind()

    def _refuse_behind(self) -> None:
        """Nothing queues behind a store that is not well (D-8)."""
        behind = [*self._queued, self._open]
        self._queued.clear()
        self._keep_notes(behind)
        for stage in behind:
            stage.undo(BusError(SERVER_BUSY, refused=True))

    # Stopping.

    def stop(self, done: Callable[[], None]) -> None:
        """Let what is staged be committed and answered, then close the store."""
        self._stopping = done
        if self.state is WayState.SERVING:
            self._flush()
        elif self.state in (WayState.REFUSING, WayState.FENCED):
            self._stop_if_done()

    def _stop_if_done(self) -> None:
        if self._stopping is not None and self._in_flight is None:
            self._close()

    def _close(self) -> None:
        assert self._stopping is not None
        stopped = self._stopping
        self._become(WayState.STOPPED)
        self._port.call(_close, lambda _: stopped())

    def _become(self, state: WayState) -> None:
        if self.state is not state:
            self.state = state
            self.serving = state is WayState.SERVING
            if self.serving:
                self._watch_patience()
            self._memory.availability_changed()

    def _next_retry_ms(self) -> int:
        delay_ms, self._retry_ms = self._retry_ms, min(self._retry_ms * 2, RETRY_MAX_MS)
        return delay_ms


def why_unread(outcome: object) -> BusError:
    """What whoever asked is told of a read that gave nothing."""
    if isinstance(outcome, DataDamaged):
        return BusError(DATA_DAMAGED, detail=outcome)
    return BusError(SERVER_BUSY)


def _nothing(_: BusError | None) -> None:
    """An answer that nobody waits for."""


class _Commit:
    """Runs in the store's thread: commits, and looks how much room is left."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __call__(self, store: MessagingStore) -> int | None:
        store.commit(self._batch)
        try:
            return store.free_bytes()
        except StoreError:
            return None  # the commit is durable, whatever else the store cannot tell (D-3)


def _reopen(store: MessagingStore) -> Opened:
    store.close()  # a handle whose sync failed is never used again (D-3)
    return store.open()


def _close(store: MessagingStore) -> None:
    store.close()
