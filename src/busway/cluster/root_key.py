"""The keys of the root rule, in a file of the data folder that only its owner can read.

It is made with one key. A second line is the secondary key. A server that runs renews them
(`busway rules renew`); what a person writes into the file counts from the next start on.

Whoever knows it may do everything in the namespace, so it is random, made once, and never part of
what the catalog keeps or prints. The randomness is passed in.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

KEY_BYTES = 32
OWNER_ONLY = 0o600


class RootKeyError(Exception):
    """The file is there and does not hold a key."""


def file_name(namespace: str | None) -> str:
    """In a data folder; of the default namespace for None."""
    return "root.key" if namespace is None else f"root.{namespace.lower()}.key"


def root_keys(path: Path, fresh: bytes) -> tuple[str, str | None]:
    """The keys that are kept at `path`; at first start one is made of the random bytes `fresh`."""
    if len(fresh) < KEY_BYTES:
        raise ValueError(f"a root key needs {KEY_BYTES} random bytes, not {len(fresh)}")
    key = base64.b64encode(fresh[:KEY_BYTES]).decode("ascii")
    # Whole or not at all, whatever happens on the way; and of two that start at once, one wins.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        if not path.exists():
            _write_draft(draft, f"{key}\n")
            os.link(draft, path)
            _sync_folder(path.parent)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    return read_both(path)


def keep(path: Path, key: str, secondary_key: str | None) -> None:
    """Other keys in the place of those at `path`: all of it or nothing. Raises `OSError`."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        _write_draft(draft, "".join(f"{each}\n" for each in (key, secondary_key) if each))
        os.replace(draft, path)
        _sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _write_draft(draft: Path, text: str) -> None:
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> str:
    """The primary key in a file that is there."""
    return read_both(path)[0]


def read_both(path: Path) -> tuple[str, str | None]:
    """With the secondary key, if there is one."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").strip().splitlines()]
    if not 1 <= len(lines) <= 2 or any(len(line.split()) != 1 for line in lines):
        raise RootKeyError(
            f"{path} should hold one line, the key of the root rule, or two with the secondary key "
            "below, and does not. Write the key into it, or delete it to get a new one."
        )
    if path.stat().st_mode & 0o077:
        path.chmod(OWNER_ONLY)
    return lines[0], lines[1] if len(lines) == 2 else None
