"""Between a transfer's bytes and a stored `Message`, both ways (amqp.md 12 and 13).

In: what a sender may say in properties and annotations, and which partition that pins. Out: the
sections that the broker writes in front of what the sender wrote. A body is never decoded.
"""

from __future__ import annotations

from hashlib import blake2b

from busway.amqp import codec
from busway.amqp.sections import (
    BATCH_FORMAT,
    LATEST_MS,
    TTL_MAX_MS,
    Sections,
    apply_changes,
    drop_body,
    walk_pairs,
    with_message_id,
)
from busway.broker.seams import Host
from busway.gateway.router import Destination, is_partitioned
from busway.model.entities import Entity, Queue
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    BATCH_KEYS_DIFFER,
    MESSAGE_SIZE_EXCEEDED,
    SESSION_ID_MISSING,
    BusError,
)
from busway.model.limits import (
    HEADER_SIZE_MAX_BYTES,
    KEY_MAX_CHARS,
    PROPERTY_SIZE_MAX_BYTES,
)
from busway.model.message import PARTITION_SHIFT, Message, MessageState
from busway.model.names import SubQueueKind, name_key
from busway.model.partitioning import (
    MessageId,
    message_id_text,
    partition_key,
    partition_of_key,
)
from busway.model.session_ids import session_key

DIGEST_BYTES = 16
MESSAGE_ID_BYTES = 16
"""Written as a GUID without dashes, as .NET does."""

Part = tuple[list[Message], int | None]
"""Messages that are stored in one commit, and the partition that their key pins; None if any will
do."""

One = tuple[Message, str | None, bool]
"""A message, its key, and whether that is its message id (P-21)."""

Keyed = tuple[Message, str | None, str | None]
"""A message with its key and the one for an entity that it goes by way of."""

# --- In ------------------------------------------------------------------------------------------


def read_single(payload: bytes, entity: Destination, host: Host) -> Part:
    """A message that was sent alone.

    Raises `BusError` for what the entity does not take, `ProtocolError` for what is no message.
    """
    message, key, _ = read_one(payload, entity, host)
    return [message], _partition(key, entity)


def split(payload: bytes, message_format: int) -> list[bytes]:
    """The encoded messages of a transfer. Of a batch the inner ones only: the rest is for
    routing."""
    return codec.split_batch(payload) if message_format == BATCH_FORMAT else [payload]


def check_count(count: int, count_max: int) -> None:
    """Before any of them is read."""
    if not count:
        raise BusError(ARGUMENT_ERROR, refused=True, detail="The batch has no messages.")
    if count > count_max:
        detail = (
            f"The batch has {count} messages; {count_max} are allowed. "
            "Send them in several batches."
        )
        raise BusError(ARGUMENT_ERROR, refused=True, detail=detail)


def parts_of(ones: list[One], entity: Destination) -> list[Part]:
    """Several messages that a client sends as one, by partition (D-29)."""
    messages = [message for message, _, _ in ones]
    keys = [key for _, key, _ in ones]
    if len(set(keys)) == 1 or not entity.enable_partitioning:
        return [(messages, _partition(keys[0], entity))]
    if not all(by_id for _, _, by_id in ones):
        raise BusError(BATCH_KEYS_DIFFER, refused=True)  # PRT-7
    by_partition: dict[int | None, list[Message]] = {}
    for message, key in zip(messages, keys, strict=True):
        by_partition.setdefault(_partition(key, entity), []).append(message)
    return [(part, partition) for partition, part in by_partition.items()]


def _partition(key: str | None, entity: Destination) -> int | None:
    if not entity.enable_partitioning:
        return 0
    return None if key is None else partition_of_key(key, len(entity.placement))


def read_one(payload: bytes, entity: Destination, host: Host) -> One:
    return _read(payload, codec.scan_message(payload), entity, host)


def _read(payload: bytes, sections: Sections, entity: Destination, host: Host) -> One:
    _check(sections, entity)
    detects = entity.requires_duplicate_detection
    own_key = sections.partition_key
    if not own_key and sections.group_id is None:
        # A later transaction completes it and sends by way of this entity, with the same via key:
        # it has to find it in its partition (amqp.md 12).
        own_key = sections.via_partition_key
    key = partition_key(
        sections.group_id,
        own_key,
        sections.message_id,
        detects and bool(entity.enable_partitioning),
    )
    if sections.group_id is not None:
        key = session_key(entity, sections.group_id)
    bare = sections.bare
    if sections.message_id is None:
        # The JavaScript SDK cannot settle a message without one. It is given after the key was
        # chosen, and no duplicate is told by it (DUP-4).
        bare = with_message_id(bare, host.random_bytes(MESSAGE_ID_BYTES).hex())
    message = Message(
        bare=bare,
        size=len(payload),
        header=sections.header,
        ttl_ms=sections.ttl_ms,
        annotations=sections.annotations,
        annotation_items=sections.annotation_items,
        session_id=sections.group_id,
    )
    if sections.scheduled_ms is not None and sections.scheduled_ms > host.now_ms():  # SCH-1
        message.state = MessageState.SCHEDULED
        message.expires_ms = sections.scheduled_ms
    if detects and sections.message_id is not None:
        message.digest = digest(sections.message_id, key if entity.enable_partitioning else None)
    by_id = sections.group_id is None and not own_key
    return message, key, by_id


def keyed(payload: bytes, entity: Destination, host: Host) -> Keyed:
    sections = codec.scan_message(payload)
    message, key, _ = _read(payload, sections, entity, host)
    return message, key, sections.via_partition_key


def digest(message_id: MessageId, key: str | None) -> bytes:
    """What duplicates have in common: the id and, on a partitioned entity, the key (DUP-2)."""
    text = message_id_text(message_id).encode("utf-8", "surrogatepass")
    if key is not None:
        # The length in front keeps ("a", "bc") apart from ("ab", "c").
        text = b"%d %b %b" % (len(text), text, key.encode("utf-8", "surrogatepass"))
    return blake2b(text, digest_size=DIGEST_BYTES).digest()


def _check(sections: Sections, entity: Destination) -> None:
    if sections.ttl_ms is not None and sections.ttl_ms <= 0:  # TTL-9
        raise _out_of_range("The TimeToLive of a message must be above zero.")
    if sections.message_id is not None:
        _check_length("MessageId", sections.message_id)
    if sections.group_id is not None:
        _check_length("SessionId", sections.group_id)
    if sections.partition_key is not None:
        _check_length("PartitionKey", sections.partition_key)
    if sections.via_partition_key is not None:
        _check_length("ViaPartitionKey", sections.via_partition_key)
    properties = sections.application_properties
    if properties is not None and len(properties) > PROPERTY_SIZE_MAX_BYTES:
        _check_properties(properties)
    # A topic takes messages without a session: its subscriptions decide (SES-1).
    if sections.group_id is None and isinstance(entity, Queue) and entity.requires_session:
        raise BusError(SESSION_ID_MISSING, refused=True)


def _check_properties(properties: bytes) -> None:
    """LIM-3. Only large ones are looked at one by one."""
    if len(properties) > HEADER_SIZE_MAX_BYTES:
        raise _out_of_range(
            f"The properties of a message have {len(properties)} bytes; "
            f"{HEADER_SIZE_MAX_BYTES} are allowed."
        )
    for name, start, _, stop in walk_pairs(properties, 0, len(properties)):
        if stop - start > PROPERTY_SIZE_MAX_BYTES:
            shown = (name or b"").decode(errors="replace")[:KEY_MAX_CHARS]
            raise _out_of_range(
                f"The property '{shown}' of a message has {stop - start} bytes; "
                f"{PROPERTY_SIZE_MAX_BYTES} are allowed."
            )


def _check_length(name: str, value: object) -> None:
    """NAM-4."""
    if isinstance(value, str | bytes) and len(value) > KEY_MAX_CHARS:
        raise _out_of_range(f"The {name} of a message has more than {KEY_MAX_CHARS} characters.")


def too_large(size_bytes: int | str, max_bytes: int) -> BusError:
    """For a message that comes in a request; a link's has a delivery id."""
    return BusError(
        MESSAGE_SIZE_EXCEEDED, delivery_id=0, size_bytes=size_bytes, max_bytes=max_bytes
    )


def _out_of_range(detail: str) -> BusError:
    return BusError(ARGUMENT_OUT_OF_RANGE, refused=True, detail=detail)


# --- Out -----------------------------------------------------------------------------------------


class Origin:
    """The sub-queue that a message is delivered from, as far as the message must say it."""

    __slots__ = ("default_ttl_ms", "is_main", "partitioned")

    def __init__(self, entity: Entity, kind: SubQueueKind) -> None:
        self.partitioned = is_partitioned(entity)
        self.default_ttl_ms = entity.default_ttl_ms
        self.is_main = kind is SubQueueKind.MAIN


def encode(message: Message, origin: Origin) -> bytes:
    """Without a lock: received and deleted."""
    return _encode(message, origin, None, None, bare_of(message))


def encode_locked(message: Message, origin: Origin) -> bytes:
    """With its lock's end and token. The token is the delivery tag, too; who fetches a message by
    its number has no other (N-8)."""
    token, until_ms = message.lock_token, message.locked_until_ms
    return _encode(message, origin, token, until_ms, bare_of(message))


def encode_peeked(message: Message, origin: Origin, *, omit_body: bool) -> bytes:
    bare = drop_body(bare_of(message)) if omit_body else bare_of(message)
    # .NET expects it of what is deferred, locked or not.
    until_ms = message.locked_until_ms if message.state is MessageState.DEFERRED else None
    return _encode(message, origin, None, until_ms, bare)


def bare_of(message: Message) -> bytes:
    """Properties to footer, with what settlements have changed in them."""
    if message.changes is None:
        return message.bare
    return apply_changes(message.bare, message.changes)


def life_of(message: Message, origin: Origin) -> tuple[int, int] | None:
    """From when and how long a message lives, in milliseconds: what it asked for, as far as its
    entity lets it (TTL-1, TTL-3); None for ever.

    What is deferred or dead-lettered does not expire any more (TTL-7, TTL-8), and still says how
    long it was to live.
    """
    begins_ms = message.enqueued_ms
    if message.expires_ms is not None and message.state is not MessageState.SCHEDULED:
        return begins_ms, message.expires_ms - begins_ms
    lives_ms = message.ttl_ms
    if message.state is MessageState.SCHEDULED:
        begins_ms = message.expires_ms or begins_ms  # it counts from its activation
    elif message.state is MessageState.ACTIVE and origin.is_main:
        return None  # it was there before its entity had a limit
    if lives_ms is None or (origin.default_ttl_ms is not None and origin.default_ttl_ms < lives_ms):
        lives_ms = origin.default_ttl_ms
    return None if lives_ms is None else (begins_ms, lives_ms)


def _encode(
    message: Message,
    origin: Origin,
    lock_token: bytes | None,
    locked_until_ms: int | None,
    bare: bytes,
) -> bytes:
    creation_ms, ttl_ms, expiry_ms = 0, None, None
    if (life := life_of(message, origin)) is not None:
        # Clients read the expiry here, or compute it from the header: both must say the same.
        creation_ms, lives_ms = life
        ttl_ms = min(lives_ms, TTL_MAX_MS)
        expiry_ms = min(creation_ms + lives_ms, LATEST_MS)
    source = message.dead_letter_source
    return codec.encode_delivery(
        header=message.header,
        ttl_ms=ttl_ms,
        delivery_count=message.delivery_count,
        lock_token=lock_token,
        number=message.number,
        enqueued_ms=message.enqueued_ms,
        locked_until_ms=locked_until_ms,
        state=message.state,
        partition=message.number >> PARTITION_SHIFT if origin.partitioned else None,
        annotations=message.annotations,
        annotation_items=message.annotation_items,
        bare=bare,
        enqueued_number=message.enqueued_number,
        dead_letter_source=None if source is None else name_key(source),  # DLQ-4
        creation_ms=creation_ms,
        expiry_ms=expiry_ms,
    )
