"""A message as brokers and stores keep it (MSG-1 to MSG-7).

The body is never decoded: `bare` is what the sender sent, properties to footer, as bytes. What the
broker adds on the way out (delivery count, sequence number, times) are plain fields here, and what
settlements change in the application properties waits in `changes` until the next delivery.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

PARTITION_SHIFT = 48
"""A sequence number's high 16 bits name the partition, the low 48 count within it (P-31, SEQ-2)."""

COUNTER_MASK = (1 << PARTITION_SHIFT) - 1


class MessageState(IntEnum):
    """The states that are stored, with their numbers on the wire (MSG-1)."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


ACTIVE = MessageState.ACTIVE
DEFERRED = MessageState.DEFERRED
SCHEDULED = MessageState.SCHEDULED
"""For what happens to every message: a global costs a tenth of a look into an enumeration."""


class Message:
    """One stored message. Mutable, because a queue holds many of them; owned by one partition."""

    __slots__ = (
        "annotation_items",
        "annotations",
        "bare",
        "body_id",
        "changes",
        "copies",
        "dead_letter_source",
        "delivery_count",
        "destination",
        "digest",
        "enqueued_ms",
        "enqueued_number",
        "expires_ms",
        "header",
        "hops",
        "lock_token",
        "locked_until_ms",
        "number",
        "session_id",
        "size",
        "staged",
        "state",
        "ttl_ms",
    )

    def __init__(
        self,
        *,
        bare: bytes,
        size: int,
        header: int = 0,
        ttl_ms: int | None = None,
        annotations: bytes = b"",
        annotation_items: int = 0,
        session_id: str | None = None,
        number: int = 0,
        enqueued_ms: int = 0,
        expires_ms: int | None = None,
        delivery_count: int = 0,
        state: MessageState = MessageState.ACTIVE,
        changes: bytes | None = None,
        enqueued_number: int = 0,
        body_id: int | None = None,
        hops: int = 0,
        dead_letter_source: str | None = None,
        destination: str | None = None,
    ) -> None:
        self.bare = bare
        """Properties, application properties, body and footer, as the sender encoded them."""
        self.size = size
        """Bytes that count against quotas: the whole encoded message as it came."""
        self.header = header
        """durable, first-acquirer and priority, packed by `amqp.sections` (opaque elsewhere)."""
        self.ttl_ms = ttl_ms
        """The time to live that the sender asked for; None if it did not (TTL-1)."""
        self.annotations = annotations
        """The sender's message annotations: encoded keys and values, without the map around."""
        self.annotation_items = annotation_items
        """How many encoded items `annotations` holds (two to a pair)."""
        self.session_id = session_id
        self.number = number
        self.enqueued_ms = enqueued_ms
        self.expires_ms = expires_ms
        """When it expires (TTL-3), or, while it is scheduled, becomes active; None for never."""
        self.delivery_count = delivery_count
        self.state = state
        self.changes = changes
        """Application properties set by settlements, as an encoded AMQP map; None for none."""
        self.enqueued_number = enqueued_number
        """The number that it had where it was sent to: a topic, a forwarding queue (SEQ-6)."""
        self.body_id = body_id
        """Set if `bare` is stored once for several messages (D-30)."""
        self.hops = hops
        """How often it was forwarded (FWD-3)."""
        self.dead_letter_source = dead_letter_source
        """Where it was dead-lettered, once it was forwarded from there (DLQ-4)."""
        self.destination = destination
        """In a transfer queue: the path of the entity that it is on its way to (D-27)."""

        self.digest: bytes | None = None
        """Of its message id, where duplicates are detected; the history keeps it (DUP-2)."""

        # What follows lives in the owner's memory only and is void after a restart (D-5).
        self.lock_token: bytes | None = None
        self.locked_until_ms = 0
        self.staged: object | None = None
        """The stage of the command that marked it: leave it alone until that is committed (D-1)."""
        self.copies: tuple[object, list[Any]] | None = None
        """What it becomes in the subscriptions of a topic, computed ahead of its commit for this
        partition (`broker.fan_outs`)."""

    def __repr__(self) -> str:
        return f"<Message {self.number} {self.state.name.lower()} {self.size} B>"


def sequence_number(partition: int, counter: int) -> int:
    return partition << PARTITION_SHIFT | counter


def partition_of(number: int) -> int:
    return number >> PARTITION_SHIFT


def counter_of(number: int) -> int:
    return number & COUNTER_MASK
