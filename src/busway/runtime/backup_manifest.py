"""What is in a backup: a list of files with sizes and checksums, itself with one."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from busway import __version__

MANIFEST = "manifest.json"
FORMAT = 1


class BackupError(Exception):
    """A backup cannot be made or put back; a sentence says why, and what to do."""


def write_manifest(folder: Path) -> int:
    """Of all files that are there now. Synced, as they are; the size of all of them."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        _sync(path)
        files[path.relative_to(folder).as_posix()] = {
            "size": path.stat().st_size,
            "sha256": _digest(path),
        }
    content = {
        "format": FORMAT,
        "busway": __version__,
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": files,
    }
    manifest = folder / MANIFEST
    text = json.dumps({"manifest": content, "sha256": _digest_of(content)}, indent=2)
    manifest.write_text(text + "\n", encoding="utf-8")
    _sync(manifest)
    for each in {path.parent for path in folder.rglob("*")}:
        sync_folder(each)
    return sum(each["size"] for each in files.values())


def verify(backup: Path) -> list[str]:
    """The names of its files, if each is as it was. Raises `BackupError`."""
    content = _read(backup)
    files = content["files"]
    for name, expected in files.items():
        path = backup / name
        try:
            size, digest = path.stat().st_size, _digest(path)
        except OSError as error:
            raise BackupError(
                f"The backup {backup} is not whole: {name} cannot be read: {error.strerror}."
            ) from error
        if size != expected["size"]:
            raise BackupError(
                f"The backup {backup} is damaged: {name} has {size} bytes and had "
                f"{expected['size']}. Use another backup."
            )
        if digest != expected["sha256"]:
            raise BackupError(
                f"The backup {backup} is damaged: {name} is not what was written (its checksum "
                "differs). Use another backup."
            )
    return list(files)


def _read(backup: Path) -> dict[str, Any]:
    path = backup / MANIFEST
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        content, digest = document["manifest"], document["sha256"]
        is_whole = _digest_of(content) == digest
    except FileNotFoundError:
        raise BackupError(
            f"{backup} is no backup: it has no {MANIFEST}. A backup that was interrupted has none "
            "either."
        ) from None
    except OSError as error:
        raise BackupError(f"The backup {backup} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise BackupError(f"The backup {backup} is damaged: {MANIFEST} is. Use another backup.")
    if content["format"] != FORMAT:
        raise BackupError(
            f"The backup {backup} is of format {content['format']}, and this version of Busway "
            f"reads {FORMAT} only. Put it back with version {content['busway']}."
        )
    assert isinstance(content, dict)
    return content


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
