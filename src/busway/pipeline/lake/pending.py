"""Batches on their way into a table, so that what a killed job has written can be found.

Before the tasks of a batch write, a note in the lake says what the names of their files begin with,
and who writes them. It goes when the batch is part of the table, or was given up. A note whose
writer is gone names files that belong to no version: the next start removes them.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from busway.pipeline.lake.files import name_prefix
from busway.pipeline.lake.lake import Table
from busway.pipeline.lake.place import Place

log = logging.getLogger(__name__)

NOTES = "_pending"
"""Beside the tables; the underscore keeps readers of folders out."""
GONE_AFTER_S = 3600.0
"""A writer on another machine cannot be looked at: after this long it has given up its batch."""


_ACTIVE: set[str] = set()
"""Batches of this process."""


class PendingBatches:
    """Of one table."""

    def __init__(self, lake: Place, table: Table) -> None:
        self._place = lake.below(NOTES)
        self._table = table

    @contextmanager
    def batch(self) -> Iterator[str]:
        """The name of a batch, while its files are written and committed. If it fails, they go."""
        name = uuid4().hex[:16]
        note = {"table": self._table.layout.name, "at": time.time(), **_own()}
        self._place.write_bytes(f"{name}.json", json.dumps(note).encode())
        _ACTIVE.add(name)
        try:
            yield name
            self._place.remove(f"{name}.json")
        except Exception:
            try:
                self._remove([name])
            except OSError as problem:
                log.info("files of a batch stay until the next start: %s", problem)
            raise
        finally:
            _ACTIVE.discard(name)

    def clean(self) -> int:
        """Remove what jobs that are gone have left behind; how many files that were."""
        gone = []
        for name in self._place.names():
            note = json.loads(self._place.read_bytes(name) or b"{}")
            batch = name.removesuffix(".json")
            if batch in _ACTIVE or note.get("table") != self._table.layout.name:
                continue
            if _is_gone(note):
                gone.append(batch)
        return self._remove(gone) if gone else 0

    def _remove(self, batches: Sequence[str]) -> int:
        """A commit whose answer was lost may have made some of them part of the table."""
        prefixes = tuple(name_prefix(batch) for batch in batches)
        kept = set()
        if self._table.exists():
            import pyarrow as pa

            actions = pa.table(self._table.delta().get_add_actions())
            kept = set(actions["path"].to_pylist())
        removed = 0
        for name in list(self._table.place.names()):
            if name.rpartition("/")[2].startswith(prefixes) and name not in kept:
                self._table.place.remove(name)
                removed += 1
        for batch in batches:
            self._place.remove(f"{batch}.json")
        return removed


def _own() -> dict[str, object]:
    return {"host": socket.gethostname(), "boot": _boot(), "pid": os.getpid()}


def _is_gone(note: dict[str, object]) -> bool:
    pid, at = note.get("pid"), note.get("at")
    if not isinstance(pid, int) or not isinstance(at, int | float):
        return False
    if (note.get("host"), note.get("boot")) != (socket.gethostname(), _boot()):
        return time.time() - at > GONE_AFTER_S
    if pid == os.getpid():
        return True  # of a process before this one that had its number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # somebody else's, and alive
    return False


def _boot() -> str:
    """Which start of the machine this is, where that can be told."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text().strip() if file.exists() else ""
