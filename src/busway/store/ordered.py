"""Keys in order, for the memory store: quick to add to, to take from and to page through."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", int, tuple[int, int, int], tuple[int, int, bytes], tuple[int, bytes])

COMPACT_AFTER = 64
"""Dead keys to keep in any case; beyond that, at most a quarter of all."""


class OrderedKeys(Generic[K]):
    """A sorted set. A key that is discarded stays in the list, dead, until enough of them are:
    the head of a queue goes away one by one, and each time the list would be moved."""

    __slots__ = ("_keys", "_live")

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self._live: set[Any] = set()

    def __len__(self) -> int:
        return len(self._live)

    def add(self, key: K) -> None:
        self._live.add(key)
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
            return
        index = bisect_left(keys, key)
        if keys[index] != key:
            keys.insert(index, key)

    def discard(self, key: K) -> None:
        self._live.discard(key)
        dead = len(self._keys) - len(self._live)
        if dead > COMPACT_AFTER + len(self._keys) // 4:
            self._keys = sorted(self._live)

    def after(self, key: K | None) -> Iterator[K]:
        """The keys above `key` (all if None), ascending. Not to be changed meanwhile."""
        start = 0 if key is None else bisect_right(self._keys, key)
        for index in range(start, len(self._keys)):
            candidate = self._keys[index]
            if candidate in self._live:
                yield candidate
