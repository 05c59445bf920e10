"""Room that is kept for the day on which the disk is full (D-9).

Sends are refused while less than 256 MB are free, so a broker alone never fills its disk. Others
can, down to the last byte, and then no commit fits, also none that completes a message. A file of
16 MB lies beside the stores for that: it is deleted when a commit does not fit, and what was queued
can be received and settled in its room. It is made again when there is room.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from busway.broker.commits import DISK_RESERVE_BYTES
from busway.runtime.data_folder import StartError

log = logging.getLogger(__name__)

RESERVE_BYTES = 16 * 1024 * 1024
FILE = "reserve"


class DiskReserve:
    """Of one data folder. Stores call it from their threads."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._guard = threading.Lock()

    def prepare(self) -> None:
        """At start: raises `StartError` on a volume that could never take a message."""
        disk = os.statvfs(self._path.parent)
        size, needed = disk.f_blocks * disk.f_frsize, DISK_RESERVE_BYTES + RESERVE_BYTES
        if size <= needed:
            raise StartError(
                f"The volume of {self._path.parent} has {_mb(size)} MB and is too small: "
                f"{_mb(needed)} MB are kept free so that a full broker can be drained. Use a "
                "larger one, choose another folder with --data, or --memory."
            )
        if disk.f_bavail * disk.f_frsize < RESERVE_BYTES:
            self.release()  # opening stores takes room as well
        else:
            self.refill(disk.f_bavail * disk.f_frsize)

    def release(self) -> bool:
        """Give its room to the stores. Whether there was any."""
        with self._guard:
            try:
                self._path.unlink()
            except FileNotFoundError:
                return False
            except OSError as error:
                log.error("the reserve %s cannot be released: %s", self._path, error)
                return False
        log.warning("the disk is full: %s is released, so that messages can be settled", self._path)
        return True

    def refill(self, free_bytes: int) -> None:
        """Make it again, if there is room beside it for sends."""
        if free_bytes < DISK_RESERVE_BYTES + RESERVE_BYTES or self._path.exists():
            return
        with self._guard:
            draft = self._path.with_name(f"{FILE}.new")
            try:
                handle = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    os.posix_fallocate(handle, 0, RESERVE_BYTES)
                finally:
                    os.close(handle)
                os.replace(draft, self._path)
            except OSError as error:
                draft.unlink(missing_ok=True)
                log.warning("the reserve %s cannot be made: %s", self._path, error.strerror)


def _mb(size: int) -> int:
    return size // (1024 * 1024)
