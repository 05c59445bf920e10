"""The elements of queues, topics and subscriptions, in their order: one table, walked both ways.

A row says how an element is written; if it names a property, a request may set it, and what the
property may be is the table of `model/properties.py`. An element without a property is read-only:
clients send it back with updates, and it is passed over (http.md 4 and 6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from xml.etree.ElementTree import Element

from busway.http.atom.access_rules import RULES, Random, read_access_rules, write_access_rules
from busway.http.atom.instants import instant
from busway.http.atom.live import Live
from busway.http.atom.markup import COUNTS, INSTANCE, SERVICE, Markup, element
from busway.http.atom.reading import bad, children, text_of
from busway.http.atom.typed_values import read_flag
from busway.http.atom.versions import FILTER_COUNTS, FIRST, MESSAGE_SIZE, PARTITIONING
from busway.model.durations import format_iso, parse_iso
from busway.model.entities import EntityStatus, Queue, Subscription, Topic
from busway.model.limits import TIERS, Tier
from busway.model.properties import OWN_FIELDS, PROPERTIES, Kind, Property

AnyEntity = TypeVar("AnyEntity", Queue, Topic, Subscription)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the elements of one reply are made from."""

    entity: Any
    """A queue, topic or subscription: rows ask for what those that they stand for have."""
    live: Live
    authority: str
    """The host and port that the client knows; names of other entities come back with it."""


Write = Callable[[Shown], Markup | str | None]
"""The content of an element; None leaves it out."""


@dataclass(frozen=True, slots=True)
class Row:
    element: str
    write: Write
    property: Property | None = None
    """What a request says with it."""
    since: str = FIRST
    """The first api-version that has it."""
    not_after_put: bool = False
    """Left out of the replies to PUT, as the service does."""


# --- Values as texts -----------------------------------------------------------------------------


def _flag(value: object) -> str:
    return "true" if value else "false"


def _read_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise ValueError(text)
    return int(text)


READERS: dict[Kind, Callable[[str], Any]] = {
    Kind.FLAG: read_flag,
    Kind.COUNT: _read_count,
    Kind.SPAN: parse_iso,
    Kind.STATUS: EntityStatus,
}
"""Of texts that may be surrounded by spaces; the other kinds are texts themselves."""

WRITERS: dict[Kind, Callable[[Any], str]] = {
    Kind.FLAG: _flag,
    Kind.COUNT: str,
    Kind.SPAN: format_iso,
    Kind.STATUS: lambda status: str(status.value),
    Kind.TEXT: str,
}

# --- Rows ----------------------------------------------------------------------------------------

_BY_WIRE_NAME = {row.wire: row for row in PROPERTIES}


def said(name: str, since: str = FIRST) -> Row:
    """An element that is a property."""
    row = _BY_WIRE_NAME[name]
    field, write = row.field, WRITERS.get(row.kind)
    if row.kind is Kind.PATH:
        return Row(name, lambda shown: _address(shown, getattr(shown.entity, field)), row, since)
    assert write is not None
    if row.kind is Kind.TEXT:  # an empty element would read back as an empty text
        return Row(name, lambda shown: getattr(shown.entity, field), row, since)
    return Row(name, lambda shown: write(getattr(shown.entity, field)), row, since)


def told(name: str, write: Write, since: str = FIRST, *, not_after_put: bool = False) -> Row:
    """An element that only replies have."""
    return Row(name, write, None, since, not_after_put)


def always(name: str, text: str, since: str = FIRST) -> Row:
    return Row(name, lambda shown: text, None, since)


def _address(shown: Shown, path: str | None) -> str | None:
    return None if path is None else f"sb://{shown.authority}/{path}"


def _count_details(shown: Shown) -> Markup:
    """JavaScript's client takes the prefix from this very element."""
    live = shown.live
    counts = {
        "ActiveMessageCount": live.active,
        "DeadLetterMessageCount": live.dead_letter,
        "ScheduledMessageCount": live.scheduled,
        "TransferMessageCount": live.transfer,
        "TransferDeadLetterMessageCount": live.transfer_dead_letter,
    }
    inner = [element(f"d2p1:{name}", str(count)) for name, count in counts.items()]
    return element("CountDetails", inner, {"xmlns:d2p1": COUNTS})


def _max_size(shown: Shown) -> str:
    return str(shown.entity.total_size_mb)


SIZE = Row("MaxSizeInMegabytes", _max_size, _BY_WIRE_NAME["MaxSizeInMegabytes"])
"""Shown for all partitions together (P-15), said for each of them."""
SIZE_IN_BYTES = told("SizeInBytes", lambda shown: str(shown.live.size_bytes))
MESSAGE_COUNT = told("MessageCount", lambda shown: str(shown.live.messages))
CREATED_AT = told("CreatedAt", lambda shown: instant(shown.entity.created_ms))
UPDATED_AT = told("UpdatedAt", lambda shown: instant(shown.entity.updated_ms))
ACCESSED_AT = told("AccessedAt", lambda shown: instant(shown.live.accessed_ms), not_after_put=True)
COUNT_DETAILS = told("CountDetails", _count_details, not_after_put=True)
ACCESS_RULES = told(RULES, lambda shown: write_access_rules(shown.entity.authorization_rules))
AVAILABILITY = told(
    "EntityAvailabilityStatus",
    lambda shown: "Available" if shown.live.is_available else "Limited",  # P-43
)
ANONYMOUS = always("IsAnonymousAccessible", "false")
MESSAGE_SIZE_ROW = said("MaxMessageSizeInKilobytes", MESSAGE_SIZE)

QUEUE_ROWS = (
    said("LockDuration"),
    SIZE,
    said("RequiresDuplicateDetection"),
    said("RequiresSession"),
    said("DefaultMessageTimeToLive"),
    said("DeadLetteringOnMessageExpiration"),
    said("DuplicateDetectionHistoryTimeWindow"),
    said("MaxDeliveryCount"),
    said("EnableBatchedOperations"),
    SIZE_IN_BYTES,
    MESSAGE_COUNT,
    ANONYMOUS,
    ACCESS_RULES,
    said("Status"),
    said("ForwardTo"),
    said("UserMetadata"),
    CREATED_AT,
    UPDATED_AT,
    ACCESSED_AT,
    told("SupportOrdering", lambda shown: _flag(shown.entity.support_ordering)),
    COUNT_DETAILS,
    said("AutoDeleteOnIdle"),
    said("EnablePartitioning", PARTITIONING),
    AVAILABILITY,
    said("EnableExpress"),
    said("ForwardDeadLetteredMessagesTo"),
    MESSAGE_SIZE_ROW,
)

TOPIC_ROWS = (
    said("DefaultMessageTimeToLive"),
    SIZE,
    said("RequiresDuplicateDetection"),
    said("DuplicateDetectionHistoryTimeWindow"),
    said("EnableBatchedOperations"),
    SIZE_IN_BYTES,
    always("FilteringMessagesBeforePublishing", "false"),
    ANONYMOUS,
    ACCESS_RULES,
    said("Status"),
    said("UserMetadata"),
    CREATED_AT,
    UPDATED_AT,
    ACCESSED_AT,
    said("SupportOrdering"),
    COUNT_DETAILS,
    told("SubscriptionCount", lambda shown: str(shown.live.subscriptions), not_after_put=True),
    told(
        "SqlFilterCount",
        lambda shown: str(shown.live.sql_filters),
        FILTER_COUNTS,
        not_after_put=True,
    ),
    told(
        "CorrelationFilterCount",
        lambda shown: str(shown.live.correlation_filters),
        FILTER_COUNTS,
        not_after_put=True,
    ),
    said("AutoDeleteOnIdle"),
    said("EnablePartitioning", PARTITIONING),
    AVAILABILITY,
    always("EnableSubscriptionPartitioning", "false"),
    said("EnableExpress"),
    MESSAGE_SIZE_ROW,
)

SUBSCRIPTION_ROWS = (
    said("LockDuration"),
    said("RequiresSession"),
    said("DefaultMessageTimeToLive"),
    said("DeadLetteringOnMessageExpiration"),
    said("DeadLetteringOnFilterEvaluationExceptions"),
    MESSAGE_COUNT,
    said("MaxDeliveryCount"),
    said("EnableBatchedOperations"),
    said("Status"),
    said("ForwardTo"),
    CREATED_AT,
    UPDATED_AT,
    # Of a subscription that nobody has used, its creation (DFT).
    told(
        "AccessedAt",
        lambda shown: instant(shown.live.accessed_ms or shown.entity.created_ms),
    ),
    COUNT_DETAILS,
    said("UserMetadata"),
    said("ForwardDeadLetteredMessagesTo"),
    said("AutoDeleteOnIdle"),
    AVAILABILITY,
    always("IsClientAffine", "false", MESSAGE_SIZE),
)


@dataclass(frozen=True, slots=True)
class Description(Generic[AnyEntity]):
    """A kind of entity, as a description."""

    element: str
    entity: type[AnyEntity]
    rows: tuple[Row, ...]


QUEUE = Description("QueueDescription", Queue, QUEUE_ROWS)
TOPIC = Description("TopicDescription", Topic, TOPIC_ROWS)
SUBSCRIPTION = Description("SubscriptionDescription", Subscription, SUBSCRIPTION_ROWS)
DESCRIPTIONS: Mapping[type, Description[Any]] = {
    each.entity: each for each in (QUEUE, TOPIC, SUBSCRIPTION)
}

# --- Out -----------------------------------------------------------------------------------------


def service_element(name: str, inner: list[Markup]) -> Markup:
    """The outermost element of a content, with the prefix that JavaScript's client looks for."""
    return element(name, inner, {"xmlns": SERVICE, "xmlns:i": INSTANCE})


def write(shown: Shown, version: str, *, after_put: bool) -> Markup:
    description = DESCRIPTIONS[type(shown.entity)]
    inner = []
    for row in description.rows:
        if row.since > version or (after_put and row.not_after_put):
            continue
        content = row.write(shown)
        if isinstance(content, Markup):
            inner.append(content)
        elif content is not None:
            inner.append(element(row.element, content))
    return service_element(description.element, inner)


# --- In ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What else there is to know of a request, to read its description."""

    version: str
    random: Random
    tier: Tier


def read(
    element: Element,
    description: Description[AnyEntity],
    names: Mapping[str, str],
    request: Circumstances,
    old: AnyEntity | None = None,
) -> AnyEntity:
    """The entity of these names that is described.

    What is left out takes its default, and so does an update of `old`, except for what can never
    change and for what the api-version of the request does not know.
    """
    there = children(element)
    values: dict[str, Any] = dict(names)
    for row in description.rows:
        if row.property is None:
            continue
        field, given = row.property.field, there.get(row.element)
        is_known = row.since <= request.version
        if given is not None and is_known:
            values[field] = _value(row.property, row.element, given)
        elif given is not None and row is MESSAGE_SIZE_ROW:
            raise bad(f"{row.element} is not known before the api-version {row.since}.")
        elif old is not None and not (is_known and row.property.mutable):
            values[field] = getattr(old, field)
    if old is not None:
        # What the service does not have, its clients cannot mean to change.
        values |= {field: getattr(old, field) for field in OWN_FIELDS}
    if RULES in there and description.entity is not Subscription:
        values["authorization_rules"] = read_access_rules(there[RULES], request.random)
    if isinstance(old, Queue | Topic) and "max_size_mb" in values:
        values["max_size_mb"] = _size_of_each(values["max_size_mb"], old, request.tier)
    return description.entity(**values)


def _value(row: Property, name: str, given: Element) -> Any:
    text = text_of(given)
    read_text = READERS.get(row.kind)
    if read_text is None:
        return (text if row.kind is Kind.TEXT else text.strip()) or None
    try:
        return read_text(text.strip())
    except ValueError:
        hint = HINTS.get(row.kind, "")
        raise bad(f"{name} must be {row.kind.value}{hint}, and is '{text[:80]}'.") from None


HINTS = {Kind.SPAN: " such as PT1M or P14D", Kind.STATUS: " such as Active or Disabled"}


def _size_of_each(said_mb: int, old: Queue | Topic, tier: Tier) -> int:
    """An update sends back the size of all partitions, or says a new one for each (http.md 6)."""
    partitions, sizes = old.partitions, TIERS[tier].entity_sizes_mb
    if said_mb == old.total_size_mb:
        return old.max_size_mb
    if said_mb not in sizes and said_mb % partitions == 0 and said_mb // partitions in sizes:
        return said_mb // partitions
    return said_mb
