"""Setting back the time that a store has committed, for who says that the machine's clock is right.

Broker time never goes below what a store has committed (D-25). A start with the clock far ahead
therefore leaves a store that is ahead for good. This is the way back, and an operator has to ask
for it: messages that came meanwhile keep the times that they got, and expire that much later.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from busway.store import sqlite_errors as errors
from busway.store.base import StoreUnavailable
from busway.store.lockfile import ProcessLock

SET_BACK = "UPDATE store SET time_ms = ?1 WHERE time_ms > ?1"


def set_back(path: Path, latest_ms: int) -> bool:
    """Let the store at `path` have committed nothing after `latest_ms`. Whether that was a change.

    Raises `StoreUnavailable`.
    """
    lock = ProcessLock(path.with_name(path.name + ".lock"))
    lock.acquire()
    try:
        return set_back_open(path, latest_ms)
    finally:
        lock.release()


def set_back_open(path: Path, latest_ms: int) -> bool:
    """The same for whoever holds the store, between two of its commits."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            return connection.execute(SET_BACK, (latest_ms,)).rowcount > 0
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreUnavailable(
            f"the time of store {path} cannot be set back: {errors.describe(error)}"
        ) from error
