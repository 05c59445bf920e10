"""Several messages in one transfer: stored together, or not at all (amqp.md 8).

The envelope has what the service routes by: the ids and keys of the first message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Properties
from busway.amqp.sections import DATA, PARTITION_KEY, encode_message
from busway.amqp.types import Symbol

BATCH_BYTES = 200 * 1024
"""Less than the least that a tier takes at once, with room for the envelope."""


@dataclass(frozen=True, slots=True)
class Batch:
    payload: bytes
    count: int


def batched(messages: Iterable[bytes], count: int) -> Iterator[Batch]:
    """Up to so many at a time, and not too large; one alone is sent as it is."""
    group: list[bytes] = []
    size = 0
    for each in messages:
        if group and (len(group) == count or size + len(each) > BATCH_BYTES):
            yield _batch(group)
            group, size = [], 0
        group.append(each)
        size += len(each)
    if group:
        yield _batch(group)


def _batch(group: list[bytes]) -> Batch:
    if len(group) == 1:
        return Batch(group[0], 1)
    first = scan_message(group[0])
    properties = Properties(message_id=first.message_id, group_id=first.group_id)
    key = first.partition_key
    front = encode_message(
        annotations=None if key is None else {Symbol(PARTITION_KEY.decode()): key},
        properties=properties,
    )
    return Batch(front + b"".join(_data(each) for each in group), len(group))


def _data(message: bytes) -> bytes:
    return bytes((0x00, 0x53, DATA, 0xB0)) + len(message).to_bytes(4, "big") + message
