"""Which partition a message goes to, and which store a partition lives in (P-17 to P-22, D-14).

The hash is for ever: a key must find its partition after every restart and upgrade, so test vectors
freeze it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from uuid import UUID

from busway.model.errors import PARTITION_KEY_MISMATCH, PARTITION_KEY_MISSING, BusError
from busway.model.names import name_key

MessageId = str | bytes | int | UUID
"""The four types that a message id may have on the wire."""


def stable_hash(text: str) -> int:
    """The first 8 bytes, big endian, of the 64 byte BLAKE2b of the text in UTF-8 (D-15)."""
    # A client may send any text, lone surrogates included: those bytes are as good as others.
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def partition_of_key(key: str, partitions: int) -> int:
    """The partition of a key, from 0: the same for the life of the entity (P-17, D-15)."""
    return stable_hash(key) % partitions


def message_id_text(message_id: MessageId) -> str:
    """The one text of a message id, whatever its type on the wire (D-15).

    A uuid in lower case with hyphens, an unsigned long in decimal, binary in lower-case hex digits.
    """
    match message_id:
        case str():
            return str(message_id)
        case UUID():
            return str(message_id)
        case bytes():
            return message_id.hex()
        case int():
            return format(message_id, "d")
    raise TypeError(f"a message id is not a {type(message_id).__name__}")


def partition_key(
    session_id: str | None,
    partition_key: str | None,
    message_id: MessageId | None,
    duplicate_detection: bool,
) -> str | None:
    """The key that pins a message to a partition; None if the service may choose (P-18 to P-22).

    Raises `BusError` if session id and partition key differ (P-20; the service checks this on
    conventional entities too), or if duplicate detection finds no key at all (P-21). Ask with
    `duplicate_detection=False` for a conventional entity: P-21 is a rule of partitioned ones.
    """
    if session_id is not None:
        # An empty session id is a session too: its messages must stay together.
        if partition_key and partition_key != session_id:
            raise BusError(
                PARTITION_KEY_MISMATCH, session_id=session_id, partition_key=partition_key
            )
        return session_id
    if partition_key:
        return partition_key
    if not duplicate_detection:
        return None
    key = "" if message_id is None else message_id_text(message_id)
    if not key:
        raise BusError(PARTITION_KEY_MISSING)
    return key


def place(entity: str, stores: Sequence[str], partitions: int) -> tuple[str, ...]:
    """The store of each partition: spread evenly, starting anywhere but always there (D-14, P-3).

    A first choice only: the catalog keeps what was chosen, so stores may be added later.
    """
    first = stable_hash(name_key(entity))
    return tuple(stores[(first + i) % len(stores)] for i in range(partitions))
