"""Correlation filters, alone and thousands in an index (COR-1 to COR-3)."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from busway.amqp.types import Described, Float, Int, Short, Symbol, Timestamp, ULong
from busway.filters.correlation import CorrelationIndex, conditions_of, holds
from busway.filters.facts import MessageFacts
from busway.model.entities import CorrelationFilter
from tests.filters.messages import message

TIMESPAN = Described(Symbol("com.microsoft:timespan"), 5)


def matches(correlation: CorrelationFilter, user: dict[str, Any] | None = None, **f: Any) -> bool:
    conditions = conditions_of(correlation)
    correlated = MessageFacts(message(user, **f)).correlated
    index: CorrelationIndex[str] = CorrelationIndex()
    index.add("it", conditions)
    found = list(index.matches(correlated)) == ["it"]
    assert found is holds(conditions, correlated)
    return found


class TestOneFilter:
    @pytest.mark.parametrize(
        ("attribute", "field"),
        [
            ("correlation_id", "correlation_id"),
            ("message_id", "message_id"),
            ("to", "to"),
            ("reply_to", "reply_to"),
            ("label", "subject"),
            ("session_id", "group_id"),
            ("reply_to_session_id", "reply_to_group_id"),
            ("content_type", "content_type"),
        ],
    )
    def test_each_field_is_compared_and_case_counts(self, attribute: str, field: str) -> None:
        """COR-1"""
        wanted = CorrelationFilter(**{attribute: "Value"})
        assert matches(wanted, **{field: "Value"})
        assert not matches(wanted, **{field: "value"})
        assert not matches(wanted)

    def test_all_conditions_must_hold(self) -> None:
        """COR-1"""
        wanted = CorrelationFilter(label="a", properties={"color": "red", "size": 5})
        assert matches(wanted, {"color": "red", "size": 5, "more": 1}, subject="a")
        assert not matches(wanted, {"color": "red", "size": 6}, subject="a")
        assert not matches(wanted, {"color": "red", "size": 5}, subject="b")

    def test_a_missing_property_is_no_match(self) -> None:
        """COR-1"""
        assert not matches(CorrelationFilter(properties={"color": "red"}), {})

    def test_names_of_properties_are_the_same_in_any_case(self) -> None:
        """SQL-2"""
        assert matches(CorrelationFilter(properties={"Color": "red"}), {"cOLOR": "red"})

    @pytest.mark.parametrize("one", [1, Int(1), Short(1), ULong(1), 1.0, Float(1.0)])
    def test_numbers_of_all_widths_are_equal_if_their_values_are(self, one: Any) -> None:
        """COR-2"""
        assert matches(CorrelationFilter(properties={"n": 1}), {"n": one})
        assert matches(CorrelationFilter(properties={"n": one}), {"n": 1})

    @pytest.mark.parametrize("other", ["1", True, UUID(int=1), Timestamp(1), b"1", None, [1], 2])
    def test_other_types_are_not_equal(self, other: Any) -> None:
        """COR-2"""
        assert not matches(CorrelationFilter(properties={"n": 1}), {"n": other})

    @pytest.mark.parametrize(
        "value",
        [True, "x", UUID(int=1), Timestamp(1), b"x", None, TIMESPAN],
    )
    def test_every_type_equals_itself(self, value: Any) -> None:
        """COR-2"""
        assert matches(CorrelationFilter(properties={"n": value}), {"n": value})

    @pytest.mark.parametrize("value", [math.nan, [1], {"a": 1}])
    def test_what_equals_nothing_matches_nothing(self, value: Any) -> None:
        wanted = CorrelationFilter(label="x", properties={"n": value})
        assert not matches(wanted, {"n": value}, subject="x")

    def test_ids_compare_as_texts(self) -> None:
        """D-15"""
        assert matches(CorrelationFilter(correlation_id="17"), correlation_id=ULong(17))


names = st.sampled_from("abc")
values = st.sampled_from((0, 1, 1.0, True, "x", None))
texts = st.sampled_from((None, None, "x", "y"))
filters = st.builds(
    CorrelationFilter,
    label=texts,
    to=texts,
    session_id=texts,
    properties=st.dictionaries(names, values, max_size=3),
).filter(lambda correlation: bool(conditions_of(correlation)))
users = st.dictionaries(names, values, max_size=3)


class TestTheIndex:
    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(filters, max_size=25),
        st.sets(st.integers(0, 24)),
        st.lists(st.tuples(users, texts, texts), min_size=1, max_size=4),
    )
    def test_it_finds_what_asking_every_filter_finds(
        self,
        added: list[CorrelationFilter],
        removed: set[int],
        sent: list[tuple[dict[str, Any], str | None, str | None]],
    ) -> None:
        index: CorrelationIndex[int] = CorrelationIndex()
        there = {}
        for owner, correlation in enumerate(added):
            there[owner] = conditions_of(correlation)
            index.add(owner, there[owner])
        for owner in removed & set(there):
            del there[owner]
            index.remove(owner)
        assert len(index) == len(there)
        for user, label, to in sent:
            correlated = MessageFacts(message(user, subject=label, to=to)).correlated
            found = list(index.matches(correlated))
            assert len(found) == len(set(found))
            assert set(found) == {o for o, wanted in there.items() if holds(wanted, correlated)}

    def test_it_is_empty_again_when_all_are_removed(self) -> None:
        index: CorrelationIndex[int] = CorrelationIndex()
        for owner in range(50):
            wanted = CorrelationFilter(label=str(owner % 7), properties={f"p{owner % 5}": owner})
            index.add(owner, conditions_of(wanted))
        for owner in range(50):
            index.remove(owner)
        assert vars(index) == vars(CorrelationIndex())

    def test_a_message_is_looked_up_once_per_shape(self) -> None:
        class Counting(dict[str, object]):
            reads = 0

            def __getitem__(self, field: str) -> object:
                type(self).reads += 1
                return super().__getitem__(field)

        index: CorrelationIndex[int] = CorrelationIndex()
        for owner in range(5_000):
            wanted = CorrelationFilter(label="same", properties={"customer": owner})
            index.add(owner, conditions_of(wanted))
            other = CorrelationFilter(properties={f"only-{owner}": 1})
            index.add(-1 - owner, conditions_of(other))
        correlated = Counting(MessageFacts(message({"customer": 77}, subject="same")).correlated)
        assert list(index.matches(correlated)) == [77]
        assert Counting.reads <= 2
