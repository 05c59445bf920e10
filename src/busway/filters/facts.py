"""What a filter sees of a message: system properties and user properties (SQL-2, SQL-3, COR-1).

Owns the table of system properties. Everything is decoded when the first rule asks for it and
then once for all rules, so a topic with true filters only never decodes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from busway.amqp.codec import decode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Properties
from busway.amqp.sections import (
    APPLICATION_PROPERTIES,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    VIA_PARTITION_KEY,
    read_annotations,
    read_properties,
    walk_sections,
)
from busway.filters.errors import FilterError
from busway.filters.values import DateTime, Opaque, TimeSpan, Value, from_amqp
from busway.model.message import Message
from busway.model.partitioning import message_id_text


def property_key(name: str) -> str:
    """What two names of properties have in common if they are the same (SQL-2)."""
    return name.lower()


class MessageFacts:
    """One message, as rules look at it. Raises `FilterError` where it cannot be decoded."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.ttl_ms = message.ttl_ms

    @cached_property
    def session_id(self) -> str | None:
        """As its sender wrote it (SES-13)."""
        kept = self.message.session_id
        return None if kept is None else self.properties.group_id or kept

    @cached_property
    def properties(self) -> Properties:
        try:
            return read_properties(self.message.bare)
        except ProtocolError as problem:
            raise FilterError(f"The properties of the message cannot be read: {problem}") from None

    @cached_property
    def encoded_user(self) -> dict[str, tuple[str, Any]]:
        """Name and AMQP value of each user property, by key."""
        found: dict[str, tuple[str, Any]] = {}
        try:
            for pairs in self._application_properties():
                # A settlement's changes win over what was sent, and then of several names that
                # differ only by case the first (SQL-2).
                before = set(found)
                for name, value in pairs.items():
                    if isinstance(name, str) and (key := property_key(name)) not in before:
                        found.setdefault(key, (str(name), value))
        except ProtocolError as problem:
            raise FilterError(
                f"The application properties of the message cannot be read: {problem}"
            ) from None
        return found

    def _application_properties(self) -> Iterator[dict[Any, Any]]:
        changes, bare = self.message.changes, self.message.bare
        if changes is not None:
            yield decode_value(changes)[0]
        for code, _, start, _ in walk_sections(bare):
            if code == APPLICATION_PROPERTIES:
                pairs, _ = decode_value(bare, start)
                yield pairs if isinstance(pairs, dict) else {}
                return

    @cached_property
    def user(self) -> dict[str, Value]:
        """The value of each user property, by key."""
        return {key: from_amqp(value) for key, (_, value) in self.encoded_user.items()}

    @cached_property
    def annotations(self) -> dict[str, Any]:
        """What the sender wrote into the message annotations."""
        try:
            return read_annotations(self.message.annotations)
        except ProtocolError as problem:
            raise FilterError(f"The message annotations cannot be read: {problem}") from None

    @cached_property
    def correlated(self) -> dict[str, object]:
        """What correlation filters compare: by field, only what has a value (COR-1)."""
        found: dict[str, object] = {}
        for field, read in CORRELATED_SYSTEM.items():
            value = read(self)
            if value is not None:
                found[field] = value
        for key, value in self.user.items():
            if (equal := equality_key(value)) is not None:
                found[f"user.{key}"] = equal
        return found


# --- Equality of values (COR-2) ------------------------------------------------------------------

NULL_KEY = ("null",)
"""A user property that is there and null."""


def equality_key(value: Value) -> object | None:
    """Equal for two values if they are equal as properties; None for what equals nothing.

    Numbers of all widths are equal if their values are; a boolean is no number.
    """
    kind = type(value)
    if kind is bool:
        return ("bool", value)
    if value is None:
        return NULL_KEY
    if kind is Opaque or value != value:  # NaN
        return None
    return value  # type: ignore[no-any-return]


# --- System properties (SQL-3) -------------------------------------------------------------------

SystemReader = Callable[[MessageFacts], Value]


def _annotation(name: bytes) -> SystemReader:
    key = name.decode()
    return lambda facts: from_amqp(facts.annotations.get(key))


def _text(value: Any) -> str | None:
    """Ids are texts to filters, whatever their type on the wire (D-15)."""
    return None if value is None else message_id_text(value)


def _instant(ms: int | None) -> DateTime | None:
    return None if ms is None else DateTime.of_ms(ms)


def _time_to_live(facts: MessageFacts) -> TimeSpan | None:
    return None if facts.ttl_ms is None else TimeSpan.of_ms(facts.ttl_ms)


SYSTEM: dict[str, SystemReader] = {
    "ContentType": lambda facts: facts.properties.content_type,
    "CorrelationId": lambda facts: _text(facts.properties.correlation_id),
    # A dead-letter queue is never a topic's source, so no message that meets a rule has one yet.
    "DeadLetterSource": lambda facts: None,
    "DeliveryCount": lambda facts: facts.message.delivery_count,
    "EnqueuedSequenceNumber": lambda facts: facts.message.number,
    "EnqueuedTimeUtc": lambda facts: _instant(facts.message.enqueued_ms),
    "ExpiresAtUtc": lambda facts: _instant(facts.message.expires_ms),
    "Label": lambda facts: facts.properties.subject,
    "MessageId": lambda facts: _text(facts.properties.message_id),
    "PartitionKey": _annotation(PARTITION_KEY),
    "ReplyTo": lambda facts: facts.properties.reply_to,
    "ReplyToSessionId": lambda facts: facts.properties.reply_to_group_id,
    "ScheduledEnqueueTimeUtc": _annotation(SCHEDULED_ENQUEUE_TIME),
    "SequenceNumber": lambda facts: facts.message.number,
    "SessionId": lambda facts: facts.session_id,
    "Size": lambda facts: facts.message.size,
    "State": lambda facts: int(facts.message.state),
    "Subject": lambda facts: facts.properties.subject,
    "TimeToLive": _time_to_live,
    "To": lambda facts: facts.properties.to,
    "ViaPartitionKey": _annotation(VIA_PARTITION_KEY),
}
"""The known system properties; one without a value is NULL."""

SYSTEM_BY_KEY: dict[str, SystemReader] = {property_key(name): read for name, read in SYSTEM.items()}

CORRELATED_SYSTEM: dict[str, SystemReader] = {
    f"sys.{name}": SYSTEM[name]
    for name in (
        "CorrelationId",
        "MessageId",
        "To",
        "ReplyTo",
        "Label",
        "SessionId",
        "ReplyToSessionId",
        "ContentType",
    )
}
"""What a correlation filter may ask for beside user properties (COR-1)."""


def unknown_system_property(name: str) -> FilterError:
    return FilterError(f"There is no system property '{name}'.")
