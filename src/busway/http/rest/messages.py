"""A message as HTTP carries it, both ways (http.md section 9).

In: body, `Content-Type`, `BrokerProperties` and the properties of the application become one AMQP
message with the types that client libraries would have chosen. Out: the same from a stored one.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from multidict import CIMultiDict

from busway.amqp.codec import decode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    BODY,
    LATEST_MS,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    TTL_MAX_MS,
    VIA_PARTITION_KEY,
    encode_message,
    read_annotations,
    read_application_properties,
    read_properties,
    walk_sections,
)
from busway.amqp.types import Symbol, Timestamp
from busway.gateway import envelope
from busway.http.rest import values
from busway.http.rest.names import BROKER_PROPERTIES, OTHER_PROPERTIES, can_be_header
from busway.model.durations import SECOND_MS, UNLIMITED_MS, parse_timespan
from busway.model.errors import ARGUMENT_ERROR, ARGUMENT_OUT_OF_RANGE, BusError
from busway.model.message import Message
from busway.model.partitioning import message_id_text

log = logging.getLogger("busway.http")

T = TypeVar("T")

PROPERTY_FIELDS = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "group_id",
    "Label": "subject",
    "To": "to",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_group_id",
}
"""Names in `BrokerProperties`, and the fields of the AMQP properties that they are."""
ANNOTATIONS = {
    "PartitionKey": Symbol(PARTITION_KEY.decode()),
    "ViaPartitionKey": Symbol(VIA_PARTITION_KEY.decode()),
}
SCHEDULED = Symbol(SCHEDULED_ENQUEUE_TIME.decode())
_NOTHING: dict[str, Any] = {}
STATES = {0: "Active", 1: "Deferred", 2: "Scheduled"}


def refused(detail: str) -> BusError:
    return BusError(ARGUMENT_ERROR, refused=True, detail=detail)


# --- In ------------------------------------------------------------------------------------------


def payload_of(
    body: bytes,
    content_type: str | None,
    broker_properties: Mapping[str, Any],
    user_properties: Mapping[str, Any],
    now_ms: int,
) -> bytes:
    """The AMQP message that they make; user properties have AMQP values already."""
    fields: dict[str, Any] = {
        field: text
        for name, field in PROPERTY_FIELDS.items()
        if (text := _text(broker_properties, name)) is not None
    }
    annotations: dict[Symbol, Any] = {
        symbol: text
        for name, symbol in ANNOTATIONS.items()
        if (text := _text(broker_properties, name)) is not None
    }
    scheduled = _text(broker_properties, "ScheduledEnqueueTimeUtc")
    if scheduled is not None:
        annotations[SCHEDULED] = _instant("ScheduledEnqueueTimeUtc", scheduled)
    if content_type is not None:
        if not content_type.isascii():
            raise refused("The content type of a message must be ASCII.")
        fields["content_type"] = content_type
    ttl_ms = _time_to_live_ms(broker_properties)
    header = None if ttl_ms is None else Header(ttl=min(ttl_ms, TTL_MAX_MS))
    if ttl_ms is not None and ttl_ms > TTL_MAX_MS:
        fields |= {"creation_time": now_ms, "absolute_expiry_time": now_ms + ttl_ms}
    try:
        return encode_message(
            header=header,
            annotations=annotations or None,
            properties=Properties(**fields) if fields else None,
            application_properties=dict(user_properties) or None,
            data=body,
        )
    except UnicodeEncodeError:
        raise refused("A text has half of a surrogate pair, and so is no Unicode.") from None


def _text(properties: Mapping[str, Any], name: str) -> str | None:
    value = properties.get(name)
    if value is not None and not isinstance(value, str):
        raise refused(f"'{name}' in {BROKER_PROPERTIES} must be text in quotes.")
    return value


def _instant(name: str, text: str) -> Timestamp:
    try:
        return Timestamp(values.instant_ms(text))
    except ValueError:
        raise refused(
            f"'{name}' in {BROKER_PROPERTIES} must be an instant such as "
            "'Sun, 06 Nov 1994 08:49:37 GMT' or '1994-11-06T08:49:37Z'."
        ) from None


def _time_to_live_ms(properties: Mapping[str, Any]) -> int | None:
    """None for none, or without an end."""
    seconds, span = properties.get("TimeToLive"), _text(properties, "TimeToLiveTimeSpan")
    if seconds is None and span is None:
        return None
    if seconds is None:
        try:
            wanted = float(parse_timespan(str(span)))
        except ValueError as error:
            raise refused(f"'TimeToLiveTimeSpan' in {BROKER_PROPERTIES}: {error}.") from None
    elif isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise refused(f"'TimeToLive' in {BROKER_PROPERTIES} must be a number of seconds.")
    else:
        # Far more than any limit below, and never an overflow.
        wanted = float(max(-1, min(seconds, UNLIMITED_MS))) * SECOND_MS
    if wanted <= 0:  # TTL-9
        detail = "The TimeToLive of a message must be above zero."
        raise BusError(ARGUMENT_OUT_OF_RANGE, refused=True, detail=detail)
    return None if wanted >= UNLIMITED_MS else min(math.ceil(wanted), LATEST_MS)


# --- Out -----------------------------------------------------------------------------------------


def headers_of(
    message: Message, bare: bytes, origin: envelope.Origin, *, locked: bool
) -> CIMultiDict[str]:
    """All that a message says about itself. Nothing in it can end a header."""
    headers: CIMultiDict[str] = CIMultiDict()
    properties = properties_of(bare)
    described = _broker_properties(message, properties, origin, locked=locked)
    content_type = properties.content_type
    if content_type and content_type.isascii() and content_type.isprintable():
        headers["Content-Type"] = content_type
    elif content_type:
        described["ContentType"] = content_type
    headers[BROKER_PROPERTIES] = json.dumps(described).replace("\x7f", "\\u007f")
    others: dict[str, Any] = {}
    for name, value in _readable(read_application_properties, bare, _NOTHING).items():
        if can_be_header(name):
            headers.add(name, values.to_header(value))
        else:
            others[name] = value
    if others:
        headers[OTHER_PROPERTIES] = values.to_header_of_names(others)
    return headers


def _broker_properties(
    message: Message, properties: Properties, origin: envelope.Origin, *, locked: bool
) -> dict[str, Any]:
    annotations = _readable(read_annotations, message.annotations, _NOTHING)
    described: dict[str, Any] = {
        "DeliveryCount": message.delivery_count + 1,  # the first delivery is the first here
        "EnqueuedSequenceNumber": message.enqueued_number,
        "EnqueuedTimeUtc": values.http_date(message.enqueued_ms),
        "SequenceNumber": message.number,
        "State": STATES[message.state],
    }
    if locked:
        described["LockToken"] = lock_token_text(message)
        described["LockedUntilUtc"] = values.http_date(message.locked_until_ms)
    for name, field in PROPERTY_FIELDS.items():
        text = id_text(getattr(properties, field))
        if text is not None:
            described[name] = text
    for name, symbol in ANNOTATIONS.items():
        if isinstance(value := annotations.get(symbol), str):
            described[name] = value
    if isinstance(scheduled := annotations.get(SCHEDULED), int):
        described["ScheduledEnqueueTimeUtc"] = values.http_date(scheduled)
    life = envelope.life_of(message, origin)
    if life is not None:
        described["TimeToLive"] = life[1] / SECOND_MS
    if message.dead_letter_source is not None:  # DLQ-4
        described["DeadLetterSource"] = message.dead_letter_source
    return described


def properties_of(bare: bytes) -> Properties:
    return _readable(read_properties, bare, Properties())


def id_text(value: Any) -> str | None:
    """The text of an id; None without one, or with a value that is no id: clients send those."""
    return message_id_text(value) if isinstance(value, str | UUID | bytes | int) else None


def lock_token_text(message: Message) -> str:
    assert message.lock_token is not None
    return str(UUID(bytes_le=message.lock_token))


def body_of(bare: bytes) -> bytes:
    """What was data comes as it is, text as UTF-8; any other value in its AMQP encoding."""
    parts = []
    for code, _, start, stop in walk_sections(bare):
        if code not in BODY:
            continue
        part = bare[start:stop]
        value = None if code == AMQP_SEQUENCE else _readable(_value_of, part, None)
        if type(value) is bytes:
            part = value
        elif isinstance(value, str):
            part = value.encode()
        parts.append(part)
    return b"".join(parts)


def _value_of(encoded: bytes) -> Any:
    return decode_value(encoded)[0]


def _readable(read: Callable[[bytes], T], encoded: bytes, otherwise: T) -> T:
    """What a broker only passes on may be no AMQP inside. A receiver gets the message all the
    same, without that part: nobody else can tell what is in it either."""
    try:
        return read(encoded)
    except ProtocolError as problem:
        log.info("a part of a message cannot be read: %s", problem)
        return otherwise
