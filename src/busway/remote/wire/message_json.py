"""A message as a JSON object, and back: what `busway receive --json` writes, `send --json` reads.

What the sender said comes back exactly, with its types: a value of a type that JSON has (text,
boolean, number, null) is plain, any other is a pair of its AMQP type and itself, `["uuid", "..."]`.
What the broker says of the message (sequence number, times, counts) is there to be read; who sends
the object again need not take it out. The fields are listed in docs/reference/command-line.md.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from busway.amqp import types as amqp
from busway.amqp.codec import decode_value, encode_value, scan_message
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    DATA,
    FOOTER,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    TTL_MAX_MS,
    VIA_PARTITION_KEY,
    encode_message,
    read_annotations,
    read_application_properties,
    read_properties,
    unpack_header,
    walk_sections,
)
from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.broker.journal_properties import forms_of
from busway.model.durations import format_iso, parse_duration
from busway.model.message import MessageState, partition_of
from busway.remote.wire.conditions import broker_facts
from busway.remote.wire.typed_values import typed_value

PROPERTY_FIELDS = {
    "message_id": "message_id",
    "user_id": "user_id",
    "to": "to",
    "subject": "subject",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "content_type": "content_type",
    "content_encoding": "content_encoding",
    "creation_time": "creation_time",
    "session_id": "group_id",
    "group_sequence": "group_sequence",
    "reply_to_session_id": "reply_to_group_id",
}
"""By name here: the field of AMQP's properties (3.2.4)."""
TEXTS = ("to", "subject", "reply_to", "content_type", "content_encoding", "session_id",
         "reply_to_session_id")  # fmt: skip
ANNOTATIONS = {
    "partition_key": PARTITION_KEY.decode(),
    "via_partition_key": VIA_PARTITION_KEY.decode(),
    "scheduled_enqueue_time": SCHEDULED_ENQUEUE_TIME.decode(),
}
BROKER_FIELDS = (
    "sequence_number", "enqueued_sequence_number", "partition", "state", "enqueued_time",
    "expires_time", "delivery_count", "locked_until", "lock_token", "dead_letter_source",
    "dead_letter_reason", "dead_letter_error_description",
)  # fmt: skip
"""What is the broker's to say, and passed over by a send."""
SENDER_FIELDS = (
    *PROPERTY_FIELDS, *ANNOTATIONS, "time_to_live", "absolute_expiry_time", "durable", "priority",
    "application_properties", "annotations", "footer", "body", "body_base64", "body_type",
)  # fmt: skip
INT_MAX = 1 << 31


class MessageJsonError(Exception):
    """An object that is no message, and why."""


# --- Out -----------------------------------------------------------------------------------------


def told(
    payload: bytes, *, dead_letter: bool = False, lock_token: str | None = None
) -> dict[str, Any]:
    """A message as a broker delivers or shows it; of a dead letter, why it is one."""
    found = _of_broker(payload)
    if lock_token is not None:
        found["lock_token"] = lock_token
    seen = scan_message(payload)
    properties = read_properties(payload)
    user = read_application_properties(payload)
    if dead_letter:
        found["dead_letter_reason"] = _plain(user.pop(REASON, None))
        found["dead_letter_error_description"] = _plain(user.pop(DESCRIPTION, None))
    for name, field in PROPERTY_FIELDS.items():
        value = getattr(properties, field)
        if value is not None:
            found[name] = _instant(value) if name == "creation_time" else _plain(value)
    annotations = read_annotations(seen.annotations)
    for name, symbol in ANNOTATIONS.items():
        if (value := annotations.pop(symbol, None)) is not None:
            is_time = name == "scheduled_enqueue_time"
            found[name] = _instant(value) if is_time else _plain(value)
    if seen.ttl_ms is not None:
        found["time_to_live"] = format_iso(seen.ttl_ms)
    elif properties.absolute_expiry_time is not None:
        found["absolute_expiry_time"] = _instant(properties.absolute_expiry_time)
    durable, _, priority = unpack_header(seen.header)
    found |= {
        name: value
        for name, value in (("durable", durable), ("priority", priority))
        if value is not None
    }
    if user:
        found["application_properties"] = _typed_map(user)
    if annotations:
        found["annotations"] = _typed_map(annotations)
    return found | _body(payload)


def _of_broker(payload: bytes) -> dict[str, Any]:
    annotations, delivery_count = broker_facts(payload)
    number = annotations.get("x-opt-sequence-number")
    if number is None:
        return {}
    found: dict[str, Any] = {
        "sequence_number": int(number),
        "partition": partition_of(int(number)),
        "state": MessageState(int(annotations.get("x-opt-message-state", 0))).name.lower(),
        "enqueued_time": _instant(annotations.get("x-opt-enqueued-time")),
        "delivery_count": delivery_count,
    }
    if enqueued := annotations.get("x-opt-enqueue-sequence-number"):
        found["enqueued_sequence_number"] = int(enqueued)
    if (until := annotations.get("x-opt-locked-until")) is not None:
        found["locked_until"] = _instant(until)
    if (source := annotations.get("x-opt-deadletter-source")) is not None:
        found["dead_letter_source"] = str(source)
    return found


def _instant(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(int(at_ms) / 1000, UTC)
    except (OverflowError, ValueError):
        return None  # beyond the year 9999: as good as never
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """The value itself where JSON tells its type, else with the name of its type."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is amqp.Int:
        return int(value)
    if type(value) is int and not -INT_MAX <= value < INT_MAX:
        return value
    if type(value) is float and value == value and value not in (float("inf"), -float("inf")):
        return value
    return json.loads(forms_of(value)[1])


def _typed_map(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _plain(value) for name, value in values.items()}


def _body(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    data: list[bytes] = []
    lists: list[list[Any]] = []
    for code, _, start, _ in walk_sections(payload):
        if code == DATA:
            data.append(decode_value(payload, start)[0])
        elif code == AMQP_SEQUENCE:
            lists.append([_plain(each) for each in decode_value(payload, start)[0]])
        elif code == AMQP_VALUE:
            found |= _value_body(decode_value(payload, start)[0])
        elif code == FOOTER:
            found["footer"] = _typed_map(decode_value(payload, start)[0])
    if lists:
        found |= {"body_type": "sequence", "body": lists}
    elif len(data) == 1:
        found |= _text_or_base64(data[0])
    elif data:
        found |= {"body_base64": [b64encode(each).decode() for each in data]}
    return found


def _value_body(value: Any) -> dict[str, Any]:
    if type(value) is str:
        return {"body_type": "string", "body": value}
    if type(value) is bytes:
        return {"body_type": "binary", "body_base64": b64encode(value).decode()}
    return {"body_type": "value", "body": _plain(value)}


def _text_or_base64(content: bytes) -> dict[str, Any]:
    try:
        return {"body": content.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(content).decode()}


# --- In ------------------------------------------------------------------------------------------


def encode(message: Mapping[str, Any], now_ms: int) -> bytes:
    """The message that an object describes. Raises `MessageJsonError`."""
    unknown = set(message) - {*SENDER_FIELDS, *BROKER_FIELDS}
    if unknown:
        raise MessageJsonError(
            f"A message has no field '{sorted(unknown)[0]}'. It may have "
            f"{', '.join(SENDER_FIELDS)}."
        )
    try:
        return _encoded({name: each for name, each in message.items() if each is not None}, now_ms)
    except (ValueError, TypeError, KeyError, AttributeError, ProtocolError) as error:
        raise MessageJsonError(f"A value cannot be sent: {error}.") from error


def _encoded(message: Mapping[str, Any], now_ms: int) -> bytes:
    ttl_ms = _span(message.get("time_to_live"))
    header = None
    if ttl_ms is not None or "durable" in message or "priority" in message:
        header = Header(
            durable=message.get("durable"),
            priority=message.get("priority"),
            ttl=None if ttl_ms is None else min(ttl_ms, TTL_MAX_MS),
        )
    annotations = {
        amqp.Symbol(name): _value(each) for name, each in message.get("annotations", {}).items()
    }
    for name, symbol in ANNOTATIONS.items():
        if name in message:
            value = message[name]
            is_time = name == "scheduled_enqueue_time"
            annotations[amqp.Symbol(symbol)] = timestamp(value) if is_time else str(value)
    user = {name: _value(each) for name, each in message.get("application_properties", {}).items()}
    sections = encode_message(
        header=header,
        annotations=annotations or None,
        properties=_properties(message, ttl_ms, now_ms),
        application_properties=user or None,
    )
    return sections + _body_sections(message) + _footer(message)


def _span(text: str | None) -> int | None:
    if text is None:
        return None
    ms = parse_duration(text)
    if ms is not None and ms <= 0:
        raise ValueError("time_to_live must be above zero")
    return ms


def _properties(message: Mapping[str, Any], ttl_ms: int | None, now_ms: int) -> Properties | None:
    given: dict[str, Any] = {}
    for name, field in PROPERTY_FIELDS.items():
        if name not in message:
            continue
        value = message[name]
        if name == "creation_time":
            given[field] = timestamp(value)
        elif name in TEXTS:
            given[field] = _text(name, value)
        else:
            given[field] = _value(value)
    if "absolute_expiry_time" in message:
        given["absolute_expiry_time"] = timestamp(message["absolute_expiry_time"])
    if ttl_ms is not None and ttl_ms > TTL_MAX_MS:
        # A header has no room for it: the difference of the two says it.
        given |= {"creation_time": now_ms, "absolute_expiry_time": now_ms + ttl_ms}
    return Properties(**given) if given else None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text")
    return value


def timestamp(text: str) -> amqp.Timestamp:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return amqp.Timestamp(round(moment.timestamp() * 1000))


def _value(value: Any) -> Any:
    if isinstance(value, list):
        kind, content = value
        return typed_value(kind, content)
    if type(value) is int:
        return amqp.Int(value) if -INT_MAX <= value < INT_MAX else value
    if value is None or isinstance(value, bool | str | float):
        return value
    raise ValueError(f"{value!r} must be a text, a number, true, false, null or [type, value]")


def _body_sections(message: Mapping[str, Any]) -> bytes:
    kind = message.get("body_type", "data")
    body = message.get("body")
    encoded = message.get("body_base64")
    match kind:
        case "data":
            if encoded is not None:
                parts = encoded if isinstance(encoded, list) else [encoded]
                return b"".join(_section(DATA, b64decode(each)) for each in parts)
            return b"" if body is None else _section(DATA, _as_bytes(body))
        case "string":
            return _section(AMQP_VALUE, _text("body", body))
        case "binary":
            return _section(AMQP_VALUE, b64decode(encoded or ""))
        case "value":
            return _section(AMQP_VALUE, _value(body))
        case "sequence":
            return b"".join(
                _section(AMQP_SEQUENCE, [_value(each) for each in items]) for items in body or ()
            )
    raise ValueError(f"body_type is '{kind}'; it may be data, string, binary, value or sequence")


def _as_bytes(body: Any) -> bytes:
    """A body that is an object or a list is sent as JSON: what people mean who write one."""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _footer(message: Mapping[str, Any]) -> bytes:
    footer = message.get("footer")
    if not footer:
        return b""
    pairs = {amqp.Symbol(name): _value(each) for name, each in footer.items()}
    return _section(FOOTER, pairs)


def _section(code: int, value: Any) -> bytes:
    return encode_value(amqp.Described(amqp.ULong(code), value))
