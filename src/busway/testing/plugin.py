"""The pytest plugin: a server for the tests of an application.

    @pytest.fixture(scope="session")
    def busway_config() -> str:
        return '[[queues]]\\nname = "orders"\\n'

    def test_an_order_is_placed(busway_server):
        place_order(busway_server.connection_string)

pytest loads this file in every project of an environment that has Busway in it, so `testing/`
imports nothing of Busway's own: the server is another process.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from busway.testing.server import Server


@pytest.fixture(scope="session")
def busway_config() -> str:
    """The configuration of `busway_server`, in TOML; define it anew in your own conftest.py."""
    return '[[queues]]\nname = "queue"\n\n[[queues]]\nname = "partitioned"\npartitioned = true\n'


@pytest.fixture(scope="session")
def busway_server(busway_config: str) -> Iterator[Server]:
    """A server that lives as long as the tests do; it keeps everything in memory."""
    with Server(config=busway_config) as server:
        yield server
