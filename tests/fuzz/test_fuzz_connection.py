"""What the connection's fuzzer has found before, and a short look for more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.fuzz_connection import CORPUS, check, fuzz


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.bin")), ids=lambda path: path.stem)
def test_kept_inputs_are_handled(path: Path) -> None:
    for seed in range(4):
        check(path.read_bytes(), random.Random(seed))


def test_a_short_run_finds_nothing() -> None:
    assert fuzz(seconds=3, seed=20_260) > 100
