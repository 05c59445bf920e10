"""A short form of the table of damage on a whole broker (`python -m tests.runtime.damage`)."""

from __future__ import annotations

import pytest

from tests.runtime.damage import run

ONCE = ("catalog's log missing", "a store of another broker", "only its file")


@pytest.mark.timeout(1200)
def test_a_damaged_broker_delivers_nothing_wrong_and_loses_nothing_without_a_word() -> None:
    table = run(flips=4, cuts=2, seed=3, once=ONCE)
    for what, row in table.items():
        assert (row.wrong, row.silent) == (0, 0), (what, row.told)
    assert table["nothing"].missing == 0
    assert all(table[what].missing and table[what].told for what in ONCE)
