"""Every test on a conventional and on a partitioned entity, with a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conversation import Conversation, take


@pytest.fixture(params=["conventional", "partitioned"])
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def entity(flavour: str) -> Callable[[str], str]:
    return lambda kind: take(kind, flavour)


@pytest.fixture
def queue(entity: Callable[[str], str]) -> str:
    return entity("queue")


@pytest.fixture
def client() -> Iterator[Conversation]:
    with Conversation() as conversation:
        yield conversation
