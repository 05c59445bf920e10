"""Reading many messages at once, for those who look at all of them: journals.

A section is decoded only if somebody asks for what is in it; of the others the lengths are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from busway.amqp._pure_decoding import decode_within, malformed
from busway.amqp._pure_encoding import encode_value
from busway.amqp.errors import ProtocolError
from busway.amqp.sections import (
    AMQP_SEQUENCE,
    APPLICATION_PROPERTIES,
    BODY,
    DATA,
    PROPERTIES,
    Parts,
    walk_sections,
)


def read_messages(
    bares: Sequence[bytes | None],
    places: Sequence[int],
    text_of: Callable[[Any], str],
    *,
    user: bool,
    body: bool,
) -> Parts:
    """The parts of messages from properties to footer; None stands for no message.

    `places` are those of fields in the properties section (section 3.2.4). A field that is no
    string is made one by `text_of`. The body of several data sections is all of them together. A
    value that is a string or a binary is told as it is, any other value, and sequences, as they are
    encoded.
    """
    count = len(bares)
    parts = Parts(
        [[None] * count for _ in places], [None] * count, [None] * count, [None] * count, []
    )
    for index, bare in enumerate(bares):
        if bare is None:
            continue
        try:
            fields, parts.user[index], told, parts.bodies[index] = _read(
                bare, bool(places), user, body
            )
        except ProtocolError:
            parts.unreadable.append(index)
            continue
        parts.body_types[index] = told
        for column, place in zip(parts.fields, places, strict=True):
            value = fields[place] if place < len(fields) else None
            if value is not None:
                column[index] = value if type(value) is str else text_of(value)
    return parts


def _read(
    bare: bytes, with_fields: bool, with_user: bool, with_body: bool
) -> tuple[list[Any], dict[Any, Any] | None, str | None, bytes | None]:
    fields: list[Any] = []
    user: dict[Any, Any] | None = None
    told: str | None = None
    pieces: list[bytes] = []
    for code, _, value, stop in walk_sections(bare):
        if code == PROPERTIES and with_fields:
            fields = _section(bare, value, stop, list)
        elif code == APPLICATION_PROPERTIES and with_user:
            user = _section(bare, value, stop, dict)
        elif code in BODY:
            if not with_body:
                break
            told, piece = _body(code, bare, value, stop)
            pieces.append(piece)
    return fields, user, told, b"".join(pieces) if pieces else None


def _section(bare: bytes, start: int, stop: int, kind: type) -> Any:
    value, _ = decode_within(bare, start, stop, 1)
    if type(value) is not kind:
        raise malformed(f"A section is a {type(value).__name__}, not a {kind.__name__}.")
    return value


def _body(code: int, bare: bytes, start: int, stop: int) -> tuple[str, bytes]:
    if code == DATA:
        return "data", _section(bare, start, stop, bytes)
    if code == AMQP_SEQUENCE:
        return "sequence", encode_value(_section(bare, start, stop, list))
    value, _ = decode_within(bare, start, stop, 1)
    if type(value) is str:
        return "string", value.encode()
    if type(value) is bytes:
        return "binary", value
    return "value", encode_value(value)
