"""Quotas, with their units in their names (semantics section 18, LIM; P-12 to P-16).

What depends on the tier of a namespace is in `TIERS`; the rest are constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from busway.model.durations import DAY_MS, MINUTE_MS, SECOND_MS

KIB = 1024
MIB = 1024 * KIB

# Messages (LIM-3, LIM-15, NAM-4)
PROPERTY_SIZE_MAX_BYTES = 32 * KIB
HEADER_SIZE_MAX_BYTES = 64 * KIB
PEEK_REPLY_MAX_BYTES = 256 * KIB
KEY_MAX_CHARS = 128
"""Message id, session id and partition key each."""
DEAD_LETTER_TEXT_MAX_CHARS = 4096
"""Reason and description each (DLQ-3)."""

BATCH_MAX_COPIES = 10_000
"""Of all messages of one batch in the subscriptions of a topic. They are one commit, for which
others wait; one message alone may have as many copies as there are subscriptions."""

# Transactions (LIM-5, TXN-4)
TRANSACTION_MAX_MESSAGES = 100
TRANSACTION_MAX_MS = 2 * MINUTE_MS

# Topics and rules (LIM-6 to LIM-8)
SUBSCRIPTIONS_PER_TOPIC_MAX = 2_000
SQL_FILTERS_PER_TOPIC_MAX = 2_000
CORRELATION_FILTERS_PER_TOPIC_MAX = 100_000
FILTER_MAX_CHARS = 1024
ACTION_MAX_CHARS = 1024
ACTION_MAX_STATEMENTS = 32

# Namespaces (LIM-9, LIM-10, LIM-12)
CONNECTIONS_PER_NAMESPACE_MAX = 5_000
RECEIVES_PER_ENTITY_MAX = 5_000
ACCESS_RULES_MAX = 12

# Properties of entities (DFT, http.md section 6)
LOCK_DURATION_MIN_MS = 5 * SECOND_MS
LOCK_DURATION_MAX_MS = 5 * MINUTE_MS
DELIVERY_COUNT_MIN = 1
DELIVERY_COUNT_MAX = 2_147_483_647
"""NServiceBus makes queues with it, to count deliveries itself (DLV-4)."""
DUPLICATE_WINDOW_MIN_MS = 20 * SECOND_MS
DUPLICATE_WINDOW_MAX_MS = 7 * DAY_MS
TIME_TO_LIVE_MIN_MS = 1
AUTO_DELETE_MIN_MS = 5 * MINUTE_MS
USER_METADATA_MAX_CHARS = 1024

# Links and connections (amqp.md sections 5 and 16)
TOKEN_WAIT_MAX_MS = 20 * SECOND_MS
LINK_IDLE_MAX_MS = 10 * MINUTE_MS
CONNECTION_IDLE_MAX_MS = 5 * MINUTE_MS
SESSION_WAIT_DEFAULT_MS = MINUTE_MS

PARTITIONS_OF_PARTITIONED = 16
"""Of a partitioned entity outside Premium (P-12)."""


class Tier(Enum):
    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


@dataclass(frozen=True, slots=True)
class TierLimits:
    """What a namespace of a tier allows."""

    message_max_bytes: int
    """LIM-1, before an entity's own MaxMessageSizeInKilobytes."""
    message_max_kb_choice: tuple[int, int]
    """Least and most that MaxMessageSizeInKilobytes may say."""
    batch_max_bytes: int
    batch_max_messages: int
    """LIM-2. One batch is one commit, for which others wait, so that the bytes alone, some forty
    thousand empty messages in Premium, are no limit."""
    entity_sizes_mb: tuple[int, ...]
    """What MaxSizeInMegabytes may say, for each partition (P-12, P-13)."""
    entities_max: int | None
    partitioned_entities_max: int | None
    """P-16. None: no such quota."""
    batch_delete_max_messages: int
    topics: bool = True
    sessions: bool = True
    duplicate_detection: bool = True
    transactions: bool = True
    """TXN-7."""
    forwarding: bool = True
    entity_partitioning: bool = True
    """Whether EnablePartitioning has an effect (P-13)."""
    namespace_partitions: tuple[int, ...] = (1,)
    """What a namespace may be partitioned by as a whole (P-14)."""


_STANDARD_SIZES_MB = (1024, 2048, 3072, 4096, 5120)

_BASIC = TierLimits(
    message_max_bytes=256 * KIB,
    message_max_kb_choice=(256, 256),
    batch_max_bytes=256 * KIB,
    batch_max_messages=4_500,
    entity_sizes_mb=_STANDARD_SIZES_MB,
    entities_max=10_000,
    partitioned_entities_max=100,
    batch_delete_max_messages=500,
    topics=False,
    sessions=False,
    duplicate_detection=False,
    transactions=False,
    forwarding=False,
)
_STANDARD = TierLimits(
    message_max_bytes=256 * KIB,
    message_max_kb_choice=(256, 256),
    batch_max_bytes=256 * KIB,
    batch_max_messages=4_500,
    entity_sizes_mb=_STANDARD_SIZES_MB,
    entities_max=10_000,
    partitioned_entities_max=100,
    batch_delete_max_messages=500,
)
_PREMIUM = TierLimits(
    message_max_bytes=MIB,
    message_max_kb_choice=(1024, 100 * 1024),
    batch_max_bytes=MIB,
    batch_max_messages=10_000,
    entity_sizes_mb=(*_STANDARD_SIZES_MB, 10_240, 20_480, 40_960, 81_920),
    entities_max=None,
    partitioned_entities_max=None,
    batch_delete_max_messages=4_000,
    entity_partitioning=False,
    namespace_partitions=(1, 2, 4),
)
TIERS = {Tier.BASIC: _BASIC, Tier.STANDARD: _STANDARD, Tier.PREMIUM: _PREMIUM}
DEFAULT_TIER = Tier.STANDARD

FORWARDING_HOPS_MAX = 4
"""FWD-3."""
