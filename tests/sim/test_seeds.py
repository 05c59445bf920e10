"""D-35: the same promises over many seeds; a seed that fails is replayed by its number."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from busway.sim.bugs import BUGS
from busway.sim.history import Violation
from busway.sim.simulation import Simulation

SEEDS = 100
GROUPS = 10
"""So that several workers share them; a failure names its seed in any case."""
BUG_SEEDS = 20


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Stores fail all the time here; their warnings would bury what matters."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_promise_is_kept_whatever_goes_wrong(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        try:
            Simulation(seed).run()
        except BaseException as error:
            error.add_note(f"replay it with:  python -m busway.sim --seed {seed} --verbose")
            raise


def test_a_seed_replays_exactly() -> None:
    first, second = (Simulation(7).run() for _ in range(2))
    assert first == second


def test_seeds_differ() -> None:
    assert Simulation(7).run().digest != Simulation(8).run().digest


@pytest.mark.parametrize("bug", BUGS)
def test_the_checkers_find_a_bug_that_is_there(bug: str) -> None:
    for seed in range(BUG_SEEDS):
        try:
            Simulation(seed, make_broker=BUGS[bug]).run()
        except Violation:
            return
    pytest.fail(f"{BUG_SEEDS} seeds and no checker noticed {bug}")
