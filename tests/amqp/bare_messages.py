"""Messages from properties to footer, as odd as senders may write them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from busway.amqp import types as amqp
from busway.amqp.codec import encode_value
from tests.amqp.codecs_at_hand import binaries, keys, scalars, texts, values

ids = texts | st.uuids() | binaries | st.integers(0, 2**64 - 1).map(amqp.ULong)
long_ids = st.text(min_size=256, max_size=400)


def section(code: int, value: Any) -> bytes:
    return encode_value(amqp.Described(amqp.ULong(code), value))


properties = st.lists(st.none() | ids | long_ids | values, max_size=13).map(
    lambda fields: section(0x73, fields)
)
user = st.dictionaries(texts | keys, scalars | values, max_size=5).map(
    lambda pairs: section(0x74, pairs)
)
bodies = st.one_of(
    st.just(b""),
    st.lists(binaries, max_size=4).map(
        lambda parts: b"".join(section(0x75, part) for part in parts)
    ),
    st.lists(st.lists(values, max_size=3), max_size=3).map(
        lambda parts: b"".join(section(0x76, part) for part in parts)
    ),
    values.map(lambda value: section(0x77, value)),
)
footers = st.just(b"") | st.dictionaries(texts, scalars, max_size=2).map(
    lambda pairs: section(0x78, pairs)
)


def maybe(part: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.just(b"") | part


whole = st.tuples(maybe(properties), maybe(user), bodies, footers).map(b"".join)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """One octet is another, or the end is missing."""
    bare = bytearray(draw(whole.filter(bool)))
    place = draw(st.integers(0, len(bare) - 1))
    if draw(st.booleans()):
        bare[place] = draw(st.integers(0, 255))
        return bytes(bare)
    return bytes(bare[:place])
