"""Fixtures of the broker's tests."""

from __future__ import annotations

import pytest

from tests.broker.several_entities import SeveralEntities
from tests.broker.single_queue import SingleQueue


@pytest.fixture
def orders() -> SingleQueue:
    """A conventional queue with default properties, empty, its broker serving."""
    return SingleQueue()


@pytest.fixture
def house() -> SeveralEntities:
    """No entity yet; one store, its broker serving."""
    return SeveralEntities()
