"""Texts that a client wrote as another type: they are taken as texts.

The Python SDK reads strings and symbols as octets, so that a received message that it sends again
has binaries in their place; others write strings for symbols or the reverse. All three have the
same form on the wire but for the constructor, so mending a message means to change single octets.

A message id or correlation id may be binary by right (AMQP 3.2.11 to 3.2.14). It is taken for a
text if it reads as one: the SDKs know ids as texts only.
"""

from __future__ import annotations

from typing import Final

from busway.amqp._pure_composites import read_list_extent
from busway.amqp._pure_decoding import skip, variable_extent
from busway.amqp.sections import (
    MESSAGE_ANNOTATIONS,
    PARTITION_KEY,
    PROPERTIES,
    VIA_PARTITION_KEY,
    walk_pairs,
    walk_sections,
)

BINARY, STRING, SYMBOL = 0xA0, 0xA1, 0xA3
"""Constructors of the short forms; those of the long ones have 0x10 added."""
LONG = 0x10

TEXT_PLACES: Final = {
    0: STRING,  # message-id
    2: STRING,  # to
    3: STRING,  # subject
    4: STRING,  # reply-to
    5: STRING,  # correlation-id
    6: SYMBOL,  # content-type
    7: SYMBOL,  # content-encoding
    10: STRING,  # group-id
    12: STRING,  # reply-to-group-id
}
"""Where the properties have texts (AMQP 3.2.4), and of which type."""
ID_PLACES: Final = (0, 5)

TEXT_ANNOTATIONS: Final = (PARTITION_KEY, VIA_PARTITION_KEY)


class TextMisfitError(Exception):
    """A text of the message has another type: the message has to be mended before it is read."""


def is_misfit(data: bytes | bytearray, start: int, stop: int, wanted: int) -> bool:
    """Whether the value at `start` is a text, binary or symbol of another type than `wanted`."""
    narrow = data[start] & ~LONG if start < stop else wanted
    return narrow != wanted and narrow in (BINARY, STRING, SYMBOL)


def with_texts(message: bytes) -> bytes:
    """The message with its texts as strings and symbols, as far as they are texts."""
    mended = bytearray(message)
    for code, _, value, stop in walk_sections(message):
        if code == PROPERTIES:
            count, offset, end = read_list_extent(message, value, stop)
            for place in range(count):
                start, offset = offset, skip(message, offset, end)
                if place in TEXT_PLACES:
                    is_id = place in ID_PLACES
                    _mend(mended, start, offset, TEXT_PLACES[place], is_id=is_id)
        elif code == MESSAGE_ANNOTATIONS:
            for key, _, start, after in walk_pairs(message, value, stop):
                if key in TEXT_ANNOTATIONS:
                    _mend(mended, start, after, STRING)
    return bytes(mended)


def _mend(mended: bytearray, start: int, stop: int, wanted: int, *, is_id: bool = False) -> None:
    if not is_misfit(mended, start, stop, wanted):
        return
    code = mended[start]
    first, last = variable_extent(bytes(mended[:stop]), start + 1, stop, bool(code & LONG))
    try:
        text = mended[first:last].decode()
    except UnicodeDecodeError:
        return
    if is_id and code & ~LONG == BINARY and not (text and text.isprintable()):
        return
    if wanted == SYMBOL and not text.isascii():
        wanted = STRING
    mended[start] = code & LONG | wanted
