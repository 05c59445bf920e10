"""Random filters, and random messages that they say something about."""

from __future__ import annotations

import math
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from busway.amqp.types import Described, Float, Int, Symbol, Timestamp, UByte
from busway.filters.syntax import (
    And,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    NamedProperty,
    Not,
    Or,
    Predicate,
    Property,
    Sign,
)
from busway.filters.values import DateTime, TimeSpan

NAMES = ("color", "count", "When", "a b]c", "missing", "naïve_2")
SYSTEM_NAMES = ("Label", "MessageId", "TimeToLive", "EnqueuedTimeUtc", "SessionId", "Nonsense")

texts = st.text("ab%_!'", max_size=4)
integers = st.one_of(
    st.integers(-3, 3), st.sampled_from((2**63 - 1, -(2**63), 2**62, 2**53, 2**53 + 1))
)
doubles = st.one_of(
    st.sampled_from((0.0, 0.5, -1.5, 1.0, 2.0, 1e300, float(2**53))),
    st.floats(allow_nan=False, allow_infinity=False),
)
constants = st.builds(Constant, st.one_of(st.none(), st.booleans(), integers, doubles, texts))
properties = st.one_of(
    st.builds(Property, st.just("user"), st.sampled_from(NAMES)),
    st.builds(Property, st.just("sys"), st.sampled_from(SYSTEM_NAMES)),
)
named = st.builds(NamedProperty, st.sampled_from((*NAMES, "sys.Label", "user.color")).map(Constant))


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    rest = {
        level: st.lists(st.tuples(st.sampled_from(level), inner), min_size=1, max_size=3)
        for level in ("+-", "*/%")
    }
    return st.one_of(
        st.builds(Sign, st.sampled_from("+-"), inner),
        st.builds(Arithmetic, inner, rest["+-"].map(tuple)),
        st.builds(Arithmetic, inner, rest["*/%"].map(tuple)),
        st.builds(NamedProperty, inner),
    )


expressions: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(constants, properties, properties, named), _larger, max_leaves=4
)

escapes = st.one_of(st.none(), st.just(Constant("!")))
patterns = st.one_of(st.text("ab%_", max_size=5).map(Constant), properties)

comparators = st.sampled_from(("=", "<>", ">", ">=", "<", "<="))

leaves: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(Comparison, comparators, expressions, expressions),
    st.builds(IsNull, properties, st.booleans()),
    st.builds(
        In, expressions, st.lists(expressions, min_size=1, max_size=3).map(tuple), st.booleans()
    ),
    st.builds(Like, expressions, patterns, escapes, st.booleans()),
    st.builds(Exists, properties),
)

predicates: st.SearchStrategy[Predicate] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)

# A value as AMQP has it, and as a filter should see it.

TICKS = 638_000_000_000_000_000

values: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.just((None, None)),
    st.booleans().map(lambda b: (b, b)),
    integers.map(lambda n: (n, n)),
    st.integers(-3, 3).map(lambda n: (Int(n), n)),
    st.integers(0, 3).map(lambda n: (UByte(n), n)),
    doubles.map(lambda x: (x, x)),
    st.sampled_from((0.5, 2.0, math.inf)).map(lambda x: (Float(x), x)),
    texts.map(lambda s: (s, s)),
    st.text("ab", max_size=2).map(lambda s: (Symbol(s), s)),
    st.integers(0, 3).map(lambda n: (UUID(int=n), UUID(int=n))),
    st.integers(0, 3).map(
        lambda ms: (Timestamp(ms), DateTime(621_355_968_000_000_000 + 10_000 * ms))
    ),
    st.integers(-3, 3).map(lambda n: (Described(Symbol("com.microsoft:timespan"), n), TimeSpan(n))),
    st.integers(0, 3).map(
        lambda n: (
            Described(Symbol("com.microsoft:datetime-offset"), TICKS + n),
            DateTime(TICKS + n),
        )
    ),
)

user_properties = st.dictionaries(
    st.sampled_from([name for name in NAMES if name != "missing"]), values, max_size=5
)
