"""Values with the names of their AMQP types, read back: the way back of `journal_properties`.

`["int", 7]`, `["uuid", "..."]`, `["binary", "base64"]`; what has no simple form is
`["encoded", "base64"]`.
"""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from busway.amqp.codec import decode_value
from busway.amqp.types import Timestamp
from busway.broker.journal_properties import AMQP_NAMES

CLASSES = {name: cls for cls, name in AMQP_NAMES.items()}
_DECIMALS = ("decimal32", "decimal64", "decimal128")


def typed_value(kind: str, value: Any) -> Any:
    """Raises `ValueError`, `TypeError`, `KeyError` or `ProtocolError` for what is none."""
    match kind:
        case "encoded":
            return decode_value(b64decode(value))[0]
        case "binary":
            return b64decode(value)
        case "null":
            return None
        case "boolean":
            return bool(value)
        case "uuid":
            return UUID(value)
    if kind in _DECIMALS:
        return CLASSES[kind](b64decode(value))
    return CLASSES[kind](value)


# --- As people type them -------------------------------------------------------------------------


class TypedTextError(Exception):
    """It is no value of that type, and what one is like."""


def read_pair(text: str, option: str) -> tuple[str, Any]:
    """`name=value` is a text; `name:int=5`, `name:uuid=...` are of that type."""
    left, equals, value = text.partition("=")
    name, colon, kind = left.rpartition(":")
    if not colon or kind not in (*CLASSES, *SHORT):
        name, kind = left, "string"
    if not equals or not name:
        raise TypedTextError(f"{option} is '{text}', and must be like name=text or name:int=5.")
    try:
        return name, from_text(SHORT.get(kind, kind), value)
    except (ValueError, OverflowError) as error:
        raise TypedTextError(f"{option} is '{text}', and '{value}' is no {kind}.") from error


SHORT = {"bool": "boolean", "text": "string", "float64": "double", "datetime": "timestamp"}
"""What people say for them."""
_BITS = {
    "ubyte": (0, 8), "ushort": (0, 16), "uint": (0, 32), "ulong": (0, 64),
    "byte": (1, 8), "short": (1, 16), "int": (1, 32), "long": (1, 64),
}  # fmt: skip


def from_text(kind: str, text: str) -> Any:
    """Raises `ValueError`. Binary is base64, a timestamp ISO 8601."""
    if kind in _BITS:
        signed, bits = _BITS[kind]
        value = int(text)
        least = -(1 << bits - 1) if signed else 0
        if not least <= value < least + (1 << bits):
            raise ValueError(text)
        return CLASSES[kind](value)
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind == "timestamp":
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return Timestamp(round(moment.timestamp() * 1000))
    return typed_value(kind, text)
