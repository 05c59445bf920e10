"""`TransactionScope` with async flow, as a Python `with`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sdk import result
from world import World, message

# isort: split

from System.Transactions import TransactionScope, TransactionScopeAsyncFlowOption

KEY = "key"


class RollBack(Exception):
    """Leaves a transaction without completing it."""


@contextmanager
def transaction() -> Iterator[None]:
    """What is awaited inside takes part; without the flow option it would do so by chance only."""
    scope = TransactionScope(TransactionScopeAsyncFlowOption.Enabled)
    try:
        yield
        scope.Complete()
    except RollBack:
        pass
    finally:
        scope.Dispose()


def keyed(body: str, key: str = KEY) -> Any:
    """A conventional entity does not mind the key, a partitioned one wants it (P-33)."""
    return message(body, PartitionKey=key)


def nothing_in(world: World, *queues: str) -> bool:
    client = world.connect()
    return all(result(client.CreateReceiver(queue).PeekMessageAsync(0)) is None for queue in queues)
