"""Every test on a conventional and on a partitioned entity, by each way to the broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from world import WAYS, Address, World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ways", default=",".join(WAYS), help="some of plain, tls, websocket")
    parser.addoption("--in-turn", action="store_true", help="each test by one way, one by one")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "way" in metafunc.fixturenames:
        metafunc.parametrize("way", metafunc.config.getoption("--ways").split(","))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--in-turn` each test on each flavour by one way only: the next one each time."""
    if not config.getoption("--in-turn"):
        return
    ways = itertools.cycle(config.getoption("--ways").split(","))
    turns: dict[str, str] = {}

    def is_turn(item: pytest.Item) -> bool:
        way = item.callspec.params.get("way") if hasattr(item, "callspec") else None
        if way is None:
            return True
        test = item.nodeid.replace(way, "")
        if test not in turns:
            turns[test] = next(ways)
        return bool(way == turns[test])

    items[:] = filter(is_turn, items)


@pytest.fixture(params=["conventional", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "partitioned")


@pytest.fixture
def world(way: str, partitioned: bool) -> Iterator[World]:
    world = World(Address.told(), way, partitioned)
    yield world
    world.close()
