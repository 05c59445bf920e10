"""Application properties as readers of journals see them: as texts, and as JSON with their types.

Both come from one look at a value: a scan does this for every property of every message, and much
of its time goes here.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring as quoted
from typing import Any
from uuid import UUID

from busway.amqp import types as amqp
from busway.amqp.codec import decode_value, encode_value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

AMQP_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    amqp.UByte: "ubyte",
    amqp.UShort: "ushort",
    amqp.UInt: "uint",
    amqp.ULong: "ulong",
    amqp.Byte: "byte",
    amqp.Short: "short",
    amqp.Int: "int",
    int: "long",
    amqp.Float: "float",
    float: "double",
    amqp.Decimal32: "decimal32",
    amqp.Decimal64: "decimal64",
    amqp.Decimal128: "decimal128",
    amqp.Char: "char",
    amqp.Timestamp: "timestamp",
    UUID: "uuid",
    bytes: "binary",
    str: "string",
    amqp.Symbol: "symbol",
}
"""The types whose values can be application properties; of others the encoded bytes are told."""

Forms = tuple[str | None, str]
"""A value as text, and as a JSON list of its type and itself."""


@dataclass(slots=True)
class TextMaps(Sequence[list[tuple[str, str | None]] | None]):
    """A column of maps from text to text, as Arrow has them: all names and all texts in a row each,
    and where those of each map begin. A list of pairs for each message would cost twice as much."""

    names: list[str] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    starts: list[int | None] = field(default_factory=list)
    """None for no map at all."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: Any) -> Any:
        start = self.starts[index]
        if start is None:
            return None
        ends = (each for each in self.starts[index + 1 :] if each is not None)
        end = next(ends, len(self.names))
        return list(zip(self.names[start:end], self.texts[start:end], strict=True))


def property_columns(
    there: Sequence[object | None],
    user: Sequence[Mapping[Any, Any] | None],
    changes: Sequence[bytes | None] | None,
) -> tuple[TextMaps, list[str | None]]:
    """For each row that has a message (`there`) its properties, with those that settlements changed
    (an encoded map): as texts, and as JSON, which is None if there are none."""
    maps = TextMaps()
    typed: list[str | None] = [None] * len(there)
    names, texts, starts = maps.names, maps.texts, maps.starts
    for index, properties in enumerate(user):
        changed = None if changes is None else changes[index]
        if changed is not None:
            properties = {**(properties or {}), **decode_value(changed)[0]}
        first = len(names)
        starts.append(None if there[index] is None else first)
        if not properties:
            continue
        items, only_texts = [], True
        for name, value in properties.items():
            if type(name) is not str:
                name, only_texts = str(name), False
            names.append(name)
            if type(value) is str:
                text: str | None = value
                form = '["string",' + quoted(value) + "]"
            else:
                text, form = forms_of(value)
            texts.append(text)
            items.append(quoted_name(name) + ":" + form)
        if not only_texts:  # 1 and "1" are two keys, and one name
            items = list(dict(zip(names[first:], items, strict=True)).values())
        typed[index] = "{" + ",".join(items) + "}"
    return maps, typed


quoted_name = lru_cache(maxsize=1024)(quoted)
"""Names are few, and the same in every message."""


def text_of(value: Any) -> str | None:
    """A property's value for a reader who wants text."""
    return forms_of(value)[0]


def forms_of(value: Any) -> Forms:
    """Nothing is lost in the second one on the way to a replay."""
    form = _FORMS.get(type(value))
    if form is not None:
        return form(value)
    encoded = encode_value(value)
    return encoded.hex(), f'["encoded","{b64encode(encoded).decode()}"]'


def _form(kind: type, name: str) -> Callable[[Any], Forms]:
    start = f'["{name}",'

    def of_null(value: None) -> Forms:
        return None, f"{start}null]"

    def of_boolean(value: bool) -> Forms:
        text = "true" if value else "false"
        return text, f"{start}{text}]"

    def of_timestamp(value: int) -> Forms:
        return _instant(value), f"{start}{int.__repr__(value)}]"

    def of_integer(value: int) -> Forms:
        text = int.__repr__(value)
        return text, f"{start}{text}]"

    def of_float(value: float) -> Forms:
        text = float.__repr__(value)
        return text, f'{start}"{text}"]'  # JSON has neither NaN nor infinity

    def of_binary(value: bytes) -> Forms:
        return value.hex(), f'{start}"{b64encode(value).decode()}"]'

    def of_uuid(value: UUID) -> Forms:
        text = str(value)
        return text, f'{start}"{text}"]'

    def of_text(value: str) -> Forms:
        text = str(value)
        return text, f"{start}{quoted(text)}]"

    forms: tuple[tuple[type, Callable[[Any], Forms]], ...] = (
        (type(None), of_null),
        (bool, of_boolean),
        (amqp.Timestamp, of_timestamp),
        (int, of_integer),
        (float, of_float),
        (bytes, of_binary),
        (UUID, of_uuid),
        (str, of_text),
    )
    return next(form for each, form in forms if issubclass(kind, each))


def _instant(time_ms: int) -> str:
    try:
        when = EPOCH + timedelta(milliseconds=int(time_ms))
    except OverflowError:
        return int.__repr__(time_ms)  # AMQP has years that calendars do not have
    return when.isoformat(timespec="milliseconds")


_FORMS = {kind: _form(kind, name) for kind, name in AMQP_NAMES.items()}
