"""A copy of a data folder, of a broker that runs or not, with catalog and stores at one point.

Stores cannot be copied one after the other while messages are forwarded between them. A message is
in its source until the destination has it (D-27): whoever copies the destination before and the
source after has it in neither. So there is one point for all files, and it is made with SQLite's
own locks. The write locks of all stores and of the catalog are held for a moment; no commit is
under way then. A reading transaction is begun on each file, which keeps seeing that moment, and the
write locks are let go. What is copied after that, however long it takes, is as if the broker had
been killed at that moment, which it recovers from with every acknowledged message, each once.

Commits wait for the moment, some milliseconds; the broker needs not be asked. When this process is
killed, the system releases its locks.

A folder that no broker uses is locked against one and its files are copied as they are, with their
logs. Each copy is then opened as a broker would open it, so what is damaged is found here.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from busway.cluster.catalog_file import CatalogError, CatalogFile
from busway.runtime.backup_manifest import (
    MANIFEST,
    BackupError,
    sync_folder,
    verify,
    write_manifest,
)
from busway.runtime.data_folder import DataFolder
from busway.store.base import StoreError, StoreUnavailable
from busway.store.lockfile import ProcessLock
from busway.store.sqlite import SqliteStore

LOCK_WAIT_S = 1.0
"""How long others may wait for a store whose turn it is not: their commits have 5 s (D-8)."""
TRIES = 20
COPIED_PAGES = 1_024
OWNER_ONLY = 0o700
BESIDE = ("-wal", "-mark")
"""What belongs to a store beside its file, and is part of it while nobody has it open."""
LEFT_BESIDE = ("-wal", "-shm", "-mark", ".lock")
"""What opening a copy leaves beside it."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a backup has, for who asked for it."""

    stores: int
    size: int
    running: bool
    paused_ms: int
    """How long commits have waited at most."""


def back_up(data: Path, target: Path) -> Taken:
    """Raises `BackupError`, with a sentence for a person."""
    folder = DataFolder(data)
    if not folder.catalog.is_file():
        raise BackupError(f"{data} is no data folder: it has no catalog.db.")
    if target.exists():
        raise BackupError(f"{target} is there already. Name a folder that is not.")
    draft = target.with_name(f"{target.name}.partial-{os.getpid()}")
    try:
        draft.mkdir(mode=OWNER_ONLY, parents=True)
        try:
            taken = _copy(folder, draft)
            os.rename(draft, target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise BackupError(f"The backup cannot be written to {target}: {error}.") from error
    except sqlite3.Error as error:
        raise BackupError(f"{data} cannot be copied: {error}.") from error
    return taken


def restore(backup: Path, data: Path) -> int:
    """The number of files put back. Raises `BackupError`."""
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise BackupError(
            f"{data} is there already, and nothing is overwritten. Name a folder that is not there "
            "or is empty; move the old one away first."
        )
    names = verify(backup)
    draft = data.with_name(f"{data.name}.restoring-{os.getpid()}")
    try:
        try:
            draft.mkdir(mode=OWNER_ONLY, parents=True)
            for name in names:
                _copy_file(backup / name, draft / name)
            # What was copied is what was verified, also if a disk returns other bytes now.
            shutil.copy(backup / MANIFEST, draft / MANIFEST)
            verify(draft)
            (draft / MANIFEST).unlink()
            if data.exists():
                data.rmdir()
            os.rename(draft, data)
            sync_folder(data.parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise BackupError(f"{backup} cannot be put back into {data}: {error}.") from error
    return len(names)


# --- Copying -------------------------------------------------------------------------------------


def _copy(folder: DataFolder, draft: Path) -> Taken:
    lock = ProcessLock(folder.path / "busway.lock")
    try:
        lock.acquire()
    except StoreUnavailable:
        paused_ms = _copy_running(folder, draft)
        running = True
    else:
        try:
            paused_ms, running = 0, False
            _copy_stopped(folder, draft)
        finally:
            lock.release()
    stores = _opened(draft)
    return Taken(stores, write_manifest(draft), running, paused_ms)


def _stores(folder: DataFolder, catalog: Path) -> list[Path]:
    """The stores that the catalog knows."""
    with closing(_connect(catalog)) as database:
        known = database.execute("SELECT position FROM stores ORDER BY position").fetchall()
    stores = [folder.store(position) for (position,) in known]
    for path in stores:
        if not path.is_file():
            raise BackupError(
                f"{path} is missing, and a backup without it would lack its messages. Bring the "
                "file or its disk back first."
            )
    return stores


def _copy_running(folder: DataFolder, draft: Path) -> int:
    # The catalog last: a broker does not wait for its lock.
    databases = [*_stores(folder, folder.catalog), folder.catalog]
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(_connect(path))) for path in databases]
        for _ in range(TRIES):
            began = time.monotonic()
            try:
                with _standing_still(databases):
                    for reader in readers:
                        reader.execute("BEGIN")
                        reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                    _copy_keys(folder, draft)
                break
            except sqlite3.OperationalError as error:
                for reader in readers:
                    if reader.in_transaction:
                        reader.execute("ROLLBACK")
                said = str(error)
        else:
            raise BackupError(
                f"{folder.path} does not stand still: {said}. A store that hangs cannot be copied; "
                "see 'busway map'."
            )
        paused_ms = round((time.monotonic() - began) * 1000)
        for path, reader in zip(databases, readers, strict=True):
            _private(draft / path.name)
            with closing(sqlite3.connect(draft / path.name)) as copy:
                reader.backup(copy, pages=COPIED_PAGES, sleep=0)
    return paused_ms


@contextmanager
def _standing_still(databases: list[Path]) -> Iterator[None]:
    """While no commit is under way in any of them, and none can begin."""
    with ExitStack() as stack:
        for path in databases:
            connection = stack.enter_context(closing(_connect(path)))
            connection.execute("BEGIN IMMEDIATE")
        yield


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, timeout=LOCK_WAIT_S, isolation_level=None
    )


def _copy_stopped(folder: DataFolder, draft: Path) -> None:
    # Which stores there are is asked of the copy: opening a database may change it.
    _copy_database(folder.catalog, draft)
    for path in _stores(folder, draft / folder.catalog.name):
        _copy_database(path, draft)
    _copy_keys(folder, draft)


def _copy_database(path: Path, draft: Path) -> None:
    for each in (path, *(path.with_name(path.name + suffix) for suffix in BESIDE)):
        if each.is_file():
            _copy_file(each, draft / each.name)


def _copy_keys(folder: DataFolder, draft: Path) -> None:
    # How far the clock of the folder was moved, if it was, belongs to the times in the stores.
    for path in [*sorted(folder.path.glob("root*.key")), *folder.path.glob("ahead.json")]:
        _copy_file(path, draft / path.name)
    if folder.tls.is_dir():
        for path in sorted(folder.tls.iterdir()):
            _copy_file(path, draft / folder.tls.name / path.name)


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=OWNER_ONLY, exist_ok=True)
    _private(target)
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _private(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _opened(draft: Path) -> int:
    """Open each copy as a broker would, which plays in its log and checks it. How many stores."""
    stores = sorted(draft.glob("store-*.db"))
    try:
        CatalogFile(draft / "catalog.db").close()
        for path in stores:
            store = SqliteStore(path, create=False)
            try:
                store.open()
            finally:
                store.close()
    except (CatalogError, StoreError) as error:
        raise BackupError(f"What was copied cannot be used: {error}") from error
    for path in (*stores, draft / "catalog.db"):
        for suffix in LEFT_BESIDE:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    return len(stores)
