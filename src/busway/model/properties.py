"""What each property of an entity may be, and whether it may change: the table of DFT.

One row per property, for queues, topics and subscriptions alike; a row applies to the entities that
have its field. The management faces and configuration files read and write by this table too, so a
property is described once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from busway.model import limits
from busway.model.durations import format_iso
from busway.model.entities import Entity, EntityStatus, Queue, Subscription, Topic
from busway.model.errors import PROPERTY_IMMUTABLE, PROPERTY_INVALID, BusError
from busway.model.limits import DEFAULT_TIER, TIERS, Tier, TierLimits
from busway.model.names import (
    QUEUE_NAME,
    SUBSCRIPTION_NAME,
    TOPIC_NAME,
    check_name,
    resource_path,
)

AnyEntity = TypeVar("AnyEntity", bound=Entity)


class Kind(Enum):
    FLAG = "true or false"
    COUNT = "a whole number"
    SPAN = "a duration"
    STATUS = "a status"
    TEXT = "text"
    PATH = "the name of a queue or topic"


@dataclass(frozen=True, slots=True)
class Property:
    field: str
    """Its name on the data classes of `entities.py`."""
    wire: str
    """Its name at the service."""
    kind: Kind
    mutable: bool = True
    least: int | None = None
    most: int | None = None
    """Bounds of a number or span, of the length of a text. An unlimited span is above any `least`
    and allowed where there is no `most`."""
    setting: str = ""
    """Its name in our configuration files, where it is not just `wire` in snake case."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which configuration files may call it, the preferred one first."""
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.wire).lower()
        return (self.setting, snake) if self.setting else (snake,)


PROPERTIES = (
    Property(
        "lock_duration_ms",
        "LockDuration",
        Kind.SPAN,
        least=limits.LOCK_DURATION_MIN_MS,
        most=limits.LOCK_DURATION_MAX_MS,
    ),
    Property("max_size_mb", "MaxSizeInMegabytes", Kind.COUNT, setting="max_size_mb"),
    Property("max_message_size_kb", "MaxMessageSizeInKilobytes", Kind.COUNT),
    Property("enable_partitioning", "EnablePartitioning", Kind.FLAG, False, setting="partitioned"),
    Property("requires_session", "RequiresSession", Kind.FLAG, False),
    Property("requires_duplicate_detection", "RequiresDuplicateDetection", Kind.FLAG, False),
    Property(
        "duplicate_window_ms",
        "DuplicateDetectionHistoryTimeWindow",
        Kind.SPAN,
        least=limits.DUPLICATE_WINDOW_MIN_MS,
        most=limits.DUPLICATE_WINDOW_MAX_MS,
    ),
    Property(
        "default_ttl_ms",
        "DefaultMessageTimeToLive",
        Kind.SPAN,
        least=limits.TIME_TO_LIVE_MIN_MS,
    ),
    Property("dead_lettering_on_expiration", "DeadLetteringOnMessageExpiration", Kind.FLAG),
    Property(
        "dead_lettering_on_filter_errors", "DeadLetteringOnFilterEvaluationExceptions", Kind.FLAG
    ),
    Property(
        "max_delivery_count",
        "MaxDeliveryCount",
        Kind.COUNT,
        least=limits.DELIVERY_COUNT_MIN,
        most=limits.DELIVERY_COUNT_MAX,
    ),
    Property("enable_batched_operations", "EnableBatchedOperations", Kind.FLAG),
    Property("enable_express", "EnableExpress", Kind.FLAG),
    Property("support_ordering", "SupportOrdering", Kind.FLAG),
    Property("status", "Status", Kind.STATUS),
    Property(
        "auto_delete_on_idle_ms", "AutoDeleteOnIdle", Kind.SPAN, least=limits.AUTO_DELETE_MIN_MS
    ),
    Property("forward_to", "ForwardTo", Kind.PATH),
    Property("forward_dead_letters_to", "ForwardDeadLetteredMessagesTo", Kind.PATH),
    Property("user_metadata", "UserMetadata", Kind.TEXT, most=limits.USER_METADATA_MAX_CHARS),
)

EXPRESS = next(row for row in PROPERTIES if row.field == "enable_express")
CAPTURE = Property("capture", "Capture", Kind.FLAG)
OWN_PROPERTIES = (CAPTURE,)
"""What the service does not have. Its own faces do not show these, so that no client library meets
an element that it does not know; our configuration files, command line and HTTP do."""
OWN_FIELDS = ("capture", "capture_limits")
"""What entities have for these, and what no request of the service changes."""

FORWARDS = tuple(row for row in PROPERTIES if row.kind is Kind.PATH)
PARTITIONING = next(row for row in PROPERTIES if row.field == "enable_partitioning")

STATUSES = {
    Queue: tuple(EntityStatus),
    Topic: (EntityStatus.ACTIVE, EntityStatus.DISABLED, EntityStatus.SEND_DISABLED),
    Subscription: (EntityStatus.ACTIVE, EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED),
}
"""STA-1."""


def properties_of(entity_class: type[Entity]) -> tuple[Property, ...]:
    """The rows that apply to a kind of entity."""
    return tuple(row for row in PROPERTIES if row.field in entity_class.__dataclass_fields__)


def own_properties_of(entity_class: type[Entity]) -> tuple[Property, ...]:
    """The rows beyond those of the service that apply to a kind of entity."""
    return tuple(row for row in OWN_PROPERTIES if row.field in entity_class.__dataclass_fields__)


def show(row: Property, value: object) -> str:
    """A value as a person would write it."""
    if row.kind is Kind.SPAN:
        return "unlimited" if value is None else format_iso(int(str(value)))
    if row.kind is Kind.FLAG:
        return "true" if value else "false"
    if isinstance(value, EntityStatus):
        return value.value
    return "nothing" if value is None else str(value)


def normalise(entity: AnyEntity) -> AnyEntity:
    """The entity that a description stands for: what follows from other properties is put right.

    Client libraries name the destination of a forward by its whole address; a partitioned topic has
    no order (DFT).
    """
    changes: dict[str, Any] = {}
    if isinstance(entity, Topic):
        changes["support_ordering"] = entity.support_ordering and not entity.enable_partitioning
    else:
        for row in FORWARDS:
            changes[row.field] = resource_path(getattr(entity, row.field) or "") or None
    return replace(entity, **changes)


def validate(entity: Entity, tier: Tier = DEFAULT_TIER) -> None:
    """Raise `BusError` for the first thing that an entity of this tier may not be."""
    match entity:
        case Queue():
            check_name(QUEUE_NAME, entity.path)
        case Topic():
            check_name(TOPIC_NAME, entity.path)
        case Subscription():
            check_name(TOPIC_NAME, entity.topic)
            check_name(SUBSCRIPTION_NAME, entity.name)
    for row in properties_of(type(entity)):
        value = getattr(entity, row.field)
        if (allowed := _objection(row, value, type(entity), TIERS[tier])) is not None:
            raise refused(entity, row, allowed)
    if (
        not isinstance(entity, Subscription)
        and entity.enable_express
        and entity.requires_duplicate_detection
    ):
        raise refused(entity, EXPRESS, "it cannot be combined with RequiresDuplicateDetection")


def refused(entity: Entity, row: Property, allowed: str) -> BusError:
    """An entity cannot have the value that it has; `allowed` says what it may be."""
    return BusError(
        PROPERTY_INVALID,
        entity_type=entity.entity_type.lower(),
        path=entity.path,
        property=row.wire,
        value=show(row, getattr(entity, row.field)),
        allowed=allowed,
    )


def _objection(
    row: Property, value: object, entity_class: type[Entity], tier: TierLimits
) -> str | None:
    """What is allowed instead of this value; None if it is fine."""
    offered = {
        "requires_session": tier.sessions,
        "requires_duplicate_detection": tier.duplicate_detection,
        "forward_to": tier.forwarding,
        "forward_dead_letters_to": tier.forwarding,
    }
    if value and not offered.get(row.field, True):
        return "the tier of the namespace does not have it"
    if row.field == "max_size_mb" and value not in tier.entity_sizes_mb:
        return f"it may be {_either(tier.entity_sizes_mb)}"
    if row.field == "max_message_size_kb" and value is not None:
        least, most = tier.message_max_kb_choice
        if not least <= int(str(value)) <= most:
            return f"it must be {least}" if least == most else f"it must be {least} to {most}"
    if row.kind is Kind.STATUS and value not in STATUSES[entity_class]:
        return f"it may be {_either(status.value for status in STATUSES[entity_class])}"
    measured = len(value) if isinstance(value, str) else value
    if row.kind is Kind.SPAN and value is None and row.most is not None:
        return f"it must be {_range(row)}"
    if isinstance(measured, int) and not (
        (row.least is None or measured >= row.least) and (row.most is None or measured <= row.most)
    ):
        return f"it must be {_range(row)}"
    return None


def _range(row: Property) -> str:
    def bound(value: int | None) -> str:
        return show(row, value) if row.kind is Kind.SPAN else str(value)

    if row.kind is Kind.TEXT:
        return f"at most {row.most} characters long"
    if row.most is None:
        return f"at least {bound(row.least)}"
    return f"{bound(row.least)} to {bound(row.most)}"


def _either(choices: Iterator[str] | tuple[int, ...]) -> str:
    words = [str(choice) for choice in choices]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def changed_immutable(old: Entity, new: Entity) -> tuple[Property, ...]:
    """The properties that differ although they are fixed at creation (P-10, SES-1, DUP-1). One that
    the new description leaves open does not."""
    return tuple(
        row
        for row in properties_of(type(old))
        if not row.mutable
        and getattr(new, row.field) is not None
        and getattr(old, row.field) != getattr(new, row.field)
    )


def check_update(old: Entity, new: Entity, tier: Tier = DEFAULT_TIER) -> None:
    """Raise `BusError` if `old` may not become `new`."""
    for row in changed_immutable(old, new):
        raise BusError(
            PROPERTY_IMMUTABLE,
            property=row.wire,
            entity_type=old.entity_type.lower(),
            path=old.path,
            old=show(row, getattr(old, row.field)),
            new=show(row, getattr(new, row.field)),
        )
    validate(new, tier)
