"""The way from a node's event loop to its journals: questions out, answers in, nothing blocks.

Stores in files are read by processes of their own (`journal_workers`), those in memory in a thread.
Every question is small, a batch at most, so that many readers share few workers fairly.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from busway.model.entities import Entity
from busway.runtime.journal_workers import Answer, Workers
from busway.runtime.pace import Pace
from busway.store.journal import JournalHandle, JournalHold

if TYPE_CHECKING:
    from busway.broker.journal_reader import JournalDamagedError, PartitionHead

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
"""As much as a loop reads of a pipe at once, and no more is written at once."""
DAMAGED_AT_ONCE_MAX = 1_000
"""As many as a page has rows."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Ends an Arrow IPC stream."""

Source = Path | JournalHandle
"""Of a store: its file, or, if it has none, a handle."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question about one entity's journal."""

    entity: Entity
    what: str
    arguments: dict[str, Any] = field(default_factory=dict)


class JournalReaders:
    """Made with the node; costs nothing until somebody reads, not even an import (D-33)."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        workers: Workers | None = None,
        commits: Callable[[], int] = lambda: 0,
    ) -> None:
        """`commits` counts those of the stores: who reads gives way to who sends."""
        self._paths = {name: each for name, each in sources.items() if isinstance(each, Path)}
        self._handles = {name: each for name, each in sources.items() if not isinstance(each, Path)}
        self.workers = workers or Workers()
        self._pace = Pace(commits)
        self._unwanted: set[asyncio.Task[Answer]] = set()
        """Answers to what nobody waits for any more."""
        self._damaged: set[tuple[str, int, int]] = set()
        """Path, partition and offset of rows that were found damaged."""

    @property
    def damaged_rows(self) -> int:
        """How many rows readers have asked for that are damaged, since the start."""
        return len(self._damaged)

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
    ) -> AsyncGenerator[bytes]:
        """An Arrow IPC stream of a range, in chunks that a socket takes at once. The first comes
        after the first rows are read: an error that can be told at once is raised before anything
        is sent. While one batch is sent the next is read."""
        arguments = {"partition": partition, "stop": stop, "columns": columns, "epoch": epoch}

        def read(first: int, *, begin: bool = False) -> asyncio.Task[Answer]:
            ask = Ask(entity, "read", {**arguments, "first": first, "begin": begin})
            return asyncio.create_task(self._answer(ask))

        coming: asyncio.Task[Answer] | None = read(first, begin=True)
        try:
            while coming is not None:
                next_offset, chunks = await coming
                coming = read(next_offset) if next_offset < stop else None
                for chunk in chunks:
                    yield chunk
                    await self._pace.sent(len(chunk))
        finally:
            if coming is not None:
                self._leave(coming)
        yield END_OF_STREAM

    def _leave(self, coming: asyncio.Task[Answer]) -> None:
        """Let a batch that is being read come to its end: its worker is worth more."""
        self._unwanted.add(coming)
        coming.add_done_callback(self._unwanted.discard)
        coming.add_done_callback(lambda task: task.cancelled() or task.exception())

    # The answers.

    async def _ask(self, ask: Ask) -> Any:
        outcome, _ = await self._answer(ask)
        return outcome

    async def _answer(self, ask: Ask) -> Answer:
        from busway.broker.journal_reader import JournalDamagedError

        try:
            return await self._answered(ask)
        except JournalDamagedError as error:
            self._note_damage(error)
            raise

    def _note_damage(self, error: JournalDamagedError) -> None:
        """Told to the operator once, however often a reader comes back."""
        offsets = range(error.asked, min(error.next_offset, error.asked + DAMAGED_AT_ONCE_MAX))
        rows = {(error.path, error.partition, offset) for offset in offsets}
        if not rows <= self._damaged:
            self._damaged |= rows
            log.error("%s", error)

    async def _answered(self, ask: Ask) -> Answer:
        if self._handles:
            from busway.runtime.journal_worker import perform

            outcome, data = await asyncio.to_thread(perform, ask, self._handles)
            starts = range(0, len(data), CHUNK_BYTES)
            return Answer(outcome, [bytes(data[start : start + CHUNK_BYTES]) for start in starts])
        answer = await self.workers.ask(pickle.dumps((ask, self._paths)))
        if isinstance(answer.outcome, Exception):
            raise answer.outcome
        return answer

    async def close(self) -> None:
        for handle in self._handles.values():
            handle.close()
        await self.workers.close()
