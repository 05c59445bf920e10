"""A stored message as JSON, for people: what it says of itself, what the broker knows of it."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

from busway.amqp.codec import decode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    BODY,
    read_annotations,
    read_application_properties,
    walk_sections,
)
from busway.broker import dead_letters
from busway.broker.journal_properties import AMQP_NAMES, text_of
from busway.gateway import envelope
from busway.http.rest import messages
from busway.model.message import Message, MessageState, partition_of

BODY_KINDS = {AMQP_SEQUENCE: "sequence", AMQP_VALUE: "value"}
"""What is neither is data."""


def described(message: Message, origin: envelope.Origin, *, preview: int | None) -> dict[str, Any]:
    """With the first `preview` bytes of its body, or all of them for None."""
    bare = envelope.bare_of(message)
    properties = messages.properties_of(bare)
    user = _readable(read_application_properties, bare)
    annotations = _readable(read_annotations, message.annotations)
    life = envelope.life_of(message, origin)
    is_scheduled = message.state is MessageState.SCHEDULED
    told: dict[str, Any] = {
        "sequence_number": message.number,
        "enqueued_sequence_number": message.enqueued_number,
        "partition": partition_of(message.number),
        "state": message.state.name.lower(),
        "enqueued_time": instant(message.enqueued_ms),
        "scheduled_time": instant(message.expires_ms) if is_scheduled else None,
        "expires_time": None if is_scheduled else instant(message.expires_ms),
        "time_to_live_ms": None if life is None else life[1],
        "delivery_count": message.delivery_count,
        "size": message.size,
        "locked": message.lock_token is not None,
        "dead_letter_source": message.dead_letter_source,
        "dead_letter_reason": _text(user.pop(dead_letters.REASON, None)),
        "dead_letter_error_description": _text(user.pop(dead_letters.DESCRIPTION, None)),
        "content_type": properties.content_type,
    }
    for name, field in messages.PROPERTY_FIELDS.items():
        told[FIELD_NAMES[name]] = messages.id_text(getattr(properties, field))
    for name, symbol in messages.ANNOTATIONS.items():
        told[FIELD_NAMES[name]] = _text(annotations.pop(symbol, None))
    told["application_properties"] = _typed(user)
    told["annotations"] = _typed(annotations)
    told["body"] = _body(bare, preview)
    return told


FIELD_NAMES = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "session_id",
    "Label": "subject",
    "To": "to",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "PartitionKey": "partition_key",
    "ViaPartitionKey": "via_partition_key",
}


def instant(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return None  # beyond the year 9999: as good as never
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _body(bare: bytes, preview: int | None) -> dict[str, Any]:
    kind = next(
        (BODY_KINDS.get(code, "data") for code, *_ in walk_sections(bare) if code in BODY), "none"
    )
    content = messages.body_of(bare)
    shown = content if preview is None else content[:preview]
    text = None
    if kind == "value":
        # A value that is neither text nor bytes is shown as a person would write it.
        value = _value(bare)
        if not isinstance(value, str | bytes):
            text = text_of(value)
    return {
        "kind": kind,
        "size": len(content),
        "base64": b64encode(shown).decode(),
        "text": text,
        "complete": len(shown) == len(content),
    }


def _value(bare: bytes) -> Any:
    for code, _, start, _ in walk_sections(bare):
        if code == AMQP_VALUE:
            try:
                return decode_value(bare, start)[0]
            except ProtocolError:
                return b""
    return b""


def _typed(values: dict[Any, Any]) -> dict[str, dict[str, Any]]:
    """AMQP has more types than JSON: each value is told with the name of its type."""
    return {
        str(name): {"type": AMQP_NAMES.get(type(value), "other"), "value": text_of(value)}
        for name, value in values.items()
    }


def _text(value: Any) -> str | None:
    return None if value is None else text_of(value)


def _readable(read: Any, encoded: bytes) -> dict[Any, Any]:
    try:
        return dict(read(encoded))
    except ProtocolError as problem:
        return {"(unreadable)": json.dumps(str(problem))}
