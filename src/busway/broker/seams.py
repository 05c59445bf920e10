"""What a broker asks of the process around it, and of the gateways that it answers.

`runtime/` fills these seams with threads, sockets and the machine's clock; `sim/` with a seeded
scheduler and virtual time (D-35). Everything is a callback: no coroutine, so that a seed replays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.message import Message
from busway.store.base import MessagingStore, StoreError, SubQueueKey, SubQueueKind

if TYPE_CHECKING:
    from busway.filters.rules import TopicRules

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Host(Protocol):
    """Time, turn-taking and randomness."""

    def now_ms(self) -> int:
        """Broker time (D-25): milliseconds since 1970, never going back."""

    def steady_ms(self) -> int:
        """For how long something lasts that has no part in broker time: the silence of a
        connection. It does not notice when broker time is moved on purpose."""

    def clock_ms(self) -> int:
        """The machine's clock, read now. It may be set forward and back, so only what others have
        dated by their own clocks is judged by it: tokens."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call once, after what is running now and before anything is waited for."""

    def next_round(self, callback: Callable[[], None]) -> None:
        """Call once, after everybody else had a turn: what is called for by `soon`, and whoever
        has sent something."""

    def at(self, due_ms: int, callback: Callable[[], None]) -> Timer:
        """Call once, when broker time has reached `due_ms`."""

    def random_bytes(self, count: int) -> bytes: ...


class StorePort(Protocol):
    """The way to a store: its calls block, so somebody else makes them, in order (D-11)."""

    def call(
        self, operation: Callable[[MessagingStore], T], done: Callable[[T | StoreError], None]
    ) -> None:
        """Run `operation` on the store after all earlier ones; hand its outcome to `done`."""

    def busy_ms(self) -> int:
        """How long the store has been at the call that it is at; 0 if it is at none."""


class Entities(Protocol):
    """What the catalog knows, by incarnation; the newest version, None once deleted (D-16)."""

    def get(self, incarnation: int) -> Entity | None: ...

    def topic_rules(self, incarnation: int) -> TopicRules:
        """The rules of all its subscriptions, compiled; raises *not found* once it is deleted."""

    def carry_out(
        self, store_id: str, transaction_id: bytes, orders: bytes, now_ms: int = 0
    ) -> None:
        """What a committed transaction wants done there; once, however often it is asked for, and
        until it is forgotten (D-28). Raises *server busy* if it has to be asked for again."""

    def forget_carried_out(self, store_id: str, transaction_id: bytes) -> None: ...

    def keep_carried_out(self, store_id: str, asked_for: Collection[bytes]) -> None:
        """Forget all but these."""


class TransferSource(NamedTuple):
    """Where a transfer comes from (D-27)."""

    incarnation: int
    partition: int


class SessionStateMove(NamedTuple):
    """The state of a session, on its way to the twin of its entity (SES-10)."""

    session_id: str
    state: bytes | None
    updated_ms: int
    name: str | None = None


class Exchange(Protocol):
    """The way from one entity to another, whoever owns the destination (D-27)."""

    def destination(self, source: TransferSource, message: Message) -> SubQueueKey:
        """The partition that this message goes to: by key, else by number; never another one.

        Raises *not found* if there is no such entity in the namespace of the source.
        """

    def transfer(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: list[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        """Hand them over, all or none. An error that is not retryable is definite (FWD-4)."""

    # From an entity to its twin (`moving.py`).

    def twin_path(self, source: TransferSource) -> str: ...

    def in_twin(self, source: TransferSource, kind: SubQueueKind, message: Message) -> SubQueueKey:
        """Where in the twin a message goes; raises *not found* if there is none."""

    def session_in_twin(self, source: TransferSource, session_id: str) -> SubQueueKey: ...

    def move(
        self,
        key: SubQueueKey,
        source: TransferSource,
        messages: list[Message],
        done: Callable[[BusError | None], None],
    ) -> None:
        """Hand them over as they are, all or none."""

    def move_states(
        self,
        key: SubQueueKey,
        source: TransferSource,
        states: list[SessionStateMove],
        done: Callable[[BusError | None], None],
    ) -> None: ...


class Replies(Protocol):
    """Where answers to staged commands go: one per link or request channel of a gateway.

    A tag is the gateway's own number for the command. Calls arrive after the commit (MSG-2), many
    tags in one call (D-10).
    """

    def committed(self, tags: list[int]) -> None: ...

    def failed(self, tag: int, error: BusError) -> None:
        """`error.refused` says that nothing was stored for certain: it may go elsewhere (D-4)."""


class SettlementKind(Enum):
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"
    RELEASE = "release"

    __hash__ = object.__hash__  # an enumeration's own is Python, and asked for every settlement


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a client decided about a locked message (amqp.md section 10)."""

    kind: SettlementKind
    changes: dict[str, Any] = field(default_factory=dict)
    """Application properties to set; a dead letter has its reason and description among them."""


class Receiver(Protocol):
    """A gateway's receiving link, as a partition sees it (D-22)."""

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        """Locked messages (peek-lock) or messages whose removal is committed (D-6)."""

    def finished(self, grant: Grant) -> None:
        """Nothing more comes on this grant: it is used up, recalled, or the partition is empty."""


class SessionHolder(Protocol):
    """A gateway's session receiver."""

    def session_ready(self) -> None:
        """The session may have something to give."""

    def session_lost(self, error: BusError) -> None:
        """The lock has run out, or is void because its store was lost."""


class SessionLock:
    """A session held by somebody. A new one is a new generation: old ones are never valid again."""

    __slots__ = (
        "held",
        "holder",
        "key",
        "locked_until_ms",
        "name",
        "ran_out",
        "removing",
        "session_id",
        "valid",
    )

    def __init__(
        self,
        key: SubQueueKey,
        session_id: str,
        holder: SessionHolder,
        locked_until_ms: int,
        name: str | None = None,
    ) -> None:
        self.key = key
        self.session_id = session_id
        """As brokers and stores know the session, by which its messages are found (SES-13)."""
        self.name = session_id if name is None else name
        """As its holder asked for it, or, if it asked for any, as the session was first spelt."""
        self.holder = holder
        self.locked_until_ms = locked_until_ms
        self.valid = True
        self.ran_out = False
        """How it ended: by its time (SES-8), not because its holder left (SES-9)."""
        self.held: dict[bytes, Message] = {}
        """Delivered under it and not settled, by lock token (SES-5)."""
        self.removing = 0
        """Messages that its holder receives and deletes, and whose removal is being committed."""


class Grant:
    """A part of a link's credit, lent to one sub-queue: it may deliver `left` messages (D-22)."""

    __slots__ = ("delete", "key", "left", "receiver", "reserved", "session")

    def __init__(
        self,
        receiver: Receiver,
        key: SubQueueKey,
        limit: int,
        *,
        delete: bool,
        session: SessionLock | None = None,
    ) -> None:
        self.receiver = receiver
        self.key = key
        self.session = session
        """The session that its messages come from, where the entity has sessions."""
        self.left = limit
        self.delete = delete
        """Receive-and-delete: reserved first, delivered when its removal is committed (D-6)."""
        self.reserved = 0
        """Messages of it whose removal is being committed."""


class Watcher(Protocol):
    """A gateway's fan-in, told when a sub-queue may have something to give (P-26)."""

    def ready(self, key: SubQueueKey) -> None: ...
