"""Long walks in small steps, so that nobody else waits for their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

STEP = 128
"""Partitions, or connections, that are looked at before others get their turn."""


async def in_steps(each: Iterable[T], weight: Callable[[T], int]) -> AsyncIterator[T]:
    """One after the other; now and then, everybody else first."""
    done = 0
    for one in each:
        yield one
        done += weight(one)
        if done >= STEP:
            done = 0
            await asyncio.sleep(0)
