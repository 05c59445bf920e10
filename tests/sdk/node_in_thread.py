"""A node in the test's own process: for what no client can reach, as its catalog and its limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from busway.cluster.catalog import Catalog
from busway.config import load
from busway.runtime.node import Node
from busway.runtime.stores import NodeStore

T = TypeVar("T")

WAIT_S = 60


class NodeInThread:
    """A node with an event loop of its own, and its catalog, to be changed from here."""

    def __init__(self, data: Path | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        where: dict[str, object] = {"memory": True} if data is None else {"data": data}
        self._node = Node(load({**where, "port": 0, "stores": 2}, {}))
        asyncio.run_coroutine_threadsafe(self._node.start(), self._loop).result(WAIT_S)

    @property
    def connection_string(self) -> str:
        return self._node.connection_string

    @property
    def port(self) -> int:
        return self._node.port

    @property
    def stores(self) -> list[NodeStore]:
        return self._node.stores

    def change(self, what: Callable[[Catalog], T]) -> T:
        async def in_its_loop() -> T:
            assert self._node.namespaces is not None
            return what(self._node.namespaces.default.catalog)

        return asyncio.run_coroutine_threadsafe(in_its_loop(), self._loop).result(WAIT_S)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._node.stop(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
