"""Messages as simulated AMQP clients write and read them: a body that is a number, and around it
what a sender may say and what a broker must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from busway.amqp import codec
from busway.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    encode_message,
    walk_sections,
)
from busway.amqp.types import Described, Symbol, UInt, ULong


def encode(body: int, ttl_ms: int | None, key: str | None) -> bytes:
    parts = []
    if ttl_ms is not None:
        parts.append(codec.encode_value(Described(ULong(HEADER), [None, None, UInt(ttl_ms)])))
    if key is not None:
        annotations = {Symbol("x-opt-partition-key"): key}
        parts.append(codec.encode_value(Described(ULong(MESSAGE_ANNOTATIONS), annotations)))
    parts.append(encode_message(data=str(body).encode()))
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
    def read(cls, payload: bytes) -> WireMessage:
        sections = decode(payload)
        annotations = {str(key): value for key, value in sections[MESSAGE_ANNOTATIONS].items()}
        header = [*sections[HEADER], None, None, None, None, None]
        return cls(
            body=int(bytes(sections[DATA])),
            number=int(annotations["x-opt-sequence-number"]),
            delivery_count=int(header[4] or 0),
            enqueued_ms=int(annotations["x-opt-enqueued-time"]),
            locked_until_ms=int(annotations.get("x-opt-locked-until", 0)),
            state=int(annotations.get("x-opt-message-state", 0)),
            properties=tuple(sorted(sections.get(APPLICATION_PROPERTIES, {}).items())),
        )
