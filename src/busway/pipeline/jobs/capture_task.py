"""What one Spark task of a capture does: ranges of journals in, Parquet files out.

The rows never leave the task's process: they come from the broker as Arrow and go into files as
Arrow. What Spark carries is which ranges there are and which files were made of them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from busway.pipeline.lake.files import AddedFile, FileWriter
from busway.pipeline.wire.journal import (
    EpochError,
    GapError,
    HttpLine,
    Journal,
    JournalError,
    NotCapturedError,
    NotFoundError,
    UnreachableError,
)
from busway.pipeline.wire.offsets import Span
from busway.remote.connection import Pass

if TYPE_CHECKING:
    import pyarrow as pa

OWN = ("epoch", "event_date")
"""Columns of the table that journals do not have."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
"""What another attempt would not change."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of one entity's journal."""

    entity: str
    allowed: Pass
    epoch: str
    span: Span


@dataclass(frozen=True, slots=True)
class Told:
    """What a task says of its work."""

    files: tuple[AddedFile, ...] = ()
    entity: str | None = None
    """Whose journal could not be read; none of the files were kept then."""
    gone: bool = False
    """Whether that one was deleted or made anew, which is no failure."""
    problem: str = ""


class CaptureTask:
    """For `flatMap`: pieces of work in, what became of them out."""

    def __init__(self, writer: FileWriter, columns: Sequence[str], patience_s: float) -> None:
        self._writer = writer
        self._columns = tuple(name for name in columns if name not in OWN)
        self._patience_s = patience_s

    def __call__(self, pieces: Sequence[Piece]) -> list[Told]:
        reading = _Reading(pieces, self._columns, self._patience_s)
        try:
            return [Told(tuple(self._writer.write(reading.batches())))]
        except UnreachableError as error:
            return [Told(problem=str(error))]
        except (EpochError, NotFoundError, NotCapturedError) as error:
            return [Told(entity=reading.entity, gone=True, problem=str(error))]
        except GapError as error:
            # Its retention has passed a reader whose hold ran out: the next look says so.
            return [Told(entity=reading.entity, gone=True, problem=str(error))]
        except JournalError as error:
            return [Told(entity=reading.entity, problem=str(error))]
        except OSError as error:
            if error.errno in NO_ROOM:
                return [Told(problem=f"The lake cannot be written: {error.strerror or error}.")]
            raise
        finally:
            reading.line.close()


class _Reading:
    def __init__(self, pieces: Sequence[Piece], columns: Sequence[str], patience_s: float) -> None:
        self._pieces = pieces
        self._columns = columns
        self._patience_s = patience_s
        self.entity: str | None = None
        self.line = HttpLine()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for piece in self._pieces:
            self.entity = piece.entity
            journal = Journal(
                piece.entity, piece.allowed, patience_s=self._patience_s, line=self.line
            )
            for batch in journal.read(piece.epoch, piece.span, self._columns):
                yield _dated(batch, piece.epoch)


def _dated(batch: pa.RecordBatch, epoch: str) -> pa.RecordBatch:
    import pyarrow as pa
    import pyarrow.compute as pc

    dates = pc.cast(pc.floor_temporal(batch["event_time"], unit="day"), pa.date32())
    return batch.append_column("epoch", pa.repeat(pa.scalar(epoch), len(batch))).append_column(
        "event_date", dates
    )
