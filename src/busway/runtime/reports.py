"""The latest report of each namespace: a file in the data folder, or memory without one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from busway.broker.seams import Host
from busway.http.services import KeptReport


class Reports:
    def __init__(self, folder: Path | None, host: Host) -> None:
        self._folder = folder
        self._host = host
        self._kept: dict[str, KeptReport] = {}

    async def keep(self, namespace: str, page: bytes) -> None:
        if self._folder is not None:
            await asyncio.to_thread(_write, self._folder / _name(namespace), page)
        self._kept[namespace] = KeptReport(page, self._host.clock_ms())

    async def latest(self, namespace: str) -> KeptReport | None:
        if namespace not in self._kept and self._folder is not None:
            found = await asyncio.to_thread(_read, self._folder / _name(namespace))
            if found is not None:
                self._kept.setdefault(namespace, found)
        return self._kept.get(namespace)


def _name(namespace: str) -> str:
    return f"report.{namespace.lower()}.html"


def _write(file: Path, page: bytes) -> None:
    """As a whole or not at all: a crash leaves the one before."""
    new = file.with_suffix(".new")
    new.write_bytes(page)
    os.chmod(new, 0o600)
    new.replace(file)


def _read(file: Path) -> KeptReport | None:
    try:
        return KeptReport(file.read_bytes(), int(file.stat().st_mtime * 1000))
    except FileNotFoundError:
        return None
