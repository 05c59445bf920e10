"""One process per store file: an advisory lock on a file beside the database (D-19).

The lock is taken by the *process*: a second handle in the same process shares it and is fenced by
epochs instead (D-18), because a broker that reopens its store must not wait for its own old handle.
The lock file is never removed: whoever removes one can leave two processes holding "the" lock.
"""

from __future__ import annotations

import fcntl
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from busway.store.ailments import Ailment, ailment_of
from busway.store.base import StoreUnavailable


@dataclass(slots=True)
class _Held:
    descriptor: int
    process: int
    handles: int


_held: dict[tuple[int, int], _Held] = {}
"""What this process holds, by device and inode, so that two names of one file are one lock."""
_guard = threading.Lock()


class ProcessLock:
    """A share in this process's lock on one file. `release` may be called more than once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key: tuple[int, int] | None = None

    def acquire(self) -> None:
        """Raises `StoreUnavailable` if another process has the lock."""
        if self._key is not None:
            return
        with _guard:
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StoreUnavailable(
                    f"cannot open the lock file {self.path}: {error.strerror}", ailment_of(error)
                ) from error
            try:
                status = os.fstat(descriptor)
                key = (status.st_dev, status.st_ino)
                held = _held.get(key)
                # A forked child inherits the table but is another process: it must ask anew.
                if held is not None and held.process == os.getpid():
                    os.close(descriptor)
                    held.handles += 1
                else:
                    self._lock(descriptor)
                    _held[key] = _Held(descriptor, os.getpid(), 1)
            except StoreUnavailable:
                os.close(descriptor)
                raise
            self._key = key

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise StoreUnavailable(
                f"another process (pid {holder}) has this store open: it holds the lock on"
                f" {self.path}. Stop it, or use another data directory.",
                Ailment.LOCKED,
            ) from None
        except OSError as error:
            raise StoreUnavailable(
                f"cannot lock {self.path}: {error.strerror}", ailment_of(error)
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        key, self._key = self._key, None
        if key is None:
            return
        with _guard:
            held = _held[key]
            held.handles -= 1
            if held.handles == 0:
                del _held[key]
                os.close(held.descriptor)
