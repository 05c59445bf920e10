from __future__ import annotations

import pytest

from tests.gateway.transacting import Control
from tests.gateway.world import Client, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.connect()


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def queue(request: pytest.FixtureRequest, world: World) -> str:
    """Every rule that does not speak of partitions holds on both kinds (P-7)."""
    return world.queue("orders", enable_partitioning=request.param).path


@pytest.fixture
def control(client: Client) -> Control:
    return Control(client)
