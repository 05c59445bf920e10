"""Messages as simulated AMQP clients write and read them: a body that is a number, and around it
what a sender may say and what a broker must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busway.amqp import codec
from busway.amqp.performatives import Properties
from busway.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    encode_message,
    walk_sections,
)
from busway.amqp.types import Described, Symbol, Timestamp, UInt, ULong
from busway.sim.direct_messages import message_id_of
from busway.sim.habits import Parcel


def encode(body: int, parcel: Parcel, size: int, due_ms: int | None) -> bytes:
    """The body is at least so large."""
    parts = []
    if parcel.ttl_ms is not None:
        header = [None, None, UInt(parcel.ttl_ms)]
        parts.append(codec.encode_value(Described(ULong(HEADER), header)))
    annotations: dict[Symbol, Any] = {}
    if parcel.key is not None:
        annotations[Symbol("x-opt-partition-key")] = parcel.key
    if due_ms is not None:
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(due_ms)
    if annotations:
        parts.append(codec.encode_value(Described(ULong(MESSAGE_ANNOTATIONS), annotations)))
    properties = Properties(
        message_id=message_id_of(body), subject=parcel.traits.label, group_id=parcel.session_id
    )
    parts.append(
        encode_message(
            properties=properties,
            application_properties=parcel.traits.properties,
            data=str(body).encode().ljust(size),
        )
    )
    return b"".join(parts)


def decode(payload: bytes) -> dict[int, Any]:
    """The sections of a message, by code."""
    return {
        code: codec.decode_value(payload[start:stop])[0]
        for code, _, start, stop in walk_sections(payload)
    }


@dataclass(frozen=True, slots=True)
class WireMessage:
    """What a client reads off a delivery."""

    body: int
    number: int
    delivery_count: int
    enqueued_ms: int
    locked_until_ms: int
    state: int
    properties: tuple[tuple[str, Any], ...]

    @classmethod
    def read(cls, payload: bytes, higher: int) -> WireMessage:
        """`higher` is what the bodies of copies for a subscription are above what was sent."""
        sections = decode(payload)
        annotations = {str(key): value for key, value in sections[MESSAGE_ANNOTATIONS].items()}
        header = [*sections[HEADER], None, None, None, None, None]
        return cls(
            body=int(bytes(sections[DATA])) + higher,
            number=int(annotations["x-opt-sequence-number"]),
            delivery_count=int(header[4] or 0),
            enqueued_ms=int(annotations["x-opt-enqueued-time"]),
            locked_until_ms=int(annotations.get("x-opt-locked-until", 0)),
            state=int(annotations.get("x-opt-message-state", 0)),
            properties=tuple(sorted(sections.get(APPLICATION_PROPERTIES, {}).items())),
        )
