"""A short form of the table of damage (`python -m tests.store.damage`)."""

from __future__ import annotations

import os

import pytest

from tests.store.damage import run

FLIPS = int(os.environ.get("BUSWAY_FLIPS", "6"))


@pytest.mark.timeout(600)
def test_nothing_is_delivered_wrong_and_nothing_is_lost_without_a_word() -> None:
    for what, row in run(FLIPS, seed=3).items():
        assert (row.wrong, row.silent) == (0, 0), what
