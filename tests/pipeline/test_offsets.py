"""Offsets as Spark keeps them, and how the work between two of them is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.pipeline.wire.offsets import Offset, OffsetError, Span, grouped, spans

offsets = st.builds(
    Offset,
    epoch=st.text(max_size=8),
    next=st.dictionaries(st.integers(0, 130), st.integers(0, 2**63 - 1), max_size=20),
)


@given(offsets)
def test_an_offset_comes_back(offset: Offset) -> None:
    assert Offset.from_json(offset.to_json()) == offset


def test_equal_offsets_have_equal_texts() -> None:
    one, other = Offset("7", {10: 1, 2: 5}), Offset("7", {2: 5, 10: 1})
    assert one.to_json() == other.to_json() == '{"epoch":"7","p":{"02":5,"10":1},"v":1}'


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"epoch":1,"p":{},"v":1}', '{"epoch":"1","p":{"x":1},"v":1}',
     '{"epoch":"1","p":{"00":-1},"v":1}', '{"epoch":"1","p":{"00":true},"v":1}'],
)  # fmt: skip
def test_what_is_no_offset_is_said_so(text: str) -> None:
    with pytest.raises(OffsetError, match="no offset"):
        Offset.from_json(text)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(OffsetError, match="newer"):
        Offset.from_json(json.dumps({"epoch": "1", "p": {}, "v": 2}))


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    start, end = Offset("1", {0: 5, 1: 7}), Offset("1", {0: 9, 1: 7, 2: 3})
    assert spans(start, end) == [Span(0, 5, 9), Span(2, 0, 3)]
    assert start.rows_until(end) == 7


@given(
    st.lists(st.integers(1, 5_000), max_size=16),
    st.integers(1, 12),
)
def test_every_row_is_read_once_by_about_so_many_tasks(sizes: list[int], tasks: int) -> None:
    between = [Span(partition, 100, 100 + size) for partition, size in enumerate(sizes)]
    groups = grouped(between, tasks)
    assert len(groups) <= tasks
    joined: dict[int, int] = {}
    for group in groups:
        assert group
        for span in group:
            assert joined.get(span.partition, 100) == span.start < span.end
            joined[span.partition] = span.end
    assert joined == {span.partition: span.end for span in between}
    if groups:
        loads = [sum(span.rows for span in group) for group in groups]
        assert max(loads) <= -(-sum(sizes) // tasks)
