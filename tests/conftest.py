"""What holds for all tests: the clock is no judge, because on a busy machine it judges others."""

from __future__ import annotations

import os
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent

FILES_IN_A_ROUND = {"pipeline": 2, "chaos": 1, "store": 1, "sdk": 1, "http": 1, "runtime": 1}
"""Of rooms whose files take long. Spark needs the processor, clients wait for servers: they go well
together. All others are short, and fill the gaps at the end."""

settings.register_profile(
    "busway",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    # The same examples each time: what a new one finds is for who looks for it (`make fuzz`), and
    # not for whose change happens to be tested then.
    derandomize="BUSWAY_CHANCE" not in os.environ,
)
settings.load_profile("busway")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By rounds: workers take the files in this order (`--no-loadscope-reorder`)."""
    rounds: dict[Path, float] = {}
    begun: Counter[str] = Counter()
    for file in dict.fromkeys(item.path for item in items):
        room = file.relative_to(HERE).parts[0]
        rounds[file] = begun[room] // FILES_IN_A_ROUND[room] if room in FILES_IN_A_ROUND else inf
        begun[room] += 1
    items.sort(key=lambda item: rounds[item.path])
