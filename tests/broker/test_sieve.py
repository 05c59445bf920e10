"""A sieve never says *not* of what was put in, for as long as that counts."""

from __future__ import annotations

from hashlib import blake2b

from hypothesis import given, settings
from hypothesis import strategies as st

from busway.broker.sieve import SIEVE_BYTES, Sieve, SieveBudget, StoredOnly


def digests(first: int, last: int) -> list[bytes]:
    return [blake2b(b"%d" % each, digest_size=16).digest() for each in range(first, last)]


def test_all_that_was_put_in_is_found_and_little_else() -> None:
    sieve = Sieve()
    put_in = digests(0, SIEVE_BYTES * 8 // 10)  # ten bits for each
    for digest in put_in:
        sieve.add(digest, 1)
    assert all(sieve.may_hold(digest) for digest in put_in)
    others = digests(10_000_000, 10_010_000)
    assert sum(map(sieve.may_hold, others)) < 0.04 * len(others)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 60)),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_what_still_counts_is_never_denied(steps: list[tuple[int, int, int]], sieves: int) -> None:
    """Whatever time passes, whatever windows there are, with room for sieves or without."""
    budget = SieveBudget(sieves)
    stored_only = StoredOnly(budget)
    until: dict[bytes, int] = {}
    now_ms = 0
    for name, passes_ms, window_ms in steps:
        now_ms += passes_ms
        (digest,) = digests(name, name + 1)
        stored_only.add(digest, now_ms + window_ms, now_ms)
        until[digest] = max(until.get(digest, 0), now_ms + window_ms)
        for each, until_ms in until.items():
            assert until_ms <= now_ms or stored_only.may_hold(each, now_ms)
    stored_only.clear()
    assert budget.left == sieves


def test_when_all_is_over_nothing_is_perhaps_there() -> None:
    for sieves in (0, 2):
        stored_only = StoredOnly(SieveBudget(sieves))
        (digest,) = digests(0, 1)
        stored_only.add(digest, 100, 0)
        assert stored_only.may_hold(digest, 99)
        assert not stored_only.may_hold(digest, 100)
