"""The same bytes mean the same however the transport cuts them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.connection import Connection, Role
from busway.amqp.events import Event
from busway.amqp.input import Input
from tests.amqp.conversations import NAMES, SERVER, converse, play


def told(events: list[Event]) -> list[str]:
    """Events without the identity of their links and sessions."""
    lines = []
    for event in events:
        fields = {name: getattr(event, name) for name in event.__slots__}
        for name in ("link", "session"):
            if name in fields:
                fields[name] = getattr(fields[name], "name", "session")
        lines.append(f"{type(event).__name__} {fields}")
    return lines


def outcome(data: bytes, sizes: list[int]) -> tuple[list[str], bytes]:
    events, output = play(Connection(SERVER, role=Role.SERVER), data, sizes)
    return told(events), output


@pytest.mark.parametrize("name", NAMES)
def test_small_chunks_say_the_same_when_each_is_answered(name: str) -> None:
    """None of these sizes holds two frames, so the answers fall between the same ones."""
    data = converse(name)
    by_byte = outcome(data, [1])
    assert by_byte == outcome(data, [2])
    assert by_byte == outcome(data, [3])
    assert by_byte[0][-1].startswith("Closed")


@pytest.mark.parametrize("name", NAMES)
def test_all_at_once_says_the_same_if_nobody_answers(name: str) -> None:
    data = converse(name)
    once = Connection(SERVER, role=Role.SERVER)
    slow = Connection(SERVER, role=Role.SERVER)
    by_byte: list[Event] = []
    for offset in range(len(data)):
        by_byte += slow.receive(data[offset : offset + 1])
    assert told(once.receive(data)) == told(by_byte)
    assert once.take_output() == slow.take_output()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_any_bad_byte_says_the_same_however_it_is_cut(name: str, data: st.DataObject) -> None:
    good = converse(name)
    position = data.draw(st.integers(0, len(good) - 1))
    value = data.draw(st.integers(0, 255))
    bad = good[:position] + bytes([value]) + good[position + 1 :]
    cut = data.draw(st.integers(0, len(bad)))
    once = Connection(SERVER, role=Role.SERVER)
    twice = Connection(SERVER, role=Role.SERVER)
    in_two = twice.receive(bad[:cut]) + twice.receive(bad[cut:])
    assert told(once.receive(bad)) == told(in_two)
    assert once.take_output() == twice.take_output()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.lists(st.integers(1, 3_000), min_size=1, max_size=5),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_slices_say_the_same_in_the_same_order(
    name: str, sizes: list[int], frames: list[int]
) -> None:
    """Whatever is fed in between, and however many frames are handled at a time."""
    data = converse(name)
    once, sliced = (Connection(SERVER, role=Role.SERVER) for _ in range(2))
    events: list[Event] = []
    offset = step = 0
    while offset < len(data) or sliced.has_input:
        size = sizes[step % len(sizes)]
        sliced.feed(data[offset : offset + size])
        offset += size
        events += sliced.advance(frames[step % len(frames)])
        step += 1
    assert told(events) == told(once.receive(data))
    assert sliced.take_output() == once.take_output()


def test_what_comes_while_a_large_frame_is_handled_is_not_kept_waiting() -> None:
    """How long a frame was that had to be waited for says nothing of the next one."""
    waiting = Input(needed=8)
    waiting.feed(bytes(100))
    waiting.needed = 60_000
    waiting.handled_up_to(0)
    assert not waiting
    waiting.feed(bytes(59_900))
    whole, _ = waiting.current()
    assert len(whole) == 60_000
    waiting.feed(bytes(20))  # behind it, before it was handled
    waiting.handled_up_to(60_000)
    assert waiting
    assert waiting.current() == (bytes(20), 0)
