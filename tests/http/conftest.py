"""A server in memory for each module of tests, and management requests to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from busway.testing import Server
from tests.http.atom_client import Management


@pytest.fixture(scope="module")
def managed() -> Iterator[Server]:
    """Tests of a module give their entities names of their own."""
    with Server(arguments=["--allow-faults"]) as running:
        yield running


@pytest.fixture
def bus(managed: Server) -> Iterator[Management]:
    client = Management(managed)
    yield client
    client.close()
