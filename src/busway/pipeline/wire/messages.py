"""From the columns of a row to an encoded message: the way back of `broker/journal_columns.py`.

What a journal tells in columns comes out as the sections that it was read from. Two things are not
in the columns and so not in the message: of which type its ids were (they are texts here, and equal
for a broker, D-15), and into how many sections a body of data was cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from busway.amqp import types as amqp
from busway.amqp.codec import decode_value, encode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    LATEST_MS,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    TTL_MAX_MS,
    encode_message,
)
from busway.broker.journal_columns import UNDECODABLE
from busway.broker.journal_properties import EPOCH
from busway.remote.wire.typed_values import CLASSES, typed_value

BODY_TYPES = ("data", "string", "binary", "value", "sequence")
MILLISECOND = timedelta(milliseconds=1)
_ANNOTATIONS = {
    name: amqp.Symbol(symbol.decode())
    for name, symbol in (
        ("partition_key", PARTITION_KEY),
        ("scheduled_time", SCHEDULED_ENQUEUE_TIME),
    )
}


class MessageError(Exception):
    """A row that is no message, and why."""


def encode(row: Mapping[str, Any]) -> bytes:
    """The message of a row; columns that it does not have are null. Raises `MessageError`."""
    ttl_ms = _time_to_live_ms(row.get("time_to_live"))
    try:
        sections = encode_message(
            header=None if ttl_ms is None else Header(ttl=min(ttl_ms, TTL_MAX_MS)),
            annotations=_annotations(row) or None,
            properties=_properties(row, ttl_ms),
            application_properties=_user(row) or None,
        )
    except (ValueError, ProtocolError) as error:
        raise MessageError(f"A value cannot be written in AMQP: {error}.") from error
    return sections + body_section(row.get("body"), row.get("body_type"))


def _time_to_live_ms(time_to_live: Any) -> int | None:
    if time_to_live is None:
        return None
    ms = time_to_live // MILLISECOND if isinstance(time_to_live, timedelta) else int(time_to_live)
    if ms <= 0:
        raise MessageError(f"time_to_live is {ms} ms, and must be above zero.")
    return min(ms, LATEST_MS)


def _annotations(row: Mapping[str, Any]) -> dict[amqp.Symbol, Any]:
    found: dict[amqp.Symbol, Any] = {}
    if (key := row.get("partition_key")) is not None:
        found[_ANNOTATIONS["partition_key"]] = str(key)
    if (when := row.get("scheduled_time")) is not None:
        found[_ANNOTATIONS["scheduled_time"]] = timestamp(when)
    return found


def timestamp(when: datetime) -> amqp.Timestamp:
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return amqp.Timestamp((when - EPOCH) // MILLISECOND)


def _properties(row: Mapping[str, Any], ttl_ms: int | None) -> Properties | None:
    fields = {
        "message_id": row.get("message_id"),
        "to": row.get("to"),
        "subject": row.get("subject"),
        "reply_to": row.get("reply_to"),
        "correlation_id": row.get("correlation_id"),
        "content_type": row.get("content_type"),
        "group_id": row.get("session_id"),
        "reply_to_group_id": row.get("reply_to_session_id"),
    }
    given: dict[str, Any] = {
        name: str(value) for name, value in fields.items() if value is not None
    }
    if ttl_ms is not None and ttl_ms > TTL_MAX_MS:
        # A header has no room for it: the difference of the two says it. It must not depend on
        # when it is sent, because a row that is sent again is told by its bytes.
        given |= {"creation_time": 0, "absolute_expiry_time": ttl_ms}
    return Properties(**given) if given else None


# --- application properties ----------------------------------------------------------------------


def _user(row: Mapping[str, Any]) -> dict[str, Any]:
    """The typed ones go before the others, which say the same as texts."""
    typed = row.get("typed_properties")
    if typed is not None:
        return typed_values(typed)
    plain = row.get("application_properties")
    return {} if plain is None else dict(plain)


def typed_values(text: str) -> dict[str, Any]:
    """`{"name": ["amqp type", value]}`, read back."""
    try:
        return {name: typed_value(*typed) for name, typed in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, KeyError, ProtocolError) as error:
        raise MessageError(
            'typed_properties must be like {"name": ["int", 7]}, with the types of AMQP: '
            f"{', '.join(CLASSES)}. ({error})"
        ) from error


# --- body ----------------------------------------------------------------------------------------


def body_section(body: bytes | str | None, body_type: str | None) -> bytes:
    if body is None and body_type is None:
        return b""
    content = body.encode() if isinstance(body, str) else body or b""
    match body_type or "data":
        case "data":
            return encode_value(amqp.Described(amqp.ULong(DATA), content))
        case "string":
            try:
                return _section(AMQP_VALUE, encode_value(content.decode()))
            except UnicodeDecodeError as error:
                raise MessageError(f"body is of type string and no UTF-8: {error}.") from error
        case "binary":
            return _section(AMQP_VALUE, encode_value(content))
        case "value":
            return _section(AMQP_VALUE, _checked(content))
        case "sequence":
            return _sequences(content)
    if body_type == UNDECODABLE:
        raise MessageError(
            "The sections of this message could not be read, so that it cannot be sent as another."
        )
    raise MessageError(f"body_type is '{body_type}', and must be one of {', '.join(BODY_TYPES)}.")


def _section(code: int, value: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + value


def _checked(content: bytes) -> bytes:
    return content if _values(content) == 1 else _not_amqp(content)


def _values(content: bytes) -> int:
    offset, found = 0, 0
    try:
        while offset < len(content):
            _, offset = decode_value(content, offset)
            found += 1
    except ProtocolError:
        _not_amqp(content)
    return found


def _not_amqp(content: bytes) -> bytes:
    raise MessageError(
        f"body is of type value or sequence, and its {len(content)} bytes are not AMQP's encoding "
        "of one."
    )


def _sequences(content: bytes) -> bytes:
    _values(content)
    offset, sections = 0, b""
    while offset < len(content):
        value, stop = decode_value(content, offset)
        if type(value) is not list:
            _not_amqp(content)
        sections += _section(AMQP_SEQUENCE, content[offset:stop])
        offset = stop
    return sections
