"""Where journals are read: a function that does what is asked, and a process that does it.

Decoding a million events in a thread of the broker would make every send wait for Python's lock
again and again. So stores in files are read by a process of its own, started when somebody first
reads. It asks for less of the machine than the broker does, and ends when its input ends: however
the broker dies, the worker does not outlive it.

Requests and answers are pickled: both ends are this program, and the pipe is theirs alone.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from busway.broker.journal_arrow import PipelineMissingError, arrow_schema, to_arrow
from busway.broker.journal_reader import EntityJournal, JournalError
from busway.model.journal import columns_named
from busway.runtime.journal_readers import LENGTH, Ask, Piece
from busway.store.base import StoreError
from busway.store.journal import JournalHandle

NICENESS = 10

EXPECTED = (JournalError, StoreError, PipelineMissingError, KeyError)
"""What a reader may be told; anything else is a mistake of ours."""


def perform(ask: Ask, handles: Mapping[str, JournalHandle]) -> Any:
    """Blocks. Raises one of `EXPECTED`."""
    journal = EntityJournal(ask.entity, handles)
    match ask.what:
        case "heads":
            return journal.heads()
        case "at":
            return journal.at(**ask.arguments)
        case "holds":
            return journal.holds()
        case "plan":
            return journal.plan(**ask.arguments)
        case "schema":
            return bytes(arrow_schema(columns_named(ask.arguments["columns"])).serialize())
        case "read":
            return _read(journal, **ask.arguments)
    raise AssertionError(ask.what)


def _read(
    journal: EntityJournal,
    partition: int,
    first: int,
    stop: int,
    columns: list[str] | None,
    epoch: str | None,
) -> Piece:
    """One batch: short enough for others to come in between."""
    chosen = columns_named(columns)
    for values in journal.read(partition, first, stop, chosen, epoch=epoch):
        batch = to_arrow(chosen, values)
        return Piece(bytes(batch.serialize()), first + batch.num_rows)
    return Piece(b"", stop)


# --- the process ---------------------------------------------------------------------------------


class FileHandles:
    """Handles on stores in files, opened when they are asked for first."""

    def __init__(self) -> None:
        self._open: dict[Path, JournalHandle] = {}

    def on(self, paths: Mapping[str, Path]) -> dict[str, JournalHandle]:
        from busway.store.sqlite_journal_handle import SqliteJournalHandle

        for path in paths.values():
            if path not in self._open:
                self._open[path] = SqliteJournalHandle(path)
        return {store_id: self._open[path] for store_id, path in paths.items()}


def answer(request: bytes, handles: FileHandles) -> bytes:
    ask, paths = pickle.loads(request)
    try:
        outcome: Any = perform(ask, handles.on(paths))
    except EXPECTED as error:
        outcome = error
    return pickle.dumps(outcome)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    handles = FileHandles()
    while len(start := requests.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(start)
        said = answer(requests.read(length), handles)
        answers.write(LENGTH.pack(len(said)) + said)
        answers.flush()


def main() -> None:
    os.nice(NICENESS)
    serve(sys.stdin.buffer, sys.stdout.buffer)
