"""The contract that every messaging store keeps.

A store holds *sub-queues* (`SubQueueKey`: the main queue, dead-letter queue, ... of one partition
of one incarnation of an entity) and the messages in them. Its owner, a broker, changes it only by
`commit`, one batch at a time, numbered without gaps. All calls block; the runtime makes them in
the store's own thread, one after the other, so a read sees every commit submitted before it (D-11).

Outcomes of a commit (D-3): it returns, and then it is durable; or it raises
`CommitRefused` (certainly not there), `CommitUnknown` (nobody knows: close, open again and compare
`commit_number`) or `StoreFenced` (another owner has opened the store; never use this one again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from busway.model.message import Message, MessageState
from busway.model.names import SubQueueKind as SubQueueKind
from busway.store.ailments import Ailment
from busway.store.journal import (
    JournalHandle,
    JournalHead,
    JournalHold,
    JournalRecord,
    JournalSize,
    JournalTrim,
)

READ_ROWS_MAX = 1_000
READ_BYTES_MAX = 4 * 1024 * 1024
"""Each read is a short transaction of at most this many rows or bytes (D-11)."""


class StoreError(Exception):
    """Anything a store says instead of doing what it was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be opened or read now. Nothing was changed."""

    def __init__(self, text: str, ailment: Ailment | None = None) -> None:
        super().__init__(text)
        self.ailment = ailment
        """What is wrong with its file, if that is why."""


class DataDamaged(StoreError):
    """What was asked for is damaged on the disk, and is not given out. The store goes on."""


class CommitRefused(StoreError):
    """The batch is certainly not in the store; a full disk, for example."""


class CommitUnknown(StoreError):
    """The batch may or may not be in the store. Close, open, and look at `commit_number`."""


class StoreFenced(StoreError):
    """Another owner holds a newer epoch. This handle may neither write nor answer (D-18)."""


class SubQueueKey(NamedTuple):
    """Names one sub-queue for all time: an incarnation is never reused (D-16)."""

    incarnation: int
    partition: int
    kind: SubQueueKind


@dataclass(slots=True)
class Counters:
    """What is in a sub-queue, exactly; a row of its own, updated in each commit (D-13)."""

    next_counter: int = 1
    """The next sequence number's low 48 bits. Only the main sub-queue numbers messages."""
    active: int = 0
    deferred: int = 0
    scheduled: int = 0
    bytes: int = 0
    """Sum of `Message.size` over all states."""

    def copy(self) -> Counters:
        return Counters(self.next_counter, self.active, self.deferred, self.scheduled, self.bytes)


class SessionCount(NamedTuple):
    """How many active messages a session has. A session without any, and without a state, is
    forgotten."""

    slot: int
    session_id: str
    active: int
    name: str | None = None
    """How the session is spelt, where that is not how it is kept (SES-13); of a session that is
    known already it does not count."""


class SessionState(NamedTuple):
    """A session's state (SES-10); None clears it."""

    slot: int
    session_id: str
    state: bytes | None
    updated_ms: int
    name: str | None = None
    """As of a `SessionCount`."""


class SessionRecord(NamedTuple):
    """One session as `open` finds it; `updated_ms` is None if it has no state."""

    slot: int
    session_id: str
    active: int
    updated_ms: int | None
    state_bytes: int
    name: str | None = None


class DuplicateMark(NamedTuple):
    """A message id that was accepted, as a digest, and until when it counts (DUP-1)."""

    slot: int
    digest: bytes
    until_ms: int


class TransferMark(NamedTuple):
    """The last transfer that a destination partition took from a source partition (D-27)."""

    slot: int
    source_incarnation: int
    source_partition: int
    number: int


class TransactionMark(NamedTuple):
    """A transaction that was carried out, kept for a while so that none is carried out twice.

    One with `orders` is kept, whatever the time, until a mark without takes its place.
    """

    transaction_id: bytes
    until_ms: int
    orders: bytes | None = None
    """What it wants done in the catalog, and nobody has confirmed yet (D-28)."""


@dataclass(frozen=True, slots=True)
class SubQueueRecord:
    """One sub-queue as `open` finds it. `slot` is its short number within this store."""

    slot: int
    key: SubQueueKey
    counters: Counters


class Delete(NamedTuple):
    slot: int
    number: int


class Update(NamedTuple):
    """A message that stays where it is: its new state, count, expiry and changes."""

    slot: int
    number: int
    state: MessageState
    delivery_count: int
    expires_ms: int | None
    changes: bytes | None


class Move(NamedTuple):
    """A message that goes to another place in the same store, keeping its body (DLQ-2).

    All that `moved` says may differ from before, but for its `bare`, `size`, header, annotations,
    session and `body_id`: a store need not write those again.
    """

    slot: int
    number: int
    to_slot: int
    moved: Message


@dataclass(slots=True)
class Batch:
    """All that one commit does. No message is named twice in one batch (D-1)."""

    number: int
    """Dense: one more than the last committed batch's."""
    time_ms: int = 0
    """Broker time when it was closed; a store never forgets the largest (D-25)."""
    sub_queues: list[tuple[int, SubQueueKey]] = field(default_factory=list)
    """Sub-queues used for the first time, with the slots that the owner chose for them."""
    puts: list[tuple[int, Message]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    counters: dict[int, Counters] = field(default_factory=dict)
    """By slot: the counters as they are once this batch is in."""
    bodies: list[tuple[int, bytes]] = field(default_factory=list)
    """Bodies that several messages share (D-30): a put with a `body_id` has its `bare` here, in the
    same batch. A store forgets a shared body in the commit that removes its last message; until
    then no other may have its id."""
    session_counts: list[SessionCount] = field(default_factory=list)
    session_states: list[SessionState] = field(default_factory=list)
    duplicates: list[DuplicateMark] = field(default_factory=list)
    """New ones; those whose time is over at `time_ms` may be forgotten by the store at any time."""
    transfers: list[TransferMark] = field(default_factory=list)
    transactions: list[TransactionMark] = field(default_factory=list)
    journal: list[JournalRecord] = field(default_factory=list)
    """New rows. One that carries a message counts as a copy of its body: of one in `bodies`, or of
    one that an earlier commit brought and some message still has."""
    journal_heads: dict[int, JournalHead] = field(default_factory=dict)
    """By slot: the heads as they are once this batch is in."""
    trims: list[JournalTrim] = field(default_factory=list)
    holds: list[JournalHold] = field(default_factory=list)
    purges: list[int] = field(default_factory=list)
    """Slots whose incarnation has a tombstone: forget up to `PURGE_ROWS` rows of each (D-16).

    Messages go first. Once a slot has none, nothing may be committed to it any more: what is left
    of its sessions and marks, and the sub-queue itself, the store forgets in later commits without
    being asked again."""


PURGE_ROWS = 1_000
FORGET_ROWS = 1_000
"""Marks whose time is over are forgotten within commits, at most so many of a kind in each."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What `open` tells the new owner. Costs by sub-queues, not by messages (D-13)."""

    store_id: str
    epoch: int
    commit_number: int
    time_ms: int
    """The largest `Batch.time_ms` ever committed."""
    sub_queues: Sequence[SubQueueRecord]
    sessions: Sequence[SessionRecord] = ()
    """By slot, in the order of their first active messages, then those without, by id (SES-7)."""
    transfers: Sequence[TransferMark] = ()
    transactions: Sequence[TransactionMark] = ()
    journal_heads: Sequence[tuple[int, JournalHead]] = ()
    holds: Sequence[JournalHold] = ()
    quarantined: int = 0
    """Damaged messages that were set aside, over all time."""


class Expiring(NamedTuple):
    """One row of the expiry index, in the order of (expires_ms, slot, number)."""

    expires_ms: int
    slot: int
    number: int


@dataclass(frozen=True, slots=True)
class ExpiryPage:
    rows: Sequence[Expiring]
    next_expires_ms: int | None
    """When the first row after these expires; None if there is none."""


class DiskRoom(Protocol):
    """Room that is kept for when the disk is full (D-9)."""

    def release(self) -> bool:
        """Make it free; whether there was any left."""

    def refill(self, free_bytes: int) -> None:
        """Keep it again, if there is enough."""


class MessagingStore(Protocol):
    """A durable place with atomic commits, held by one owner at a time."""

    def open(self) -> Opened:
        """Raise the epoch, which fences every earlier owner, and read what recovery needs.

        Raises `StoreUnavailable`.
        """

    def commit(self, batch: Batch) -> None:
        """Make the batch durable, whole or not at all."""

    def read_page(
        self,
        slot: int,
        after_number: int,
        *,
        state: MessageState | None = MessageState.ACTIVE,
        session_id: str | None = None,
        rows: int = READ_ROWS_MAX,
        size: int = READ_BYTES_MAX,
    ) -> list[Message]:
        """Messages of a sub-queue with a number above `after_number`, ascending.

        At most `rows` of them and no more once `size` bytes are reached, but always one if there
        is one. `state=None` takes all states (peek); a session id takes that session only.
        """

    def read_numbers(self, slot: int, numbers: Sequence[int]) -> list[Message]:
        """The messages of these numbers that are there, in the order asked."""

    def read_expiring(
        self, after: Expiring | None, until_ms: int, rows: int = READ_ROWS_MAX
    ) -> ExpiryPage:
        """Rows of the expiry index behind `after` that expire at or before `until_ms`.

        Active messages expire then; scheduled ones become active (SCH-1). Others are not in that
        index (TTL-7, TTL-8): whoever commits a message that must not expire commits it with
        `expires_ms=None`.
        """

    def read_session_state(self, slot: int, session_id: str) -> bytes | None: ...

    def read_duplicates(
        self, slot: int, after_digest: bytes, now_ms: int, rows: int = READ_ROWS_MAX
    ) -> list[DuplicateMark]:
        """Marks of a sub-queue that still count at `now_ms`, in the order of their digests."""

    def read_journal_sizes(self, slot: int, first: int, rows: int) -> list[JournalSize]:
        """What the rows of a journal from an offset on count for."""

    def journal_handle(self) -> JournalHandle:
        """A way to read journals beside the owner's. May be asked for in any thread, also while the
        store is not open; each handle is its caller's to close."""

    def find_duplicates(
        self, slot: int, digests: Sequence[bytes], now_ms: int
    ) -> list[DuplicateMark]:
        """Those of these marks that are there and still count at `now_ms`, in the order asked."""

    def recount(self, slot: int) -> None:
        """The owner has found other messages than the counters say. Counts them anew, and raises
        `StoreUnavailable`: the store must be opened again."""

    def free_bytes(self) -> int | None:
        """Room left on the disk, None where there is no such limit (D-9)."""

    def close(self) -> None:
        """Give up the handle. Never raises."""
