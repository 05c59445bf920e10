"""From the rows of a journal to the columns that readers see.

Here, and only here, are messages decoded: off the message loop, and no more of them than the
columns that were asked for need. A column is a list of plain Python values, None for null; times
are milliseconds.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from busway.amqp import types as amqp
from busway.amqp.codec import decode_value, encode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    PROPERTIES,
    SECTION_SYMBOLS,
    apply_changes,
    envelope_of,
    sender_front,
)
from busway.model.entities import Entity, Subscription
from busway.model.journal import CARRYING, SCHEMA_VERSION, Column, JournalEvent
from busway.model.message import MessageState
from busway.model.names import SubQueueKind
from busway.model.partitioning import message_id_text
from busway.store.journal import JournalContent, JournalRecord, JournalRow

Columns = dict[str, list[Any]]
"""By name, all of the same length."""

SUB_QUEUE_WORDS = {
    SubQueueKind.MAIN: "main",
    SubQueueKind.DEAD_LETTER: "dead_letter",
    SubQueueKind.TRANSFER: "transfer",
    SubQueueKind.TRANSFER_DEAD_LETTER: "transfer_dead_letter",
}
PARTITION_KEY = "x-opt-partition-key"
UNDECODABLE = "undecodable"
"""The type of a body that is all of a message, because its sections could not be read."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

AMQP_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    amqp.UByte: "ubyte",
    amqp.UShort: "ushort",
    amqp.UInt: "uint",
    amqp.ULong: "ulong",
    amqp.Byte: "byte",
    amqp.Short: "short",
    amqp.Int: "int",
    int: "long",
    amqp.Float: "float",
    float: "double",
    amqp.Decimal32: "decimal32",
    amqp.Decimal64: "decimal64",
    amqp.Decimal128: "decimal128",
    amqp.Char: "char",
    amqp.Timestamp: "timestamp",
    UUID: "uuid",
    bytes: "binary",
    str: "string",
    amqp.Symbol: "symbol",
}
"""The types whose values can be application properties; of others the encoded bytes are told."""


class Decoded:
    """The parts of one message that columns are made of."""

    __slots__ = ("annotations", "body", "body_type", "properties", "user")

    def __init__(self, bare: bytes, content: JournalContent, *, with_body: bool) -> None:
        self.properties: list[Any] = []
        self.user: dict[str, Any] = {}
        self.body: bytes | None = None
        self.body_type: str | None = None
        self.annotations = content.annotations
        self._read(bare, with_body)
        if content.changes is not None:
            self.user |= decode_value(content.changes)[0]

    def _read(self, bare: bytes, with_body: bool) -> None:
        offset, end = 0, len(bare)
        parts: list[bytes] = []
        while offset < end:
            code = bare[offset + 2] if bare[offset + 1] == 0x53 else _code(bare, offset)
            if code not in (PROPERTIES, APPLICATION_PROPERTIES) and not with_body:
                return  # whatever else there is comes behind them
            section, offset = decode_value(bare, offset)
            value = section.value
            if code == PROPERTIES:
                self.properties = value
            elif code == APPLICATION_PROPERTIES:
                self.user = value
            elif code == DATA:
                self.body_type = "data"
                parts.append(value)
            elif code == AMQP_SEQUENCE:
                self.body_type = "sequence"
                parts.append(encode_value(value))
            elif code == AMQP_VALUE:
                self.body_type, part = _amqp_value(value)
                parts.append(part)
        if parts:
            self.body = parts[0] if len(parts) == 1 else b"".join(parts)

    def property(self, index: int) -> str | None:
        """A field of the properties section, as text."""
        value = self.properties[index] if index < len(self.properties) else None
        return None if value is None else message_id_text(value)

    def partition_key(self) -> str | None:
        offset, key = 0, None
        while offset < len(self.annotations):
            name, offset = decode_value(self.annotations, offset)
            value, offset = decode_value(self.annotations, offset)
            if name == PARTITION_KEY and value is not None:
                key = str(value)
        return key


def _code(bare: bytes, offset: int) -> int:
    """Of a section whose descriptor is not the usual short one."""
    section, _ = decode_value(bare, offset)
    descriptor = section.descriptor
    if isinstance(descriptor, str):
        return SECTION_SYMBOLS.get(descriptor.encode(), 0)
    return int(descriptor)


def _amqp_value(value: Any) -> tuple[str, bytes]:
    """What readers can use as it is, they get so; the rest as AMQP encodes it."""
    if type(value) is str:
        return "string", value.encode("utf-8", "surrogatepass")
    if type(value) is bytes:
        return "binary", value
    return "value", encode_value(value)


# --- application properties ----------------------------------------------------------------------


def text_of(value: Any) -> str | None:
    """A property's value for a reader who wants text."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case amqp.Timestamp():
            return (EPOCH + timedelta(milliseconds=int(value))).isoformat(timespec="milliseconds")
        case str() | UUID():
            return str(value)
        case int():
            return format(value, "d")
        case float():
            return repr(float(value))
        case bytes():
            return value.hex()
    return encode_value(value).hex()


def typed_text(user: dict[str, Any]) -> str | None:
    """All properties as JSON with their AMQP types: nothing is lost on the way to a replay."""
    if not user:
        return None
    typed = {str(name): _typed(value) for name, value in user.items()}
    return json.dumps(typed, ensure_ascii=False, separators=(",", ":"))


def _typed(value: Any) -> list[Any]:
    name = AMQP_NAMES.get(type(value))
    if name is None:
        return ["encoded", b64encode(encode_value(value)).decode()]
    if isinstance(value, bytes):
        return [name, b64encode(value).decode()]
    if isinstance(value, UUID):
        return [name, str(value)]
    if isinstance(value, float):
        return [name, repr(float(value))]  # JSON has neither NaN nor infinity
    return [name, value]


# --- the sender's message ------------------------------------------------------------------------


def raw_message(content: JournalContent, bare: bytes) -> bytes:
    """Header, message annotations and all that follows, as the sender wrote them."""
    front = sender_front(
        content.header, content.ttl_ms, content.annotations, content.annotation_items
    )
    return front + bare


def _raw(row: JournalRow, content: JournalContent | None) -> bytes | None:
    if content is None or row.bare is None or row.record.event not in CARRYING:
        return None
    return raw_message(content, row.bare)


def _envelope(row: JournalRow, content: JournalContent | None) -> bytes | None:
    """With what rules have set on it (ACT-1), because that is the message that is there.

    None also of a message whose sections cannot be read: all of it is its body.
    """
    if content is None or row.bare is None or row.record.event not in CARRYING:
        return None
    try:
        changes = content.changes
        bare = row.bare if changes is None else apply_changes(row.bare, changes)
        return envelope_of(raw_message(content, bare))
    except ProtocolError:
        return None


# --- columns -------------------------------------------------------------------------------------

ENQUEUED_OR_MOVED = (JournalEvent.ENQUEUED, JournalEvent.MOVED)
LEAVING = (JournalEvent.FORWARDED, JournalEvent.MOVED)
"""Their description is where the message went."""


def _waits(record: JournalRecord) -> bool:
    """Whether the time that the message has is that of its activation."""
    if record.event is JournalEvent.MOVED:
        return record.reason == MessageState.SCHEDULED.name.lower()
    return record.event is JournalEvent.SCHEDULED


OfRow = Callable[[JournalRow, JournalContent | None], Any]
OfMessage = Callable[[Decoded], Any]

OF_ROW: dict[str, OfRow] = {
    "journal_offset": lambda row, _: row.record.offset,
    "event": lambda row, _: row.record.event.word,
    "event_time": lambda row, _: row.record.time_ms,
    "sub_queue": lambda row, _: SUB_QUEUE_WORDS[row.record.kind],
    "sequence_number": lambda row, _: row.record.number or None,
    "related_sequence_number": lambda row, _: row.record.related_number or None,
    "enqueued_sequence_number": lambda _, content: (content and content.enqueued_number) or None,
    "enqueued_time": lambda row, content: (
        content and content.enqueued_ms if row.record.event in ENQUEUED_OR_MOVED else None
    ),
    "scheduled_time": lambda row, content: (
        content and content.expires_ms if _waits(row.record) else None
    ),
    "expires_at": lambda row, content: (
        content and content.expires_ms
        if row.record.event in ENQUEUED_OR_MOVED and not _waits(row.record)
        else None
    ),
    "session_id": lambda _, content: content and content.session_id,
    "delivery_count": lambda row, _: row.record.delivery_count,
    "lock_token": lambda row, _: (
        None if row.record.lock_token is None else str(UUID(bytes_le=row.record.lock_token))
    ),
    "dead_letter_reason": lambda row, _: row.record.reason,
    "dead_letter_description": lambda row, _: (
        None if row.record.event in LEAVING else row.record.description
    ),
    "dead_letter_source": lambda _, content: content and content.dead_letter_source,
    "destination": lambda row, content: (
        row.record.description if row.record.event in LEAVING else content and content.destination
    ),
    "message_size": lambda _, content: content and content.size,
    "raw": lambda row, content: _raw(row, content),
    "envelope": lambda row, content: _envelope(row, content),
}

# The places of fields in the properties section (AMQP 1.0, section 3.2.4).
OF_MESSAGE: dict[str, OfMessage] = {
    "message_id": lambda message: message.property(0),
    "to": lambda message: message.property(2),
    "subject": lambda message: message.property(3),
    "reply_to": lambda message: message.property(4),
    "correlation_id": lambda message: message.property(5),
    "content_type": lambda message: message.property(6),
    "reply_to_session_id": lambda message: message.property(12),
    "partition_key": lambda message: message.partition_key(),
    "application_properties": lambda message: [
        (str(name), text_of(value)) for name, value in message.user.items()
    ],
    "typed_properties": lambda message: typed_text(message.user),
    "body": lambda message: message.body,
    "body_type": lambda message: message.body_type,
    "body_size": lambda message: None if message.body is None else len(message.body),
}
NEED_THE_BODY = {"body", "body_type", "body_size"}


def needs_messages(columns: Sequence[Column]) -> bool:
    """Whether the stored messages have to be read at all."""
    return any(column.of_message for column in columns)


def to_columns(
    entity: Entity, partition: int, rows: Sequence[JournalRow], columns: Sequence[Column]
) -> Columns:
    names = [column.name for column in columns]
    path, subscription = entity.path, None
    if isinstance(entity, Subscription):
        path, subscription = entity.topic, entity.name
    same: dict[str, Any] = {
        "entity": path,
        "subscription": subscription,
        "partition": partition,
        "schema_version": SCHEMA_VERSION,
    }
    found: Columns = {name: [same[name]] * len(rows) for name in names if name in same}
    for name in names:
        if name in OF_ROW:
            value_of = OF_ROW[name]
            found[name] = [value_of(row, row.record.content) for row in rows]
    of_message = [name for name in names if name in OF_MESSAGE]
    if of_message:
        with_body = not NEED_THE_BODY.isdisjoint(of_message)
        decoded = [_decoded(row, with_body) for row in rows]
        for name in of_message:
            part_of = OF_MESSAGE[name]
            found[name] = [None if each is None else part_of(each) for each in decoded]
    return {name: found[name] for name in names}


def _decoded(row: JournalRow, with_body: bool) -> Decoded | None:
    content = row.record.content
    if content is None or row.bare is None:
        return None
    try:
        return Decoded(row.bare, content, with_body=with_body)
    except ProtocolError:
        # Brokers pass on what they need not read; one such message must not end a whole scan.
        nothing = Decoded(b"", content._replace(changes=None), with_body=False)
        nothing.body, nothing.body_type = row.bare, UNDECODABLE
        return nothing
