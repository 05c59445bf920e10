"""The sections of a message (AMQP 1.0, section 3.2): what a broker reads, keeps and changes.

Owns the split between what the sender wrote and what the broker writes. A sender's header becomes
one integer, its message annotations a run of encoded pairs without those that are the broker's own,
and everything from properties to footer stays as it came: `bare`. Its delivery annotations, where
it wrote any, are kept in front of that. Bodies are never decoded.

`codec.scan_message` takes a message apart, `codec.encode_delivery` puts the broker's sections in
front of `bare`; the functions here edit and read a `bare`, off the hot path.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway.amqp._pure_composites import encode_composite, read_composite, read_descriptor
from busway.amqp._pure_decoding import (
    compound_extent,
    decode_within,
    malformed,
    skip,
    variable_extent,
)
from busway.amqp._pure_encoding import append_compound, encode_binary, encode_into
from busway.amqp.errors import ProtocolError
from busway.amqp.performatives import Header, Properties
from busway.amqp.types import Symbol, Timestamp, UByte, UInt

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
AMQP_SEQUENCE = 0x76
AMQP_VALUE = 0x77
FOOTER = 0x78

BODY = frozenset({DATA, AMQP_SEQUENCE, AMQP_VALUE})

SECTION_SYMBOLS: dict[bytes, int] = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": AMQP_SEQUENCE,
    b"amqp:amqp-value:*": AMQP_VALUE,
    b"amqp:footer:map": FOOTER,
}

BATCH_FORMAT = 0x80013700
"""The message format of a transfer whose data sections are messages (amqp.md, section 13)."""

ABSOLUTE_EXPIRY_TIME = 8
CREATION_TIME = 9
"""Places in the properties section (3.2.4)."""

TTL_MAX_MS = 0xFFFFFFFF
"""The header's time to live is an unsigned integer of 32 bits: 49 days. A longer one is the
difference of the properties absolute-expiry-time and creation-time."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: a later timestamp is no date to .NET, and none to Python."""

PARTITION_KEY = b"x-opt-partition-key"
VIA_PARTITION_KEY = b"x-opt-via-partition-key"
SCHEDULED_ENQUEUE_TIME = b"x-opt-scheduled-enqueue-time"

BROKER_ANNOTATIONS = frozenset(
    {
        b"x-opt-deadletter-source",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-lock-token",
        b"x-opt-locked-until",
        b"x-opt-message-state",
        b"x-opt-partition-id",
        b"x-opt-sequence-number",
    }
)
"""Message annotations that only a broker sets; a sender's are ignored (amqp.md, section 12)."""

LOCK_TOKEN = b"x-opt-lock-token"
"""The one delivery annotation that a broker sets."""


@dataclass(slots=True)
class Sections:
    """What one pass over a message found."""

    header: int
    """durable, first-acquirer and priority as `pack_header` packs them; 0 without a header."""
    ttl_ms: int | None
    """The time to live that the sender asks for, also if it is longer than a header can say."""
    annotations: bytes
    """The sender's message annotations: encoded keys and values, without the map around them."""
    annotation_items: int
    """How many encoded items `annotations` holds (two to a pair)."""
    partition_key: str | None
    via_partition_key: str | None
    scheduled_ms: int | None
    message_id: Any
    """Of the type that the sender chose: str, ULong, UUID or bytes; None for none."""
    group_id: str | None
    absolute_expiry_ms: int | None
    bare: bytes
    """The sender's delivery annotations, if any; then properties, application properties, body and
    footer, in this order."""
    application_properties: bytes | None
    """The encoded map of that section; None if there is none."""


@dataclass(slots=True)
class Parts:
    """What many messages say, part by part, as `codec.read_messages` finds it. Each list has a
    value for each message, None for what it does not have."""

    fields: list[list[Any]]
    """Of the properties section, for each place that was asked for: texts."""
    user: list[dict[Any, Any] | None]
    """Application properties, with their AMQP types."""
    bodies: list[bytes | None]
    body_types: list[str | None]
    """`data`, `sequence`, or of a value `string`, `binary`, `value`: see `read_messages`."""
    unreadable: list[int]
    """Which messages have sections that cannot be read: nothing is told of those."""


def pack_header(durable: bool | None, first_acquirer: bool | None, priority: int | None) -> int:
    """One integer for the fields of a header that a broker only passes on.

    Two bits each for the flags (absent, false, true), then the priority plus one.
    """
    return (
        (0 if durable is None else 1 + durable)
        | (0 if first_acquirer is None else 1 + first_acquirer) << 2
        | (0 if priority is None else 1 + priority) << 4
    )


def unpack_header(header: int) -> tuple[bool | None, bool | None, int | None]:
    """`(durable, first-acquirer, priority)`"""
    durable, first_acquirer, priority = header & 3, header >> 2 & 3, header >> 4
    return (
        None if durable == 0 else durable == 2,
        None if first_acquirer == 0 else first_acquirer == 2,
        None if priority == 0 else priority - 1,
    )


# Reading


def walk_sections(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """`(code, start, start of its value, stop)` of each section, of whatever order."""
    offset = 0
    end = len(data)
    while offset < end:
        code, value = read_descriptor(data, offset, end, SECTION_SYMBOLS)
        stop = skip(data, value, end)
        yield code, offset, value, stop
        offset = stop


def walk_pairs(data: bytes, offset: int, end: int) -> Iterator[tuple[bytes | None, int, int, int]]:
    """`(text of the key, start, start of its value, stop)` of each pair of the map at `offset`.

    Text is None for a key that is neither symbol nor string; a broker leaves such pairs alone.
    """
    if offset >= end or data[offset] & 0xEF != 0xC1:
        raise malformed("A map was expected.")
    count, offset, stop = compound_extent(data, offset + 1, end, data[offset] == 0xD1)
    if count % 2:
        raise malformed("A map has a key without a value.")
    for _ in range(count // 2):
        start = offset
        key, value, offset = _pair(data, start, stop)
        yield key, start, value, offset
    if offset != stop:
        raise malformed("The items of a list, map or array do not fill its size.")


def _pair(data: bytes, start: int, stop: int) -> tuple[bytes | None, int, int]:
    """The text of the key, the start of the value, and where the pair ends."""
    value = skip(data, start, stop)
    key = None
    if data[start] & 0xEF in (0xA1, 0xA3):
        first, last = variable_extent(data, start + 1, stop, bool(data[start] & 0x10))
        key = data[first:last]
    return key, value, skip(data, value, stop)


def read_properties(bare: bytes) -> Properties:
    """The properties of a message, decoded; ids keep their AMQP type."""
    for code, start, _, stop in walk_sections(bare):
        if code == PROPERTIES:
            properties, _ = read_composite(bare, start, stop, 0)
            assert isinstance(properties, Properties)
            return properties
    return Properties()


def read_application_properties(bare: bytes) -> dict[str, Any]:
    """The application properties of a message, decoded: those whose keys are texts."""
    for code, _, value, stop in walk_sections(bare):
        if code == APPLICATION_PROPERTIES:
            pairs, _ = decode_within(bare, value, stop, 0)
            if not isinstance(pairs, dict):
                raise malformed("A map was expected.")
            return {str(key): item for key, item in pairs.items() if isinstance(key, str)}
    return {}


def read_annotations(encoded: bytes) -> dict[str, Any]:
    """Message annotations that a scan has kept: encoded pairs without the map around them."""
    found: dict[str, Any] = {}
    offset, end = 0, len(encoded)
    while offset < end:
        key, offset = decode_within(encoded, offset, end, 0)
        value, offset = decode_within(encoded, offset, end, 0)
        if isinstance(key, str):
            found[str(key)] = value
    return found


def read_annotation(encoded: bytes, key: bytes) -> Any:
    """One of them; None if it is not there. The others are not decoded, nor need they be good."""
    found, offset, end = None, 0, len(encoded)
    while offset < end:
        name, value, offset = _pair(encoded, offset, end)
        if name == key:
            found, _ = decode_within(encoded, value, offset, 0)
    return found


# Delivery annotations: the front of what is kept of a message

_FRONT = bytes((0x00, 0x53, DELIVERY_ANNOTATIONS))
NO_DELIVERY_ANNOTATIONS = _FRONT + b"\xc1\x01\x00"


def kept_front(data: bytes, value: int, stop: int) -> bytes:
    """A sender's delivery annotations as they are kept; nothing if there are none.

    A message that is sent again has the token of its old lock, which is dropped.
    """
    pairs = [pair for pair in walk_pairs(data, value, stop) if pair[0] != LOCK_TOKEN]
    if not pairs:
        return b""
    out = bytearray(_FRONT)
    items = bytearray().join([data[start:after] for _, start, _, after in pairs])
    append_compound(out, 0xC1, 2 * len(pairs), items)
    return bytes(out)


def front_size(bare: bytes) -> int:
    """How many octets the sender's delivery annotations take in what is kept of a message."""
    return skip(bare, len(_FRONT), len(bare)) if bare.startswith(_FRONT) else 0


def delivered_front(bare: bytes, lock_token: bytes | None) -> bytes:
    """The delivery annotations of a delivery: those kept in `bare`, and the token of a lock.

    The token is that of the delivery tag: a GUID in .NET's order of octets.
    """
    count, items = 0, b""
    if bare.startswith(_FRONT):
        code, end = bare[len(_FRONT)], front_size(bare)
        count, start, stop = compound_extent(bare, len(_FRONT) + 1, end, code == 0xD1)
        items = bare[start:stop]
    if lock_token is not None:
        octets = lock_token
        network = octets[3::-1] + octets[5:3:-1] + octets[7:5:-1] + octets[8:]
        items = b"\xa3%c%b\x98%b" % (len(LOCK_TOKEN), LOCK_TOKEN, network) + items
        count += 2
    out = bytearray(_FRONT)
    append_compound(out, 0xC1, count, items)
    return bytes(out)


# Editing


def merge_changes(old: bytes | None, new: dict[str, Any]) -> bytes:
    """An encoded map of the properties in `old`, as they are, and in `new`, which wins."""
    pairs = bytearray()
    for key, item in new.items():
        encode_into(pairs, str(key))
        encode_into(pairs, item)
    changes = bytearray()
    append_compound(changes, 0xC1, 2 * len(new), pairs)
    return bytes(changes) if old is None else _merge(old, 0, bytes(changes))


def apply_changes(bare: bytes, changes: bytes) -> bytes:
    """`bare` with the encoded map `changes` spliced into its application properties.

    Every other pair keeps its bytes, and so its types. A section that is missing is made in its
    place: after the properties, before the body.
    """
    place = front_size(bare)
    for code, _, value, stop in walk_sections(bare):
        if code == APPLICATION_PROPERTIES:
            return b"".join((bare[:value], _merge(bare[:stop], value, changes), bare[stop:]))
        if code == PROPERTIES:
            place = stop
    section = bytes((0x00, 0x53, APPLICATION_PROPERTIES))
    return b"".join((bare[:place], section, changes, bare[place:]))


def _merge(old: bytes, offset: int, changes: bytes) -> bytes:
    """The map at `offset` of `old` up to its end, with the pairs of `changes` winning."""
    changed = list(walk_pairs(changes, 0, len(changes)))
    names = {key for key, *_ in changed}
    kept = [pair for pair in walk_pairs(old, offset, len(old)) if pair[0] not in names]
    out = bytearray()
    items = bytearray().join(
        [old[start:stop] for _, start, _, stop in kept]
        + [changes[start:stop] for _, start, _, stop in changed]
    )
    append_compound(out, 0xC1, 2 * (len(kept) + len(changed)), items)
    return bytes(out)


def with_message_id(bare: bytes, message_id: str) -> bytes:
    """A bare message that has no message id, with this one."""
    text = message_id.encode()
    assert len(text) < 256
    identity = b"\xa1%c%b" % (len(text), text)
    front = front_size(bare)
    items, count, rest = b"", 0, bare[front:]
    if bare[front : front + 3] == b"\x00\x53%c" % PROPERTIES:
        code = bare[front + 3]
        count, start, stop = 0, front + 4, front + 4
        if code != 0x45:  # an empty list has no size and no count
            count, start, stop = compound_extent(bare, start, len(bare), code == 0xD0)
        items, rest = bare[start:stop], bare[stop:]
    if count:
        assert items[:1] == b"\x40", "there is a message id"
        items = items[1:]
    out = bytearray(b"\x00\x53%c" % PROPERTIES)
    append_compound(out, 0xC0, max(count, 1), identity + items)
    return bare[:front] + bytes(out) + rest


def long_ttl_ms(creation_ms: int | None, absolute_expiry_ms: int | None) -> int:
    """The time to live of a message whose header says the longest that it can (TTL-1)."""
    if creation_ms is None or absolute_expiry_ms is None:
        return TTL_MAX_MS
    return min(max(absolute_expiry_ms - creation_ms, TTL_MAX_MS), LATEST_MS)


def with_times(bare: bytes, creation_ms: int, absolute_expiry_ms: int) -> bytes:
    """`bare` with these two times among its properties."""
    times = {
        ABSOLUTE_EXPIRY_TIME: Timestamp(absolute_expiry_ms),
        CREATION_TIME: Timestamp(creation_ms),
    }
    return replace_properties(bare, times)


def with_long_ttl(bare: bytes, ttl_ms: int | None, now_ms: int) -> bytes:
    """`bare` so that it says a time to live for which its header has no room. One that cannot be
    read stays as it is."""
    if ttl_ms is None or ttl_ms <= TTL_MAX_MS:
        return bare
    try:
        if long_ttl_ms(_time(bare, CREATION_TIME), _time(bare, ABSOLUTE_EXPIRY_TIME)) == ttl_ms:
            return bare
        return with_times(bare, now_ms, now_ms + ttl_ms)
    except ProtocolError:
        return bare


def _time(bare: bytes, place: int) -> int | None:
    """A timestamp among the properties; None if there is none, or another type of value."""
    for code, _, value, stop in walk_sections(bare):
        if code == PROPERTIES:
            items = _items(bare, value, stop)
            if place < len(items) and items[place][0] == 0x83:
                return int.from_bytes(items[place][1:], "big", signed=True)
    return None


def replace_properties(bare: bytes, fields: Mapping[int, Any]) -> bytes:
    """`bare` with other values in some fields of its properties, by their places (3.2.4).

    Every other field keeps its bytes. A section that is missing is made if there is a value for it.
    """
    for code, start, value, stop in walk_sections(bare):
        if code == PROPERTIES:
            items = _items(bare, value, stop)
            return b"".join((bare[:start], _properties_section(items, fields), bare[stop:]))
    front = front_size(bare)
    return bare[:front] + _properties_section([], fields) + bare[front:]


def _items(data: bytes, value: int, stop: int) -> list[bytes]:
    """The encoded items of the list at `value`."""
    if data[value] == 0x45:  # an empty list has no size and no count
        return []
    if data[value] & 0xEF != 0xC0:
        raise malformed("A list was expected.")
    count, offset, end = compound_extent(data, value + 1, stop, data[value] == 0xD0)
    items = []
    for _ in range(count):
        start, offset = offset, skip(data, offset, end)
        items.append(data[start:offset])
    if offset != end:
        raise malformed("The items of a list, map or array do not fill its size.")
    return items


def _properties_section(items: list[bytes], fields: Mapping[int, Any]) -> bytes:
    given = {place: value for place, value in fields.items() if value is not None}
    items = items + [b"\x40"] * (max(given, default=-1) + 1 - len(items))
    for place in fields:
        if place < len(items):
            encoded = bytearray()
            encode_into(encoded, fields[place])
            items[place] = bytes(encoded)
    if not items:
        return b""
    out = bytearray((0x00, 0x53, PROPERTIES))
    append_compound(out, 0xC0, len(items), bytearray().join(items))
    return bytes(out)


def drop_application_properties(bare: bytes, names: Collection[str]) -> bytes:
    """`bare` without these; every other one keeps its bytes. The section goes with the last one."""
    unwanted = {name.encode() for name in names}
    for code, start, value, stop in walk_sections(bare):
        if code == APPLICATION_PROPERTIES:
            pairs = list(walk_pairs(bare, value, stop))
            kept = [pair for pair in pairs if pair[0] not in unwanted]
            if len(kept) == len(pairs):
                return bare
            section = bytearray()
            if kept:
                section += bytes((0x00, 0x53, APPLICATION_PROPERTIES))
                items = bytearray().join([bare[first:last] for _, first, _, last in kept])
                append_compound(section, 0xC1, 2 * len(kept), items)
            return b"".join((bare[:start], section, bare[stop:]))
    return bare


def drop_pairs(pairs: bytes, items: int, keys: Collection[bytes]) -> tuple[bytes, int]:
    """Encoded pairs without those of some keys, and how many items are left."""
    whole = bytearray()
    append_compound(whole, 0xC1, items, pairs)
    kept = [pair for pair in walk_pairs(bytes(whole), 0, len(whole)) if pair[0] not in keys]
    return b"".join(bytes(whole[start:stop]) for _, start, _, stop in kept), 2 * len(kept)


def drop_body(bare: bytes) -> bytes:
    """`bare` without its body: what a peek that omits bodies shows."""
    return b"".join(
        bare[start:stop] for code, start, _, stop in walk_sections(bare) if code not in BODY
    )


# Envelopes: a message without its body, for who keeps the content of bodies elsewhere

_PLAIN_BODIES = {DATA: (0xA0,), AMQP_VALUE: (0xA0, 0xA1)}
"""What the content of a body is enough for: one binary, or a value that is a binary or a text."""


def envelope_of(message: bytes) -> bytes:
    """A message without its body, if `put_body` can put that back to the byte; else all of it."""
    bodies = [each for each in walk_sections(message) if each[0] in BODY]
    if len(bodies) != 1:
        return message
    ((code, start, value, stop),) = bodies
    kind = message[value]
    is_narrow = kind < 0xB0
    if (
        kind & 0xEF not in _PLAIN_BODIES.get(code, ())
        or message[start:value] != bytes((0x00, 0x53, code))
        or (not is_narrow and stop - value - 5 < 256)  # AMQP has a shorter form for it
    ):
        return message
    return message[:start] + message[stop:]


def put_body(envelope: bytes, section: bytes) -> bytes:
    """A message from its envelope, and a body that was left out of it."""
    place = len(envelope)
    for code, start, _, _ in walk_sections(envelope):
        if code in BODY:
            return envelope
        if code == FOOTER:
            place = start
    return envelope[:place] + section + envelope[place:]


# Building


def sender_front(header: int, ttl_ms: int | None, annotations: bytes, items: int) -> bytes:
    """Header and message annotations of a sender, from what a scan has kept of them."""
    out = bytearray()
    if header or ttl_ms is not None:
        durable, first_acquirer, priority = unpack_header(header)
        fields = [
            durable,
            None if priority is None else UByte(priority),
            None if ttl_ms is None else UInt(min(ttl_ms, TTL_MAX_MS)),
            first_acquirer,
        ]
        out += bytes((0x00, 0x53, HEADER))
        encode_into(out, fields)
    if items:
        out += struct.pack(
            ">BBBBII", 0, 0x53, MESSAGE_ANNOTATIONS, 0xD1, 4 + len(annotations), items
        )
        out += annotations
    return bytes(out)


NO_BODY: Final[Any] = object()


def encode_message(
    *,
    header: Header | None = None,
    annotations: dict[Symbol, Any] | None = None,
    properties: Properties | None = None,
    application_properties: dict[str, Any] | None = None,
    body: Any = NO_BODY,
    data: bytes | None = None,
) -> bytes:
    """A message of the broker's own: `body` becomes an amqp-value section, `data` a data section.

    None is a body: the null value.
    """
    out = bytearray()
    if header is not None:
        encode_composite(out, header)
    if annotations is not None:
        out += bytes((0x00, 0x53, MESSAGE_ANNOTATIONS))
        encode_into(out, annotations)
    if properties is not None:
        encode_composite(out, properties)
    if application_properties is not None:
        out += bytes((0x00, 0x53, APPLICATION_PROPERTIES))
        encode_into(out, application_properties)
    if data is not None:
        out += bytes((0x00, 0x53, DATA))
        encode_binary(out, data)
    if body is not NO_BODY:
        out += bytes((0x00, 0x53, AMQP_VALUE))
        encode_into(out, body)
    return bytes(out)
