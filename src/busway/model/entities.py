"""Entities with all their properties and defaults (semantics section 19, DFT).

Only data: what a property may be, and whether it may change, is the table in `properties.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from busway.model.durations import MINUTE_MS
from busway.model.limits import (
    DEFAULT_TIER,
    KIB,
    MIB,
    PARTITIONS_OF_PARTITIONED,
    TIERS,
    Tier,
)
from busway.model.names import SUBSCRIPTIONS_NODE, name_key
from busway.model.retention import NO_LIMITS, OwnLimits


class EntityStatus(Enum):
    """STA-1. The transitional states of the service (STA-3) never occur here."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


# --- Access --------------------------------------------------------------------------------------


ALL_RIGHTS = ("Manage", "Send", "Listen")
"""In the order and the words of the service. Manage implies the others (amqp.md section 18)."""


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A name and its keys: who knows a key has the rights, on what the rule belongs to."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False)
    secondary_key: str | None = field(default=None, repr=False)
    created_ms: int = 0
    updated_ms: int = 0


ROOT_RULE_NAME = "RootManageSharedAccessKey"
DEFAULT_NAMESPACE = "busway"
"""The name of the one that is meant where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A tenant: a tier and the access rules that hold for all of its entities."""

    name: str = DEFAULT_NAMESPACE
    tier: Tier = DEFAULT_TIER
    partitions: int = 1
    """Of each of its entities, if there are more than one (P-14); 1: the namespace as such is not
    partitioned."""
    partitions_stated: bool = False
    """It was made with a number of partitions, as the service has it today, be it 1 (P-14). Before
    that there was no such number, and the flag of an entity had no effect (P-13)."""
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    created_ms: int = 0
    updated_ms: int = 0


# --- Entities ------------------------------------------------------------------------------------


class Course(Enum):
    """Which way a migration goes."""

    THERE = "there"
    CALLED_OFF = "called off"
    """On to its end, because only whole can it come back in order; and then back."""
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Migration:
    """What an entity and its twin both keep while the one is emptied into the other. A topic's
    subscriptions have one each, with their own twins."""

    source: int
    """The incarnation that has the path."""
    twin: int
    """The one that is to have it in the end."""
    status: EntityStatus
    """What the entity was before it was stopped, and is again when it is over."""
    captured: bool = False
    """Whether it was captured for its own sake, and not only for this."""
    course: Course = Course.THERE

    @property
    def giver(self) -> int:
        """The incarnation whose messages go."""
        return self.twin if self.course is Course.BACK else self.source

    @property
    def taker(self) -> int:
        """The one that they go to."""
        return self.source if self.course is Course.BACK else self.twin


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue as the catalog keeps it: one incarnation, one version (D-16)."""

    path: str
    incarnation: int = 0
    version: int = 1
    placement: tuple[str, ...] = ()
    """The store ids of its partitions, in order (D-14). Conventional: one (P-2)."""
    created_ms: int = 0
    updated_ms: int = 0

    enable_partitioning: bool | None = None
    """None in a description: as the namespace has it (P-13, P-14). What the catalog gives is
    never None."""
    lock_duration_ms: int = MINUTE_MS
    max_delivery_count: int = 10
    default_ttl_ms: int | None = None
    """None: messages live for ever unless they say otherwise."""
    dead_lettering_on_expiration: bool = False
    max_size_mb: int = 1024
    """Of each partition (D-17)."""
    max_message_size_kb: int | None = None
    """None in a description: as the tier has it (LIM-1)."""
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 10 * MINUTE_MS
    enable_batched_operations: bool = True
    enable_express: bool = False
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle_ms: int | None = None
    """None: never."""
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    capture: bool = False
    """Whether its journal is kept: what happens to its messages, in order (D-31)."""
    captured_ms: int = 0
    """Since when, without a break; the catalog writes it."""
    capture_limits: OwnLimits = NO_LIMITS
    """How much of its journal is kept, where that is not as the server has it."""
    migration: Migration | None = None
    """While its messages are moved to or from another incarnation of it."""
    folds_session_ids: bool = False
    """Whether session ids that differ only in case are the same session (SES-13). The catalog
    writes it: True, but for entities that are older than the rule."""

    entity_type = "Queue"
    """The word of the service's texts."""

    @property
    def key(self) -> str:
        return name_key(self.path)

    @property
    def max_size_bytes(self) -> int:
        return self.max_size_mb * MIB

    @property
    def max_message_size_bytes(self) -> int:
        return _message_size_bytes(self.max_message_size_kb)

    @property
    def partitions(self) -> int:
        return len(self.placement) or partitions_of(self.enable_partitioning)

    @property
    def total_size_mb(self) -> int:
        """The maximum size that is shown: of all partitions together (P-15)."""
        return self.max_size_mb * self.partitions

    @property
    def support_ordering(self) -> bool:
        return not self.enable_partitioning


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    path: str
    incarnation: int = 0
    version: int = 1
    placement: tuple[str, ...] = ()
    created_ms: int = 0
    updated_ms: int = 0

    enable_partitioning: bool | None = None
    default_ttl_ms: int | None = None
    max_size_mb: int = 1024
    max_message_size_kb: int | None = None
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 10 * MINUTE_MS
    enable_batched_operations: bool = True
    enable_express: bool = False
    support_ordering: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle_ms: int | None = None
    user_metadata: str | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    capture: bool = False
    captured_ms: int = 0
    capture_limits: OwnLimits = NO_LIMITS
    migration: Migration | None = None
    folds_session_ids: bool = False

    entity_type = "Topic"

    @property
    def key(self) -> str:
        return name_key(self.path)

    @property
    def max_size_bytes(self) -> int:
        return self.max_size_mb * MIB

    @property
    def max_message_size_bytes(self) -> int:
        return _message_size_bytes(self.max_message_size_kb)

    @property
    def partitions(self) -> int:
        return len(self.placement) or partitions_of(self.enable_partitioning)

    @property
    def total_size_mb(self) -> int:
        return self.max_size_mb * self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Its partitions, size and access rules are its topic's."""

    topic: str
    name: str
    incarnation: int = 0
    version: int = 1
    topic_incarnation: int = 0
    placement: tuple[str, ...] = ()
    """Its topic's: a copy is stored where the message was sent to (ARCHITECTURE section 4)."""
    created_ms: int = 0
    updated_ms: int = 0

    lock_duration_ms: int = MINUTE_MS
    max_delivery_count: int = 10
    default_ttl_ms: int | None = None
    dead_lettering_on_expiration: bool = False
    dead_lettering_on_filter_errors: bool = True
    requires_session: bool = False
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle_ms: int | None = None
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    user_metadata: str | None = None
    capture: bool = False
    captured_ms: int = 0
    capture_limits: OwnLimits = NO_LIMITS
    migration: Migration | None = None
    folds_session_ids: bool = False

    entity_type = "Subscription"

    @property
    def path(self) -> str:
        return f"{self.topic}/{SUBSCRIPTIONS_NODE}/{self.name}"

    @property
    def key(self) -> str:
        return name_key(self.path)


def partitions_of(enable_partitioning: bool | None) -> int:
    """How many partitions a new entity gets outside Premium (P-2, P-12)."""
    return PARTITIONS_OF_PARTITIONED if enable_partitioning else 1


def _message_size_bytes(max_message_size_kb: int | None) -> int:
    if max_message_size_kb is None:
        return TIERS[DEFAULT_TIER].message_max_bytes
    return max_message_size_kb * KIB


Entity = Queue | Topic | Subscription


def stands_still(entity: Entity | None) -> bool:
    """Whether it is moved or being filled: nothing is sent to it or received, and time does nothing
    to its messages, so that what arrives is what was there."""
    return entity is not None and entity.migration is not None


# --- Rules of subscriptions ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlFilter:
    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrueFilter:
    expression = "1=1"


@dataclass(frozen=True, slots=True)
class FalseFilter:
    expression = "1=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """All conditions that are given must hold (COR-1)."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)


RuleFilter = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a subscription lets in, and what is done to its copy (RUL-1 to RUL-7)."""

    name: str
    filter: RuleFilter = field(default_factory=TrueFilter)
    action: str | None = None
    """An SQL action, None for none."""
    action_parameters: Mapping[str, object] = field(default_factory=dict)
    created_ms: int = 0
