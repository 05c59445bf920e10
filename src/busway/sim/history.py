"""What clients did and saw, in order: the only thing that most checkers look at (D-35).

An event is something a client of the real product could have written down, with a virtual clock
beside it. The history passes each to the checkers and keeps a digest of all of them: the same seed
must give the same digest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any, Protocol

from busway.broker.seams import SettlementKind
from busway.model.entities import Queue, Subscription
from busway.store.base import SubQueueKey


class Violation(AssertionError):  # noqa: N818
    """A promise was broken: which checker says so, and what it saw."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")


class Answer(Enum):
    """How a command ended for the client that gave it."""

    DONE = "done"
    REFUSED = "refused"
    """Certainly not done."""
    UNKNOWN = "unknown"
    """Nobody will ever tell: the connection or the process is gone, or said so."""


Holder = Queue | Subscription
"""What messages can be received from."""


@dataclass(frozen=True, slots=True)
class QueueCreated:
    queue: Holder


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    incarnation: int


@dataclass(frozen=True, slots=True)
class QueueDisabled:
    """It takes nothing that is forwarded, for a while (FWD-4)."""

    path: str


@dataclass(frozen=True, slots=True)
class SendStarted:
    send: int
    incarnation: int
    bodies: tuple[int, ...]
    """Every message that is ever sent has a number of its own as its body; one that is sent again,
    because nobody knows how the first time ended, keeps it (DUP-3)."""
    sizes: tuple[int, ...]
    ttl_ms: int | None
    partition: int | None
    """The partition that its key says, None if any will do."""
    key: str | None = None
    session_id: str | None = None
    due_ms: int | None = None
    """When it becomes active, if it is scheduled."""
    destination: str | None = None
    """Where a transaction sends it, by way of the entity (TXN-3)."""
    has_ids: bool = False
    """Whether the entity may drop some of it as duplicates."""


@dataclass(frozen=True, slots=True)
class SendEnded:
    send: int
    answer: Answer
    is_over_quota: bool = False
    """Refused because the entity is full."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message in a client's hands; settled already if `token` is None (receive-and-delete)."""

    receiver: str
    key: SubQueueKey
    body: int
    number: int
    delivery_count: int
    enqueued_ms: int
    token: bytes | None
    locked_until_ms: int
    epoch: int
    """Of the store when it was locked, or removed: another one means that locks were lost."""
    disturbances: int
    """Of the store's broker so far."""
    deferred: bool
    properties: tuple[tuple[str, Any], ...] = ()
    holding: int | None = None
    """Of the session that it came from."""


@dataclass(frozen=True, slots=True)
class SettleStarted:
    settlement: int
    key: SubQueueKey
    body: int
    token: bytes
    kind: SettlementKind
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SettleEnded:
    settlement: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Renewed:
    body: int
    token: bytes
    locked_until_ms: int


@dataclass(frozen=True, slots=True)
class RemovalUnknown:
    """A receive-and-delete whose messages may be gone although nobody got them (D-6)."""

    incarnation: int
    bodies: tuple[int, ...]
    """Those that it named; empty if it named none."""
    count: int
    """How many it may have been of those that it did not name."""


@dataclass(frozen=True, slots=True)
class DeliveriesUnseen:
    """A link or its lock ended; so many messages may have been locked for it and never seen."""

    incarnation: int
    count: int


@dataclass(frozen=True, slots=True)
class PeekStarted:
    peek: int
    key: SubQueueKey
    from_number: int


@dataclass(frozen=True, slots=True)
class Peeked:
    peek: int
    bodies: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SessionAccepted:
    """Each time that somebody holds a session is a `holding` of its own (D-24)."""

    holding: int
    receiver: str
    key: SubQueueKey
    session_id: str
    locked_until_ms: int
    epoch: int
    disturbances: int


@dataclass(frozen=True, slots=True)
class SessionRenewed:
    holding: int
    locked_until_ms: int


@dataclass(frozen=True, slots=True)
class SessionLeft:
    """The holder goes, of its own will."""

    holding: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The holder is told so."""

    holding: int
    disturbances: int


@dataclass(frozen=True, slots=True)
class StateSetStarted:
    change: int
    holding: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class StateSetEnded:
    change: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class StateReadStarted:
    read: int
    holding: int


@dataclass(frozen=True, slots=True)
class StateRead:
    read: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class CancelStarted:
    cancel: int
    bodies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CancelEnded:
    cancel: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class TransactionStarted:
    """Its parts are sends and settlements like others, and each ends as it does."""

    transaction: int
    sends: tuple[int, ...]
    settlements: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    transaction: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class FaultHappened:
    """Not seen by clients; in the history so that it can be read."""

    what: str


Event = (
    QueueCreated
    | QueueDeleted
    | QueueDisabled
    | SendStarted
    | SendEnded
    | Delivered
    | SettleStarted
    | SettleEnded
    | Renewed
    | RemovalUnknown
    | DeliveriesUnseen
    | PeekStarted
    | Peeked
    | SessionAccepted
    | SessionRenewed
    | SessionLeft
    | SessionLost
    | StateSetStarted
    | StateSetEnded
    | StateReadStarted
    | StateRead
    | CancelStarted
    | CancelEnded
    | TransactionStarted
    | TransactionEnded
    | FaultHappened
)


class Checker(Protocol):
    """Looks at every event as it happens; raises `Violation`."""

    def see(self, now_ms: int, event: Event) -> None: ...


class History:
    def __init__(
        self,
        clock: Callable[[], int],
        checkers: Sequence[Checker],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._start_ms = clock()
        self._checkers = checkers
        self._tell = tell
        self._digest = blake2b(digest_size=16)
        self.length = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def record(self, event: Event) -> None:
        now_ms = self._clock()
        line = f"{now_ms - self._start_ms:>8} {event!r}"
        self._digest.update(line.encode())
        self.length += 1
        if self._tell is not None:
            self._tell(line)
        for checker in self._checkers:
            checker.see(now_ms, event)
