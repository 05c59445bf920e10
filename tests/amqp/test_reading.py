"""Reading many messages at once: what is told of each, and of those that cannot be read."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.sections import AMQP_VALUE, APPLICATION_PROPERTIES, DATA, PROPERTIES
from tests.amqp.bare_messages import damaged, section, whole
from tests.amqp.codecs_at_hand import CODECS, both_codecs, each_codec, typed

ALL_PLACES = tuple(range(13))


@each_codec
def test_each_part_has_a_value_for_each_message(codec: ModuleType) -> None:
    first = section(PROPERTIES, ["m-1", None, "there"]) + section(DATA, b"a") + section(DATA, b"b")
    second = section(APPLICATION_PROPERTIES, {"n": 1}) + section(AMQP_VALUE, "text")
    parts = codec.read_messages([first, None, second, b""], (0, 2, 5), str, user=True, body=True)
    assert parts.fields == [
        ["m-1", None, None, None],
        ["there", None, None, None],
        [None, None, None, None],
    ]
    assert parts.user == [None, None, {"n": 1}, None]
    assert parts.bodies == [b"ab", None, b"text", None]
    assert parts.body_types == ["data", None, "string", None]
    assert parts.unreadable == []


@each_codec
def test_nothing_is_told_of_a_message_that_cannot_be_read(codec: ModuleType) -> None:
    bad = section(PROPERTIES, ["m-1"]) + b"\x00\x53\x74\xc1\x05\x01\xa1\x01a\x43"
    good = section(PROPERTIES, ["m-2"])
    parts = codec.read_messages([bad, good], (0,), str, user=True, body=True)
    assert (parts.unreadable, parts.fields) == ([0], [[None, "m-2"]])


@each_codec
def test_a_section_that_nobody_asks_for_need_not_be_readable(codec: ModuleType) -> None:
    bare = section(PROPERTIES, ["m-1"]) + b"\x00\x53\x74\xc1\x05\x01\xa1\x01a\x43"
    parts = codec.read_messages([bare], (0,), str, user=False, body=True)
    assert (parts.unreadable, parts.fields) == ([], [["m-1"]])


@both_codecs
@given(
    st.lists(st.none() | whole | damaged(), max_size=3),
    st.just(ALL_PLACES) | st.lists(st.sampled_from(ALL_PLACES), unique=True, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_both_codecs_read_the_same(
    bares: list[bytes | None], places: Any, user: bool, body: bool
) -> None:
    one, other = (
        codec.read_messages(bares, places, repr, user=user, body=body) for codec in CODECS.values()
    )
    assert typed(one.user) == typed(other.user)
    one.user = other.user = []
    assert one == other
