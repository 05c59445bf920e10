"""A node in this process: its stores, and what becomes of those that are not as they should be."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from busway.config import Configuration, load
from busway.runtime.node import Node
from busway.store.faults import Fault
from tests.runtime.wire import WAIT_S


def configured(data: Path | None, stores: int = 2) -> Configuration:
    where: dict[str, object] = {"memory": True} if data is None else {"data": data}
    return load({**where, "port": 0, "stores": stores}, {})


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    nodes: list[Node] = []

    async def start_node(data: Path | None, stores: int = 2) -> Node:
        node = Node(configured(data, stores))
        nodes.append(node)
        await node.start()
        return node

    yield start_node
    for node in nodes:
        await node.stop()


async def test_every_store_has_a_broker_that_serves(start: Callable[..., Awaitable[Node]]) -> None:
    """P-1."""
    node = await start(None, stores=3)
    assert [store.name for store in node.stores] == ["store-0", "store-1", "store-2"]
    assert all(store.broker.available for store in node.stores)
    assert len({store.store_id for store in node.stores}) == 3


async def test_a_store_can_be_told_to_be_gone_and_comes_back(
    start: Callable[..., Awaitable[Node]],
) -> None:
    node = await start(None)
    store = node.stores[0]
    changed = asyncio.Event()
    store.broker.on_availability = changed.set
    store.faults.be(Fault.GONE)
    store.broker.purge(4711, lambda: None)  # a commit, which finds out
    await asyncio.wait_for(changed.wait(), WAIT_S)
    assert not store.broker.available
    assert node.stores[1].broker.available
    changed.clear()
    store.faults.be(Fault.NONE)
    await asyncio.wait_for(changed.wait(), WAIT_S)
    assert store.broker.available


async def test_a_missing_store_joins_when_it_is_back(
    start: Callable[..., Awaitable[Node]], tmp_path: Path
) -> None:
    first = Node(configured(tmp_path))
    await first.start()
    await first.stop()
    away = tmp_path.parent / f"{tmp_path.name}-away.db"
    shutil.move(tmp_path / "store-1.db", away)

    node = await start(tmp_path)
    assert node.stores[0].broker.available
    assert not node.stores[1].broker.available
    assert "is missing" in str(node.stores[1].problem)

    shutil.move(away, tmp_path / "store-1.db")
    await asyncio.wait_for(node.stores[1].serving.wait(), WAIT_S)
    assert node.stores[1].broker.available


async def test_a_store_in_the_place_of_another_does_not_serve(
    start: Callable[..., Awaitable[Node]], tmp_path: Path
) -> None:
    first = Node(configured(tmp_path))
    await first.start()
    await first.stop()
    shutil.copy(tmp_path / "store-0.db", tmp_path / "store-1.db")
    node = await start(tmp_path)
    assert node.stores[0].broker.available
    assert not node.stores[1].broker.available
    assert "the catalog expects" in str(node.stores[1].problem)


async def test_a_folder_is_free_again_after_the_stop(tmp_path: Path) -> None:
    for _ in range(2):
        node = Node(configured(tmp_path))
        await node.start()
        await node.stop()
