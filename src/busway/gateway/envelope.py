"""Between a transfer's bytes and a stored `Message`, both ways (amqp.md 12 and 13).

In: what a sender may say in properties and annotations, and which partition that pins. Out: the
sections that the broker writes in front of what the sender wrote. A body is never decoded.
"""

from __future__ import annotations

from uuid import UUID

from busway.amqp import codec
from busway.amqp.sections import BATCH_FORMAT, Sections, apply_changes, drop_body
from busway.model.entities import Queue
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    BATCH_KEYS_DIFFER,
    NOT_IMPLEMENTED,
    SESSION_ID_MISSING,
    BusError,
)
from busway.model.limits import KEY_MAX_CHARS
from busway.model.message import PARTITION_SHIFT, Message
from busway.model.partitioning import partition_key, partition_of_key

TTL_MAX_MS = 0xFFFFFFFF
"""The header's time to live is an unsigned integer of 32 bits."""

# --- In ------------------------------------------------------------------------------------------


def read(
    payload: bytes, message_format: int, queue: Queue, now_ms: int
) -> tuple[list[Message], int | None]:
    """The messages of a transfer, and the partition that their key pins; None if any will do.

    Raises `BusError` for what the entity does not take, `ProtocolError` for what is no message.
    """
    if message_format != BATCH_FORMAT:
        message, key = _read_one(payload, queue, now_ms)
        return [message], _partition(key, queue)
    messages: list[Message] = []
    keys: set[str | None] = set()
    for inner in codec.split_batch(payload):  # the inner messages only: the rest is for routing
        message, key = _read_one(inner, queue, now_ms)
        messages.append(message)
        keys.add(key)
    if not messages:
        raise BusError(ARGUMENT_ERROR, refused=True, detail="The batch has no messages.")
    if len(keys) > 1 and queue.enable_partitioning:
        raise BusError(BATCH_KEYS_DIFFER, refused=True)  # PRT-7
    return messages, _partition(keys.pop(), queue)


def _partition(key: str | None, queue: Queue) -> int | None:
    if not queue.enable_partitioning:
        return 0
    return None if key is None else partition_of_key(key, len(queue.placement))


def _read_one(payload: bytes, queue: Queue, now_ms: int) -> tuple[Message, str | None]:
    sections = codec.scan_message(payload)
    _check(sections, queue, now_ms)
    key = partition_key(
        sections.group_id,
        sections.partition_key,
        sections.message_id,
        queue.requires_duplicate_detection and queue.enable_partitioning,
    )
    message = Message(
        bare=sections.bare,
        size=len(payload),
        header=sections.header,
        ttl_ms=sections.ttl_ms,
        annotations=sections.annotations,
        annotation_items=sections.annotation_items,
        session_id=sections.group_id,
    )
    return message, key


def _check(sections: Sections, queue: Queue, now_ms: int) -> None:
    if sections.ttl_ms is not None and sections.ttl_ms <= 0:  # TTL-9
        raise _out_of_range("The TimeToLive of a message must be above zero.")
    if sections.message_id is not None:
        _check_length("MessageId", sections.message_id)
    if sections.group_id is not None:
        _check_length("SessionId", sections.group_id)
    if sections.partition_key is not None:
        _check_length("PartitionKey", sections.partition_key)
    if queue.requires_session and sections.group_id is None:
        raise BusError(SESSION_ID_MISSING, refused=True)
    if sections.scheduled_ms is not None and sections.scheduled_ms > now_ms:
        raise BusError(NOT_IMPLEMENTED, refused=True, operation="scheduled message")


def _check_length(name: str, value: object) -> None:
    """NAM-4."""
    if isinstance(value, str | bytes) and len(value) > KEY_MAX_CHARS:
        raise _out_of_range(f"The {name} of a message has more than {KEY_MAX_CHARS} characters.")


def _out_of_range(detail: str) -> BusError:
    return BusError(ARGUMENT_OUT_OF_RANGE, refused=True, detail=detail)


# --- Out -----------------------------------------------------------------------------------------


def encode(message: Message, *, partitioned: bool) -> bytes:
    """Without a lock: received and deleted."""
    return _encode(message, partitioned, None, None, _body(message))


def encode_locked(message: Message, *, partitioned: bool) -> bytes:
    """With its lock's end; the token is the delivery tag."""
    return _encode(message, partitioned, None, message.locked_until_ms, _body(message))


def encode_deferred(message: Message, *, partitioned: bool) -> bytes:
    """Locked and fetched by number: the token is in the message, where Go looks for it."""
    assert message.lock_token is not None
    token = UUID(bytes_le=message.lock_token)
    return _encode(message, partitioned, token, message.locked_until_ms, _body(message))


def encode_peeked(message: Message, *, partitioned: bool, omit_body: bool) -> bytes:
    bare = _body(message)
    return _encode(message, partitioned, None, None, drop_body(bare) if omit_body else bare)


def _body(message: Message) -> bytes:
    if message.changes is None:
        return message.bare
    return apply_changes(message.bare, message.changes)


def _encode(
    message: Message,
    partitioned: bool,
    lock_token: UUID | None,
    locked_until_ms: int | None,
    bare: bytes,
) -> bytes:
    ttl_ms = message.ttl_ms
    if message.expires_ms is not None:
        # What the entity's own limit has left of it (TTL-1); clients compute the expiry from it.
        ttl_ms = message.expires_ms - message.enqueued_ms
        if ttl_ms > TTL_MAX_MS:
            ttl_ms = TTL_MAX_MS
    return codec.encode_delivery(
        header=message.header,
        ttl_ms=ttl_ms,
        delivery_count=message.delivery_count,
        lock_token=lock_token,
        number=message.number,
        enqueued_ms=message.enqueued_ms,
        locked_until_ms=locked_until_ms,
        state=message.state,
        partition=message.number >> PARTITION_SHIFT if partitioned else None,
        annotations=message.annotations,
        annotation_items=message.annotation_items,
        bare=bare,
    )
