"""From the rows of a journal to the columns that readers see.

Here, and only here, are messages decoded: off the message loop, and no more of them than the
columns that were asked for need. A column is a list of plain Python values, None for null; times
are milliseconds. All is done column by column, because a function call for each row and column is
what made a scan slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from busway.amqp.codec import read_messages
from busway.amqp.errors import ProtocolError
from busway.amqp.sections import (
    PARTITION_KEY,
    apply_changes,
    envelope_of,
    read_annotation,
    sender_front,
    with_long_ttl,
)
from busway.broker.journal_properties import property_columns, text_of
from busway.model.entities import Entity, Subscription
from busway.model.journal import CARRYING, SCHEMA_VERSION, Column, JournalEvent
from busway.model.message import MessageState
from busway.model.names import SubQueueKind
from busway.model.partitioning import message_id_text
from busway.store.journal import BARE, JournalPage

Columns = dict[str, Sequence[Any]]
"""By name, all of the same length."""

UNDECODABLE = "undecodable"
"""The type of a body that is all of a message, because its sections could not be read."""

EVENT_WORDS = {int(event): event.word for event in JournalEvent}
SUB_QUEUE_WORDS = {
    int(SubQueueKind.MAIN): "main",
    int(SubQueueKind.DEAD_LETTER): "dead_letter",
    int(SubQueueKind.TRANSFER): "transfer",
    int(SubQueueKind.TRANSFER_DEAD_LETTER): "transfer_dead_letter",
}
SCHEDULED = MessageState.SCHEDULED.name.lower()
ENQUEUED_OR_MOVED = frozenset({JournalEvent.ENQUEUED, JournalEvent.MOVED})
LEAVING = frozenset({JournalEvent.FORWARDED, JournalEvent.MOVED})
"""Their description is where the message went."""


# --- columns of rows -----------------------------------------------------------------------------

OfPage = Callable[[JournalPage], Sequence[Any]]


def _plain(field: str) -> tuple[tuple[str, ...], OfPage]:
    return (field,), lambda page: page.column(field)


def _words(field: str, words: dict[int, str]) -> tuple[tuple[str, ...], OfPage]:
    return (field,), lambda page: [words[number] for number in page.column(field)]


def _sequence_numbers(page: JournalPage) -> list[int | None]:
    return [number or None for number in page.column("number")]


def _enqueued_times(page: JournalPage) -> Sequence[int | None]:
    times = page.column("enqueued_ms")
    return [
        time_ms if event in ENQUEUED_OR_MOVED else None
        for event, time_ms in zip(page.column("event"), times, strict=True)
    ]


def _times_of_activation(page: JournalPage) -> Sequence[int | None]:
    if page["expires_ms"] is None:
        return page.column("expires_ms")
    return [
        time_ms if waits else None
        for waits, time_ms in zip(_waiting(page), page.column("expires_ms"), strict=True)
    ]


def _times_of_expiry(page: JournalPage) -> Sequence[int | None]:
    if page["expires_ms"] is None:
        return page.column("expires_ms")
    events, times = page.column("event"), page.column("expires_ms")
    return [
        time_ms if event in ENQUEUED_OR_MOVED and not waits else None
        for event, waits, time_ms in zip(events, _waiting(page), times, strict=True)
    ]


def _waiting(page: JournalPage) -> list[bool]:
    """Whether the time that a message has is that of its activation."""
    return [
        reason == SCHEDULED if event == JournalEvent.MOVED else event == JournalEvent.SCHEDULED
        for event, reason in zip(page.column("event"), page.column("reason"), strict=True)
    ]


def _descriptions(page: JournalPage) -> Sequence[str | None]:
    if page["description"] is None:
        return page.column("description")
    return [
        None if event in LEAVING else description
        for event, description in zip(page.column("event"), page.column("description"), strict=True)
    ]


def _destinations(page: JournalPage) -> Sequence[str | None]:
    if page["description"] is None:
        return page.column("destination")
    return [
        description if event in LEAVING else destination
        for event, description, destination in zip(
            page.column("event"),
            page.column("description"),
            page.column("destination"),
            strict=True,
        )
    ]


HEX_DIGITS = 32
TEXT_OF_UUID = 36
TOKEN_OCTETS = (3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15)
"""A lock token is stored as .NET writes a GUID: low octets of its first three numbers first."""
TOKEN_PLACES = tuple(
    place + (place >= 8) + (place >= 12) + (place >= 16) + (place >= 20)
    for place in range(HEX_DIGITS)
)
"""Of each digit in the text, behind the hyphens before it."""


def _lock_tokens(page: JournalPage) -> Sequence[str | None]:
    """All of them in 32 steps: each digit of every token at once."""
    tokens = page["lock_token"]
    if tokens is None:
        return page.column("lock_token")
    there = [token for token in tokens if token is not None]
    digits = b"".join(there).hex().encode()
    texts = bytearray(b"-" * (TEXT_OF_UUID * len(there)))
    for index, place in enumerate(TOKEN_PLACES):
        digit = 2 * TOKEN_OCTETS[index // 2] + index % 2
        texts[place::TEXT_OF_UUID] = digits[digit::HEX_DIGITS]
    text, starts = texts.decode(), iter(range(0, len(texts), TEXT_OF_UUID))
    return [
        None if token is None else text[(start := next(starts)) : start + TEXT_OF_UUID]
        for token in tokens
    ]


def _partition_keys(page: JournalPage) -> Sequence[str | None]:
    annotations = page["annotations"]
    if annotations is None:
        return page.column("annotations")
    return [None if each is None else partition_key(each) for each in annotations]


@lru_cache(maxsize=4096)
def partition_key(annotations: bytes) -> str | None:
    """Of encoded annotations, which are the same for all messages of a key."""
    key = read_annotation(annotations, PARTITION_KEY)
    return None if key is None else str(key)


def _raw_messages(page: JournalPage) -> list[bytes | None]:
    return [
        raw_message(*message) if message[-1] is not None and event in CARRYING else None
        for event, *message in zip(*map(page.column, OF_RAW), strict=True)
    ]


def raw_message(
    header: int,
    ttl_ms: int | None,
    annotations: bytes | None,
    annotation_items: int,
    enqueued_ms: int,
    bare: bytes,
) -> bytes:
    """Header, message annotations and all that follows, as the sender wrote them; and a time to
    live that a topic or a rule gave it, if that is longer than a header can say."""
    front = sender_front(header, ttl_ms, annotations or b"", annotation_items)
    return front + with_long_ttl(bare, ttl_ms, enqueued_ms)


def _envelopes(page: JournalPage) -> list[bytes | None]:
    return [
        _envelope(changes, *message) if message[-1] is not None and event in CARRYING else None
        for event, changes, *message in zip(*map(page.column, OF_ENVELOPE), strict=True)
    ]


def _envelope(
    changes: bytes | None,
    header: int,
    ttl_ms: int | None,
    annotations: bytes | None,
    annotation_items: int,
    enqueued_ms: int,
    bare: bytes,
) -> bytes | None:
    """With what rules have set on it (ACT-1), because that is the message that is there.

    None of a message whose sections cannot be read: all of it is its body.
    """
    try:
        changed = bare if changes is None else apply_changes(bare, changes)
        return envelope_of(
            raw_message(header, ttl_ms, annotations, annotation_items, enqueued_ms, changed)
        )
    except ProtocolError:
        return None


OF_RAW = ("event", "header", "ttl_ms", "annotations", "annotation_items", "enqueued_ms", BARE)
OF_ENVELOPE = ("event", "changes", *OF_RAW[1:])
OF_ROWS: dict[str, tuple[tuple[str, ...], OfPage]] = {
    "journal_offset": ((), lambda page: list(range(page.first, page.first + page.count))),
    "event": _words("event", EVENT_WORDS),
    "event_time": _plain("time_ms"),
    "sub_queue": _words("kind", SUB_QUEUE_WORDS),
    "sequence_number": (("number",), _sequence_numbers),
    "related_sequence_number": _plain("related_number"),
    "enqueued_sequence_number": _plain("enqueued_number"),
    "enqueued_time": (("event", "enqueued_ms"), _enqueued_times),
    "scheduled_time": (("event", "reason", "expires_ms"), _times_of_activation),
    "expires_at": (("event", "reason", "expires_ms"), _times_of_expiry),
    "session_id": _plain("session_id"),
    "partition_key": (("annotations",), _partition_keys),
    "delivery_count": _plain("delivery_count"),
    "lock_token": (("lock_token",), _lock_tokens),
    "dead_letter_reason": _plain("reason"),
    "dead_letter_description": (("event", "description"), _descriptions),
    "dead_letter_source": _plain("dead_letter_source"),
    "destination": (("event", "description", "destination"), _destinations),
    "message_size": _plain("size"),
    "raw": (OF_RAW, _raw_messages),
    "envelope": (OF_ENVELOPE, _envelopes),
}
"""The fields that a column needs, and how it is made of them."""


# --- columns of messages -------------------------------------------------------------------------

OF_PROPERTIES = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "reply_to_session_id": 12,
}
"""Their places in the properties section (AMQP 1.0, section 3.2.4)."""
OF_USER = ("application_properties", "typed_properties")
OF_BODY = ("body", "body_type", "body_size")


def _columns_of_messages(names: Sequence[str], page: JournalPage) -> Columns:
    bares = page.column(BARE)
    fields = [name for name in names if name in OF_PROPERTIES]
    user = any(name in OF_USER for name in names)
    body = any(name in OF_BODY for name in names)
    places = [OF_PROPERTIES[name] for name in fields]
    parts = read_messages(bares, places, _id_text, user=user, body=body)
    for index in parts.unreadable:
        # Brokers pass on what they need not read; one such message must not end a whole scan.
        parts.bodies[index], parts.body_types[index] = bares[index], UNDECODABLE
    found: Columns = dict(zip(fields, parts.fields, strict=True))
    if user:
        changes = page["changes"]
        if changes is not None and parts.unreadable:
            changes = list(changes)
            for index in parts.unreadable:
                changes[index] = None
        found.update(zip(OF_USER, property_columns(bares, parts.user, changes), strict=True))
    if body:
        found["body"], found["body_type"] = parts.bodies, parts.body_types
        found["body_size"] = [None if each is None else len(each) for each in parts.bodies]
    return found


def _id_text(value: Any) -> str:
    """Ids have one text each (D-15); what is no id is told as other values are."""
    if isinstance(value, str | bytes | int | UUID):
        return message_id_text(value)
    return text_of(value) or ""


# --- all of them ---------------------------------------------------------------------------------


def fields_for(columns: Sequence[Column]) -> tuple[str, ...]:
    """What has to be read of a journal's rows."""
    fields: dict[str, None] = {}
    for column in columns:
        if column.name in OF_ROWS:
            fields.update(dict.fromkeys(OF_ROWS[column.name][0]))
        elif column.of_message:
            fields[BARE] = None
        if column.name in OF_USER:
            fields["changes"] = None
    return tuple(fields)


def to_columns(
    entity: Entity, partition: int, page: JournalPage, columns: Sequence[Column]
) -> Columns:
    """`page` has the fields that these columns need."""
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
    found: Columns = {name: [same[name]] * page.count for name in names if name in same}
    found.update((name, OF_ROWS[name][1](page)) for name in names if name in OF_ROWS)
    of_messages = [name for name in names if name not in found]
    if of_messages:
        found.update(_columns_of_messages(of_messages, page))
    return {name: found[name] for name in names}
