"""Where the data folder was last served, so that commands beside the server can say it.

It has no key in it: those are in `root.key`, which only its owner can read.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "served-at.json"


@dataclass(frozen=True, slots=True)
class ServedAt:
    port: int = 5672
    tls: bool = False
    hosts: dict[str, str] = field(default_factory=dict)
    """By namespace: the host name under which clients reach it."""
    keys_given: tuple[str, ...] = ()
    """Namespaces whose root key came from flags or a configuration; it is not in the folder."""


def write(folder: Path, served: ServedAt) -> None:
    """Whole or not at all. Raises `OSError`."""
    draft = folder / f"{FILE}.{os.getpid()}.new"
    try:
        draft.write_text(json.dumps(asdict(served)) + "\n", encoding="utf-8")
        os.replace(draft, folder / FILE)
    finally:
        draft.unlink(missing_ok=True)


def read(folder: Path) -> ServedAt:
    """What was written last; what usually holds where nothing was, or nothing that can be read."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return ServedAt(
            int(found["port"]),
            bool(found["tls"]),
            {str(name): str(host) for name, host in found["hosts"].items()},
            tuple(str(name) for name in found["keys_given"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ServedAt()
