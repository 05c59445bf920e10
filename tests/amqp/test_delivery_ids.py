"""Delivery ids: coalescing, ranges, wrap-around."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.amqp.delivery_ids import MASK, pick, runs
from busway.amqp.errors import ProtocolError


def test_consecutive_ids_make_one_range() -> None:
    assert runs([4, 5, 6]) == [(4, 6)]


def test_a_hole_parts_two_ranges() -> None:
    assert runs([4, 5, 7]) == [(4, 5), (7, 7)]


def test_ids_in_any_order_make_the_same_ranges() -> None:
    assert runs([7, 5, 4, 5]) == [(4, 5), (7, 7)]


def test_no_ids_make_no_range() -> None:
    assert runs([]) == []


def test_a_range_names_known_and_unknown_ids() -> None:
    assert pick({2: 0, 3: 0, 6: 0}, 1, 8) == ([2, 3, 6], [(1, 1), (4, 5), (7, 8)])


def test_a_range_may_wrap() -> None:
    assert pick({MASK: 0, 0: 0}, MASK - 1, 1) == ([MASK, 0], [(MASK - 1, MASK - 1), (1, 1)])


def test_a_range_that_runs_backwards_is_invalid() -> None:
    with pytest.raises(ProtocolError, match="amqp:invalid-field"):
        pick({}, 5, 4)


def test_a_wide_range_costs_what_is_on_record() -> None:
    assert pick({7: 0}, 0, (1 << 31) - 1) == ([7], [(0, 6), (8, (1 << 31) - 1)])


@given(st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(0, 40))
def test_known_and_unknown_make_up_the_range(known: set[int], first: int, span: int) -> None:
    found, unknown = pick(dict.fromkeys(known), first, first + span)
    covered = found + [i for low, high in unknown for i in range(low, high + 1)]
    assert sorted(covered) == list(range(first, first + span + 1))
    assert set(found) == known & set(covered)


@given(st.sets(st.integers(0, 60)))
def test_runs_cover_the_ids_and_nothing_else(ids: set[int]) -> None:
    covered = [i for low, high in runs(list(ids)) for i in range(low, high + 1)]
    assert covered == sorted(ids)
