"""What the fuzzer keeps holds the fuzzer's law, and so do some inputs made from it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.fuzz_filters import CORPUS, check, corpus, crashes, mutate


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()) + crashes(), ids=lambda path: path.name)
def test_a_kept_input_holds_the_law(path: Path) -> None:
    check(path.read_text())


def test_some_mutations_hold_the_law() -> None:
    chance, seeds = random.Random(7), corpus()
    for _ in range(1_000):
        check(mutate(chance, seeds))
