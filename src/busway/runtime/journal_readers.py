"""The way from a node's event loop to its journals: questions out, answers in, nothing blocks.

Stores in files are read by a process of its own (`journal_worker`), those in memory in a thread.
Every question is small, a batch at most, so that many readers share one worker fairly.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import struct
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from busway.model.entities import Entity
from busway.store.base import StoreUnavailable
from busway.store.journal import JournalHandle, JournalHold

if TYPE_CHECKING:
    from busway.broker.journal_reader import PartitionHead

log = logging.getLogger(__name__)

GOODBYE_S = 2.0
LENGTH = struct.Struct(">I")
"""In front of every request and answer."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Ends an Arrow IPC stream."""

WORKER = "from busway.runtime.journal_worker import main; main()"
"""Not `-m`: what is pickled there must be known here by the same name."""

Source = Path | JournalHandle
"""Of a store: its file, or, if it has none, a handle."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question about one entity's journal."""

    entity: Entity
    what: str
    arguments: dict[str, Any] = field(default_factory=dict)


class Piece(NamedTuple):
    """A part of an Arrow IPC stream, and the offset at which the next begins."""

    data: bytes
    next_offset: int


class JournalReaders:
    """Made with the node; costs nothing until somebody reads, not even an import (D-33)."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._paths = {name: each for name, each in sources.items() if isinstance(each, Path)}
        self._handles = {name: each for name, each in sources.items() if not isinstance(each, Path)}
        self._worker: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    # Questions. They raise `JournalError`, or `StoreUnavailable`.

    async def heads(self, entity: Entity) -> list[PartitionHead]:
        heads: list[PartitionHead] = await self._ask(Ask(entity, "heads"))
        return heads

    async def at(self, entity: Entity, time_ms: int) -> dict[int, int]:
        offsets: dict[int, int] = await self._ask(Ask(entity, "at", {"time_ms": time_ms}))
        return offsets

    async def holds(self, entity: Entity) -> dict[str, list[tuple[int, JournalHold]]]:
        holds: dict[str, list[tuple[int, JournalHold]]] = await self._ask(Ask(entity, "holds"))
        return holds

    async def plan(
        self,
        entity: Entity,
        start: Mapping[int, int],
        *,
        rows: int | None = None,
        size: int | None = None,
        epoch: str | None = None,
    ) -> dict[int, int]:
        arguments = {"start": dict(start), "rows": rows, "size": size, "epoch": epoch}
        ends: dict[int, int] = await self._ask(Ask(entity, "plan", arguments))
        return ends

    async def stream(
        self,
        entity: Entity,
        partition: int,
        first: int,
        stop: int,
        columns: list[str] | None = None,
        *,
        epoch: str | None = None,
    ) -> AsyncIterator[bytes]:
        """An Arrow IPC stream of a range, piece by piece. The first piece comes after the first
        rows are read: an error that can be told at once is raised before anything is sent."""
        arguments = {"partition": partition, "stop": stop, "columns": columns, "epoch": epoch}
        begin: bytes = await self._ask(Ask(entity, "schema", {"columns": columns}))
        while True:
            ask = Ask(entity, "read", {**arguments, "first": first})
            piece: Piece = await self._ask(ask)
            yield begin + piece.data
            first, begin = piece.next_offset, b""
            if first >= stop:
                break
        yield END_OF_STREAM

    # The worker.

    async def _ask(self, ask: Ask) -> Any:
        if self._handles:
            from busway.runtime.journal_worker import perform

            return await asyncio.to_thread(perform, ask, self._handles)
        request = pickle.dumps((ask, self._paths))
        async with self._turn:
            outcome = await self._exchange(request)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _exchange(self, request: bytes) -> Any:
        if self._closed:
            raise StoreUnavailable("the broker is being stopped")
        worker = self._worker
        if worker is None or worker.returncode is not None:
            worker = self._worker = await self._start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(LENGTH.pack(len(request)) + request)
            await worker.stdin.drain()
            (length,) = LENGTH.unpack(await worker.stdout.readexactly(LENGTH.size))
            return pickle.loads(await worker.stdout.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self._forget(worker)
            raise StoreUnavailable(
                "the process that reads journals ended; ask again, another one is started"
            ) from error
        except BaseException:
            self._forget(worker)  # somebody gave up in the middle: its answer is nobody's
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WORKER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the broker, which then ends its worker
        )

    def _forget(self, worker: asyncio.subprocess.Process) -> None:
        self._worker = None
        if worker.returncode is None:
            worker.kill()

    async def close(self) -> None:
        """The worker ends with its input."""
        self._closed = True
        worker, self._worker = self._worker, None
        for handle in self._handles.values():
            handle.close()
        if worker is None:
            return
        assert worker.stdin is not None
        worker.stdin.close()
        try:
            await asyncio.wait_for(worker.wait(), GOODBYE_S)
        except TimeoutError:
            log.warning("the process that reads journals does not end; it is killed")
            worker.kill()
            await worker.wait()
