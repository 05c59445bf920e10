"""Checksums of what a store keeps, so that a disk's mistake is never taken for data.

Each is a CRC-32 over a row's values in a fixed order, as they are handed to SQLite and as they come
back, and over the row's place: a row that is whole but lies elsewhere is damage, too. A row whose
parts change at different times has two of them in one integer: the high half over what a commit
brings once, the low half over what later commits change, so that a change needs no look at the
rest (and an update of a delivery count does not read the body).

Rows that older versions have written have none (NULL) until they are written again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

from busway.model.message import Message

LOW_MASK: Final = 0xFFFF_FFFF
HIGH_MASK: Final = 0x7FFF_FFFF
"""One bit less, so that both halves are a positive integer of SQLite."""
ABSENT: Final = -1
"""Stands for NULL among numbers, and for the length of a value that is not there."""

_CONTENT = struct.Struct("<10q").pack
_STANDING = struct.Struct("<5q").pack
_MOMENT = struct.Struct("<5q").pack
_DAMAGED_VALUES = (TypeError, ValueError, OverflowError, struct.error)
"""What a value of another type, or out of its range, leads to."""


def of_message(place: int, message: Message, body: int | None = None) -> int:
    """`place` is the slot and the number, without the bit for messages that wait; `body` is the
    checksum of a shared body, if it is known already."""
    annotations = message.annotations
    ttl_ms, body_id = message.ttl_ms, message.body_id
    content = crc32(
        _CONTENT(
            place,
            message.enqueued_ms,
            ABSENT if ttl_ms is None else ttl_ms,
            message.header,
            message.annotation_items,
            message.size,
            message.enqueued_number,
            message.hops,
            ABSENT if body_id is None else body_id,
            len(annotations),
        )
    )
    session_id, source = message.session_id, message.dead_letter_source
    destination = message.destination
    if session_id is not None or source is not None or destination is not None:
        content = _of_texts(content, session_id, source, destination)
    if annotations:
        content = crc32(annotations, content)
    if body_id is None:
        content = crc32(message.bare, content)
    else:
        body = of_body(body_id, message.bare) if body is None else body
        content = crc32(body.to_bytes(4, "little"), content)
    standing = of_standing(
        place, message.state, message.delivery_count, message.expires_ms, message.changes
    )
    return (content & HIGH_MASK) << 32 | standing


def of_standing(
    place: int, state: int, delivery_count: int, expires_ms: int | None, changes: bytes | None
) -> int:
    """The low half of a message's: what settlements and the clock change."""
    expires_ms = ABSENT if expires_ms is None else expires_ms
    if changes is None:
        return crc32(_STANDING(place, state, delivery_count, expires_ms, ABSENT))
    return crc32(changes, crc32(_STANDING(place, state, delivery_count, expires_ms, len(changes))))


def _of_texts(start: int, *texts: str | None) -> int:
    for text in texts:
        data = b"-" if text is None else b"+" + text.encode()
        start = crc32(data, crc32(len(data).to_bytes(4, "little"), start))
    return start


def of_journal_row(moment: Sequence[int], lock_token: bytes | None, rest: object) -> int:
    """`moment` is what every row has: id, time, event, number, delivery count. `rest` is None, or
    the other values in the order of the columns, texts as bytes."""
    checksum = crc32(_MOMENT(*moment))
    if lock_token is not None:
        checksum = crc32(lock_token, checksum)
    return checksum if rest is None else crc32(repr(rest).encode(), checksum)


def of_body(body_id: int, bare: bytes) -> int:
    return crc32(bare, body_id & LOW_MASK)


def of_values(*values: object) -> int:
    """Of a row that is small or seldom written: whole numbers, texts, bytes and None."""
    return crc32(repr(values).encode("utf-8", "surrogatepass"))


def of_halves(high: Sequence[object], low: Sequence[object]) -> int:
    return high_half(of_values(*high)) | of_values(*low)


def high_half(checksum: int) -> int:
    return (checksum & HIGH_MASK) << 32


def of_sub_queue(
    slot: int,
    key: Sequence[int],
    shares_bodies: int,
    purging: int,
    counters: Sequence[int],
) -> int:
    """The low half is that of the counters, which nearly every commit changes."""
    return of_halves((slot, *map(int, key), shares_bodies, purging), (slot, *counters))


def agrees(stored: object, compute: Any, *values: Any) -> bool:
    """Whether a stored checksum is the one of these values, whatever they are."""
    try:
        return bool(stored == compute(*values))
    except _DAMAGED_VALUES:
        return False
