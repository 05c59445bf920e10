"""A certificate that is replaced while the node runs: new connections are shown the new one.

Its files are read again on SIGHUP, and when a look every minute finds them changed. What cannot be
used is said in the log, once for each change, and the certificate before it stays. A certificate of
`--tls` is renewed here, too, in a node that runs for longer than it lasts.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from busway.runtime.data_folder import StartError
from busway.runtime.tls import server_context

log = logging.getLogger(__name__)

LOOK_S = 60.0

Stamp = tuple[tuple[int, int, int] | None, ...]


class CertificateReload:
    """`files` gives certificate and key; it may make them, and raises `StartError` if it cannot."""

    def __init__(self, files: Callable[[], tuple[Path, Path]]) -> None:
        self._files = files
        self._seen: Stamp = ()
        self.use: Callable[[ssl.SSLContext], None] = lambda context: None
        """Told of each context that takes the place of the one before."""
        self._task: asyncio.Task[None] | None = None

    def load(self) -> ssl.SSLContext:
        """The first one. Raises `StartError`."""
        certificate, key = self._files()
        self._seen = _stamp(certificate, key)
        return server_context(certificate, key)

    def start(self) -> None:
        self._task = asyncio.create_task(self._look())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def reload(self, *, changed_only: bool = False) -> None:
        try:
            context = await asyncio.to_thread(self._load_again, changed_only)
        except StartError as error:
            log.error("the certificate stays as it was: %s", error)
            return
        if context is not None:
            self.use(context)
            log.info("new connections are shown the new certificate")

    def _load_again(self, changed_only: bool) -> ssl.SSLContext | None:
        certificate, key = self._files()
        stamp = _stamp(certificate, key)
        if changed_only and stamp == self._seen:
            return None
        self._seen = stamp
        return server_context(certificate, key)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.reload(changed_only=True)


def _stamp(*paths: Path) -> Stamp:
    return tuple(map(_stamp_of, paths))


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
