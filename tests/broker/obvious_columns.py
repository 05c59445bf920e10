"""The columns of a journal's rows the slow and obvious way: one value at a time, from objects.

`busway.broker.journal_columns` must give the same, many at once.
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from busway.amqp import types as amqp
from busway.amqp._pure import decode_value, encode_value
from busway.amqp.errors import DECODE_ERROR, ProtocolError
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    BODY,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    apply_changes,
    envelope_of,
    replace_properties,
    unpack_header,
    walk_sections,
)
from busway.broker.journal_properties import AMQP_NAMES, EPOCH
from busway.model.entities import Entity, Subscription
from busway.model.journal import CARRYING, Column, JournalEvent
from busway.store.journal import JournalContent, JournalRecord, JournalRow

WAITS = "scheduled"
ARRIVED = (JournalEvent.ENQUEUED, JournalEvent.MOVED)
LEAVING = (JournalEvent.FORWARDED, JournalEvent.MOVED)
SUB_QUEUES = ("main", "dead_letter", "transfer", "transfer_dead_letter")
BODY_CLASSES: dict[int, type] = {DATA: bytes, AMQP_SEQUENCE: list}
PLACES = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "reply_to_session_id": 12,
}


class Message:
    """The parts of one message that columns are made of, if they are `wanted`."""

    def __init__(self, bare: bytes, content: JournalContent, wanted: set[str]) -> None:
        self.properties: list[Any] = []
        self.user: dict[Any, Any] = {}
        self.body: bytes | None = None
        self.body_type: str | None = None
        try:
            self._read(bare, wanted)
            if content.changes is not None:
                self.user = self.user | decode_value(content.changes)[0]
        except ProtocolError:
            self.properties, self.user = [], {}
            self.body, self.body_type = bare, "undecodable"

    def _read(self, bare: bytes, wanted: set[str]) -> None:
        parts: list[bytes] = []
        for code, start, _, stop in walk_sections(bare):
            if code == PROPERTIES and wanted & PLACES.keys():
                self.properties = section_of(bare[start:stop], list)
            elif code == APPLICATION_PROPERTIES and any("properties" in each for each in wanted):
                self.user = section_of(bare[start:stop], dict)
            elif code in BODY:
                if not wanted & {"body", "body_type", "body_size"}:
                    return
                value = section_of(bare[start:stop], BODY_CLASSES.get(code))
                self.body_type, part = body_of(code, value)
                parts.append(part)
        self.body = b"".join(parts) if parts else None

    def property(self, index: int) -> str | None:
        value = self.properties[index] if index < len(self.properties) else None
        if type(value) in (bool, amqp.Timestamp):
            return format(value, "d")
        return text_of(value)


def section_of(encoded: bytes, kind: type | None) -> Any:
    value = decode_value(encoded)[0].value
    if kind is not None and type(value) is not kind:
        raise ProtocolError(DECODE_ERROR, f"not a {kind.__name__}")
    return value


def body_of(code: int, value: Any) -> tuple[str, bytes]:
    if code == DATA:
        return "data", value
    if code == AMQP_SEQUENCE:
        return "sequence", encode_value(value)
    assert code == AMQP_VALUE
    if type(value) is str:
        return "string", value.encode()
    return ("binary", value) if type(value) is bytes else ("value", encode_value(value))


def partition_key(annotations: bytes) -> str | None:
    offset, key = 0, None
    while offset < len(annotations):
        name, offset = decode_value(annotations, offset)
        value, offset = decode_value(annotations, offset)
        if name == "x-opt-partition-key" and value is not None:
            key = str(value)
    return key


def text_of(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case amqp.Timestamp():
            try:
                when = EPOCH + timedelta(milliseconds=int(value))
            except OverflowError:
                return format(value, "d")
            return when.isoformat(timespec="milliseconds")
        case str() | UUID():
            return str(value)
        case int():
            return format(value, "d")
        case float():
            return repr(float(value))
        case bytes():
            return value.hex()
    return encode_value(value).hex()


def typed_text(user: dict[Any, Any]) -> str | None:
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
        return [name, repr(float(value))]
    return [name, value]


def raw_message(content: JournalContent, bare: bytes) -> bytes:
    parts = []
    if content.header or content.ttl_ms is not None:
        durable, first_acquirer, priority = unpack_header(content.header)
        fields = [
            durable,
            None if priority is None else amqp.UByte(priority),
            None if content.ttl_ms is None else amqp.UInt(min(content.ttl_ms, 0xFFFFFFFF)),
            first_acquirer,
        ]
        parts.append(encode_value(amqp.Described(amqp.ULong(HEADER), fields)))
    if content.annotation_items:
        size = 4 + len(content.annotations)
        head = (0, 0x53, MESSAGE_ANNOTATIONS, 0xD1, size, content.annotation_items)
        parts += [struct.pack(">BBBBII", *head), content.annotations]
    if content.ttl_ms is not None and content.ttl_ms > 0xFFFFFFFF:
        bare = long_lived(bare, content.ttl_ms, content.enqueued_ms)
    return b"".join([*parts, bare])


def long_lived(bare: bytes, ttl_ms: int, enqueued_ms: int) -> bytes:
    """With the two times that say it, if they do not already; as it is if it cannot be read."""
    try:
        items: list[Any] = []
        for code, _, value, stop in walk_sections(bare):
            if code == PROPERTIES:
                items = decode_value(bare[value:stop])[0]
        last, first = (items + [None] * 10)[8:10]
        if isinstance(first, amqp.Timestamp) and isinstance(last, amqp.Timestamp):  # noqa: SIM102
            if last - first == ttl_ms:
                return bare
        times = {8: amqp.Timestamp(enqueued_ms + ttl_ms), 9: amqp.Timestamp(enqueued_ms)}
        return replace_properties(bare, times)
    except ProtocolError:
        return bare


def envelope(content: JournalContent, bare: bytes) -> bytes | None:
    try:
        changed = bare if content.changes is None else apply_changes(bare, content.changes)
        return envelope_of(raw_message(content, changed))
    except ProtocolError:
        return None


def _waits(record: JournalRecord) -> bool:
    if record.event is JournalEvent.MOVED:
        return record.reason == WAITS
    return record.event is JournalEvent.SCHEDULED


OfRow = Callable[[JournalRecord, JournalContent | None, bytes | None], Any]

OF_ROW: dict[str, OfRow] = {
    "journal_offset": lambda record, _, __: record.offset,
    "event": lambda record, _, __: record.event.name.lower(),
    "event_time": lambda record, _, __: record.time_ms,
    "sub_queue": lambda record, _, __: SUB_QUEUES[record.kind],
    "sequence_number": lambda record, _, __: record.number or None,
    "related_sequence_number": lambda record, _, __: record.related_number or None,
    "enqueued_sequence_number": lambda _, content, __: (
        (content and content.enqueued_number) or None
    ),
    "enqueued_time": lambda record, content, _: (
        content and content.enqueued_ms if record.event in ARRIVED else None
    ),
    "scheduled_time": lambda record, content, _: (
        content and content.expires_ms if _waits(record) else None
    ),
    "expires_at": lambda record, content, _: (
        content and content.expires_ms if record.event in ARRIVED and not _waits(record) else None
    ),
    "session_id": lambda _, content, __: content and content.session_id,
    "partition_key": lambda _, content, __: content and partition_key(content.annotations),
    "delivery_count": lambda record, _, __: record.delivery_count,
    "lock_token": lambda record, _, __: (
        None if record.lock_token is None else str(UUID(bytes_le=record.lock_token))
    ),
    "dead_letter_reason": lambda record, _, __: record.reason,
    "dead_letter_description": lambda record, _, __: (
        None if record.event in LEAVING else record.description
    ),
    "dead_letter_source": lambda _, content, __: content and content.dead_letter_source,
    "destination": lambda record, content, _: (
        record.description if record.event in LEAVING else content and content.destination
    ),
    "message_size": lambda _, content, __: content and content.size,
    "raw": lambda record, content, bare: (
        raw_message(content, bare)
        if content is not None and bare is not None and record.event in CARRYING
        else None
    ),
    "envelope": lambda record, content, bare: (
        envelope(content, bare)
        if content is not None and bare is not None and record.event in CARRYING
        else None
    ),
}
OF_MESSAGE: dict[str, Callable[[Message], Any]] = {
    **{
        name: lambda message, place=place: message.property(place) for name, place in PLACES.items()
    },
    "application_properties": lambda message: [
        (str(name), text_of(value)) for name, value in message.user.items()
    ],
    "typed_properties": lambda message: typed_text(message.user),
    "body": lambda message: message.body,
    "body_type": lambda message: message.body_type,
    "body_size": lambda message: None if message.body is None else len(message.body),
}


def obvious_columns(
    entity: Entity, partition: int, rows: Sequence[JournalRow], columns: Sequence[Column]
) -> dict[str, list[Any]]:
    names = [column.name for column in columns]
    subscription = isinstance(entity, Subscription)
    same: dict[str, Any] = {
        "entity": entity.topic if isinstance(entity, Subscription) else entity.path,
        "subscription": entity.name if subscription else None,
        "partition": partition,
        "schema_version": 2,
    }
    found: dict[str, list[Any]] = {name: [] for name in names}
    for record, bare in rows:
        content, message = record.content, None
        if content is not None and bare is not None:
            message = Message(bare, content, set(names))
        for name in names:
            if name in same:
                value = same[name]
            elif name in OF_ROW:
                value = OF_ROW[name](record, content, bare)
            else:
                value = None if message is None else OF_MESSAGE[name](message)
            found[name].append(value)
    return found
