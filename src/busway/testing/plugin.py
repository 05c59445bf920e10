"""The pytest plugin: a server for the tests of an application, and a clean one for each test.

    def test_a_reminder_comes_after_a_day(busway):
        queue = busway.queue()
        remind(busway.connection_string, queue, after=timedelta(days=1))
        busway.clock.advance(days=1)
        assert received(busway.connection_string, queue) == ["reminder"]

pytest loads this file in every project of an environment that has Busway in it, so `testing/`
imports nothing of Busway's own: the server is another process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway.testing.bus import Bus
from busway.testing.server import Server

RAM = Path("/dev/shm")
ROOM_BYTES = 1 << 30
"""A broker keeps 256 MB of its disk free, and takes no sends below that."""


@pytest.fixture(scope="session")
def busway_config() -> str:
    """The configuration of `busway_server`, in TOML; define it anew in your own conftest.py."""
    return '[[queues]]\nname = "queue"\n\n[[queues]]\nname = "partitioned"\npartitioned = true\n'


@pytest.fixture(scope="session")
def busway_server(busway_config: str) -> Iterator[Server]:
    """A server that lives as long as the tests do, on a free port. Its clock can be moved."""
    with (
        tempfile.TemporaryDirectory(prefix="busway-data-", dir=_quick_folder()) as folder,
        Server(
            config=busway_config, data=Path(folder, "data"), arguments=["--allow-clock"]
        ) as server,
    ):
        yield server


@pytest.fixture
def busway(busway_server: Server) -> Iterator[Bus]:
    """The server of all tests, as new: after the test everything is gone but the configured
    entities, and the clock is right again."""
    yield from _clean(busway_server)


@pytest.fixture(scope="module")
def busway_module(busway_server: Server) -> Iterator[Bus]:
    """The same for a file of tests, which share their queues, links and clock: the SDK takes a
    second for each link, and a test that finds them open takes milliseconds."""
    yield from _clean(busway_server)


def _clean(server: Server) -> Iterator[Bus]:
    bus = Bus(server)
    yield bus
    if server.is_running:
        bus.reset()
    else:  # a test has ended it, and wants no more of it
        assert server.data is not None
        shutil.rmtree(server.data)
        server.start()


def _quick_folder() -> str | None:
    """In memory where there is room, so that commits cost next to nothing; else the usual place."""
    if not os.access(RAM, os.W_OK | os.X_OK):
        return None
    return str(RAM) if shutil.disk_usage(RAM).free >= ROOM_BYTES else None
