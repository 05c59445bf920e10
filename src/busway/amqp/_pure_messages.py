"""Messages in pure Python: taking a sender's apart, putting the broker's sections in front."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from busway.amqp._pure_composites import (
    READ,
    READERS,
    encode_composite,
    read_list_extent,
)
from busway.amqp._pure_decoding import decode_within, malformed, skip, variable_extent
from busway.amqp._pure_encoding import encode_string, encode_symbol
from busway.amqp.errors import DECODE_ERROR, INVALID_FIELD, ProtocolError
from busway.amqp.performatives import Header, Kind
from busway.amqp.sections import (
    ABSOLUTE_EXPIRY_TIME,
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    BODY,
    BROKER_ANNOTATIONS,
    CREATION_TIME,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PARTITION_KEY,
    PROPERTIES,
    SCHEDULED_ENQUEUE_TIME,
    TTL_MAX_MS,
    VIA_PARTITION_KEY,
    Sections,
    delivered_front,
    front_size,
    kept_front,
    long_ttl_ms,
    pack_header,
    unpack_header,
    walk_pairs,
    walk_sections,
    with_times,
)
from busway.amqp.texts import (
    STRING,
    TEXT_ANNOTATIONS,
    TEXT_PLACES,
    TextMisfitError,
    is_misfit,
    with_texts,
)

_MAPS = (0xC1, 0xD1)
_LISTS = (0x45, 0xC0, 0xD0)
_BINARIES = (0xA0, 0xB0)

# What the value of a section may be; amqp-value may be anything.
_SECTION_TYPES: dict[int, tuple[int, ...]] = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    DATA: _BINARIES,
    AMQP_SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}


def scan_message(payload: bytes) -> Sections:
    """One pass over a message: what a broker must know, the rest as bytes.

    Sections may come in any order, because the Python SDK writes delivery annotations last; a body
    may be missing (amqp.md, section 3).
    """
    if type(payload) is not bytes:
        payload = bytes(payload)
    try:
        return _scan(payload, mended=False)
    except TextMisfitError:
        return _scan(with_texts(payload), mended=True)


def _scan(payload: bytes, *, mended: bool) -> Sections:
    found = Sections(0, None, b"", 0, None, None, None, None, None, None, b"", None)
    front = b""
    pieces: list[tuple[int, int, int, int]] = []
    seen: set[int] = set()
    creation_ms = None
    for code, start, value, stop in walk_sections(payload):
        _check_section(code, payload[value], seen)
        seen.add(code)
        if code == HEADER:
            _scan_header(payload, value, stop, found)
        elif code == MESSAGE_ANNOTATIONS:
            _scan_annotations(payload, value, stop, found, mended)
        elif code == DELIVERY_ANNOTATIONS:
            front = kept_front(payload, value, stop)
        elif code >= PROPERTIES:
            pieces.append((code, start, value, stop))
            if code == PROPERTIES:
                creation_ms = _scan_properties(payload, value, stop, found, mended)
            elif code == APPLICATION_PROPERTIES:
                found.application_properties = payload[value:stop]
    if found.ttl_ms == TTL_MAX_MS:
        found.ttl_ms = long_ttl_ms(creation_ms, found.absolute_expiry_ms)
    found.bare = front + _join(payload, pieces)
    return found


def _check_section(code: int, constructor: int, seen: set[int]) -> None:
    if not HEADER <= code <= FOOTER:
        raise malformed(f"A message has no section 0x{code:02x}.")
    if code != AMQP_VALUE and constructor not in _SECTION_TYPES[code]:
        raise malformed(f"A section 0x{code:02x} cannot have the format code 0x{constructor:02x}.")
    if code in BODY:
        others = BODY - {code} if code != AMQP_VALUE else BODY
        if not seen.isdisjoint(others):
            raise malformed("A message has more than one body.")
    elif code in seen:
        raise malformed(f"A message has the section 0x{code:02x} twice.")


_HEADER_READERS = [read for _, read in READERS[HEADER]]


def _scan_header(data: bytes, value: int, end: int, found: Sections) -> None:
    count, offset, stop = read_list_extent(data, value, end)
    if count > len(_HEADER_READERS):
        raise malformed(f"amqp:header:list has {len(_HEADER_READERS)} fields, not {count}.")
    fields: list[Any] = [None] * len(_HEADER_READERS)
    for index in range(count):
        fields[index], offset = _HEADER_READERS[index](data, offset, stop, 0)
    if offset != stop:
        raise malformed("The items of a list, map or array do not fill its size.")
    durable, priority, found.ttl_ms, first_acquirer, _ = fields
    found.header = pack_header(durable, first_acquirer, priority)


def _scan_annotations(data: bytes, value: int, stop: int, found: Sections, mended: bool) -> None:
    runs: list[bytes] = []
    count = 0
    run_start = run_stop = 0
    for key, start, content, after in walk_pairs(data, value, stop):
        if (
            key is not None
            and key.startswith(b"x-opt-")
            and not _keep_annotation(data, key, content, after, found, mended)
        ):
            continue
        count += 2
        if start != run_stop:
            runs.append(data[run_start:run_stop])
            run_start = start
        run_stop = after
    runs.append(data[run_start:run_stop])
    found.annotations = b"".join(runs)
    found.annotation_items = count


def _keep_annotation(
    data: bytes, key: bytes, content: int, after: int, found: Sections, mended: bool
) -> bool:
    """Read what a broker must know; whether the pair stays with the message."""
    if key in BROKER_ANNOTATIONS:
        return False
    if key in TEXT_ANNOTATIONS and not mended and is_misfit(data, content, after, STRING):
        raise TextMisfitError
    if key == PARTITION_KEY:
        found.partition_key, _ = READ[Kind.STRING](data, content, after, 0)
    elif key == VIA_PARTITION_KEY:
        found.via_partition_key, _ = READ[Kind.STRING](data, content, after, 0)
    elif key == SCHEDULED_ENQUEUE_TIME:
        found.scheduled_ms, _ = READ[Kind.TIMESTAMP](data, content, after, 0)
        # A null must not come out again: the Go SDK panics (amqp.md, section 12).
        return found.scheduled_ms is not None
    return True


_PROPERTY_COUNT = 13
_MESSAGE_ID = 0
_GROUP_ID = 10


def _scan_properties(
    data: bytes, value: int, end: int, found: Sections, mended: bool
) -> int | None:
    """Gives the creation time."""
    creation_ms = None
    count, offset, stop = read_list_extent(data, value, end)
    if count > _PROPERTY_COUNT:
        raise malformed(f"amqp:properties:list has {_PROPERTY_COUNT} fields, not {count}.")
    for index in range(count):
        if offset < stop and data[offset] == 0x40:
            offset += 1
            continue
        wanted = TEXT_PLACES.get(index)
        if wanted is not None and not mended and is_misfit(data, offset, stop, wanted):
            raise TextMisfitError
        if index == _MESSAGE_ID:
            found.message_id, offset = _read_id(data, offset, stop)
        elif index == ABSOLUTE_EXPIRY_TIME:
            found.absolute_expiry_ms, offset = READ[Kind.TIMESTAMP](data, offset, stop, 0)
        elif index == CREATION_TIME and data[offset : offset + 1] == b"\x83":
            # Any other is only passed on.
            creation_ms, offset = READ[Kind.TIMESTAMP](data, offset, stop, 0)
        elif index == _GROUP_ID:
            found.group_id, offset = READ[Kind.STRING](data, offset, stop, 0)
        else:
            offset = skip(data, offset, stop)
    if offset != stop:
        raise malformed("The items of a list, map or array do not fill its size.")
    return creation_ms


def _read_id(data: bytes, offset: int, end: int) -> tuple[Any, int]:
    if offset < end and (data[offset] == 0x00 or data[offset] == 0x45 or data[offset] >= 0xC0):
        raise ProtocolError(INVALID_FIELD, "A message id is a single value.")
    return decode_within(data, offset, end, 0)


def _join(data: bytes, pieces: list[tuple[int, int, int, int]]) -> bytes:
    """The sections of `bare` in the standard's order, with small descriptors (E2).

    One slice if they came so, which is nearly always.
    """
    if not pieces:
        return b""
    place = pieces[0][1]
    last = 0
    for code, start, value, stop in pieces:
        if start != place or value != start + 3 or _rank(code) < last:
            break
        place = stop
        last = _rank(code)
    else:
        return data[pieces[0][1] : place]
    pieces.sort(key=lambda piece: _rank(piece[0]))
    return b"".join(bytes((0x00, 0x53, code)) + data[value:stop] for code, _, value, stop in pieces)


def bare_of(payload: bytes) -> bytes:
    """The bare message in one whose sections are known to be sound, of whatever order."""
    return _join(payload, [piece for piece in walk_sections(payload) if piece[0] >= PROPERTIES])


def _rank(code: int) -> int:
    return DATA if code in BODY else code


def split_batch(payload: bytes) -> list[bytes]:
    """The messages in a batch: its data sections. The envelope's own sections are for routing
    only and say nothing (amqp.md, section 13)."""
    messages = []
    for code, _, value, stop in walk_sections(payload):
        if code == DATA:
            constructor = payload[value]
            if constructor not in _BINARIES:
                raise malformed("A data section is not binary.")
            first, last = variable_extent(payload, value + 1, stop, constructor == 0xB0)
            messages.append(payload[first:last])
        elif code in (AMQP_SEQUENCE, AMQP_VALUE):
            raise ProtocolError(DECODE_ERROR, "A batch has a body that is not data.")
    return messages


# What a broker writes


def _key(name: str, constructor: int) -> bytes:
    return bytes((0xA3, len(name))) + name.encode() + bytes((constructor,))


_ANNOTATIONS = b"\x00\x53\x72\xd1"
_SEQUENCE_NUMBER = _key("x-opt-sequence-number", 0x81)
_ENQUEUED_TIME = _key("x-opt-enqueued-time", 0x83)
_MESSAGE_STATE = _key("x-opt-message-state", 0x54)
_NO_ENQUEUE_SEQUENCE_NUMBER = _key("x-opt-enqueue-sequence-number", 0x55) + b"\x00"
_ENQUEUE_SEQUENCE_NUMBER = _key("x-opt-enqueue-sequence-number", 0x81)
_LOCKED_UNTIL = _key("x-opt-locked-until", 0x83)
_PARTITION_ID = _key("x-opt-partition-id", 0x61)

_BASE = (
    f">4sII{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED_TIME)}sq"
    f"{len(_MESSAGE_STATE)}sb{len(_NO_ENQUEUE_SEQUENCE_NUMBER)}s"
)
# The same pair with a number in it, and so eight octets instead of one.
_NUMBERED = struct.Struct(f">{len(_ENQUEUE_SEQUENCE_NUMBER)}sq")
_PLAIN = struct.Struct(_BASE)
_LOCKED = struct.Struct(_BASE + f"{len(_LOCKED_UNTIL)}sq")
_PARTITION = struct.Struct(f">{len(_PARTITION_ID)}sh")


def encode_delivery(
    *,
    header: int,
    ttl_ms: int | None,
    delivery_count: int,
    lock_token: bytes | None,
    number: int,
    enqueued_ms: int,
    locked_until_ms: int | None,
    state: int,
    partition: int | None,
    annotations: bytes,
    annotation_items: int,
    bare: bytes,
    enqueued_number: int = 0,
    dead_letter_source: str | None = None,
    creation_ms: int = 0,
    expiry_ms: int | None = None,
) -> bytes:
    """The message that a receiver gets (amqp.md, section 12).

    The sender's delivery annotations come with it, and the token of its lock, if it is locked: the
    octets of the delivery tag. The number that it was enqueued with is 0 unless it came from a
    topic or by forwarding (SEQ-6). Where it was dead-lettered is said only of what was forwarded
    from there (DLQ-4, DLQ-5). Where there is an expiry, the properties say it and the time that it
    counts from (TTL-3).
    """
    if expiry_ms is not None:
        bare = with_times(bare, creation_ms, expiry_ms)
    own = 8
    if dead_letter_source is not None:
        own += 2
        annotations = dead_letter_annotation(dead_letter_source) + annotations
    after = annotations
    if partition is not None:
        own += 2
        after = _PARTITION.pack(_PARTITION_ID, partition) + annotations
    if locked_until_ms is None:
        broker = _PLAIN.pack(
            _ANNOTATIONS,
            _PLAIN.size - 8 + len(after),
            own + annotation_items,
            _SEQUENCE_NUMBER,
            number,
            _ENQUEUED_TIME,
            enqueued_ms,
            _MESSAGE_STATE,
            state,
            _NO_ENQUEUE_SEQUENCE_NUMBER,
        )
    else:
        broker = _LOCKED.pack(
            _ANNOTATIONS,
            _LOCKED.size - 8 + len(after),
            own + 2 + annotation_items,
            _SEQUENCE_NUMBER,
            number,
            _ENQUEUED_TIME,
            enqueued_ms,
            _MESSAGE_STATE,
            state,
            _NO_ENQUEUE_SEQUENCE_NUMBER,
            _LOCKED_UNTIL,
            locked_until_ms,
        )
    if enqueued_number:
        broker = _with_enqueued_number(broker, enqueued_number)
    head = _header_section(header, ttl_ms, delivery_count)
    front = delivered_front(bare, lock_token)
    return b"".join((head, front, broker, after, bare[front_size(bare) :]))


def _with_enqueued_number(broker: bytes, number: int) -> bytes:
    numbered = _NUMBERED.pack(_ENQUEUE_SEQUENCE_NUMBER, number)
    size = int.from_bytes(broker[4:8], "big") + len(numbered) - len(_NO_ENQUEUE_SEQUENCE_NUMBER)
    before, _, after = broker.rpartition(_NO_ENQUEUE_SEQUENCE_NUMBER)
    return b"".join((before[:4], size.to_bytes(4, "big"), before[8:], numbered, after))


@lru_cache(maxsize=256)
def dead_letter_annotation(source: str) -> bytes:
    """The pair that names the entity; a namespace has few that forward dead letters."""
    out = bytearray()
    encode_symbol(out, "x-opt-deadletter-source")
    encode_string(out, source)
    return bytes(out)


@lru_cache(maxsize=1024)
def _header_section(header: int, ttl_ms: int | None, delivery_count: int) -> bytes:
    durable, first_acquirer, priority = unpack_header(header)
    out = bytearray()
    encode_composite(out, Header(durable, priority, ttl_ms, first_acquirer, delivery_count))
    return bytes(out)
