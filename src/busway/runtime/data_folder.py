"""The data folder: who holds it, and what lies where in it.

| file | is |
|---|---|
| `busway.lock` | held by the process that uses the folder; there can be one |
| `catalog.db` | namespaces, entities, access rules, and which stores there are |
| `catalog.db-mark` | which change of the catalog was the last |
| `store-0.db`, `store-1.db`, ... | the messaging stores |
| `tls/` | the certificate of `--tls`, and the authority that signed it |
| `root.key` | the keys of the rule RootManageSharedAccessKey; only its owner can read it |
| `root.NAME.key` | the same of another namespace than the default one |
| `served-at.json` | host names and port of the last start, for `busway connection-string` |
| `ahead.json` | how far its clock was moved, on a server with `--allow-clock` |
| `report.NAME.html` | the latest report of the data pipeline, for the portal |
| `reserve` | room that is released when the disk is full |
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from busway.cluster import served_at
from busway.cluster.root_key import KEY_BYTES, RootKeyError, file_name, keep, root_keys
from busway.store.base import StoreUnavailable
from busway.store.lockfile import ProcessLock

log = logging.getLogger(__name__)

OWNER_ONLY = 0o700


class StartError(Exception):
    """The node cannot start; one sentence says why, and what to do about it."""


class DataFolder:
    """An exclusive hold on a data folder, which is made if it is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = ProcessLock(path / "busway.lock")

    def take(self) -> None:
        try:
            self.path.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        except OSError as error:
            raise StartError(
                f"The data folder {self.path} cannot be made: {error.strerror}. "
                "Choose another one with --data."
            ) from error
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise StartError(
                f"The data folder {self.path} cannot be written to. "
                "Give yourself the right to, or choose another one with --data."
            )
        try:
            self._lock.acquire()
        except StoreUnavailable as error:
            raise StartError(f"The data folder {self.path} cannot be used: {error}") from error

    def release(self) -> None:
        self._lock.release()

    @property
    def catalog(self) -> Path:
        return self.path / "catalog.db"

    def store(self, position: int) -> Path:
        return self.path / f"store-{position}.db"

    @property
    def tls(self) -> Path:
        return self.path / "tls"

    def note_served(self, served: served_at.ServedAt) -> None:
        try:
            served_at.write(self.path, served)
        except OSError as error:
            log.warning("busway connection-string may name another port: %s", error)

    def root_keys(self, namespace: str | None = None) -> tuple[str, str | None]:
        """Made at first start, the same ever after; of the default namespace for None."""
        try:
            return root_keys(self._root_key(namespace), os.urandom(KEY_BYTES))
        except RootKeyError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(
                f"The root key in {self.path} cannot be read or made: {error.strerror}."
            ) from error

    def keep_root_keys(self, namespace: str | None, key: str, secondary_key: str | None) -> None:
        """From now on these; raises `OSError`, and then those that were there still are."""
        keep(self._root_key(namespace), key, secondary_key)

    def _root_key(self, namespace: str | None) -> Path:
        return self.path / file_name(namespace)
