"""LIKE does what a naive matcher does, and no text makes it slow (SQL-8)."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.filters import like
from busway.filters.like import PatternError, compile_like
from tests.filters.slow_evaluator import naive_like, symbols_of


@pytest.mark.parametrize(
    ("pattern", "escape", "like", "unlike"),
    [
        ("", None, [""], ["a"]),
        ("abc", None, ["abc"], ["ab", "abcd", "ABC"]),
        ("%", None, ["", "anything"], []),
        ("%%", None, ["", "anything"], []),
        ("a%", None, ["a", "ab"], ["", "ba"]),
        ("%a", None, ["a", "ba"], ["", "ab"]),
        ("%a%", None, ["a", "bab"], ["", "b"]),
        ("a%a", None, ["aa", "aba"], ["a"]),
        ("a_c", None, ["abc", "a_c"], ["ac", "abbc"]),
        ("_%_", None, ["ab", "abc"], ["", "a"]),
        ("%b_d%", None, ["abcd", "bcbxd!"], ["abd"]),
        ("50!%", "!", ["50%"], ["500"]),
        ("!!!_", "!", ["!_"], ["!a"]),
        ("a!bc", "!", ["abc"], ["a!bc"]),
        ("%%%", "%", [], ["%"]),
        (".*[a]", None, [".*[a]"], ["xa"]),
        ("a%", None, ["a\nb"], []),
    ],
)
def test_wildcards_and_escapes(
    pattern: str, escape: str | None, like: list[str], unlike: list[str]
) -> None:
    if pattern == "%%%" and escape == "%":
        with pytest.raises(PatternError, match="ends with its escape"):
            compile_like(pattern, escape)
        return
    matches = compile_like(pattern, escape)
    assert all(matches(text) for text in like)
    assert not any(matches(text) for text in unlike)


@settings(max_examples=1000, deadline=None)
@given(st.text("ab%_!", max_size=12), st.text("ab%_!", max_size=16), st.sampled_from((None, "!")))
def test_it_agrees_with_a_naive_matcher(pattern: str, text: str, escape: str | None) -> None:
    if escape and pattern.replace("!!", "").endswith("!"):
        return
    expected = naive_like(text, symbols_of(pattern, escape or ""))
    assert compile_like(pattern, escape)(text) is expected


def steps(matches: Any, text: str) -> int:
    """How many lines of the matcher run."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != like.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        matches(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "pattern",
    [
        "%a_a_a_a_b%",
        "%_a" * 40 + "b",
        "%a_" * 60 + "%b",
        "%" + "a_" * 100 + "b%",
        "_" * 50 + "%" + "_" * 50,
        "%" * 500 + "_b",
    ],
)
def test_steps_grow_with_the_text_and_not_with_what_is_in_it(pattern: str) -> None:
    matches = compile_like(pattern)
    for length in (1_000, 2_000, 4_000):
        assert steps(matches, "a" * length) <= 6 * length + 6 * len(pattern)
