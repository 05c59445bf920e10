"""Moving the clock of a broker, and beginning anew: for tests, on servers that allow it.

`advance` is exact. Broker time goes from one due time to the next, as it would by itself: a message
that becomes active after two minutes and lives for five expires after seven, however far the clock
is moved. At each stop everything that falls due is done, forwarded and committed before the next;
the call returns when that holds for the last. So a test that has advanced the clock need not wait.

What is not moved: tokens, which are judged by the machine's clock; the silence of connections, and
how long a request may wait (`Host.steady_ms`, and timers that were set before). What a client
measures is its own affair: a lock that it would have renewed meanwhile is lost.

`ahead.json` in the data folder has how far the clock is ahead, so that the next start goes on from
there, and one without `--allow-clock` can say what is wrong with the times in the folder.

`reset` deletes every entity, sets the clock back to the machine's and creates what the
configuration declares. Broker time goes back at no other time (D-25): when nothing is left that has
got a time, nothing can tell.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from busway.cluster.catalogs import Catalogs
from busway.gateway.gateway import Gateway
from busway.model.durations import DAY_MS, HOUR_MS, MINUTE_MS
from busway.model.errors import SERVER_BUSY, BusError
from busway.runtime.data_folder import DataFolder, StartError
from busway.runtime.host import Host
from busway.runtime.stores import NodeStore

log = logging.getLogger(__name__)

FILE = "ahead.json"
CALM_ROUNDS = 3
"""Of the event loop, in a row: who is called by one of them may call the next."""
CALM_WAIT_S = 0.0005
CALM_MAX_S = 20.0
"""After this somebody else keeps the server busy, and nobody can say that all is done."""


@dataclass(frozen=True, slots=True)
class Reading:
    now_ms: int
    ahead_ms: int


class ClockControl:
    """One for a node that was started with `--allow-clock`."""

    def __init__(
        self,
        host: Host,
        folder: DataFolder | None,
        catalogs: Catalogs,
        stores: list[NodeStore],
        gateways: Iterable[Gateway],
        furnish: Callable[[int], None],
    ) -> None:
        self._host = host
        self._path = None if folder is None else folder.path
        self._catalogs = catalogs
        self._stores = stores
        self._gateways = tuple(gateways)
        self._furnish = furnish
        self._turn = asyncio.Lock()

    def reading(self) -> Reading:
        return Reading(self._host.now_ms(), self._host.moved_ms)

    async def advance(self, by_ms: int) -> Reading:
        """Raises `BusError` if the server is too busy to say that all is done."""
        async with self._turn:
            goal_ms = self._host.moved_ms + by_ms
            if self._path is not None:
                # Before anything gets a time that is ahead. A little more does no harm.
                await asyncio.to_thread(write_ahead, self._path, goal_ms)
            for gateway in self._gateways:
                gateway.idle.look()  # one that nobody has used yet is idle from now on
            await self._calm()
            while self._host.moved_ms < goal_ms:
                left_ms = goal_ms - self._host.moved_ms
                due_ms = self._next_due_ms()
                wait_ms = left_ms if due_ms is None else due_ms - self._host.now_ms()
                await self._move(min(max(wait_ms, 1), left_ms))
            while any(store.broker.clockwork.is_behind for store in self._stores):
                await asyncio.sleep(CALM_WAIT_S)
                await self._see_to_dues()
            log.info("the clock was moved ahead by %d ms", by_ms)
            return self.reading()

    async def reset(self) -> Reading:
        """Raises `BusError` if some store is not available, or the configuration cannot be had."""
        async with self._turn:
            if not all(store.broker.available for store in self._stores):
                raise BusError(SERVER_BUSY, refused=True)
            for catalog in self._catalogs:
                for entity in sorted(catalog.queues_and_topics(), key=lambda each: each.path):
                    catalog.delete(entity.path, self._host.now_ms())
            await self._calm(lambda: not self._catalogs.tombstones())
            self._host.move_back()
            for store in self._stores:
                await set_back(store, self._host.now_ms())
            if self._path is not None:
                await asyncio.to_thread((self._path / FILE).unlink, missing_ok=True)
            self._furnish(self._host.now_ms())
            await self._calm()
            log.info("the server was reset: entities are as configured, and the clock is right")
            return self.reading()

    # --- step by step ------------------------------------------------------------------------

    def _next_due_ms(self) -> int | None:
        dues = [store.broker.clockwork.next_due_ms() for store in self._stores]
        dues += [gateway.catalog.next_idle_ms() for gateway in self._gateways]
        return min((each for each in dues if each is not None), default=None)

    async def _move(self, by_ms: int) -> None:
        self._host.move(by_ms)
        await self._see_to_dues()

    async def _see_to_dues(self) -> None:
        for store in self._stores:
            store.broker.clockwork.look()
        for gateway in self._gateways:
            gateway.idle.look()
            gateway.look_at_deadlines()
        await self._calm()

    async def _calm(self, also: Callable[[], bool] = lambda: True) -> None:
        """Until nothing is staged, committed, read or called for."""
        loop = self._host.loop
        deadline, calm = loop.time() + CALM_MAX_S, 0
        while calm < CALM_ROUNDS:
            await asyncio.sleep(0)
            if self._host.at_rest and self._stores_at_rest() and also():
                calm += 1
                continue
            calm = 0
            if loop.time() > deadline:
                log.warning("the clock was moved while the server was too busy to come to rest")
                raise BusError(SERVER_BUSY)
            await asyncio.sleep(CALM_WAIT_S)

    def _stores_at_rest(self) -> bool:
        return all(store.broker.way.at_rest for store in self._stores)


async def set_back(store: NodeStore, time_ms: int) -> None:
    """Let the store have committed nothing after `time_ms`; in its thread, between two calls."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    store.thread.call(lambda _: store.identity.set_back(store.path, time_ms), done.set_result)
    outcome = await done
    if isinstance(outcome, Exception):
        raise outcome


# --- what a folder remembers ---------------------------------------------------------------------


def write_ahead(data: Path, ahead_ms: int) -> None:
    draft = data / f"{FILE}.new"
    with draft.open("w") as file:
        json.dump({"ahead_ms": ahead_ms}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(data / FILE)


def read_ahead(data: Path) -> int:
    """Raises `StartError`."""
    path = data / FILE
    try:
        ahead_ms = json.loads(path.read_text())["ahead_ms"]
        if type(ahead_ms) is not int or ahead_ms < 0:
            raise ValueError(f"ahead_ms is {ahead_ms!r}")
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StartError(
            f"{path} says how far the clock of this folder was moved, and cannot be read: {error}. "
            "Start once with --accept-clock to go by the machine's clock."
        ) from error
    return ahead_ms


def begin(host: Host, data: Path, *, allowed: bool, accepted: bool) -> None:
    """At start, before the stores are opened: go on from where the clock was moved to.

    Raises `StartError` if it was moved and that is not allowed any more. With `accepted`, the
    machine's clock counts again, and the stores are set back to it by their own rule.
    """
    if accepted:
        (data / FILE).unlink(missing_ok=True)
        return
    ahead_ms = read_ahead(data)
    if ahead_ms == 0:
        return
    if not allowed:
        raise StartError(
            f"The clock of {data} was moved ahead by {in_words(ahead_ms)} ('busway clock'), and "
            "its messages have times of that clock. Start with --allow-clock to go on from there. "
            "Or start once with --accept-clock to go by the machine's clock: messages keep the "
            "times that they got, and expire that much later."
        )
    host.move(ahead_ms)


def in_words(duration_ms: int) -> str:
    for unit_ms, unit in ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute")):
        if duration_ms >= 2 * unit_ms:
            return f"{round(duration_ms / unit_ms)} {unit}s"
    return f"{round(duration_ms / 1000)} seconds"
