"""A tree that is written reads back as the same tree (SQL-1, ACT-1)."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from busway.filters.parser import parse_action, parse_filter
from busway.filters.syntax import Predicate, Remove, Set, Statement
from tests.filters.trees import expressions, predicates, properties
from tests.filters.writing import write, write_action


@settings(max_examples=300, deadline=None)
@given(predicates)
def test_a_filter_that_is_written_reads_back_the_same(predicate: Predicate) -> None:
    text = write(predicate)
    assume(len(text) <= 1024)
    # Python takes 1, 1.0 and True for equal; their texts differ.
    assert repr(parse_filter(text)) == repr(predicate)


statements = st.one_of(st.builds(Set, properties, expressions), st.builds(Remove, properties))


@settings(max_examples=200, deadline=None)
@given(st.lists(statements, min_size=1, max_size=5).map(tuple))
def test_an_action_that_is_written_reads_back_the_same(action: tuple[Statement, ...]) -> None:
    text = write_action(action)
    assume(len(text) <= 1024)
    assert repr(parse_action(text)) == repr(action)
