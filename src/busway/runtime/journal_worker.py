"""Where journals are read: a function that does what is asked, and a process that does it.

Decoding a million events in a thread of the broker would make every send wait for Python's lock
again and again. So stores in files are read by processes of their own (`journal_workers`), which
ask for less of the machine than the broker does. They end when their input ends: however the broker
dies, no worker outlives it.

Requests and outcomes are pickled: both ends are this program, and the pipe is theirs alone. Rows go
as they are.
"""

from __future__ import annotations

import contextlib
import gc
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from busway.broker.journal_arrow import PipelineMissingError, arrow_schema, to_arrow
from busway.broker.journal_reader import EntityJournal, JournalError
from busway.model.journal import COLUMNS, columns_named
from busway.runtime.background import go_last
from busway.runtime.journal_readers import Ask
from busway.runtime.journal_workers import LENGTH, LENGTHS
from busway.store.base import StoreError
from busway.store.journal import JournalHandle

EXPECTED = (JournalError, StoreError, PipelineMissingError, KeyError)
"""What a reader may be told; anything else is a mistake of ours."""
PIPE_BYTES = 1 << 20
"""Room for most batches: else each of them is handed over in many turns of two processes."""
GARBAGE_OBJECTS = 100_000
NOTHING = memoryview(b"")


def perform(ask: Ask, handles: Mapping[str, JournalHandle]) -> tuple[Any, memoryview]:
    """The outcome, and rows if they were asked for. Blocks. Raises one of `EXPECTED`."""
    journal = EntityJournal(ask.entity, handles)
    match ask.what:
        case "heads":
            return journal.heads(), NOTHING
        case "at":
            return journal.at(**ask.arguments), NOTHING
        case "holds":
            return journal.holds(), NOTHING
        case "plan":
            return journal.plan(**ask.arguments), NOTHING
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
    begin: bool,
) -> tuple[int, memoryview]:
    """One batch, short enough for others to come in between, as a part of an Arrow IPC stream; and
    the offset at which the next begins."""
    chosen = columns_named(columns)
    schema = arrow_schema(chosen).serialize() if begin else b""
    for values in journal.read(partition, first, stop, chosen, epoch=epoch):
        batch = to_arrow(chosen, values)
        rows = memoryview(batch.serialize())
        return first + batch.num_rows, memoryview(b"".join((schema, rows))) if begin else rows
    return stop, memoryview(schema)


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


def answer(request: bytes, handles: FileHandles) -> tuple[bytes, memoryview]:
    ask, paths = pickle.loads(request)
    outcome: Any
    try:
        outcome, data = perform(ask, handles.on(paths))
    except EXPECTED as error:
        outcome, data = error, NOTHING
    return pickle.dumps(outcome), data


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    handles = FileHandles()
    while len(start := requests.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(start)
        outcome, data = answer(requests.read(length), handles)
        answers.write(LENGTHS.pack(len(outcome), data.nbytes) + outcome)
        answers.write(data)
        answers.flush()


def main() -> None:
    answers = sys.stdout.buffer
    _widen(answers)
    settle_in()
    go_last()  # not before: importing takes half a second of a core
    serve(sys.stdin.buffer, answers)


def settle_in() -> None:
    """Import all that reading needs, and look for garbage less often: a page is thousands of
    objects and no cycle among them, and to look after every 700 took an eighth of the time."""
    with contextlib.suppress(PipelineMissingError):  # who asks for rows is told
        arrow_schema(COLUMNS)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)


def _widen(pipe: BinaryIO) -> None:
    """Where the system can, and lets us."""
    try:
        import fcntl
    except ImportError:
        return
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
