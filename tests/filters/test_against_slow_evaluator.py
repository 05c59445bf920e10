"""The compiled evaluator says what the slow one says, of random filters and messages (SQL-3 to 10).

Both raise where a filter cannot be decided; which of several reasons they name does not matter.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from busway.filters.errors import FilterError
from busway.filters.evaluator import Compiler
from busway.filters.facts import MessageFacts
from busway.filters.operators import COMPARERS, Truth, calculate
from busway.filters.parser import parse_filter
from busway.filters.syntax import Predicate
from busway.filters.values import DateTime, TimeSpan
from tests.filters.messages import NEW_ID, message
from tests.filters.slow_evaluator import (
    FALSE,
    TRUE,
    UNKNOWN,
    UndecidedError,
    World,
    calculated,
    compare,
)
from tests.filters.trees import doubles, integers, predicates, texts, user_properties, values
from tests.filters.writing import write

TRUTHS = {FALSE: False, TRUE: True, UNKNOWN: None}
FAILED = "failed"

labels = st.one_of(st.none(), texts)
ttls_ms = st.one_of(st.none(), st.integers(1, 3))


def compiled(predicate: Predicate, facts: MessageFacts) -> Truth | str:
    try:
        return Compiler(lambda: NEW_ID).predicate(predicate)(facts)
    except FilterError:
        return FAILED


def slow(predicate: Predicate, world: World) -> Truth | str:
    try:
        return TRUTHS[world.truth(predicate)]
    except UndecidedError:
        return FAILED


@settings(max_examples=500, deadline=None)
@given(predicates, user_properties, labels, ttls_ms)
def test_both_evaluators_agree(
    predicate: Predicate,
    user: dict[str, tuple[Any, Any]],
    label: str | None,
    ttl_ms: int | None,
) -> None:
    sent = message(
        {name: amqp for name, (amqp, _) in user.items()},
        subject=label,
        message_id="a",
        ttl_ms=ttl_ms,
        enqueued_ms=2,
    )
    world = World(
        {name: value for name, (_, value) in user.items()},
        {
            "Label": label,
            "MessageId": "a",
            "SessionId": None,
            "TimeToLive": None if ttl_ms is None else TimeSpan(10_000 * ttl_ms),
            "EnqueuedTimeUtc": DateTime(621_355_968_000_020_000),
        },
    )
    expected = slow(predicate, world)
    assert compiled(predicate, MessageFacts(sent)) == expected
    text = write(predicate)
    if len(text) <= 1024:
        assert compiled(parse_filter(text), MessageFacts(sent)) == expected


# Whole filters seldom put two numbers side by side for which it matters, so here are pairs alone.

numbers = st.one_of(integers, st.integers(-20, 20), doubles)
pairs = st.one_of(
    st.tuples(numbers, numbers), st.tuples(values, values).map(lambda p: (p[0][1], p[1][1]))
)


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(("=", "<>", ">", ">=", "<", "<=")), pairs)
def test_both_compare_two_values_alike(sign: str, pair: tuple[Any, Any]) -> None:
    try:
        expected: Truth | str = TRUTHS[compare(sign, *pair)]
    except UndecidedError:
        expected = FAILED
    try:
        found: Truth | str = COMPARERS[sign](*pair)
    except FilterError:
        found = FAILED
    assert found == expected


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from("+-*/%"), pairs)
def test_both_calculate_alike(sign: str, pair: tuple[Any, Any]) -> None:
    try:
        expected = calculated(sign, *pair)
    except UndecidedError:
        expected = FAILED
    try:
        found = calculate(sign, *pair)
    except FilterError:
        found = FAILED
    # Not by ==: Python takes 1 and 1.0 for equal, and NaN for different from itself.
    assert repr(found) == repr(expected)
