"""Lakes that were filled before marks were in the table's log: how far they are is in their rows.

Those captures had a checkpoint of Spark for each incarnation of an entity, and a hold of its name.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from busway.pipeline.lake.place import Place

if TYPE_CHECKING:
    from busway.pipeline.lake.lake import Table
    from busway.pipeline.wire.journal import Heads

CHECKPOINTS = "_checkpoints/capture"


class OlderLake:
    def __init__(self, lake: Place) -> None:
        self._place = lake.below(CHECKPOINTS)
        self.is_there = lake.is_local and Path(self._place.address).is_dir()

    def ends(self, table: Table, heads: Heads) -> dict[int, int]:
        """By partition: the offset after the last one that the rows of an incarnation have."""
        import pyarrow.compute as pc

        if not table.exists():
            return {}
        of_it = pc.field("epoch") == heads.epoch
        rows = (
            table.delta()
            .to_pyarrow_dataset()
            .scanner(columns=["partition", "journal_offset"], filter=of_it)
        )
        ends: dict[int, int] = {}
        for batch in rows.to_batches():
            last = batch.to_pydict()
            for part, offset in zip(last["partition"], last["journal_offset"], strict=True):
                ends[part] = max(ends.get(part, 0), offset + 1)
        return ends

    def consumers(self, entity: str, epoch: str) -> list[str]:
        """The hold that such a capture had."""
        if not self.is_there:
            return []
        name = self._place.read_bytes(f"{folder_name(entity, epoch)}/id")
        return [] if name is None else [f"capture-{name.decode().strip()}"]


def folder_name(entity: str, epoch: str) -> str:
    """Of such a capture's checkpoint."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", entity)[:60]
    mark = hashlib.blake2b(f"{entity.lower()}\n{epoch}".encode(), digest_size=6).hexdigest()
    return f"{readable}-{mark}"
