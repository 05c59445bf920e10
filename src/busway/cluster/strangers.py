"""What the stores hold and the catalog does not know: nothing is served over it (D-14, D-16).

A catalog that is missing, empty or another one's would give what is in the stores to nobody, or to
the wrong entities. So what the stores hold is compared with the catalog before anything is served.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from busway.model.names import SubQueueKind
from busway.store.base import SubQueueRecord

SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class Stranger:
    """Messages of one partition of an incarnation that the catalog does not know."""

    store: str
    incarnation: int
    partition: int
    messages: int
    dead_letters: int

    def __str__(self) -> str:
        dead = f", {self.dead_letters} of them dead letters" if self.dead_letters else ""
        return (
            f"{self.store}: {self.messages} messages{dead} in partition {self.partition} of"
            f" incarnation {self.incarnation}"
        )


def strangers_in(
    stores: Mapping[str, Sequence[SubQueueRecord]], known: Collection[int]
) -> list[Stranger]:
    """By name of the store. What is empty belongs to nobody and harms nobody."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for store, records in stores.items():
        for record in records:
            key, counters = record.key, record.counters
            count = counters.active + counters.deferred + counters.scheduled
            if key.incarnation not in known and count:
                counts = found.setdefault((store, key.incarnation, key.partition), [0, 0])
                counts[0] += count
                counts[1] += count if key.kind is SubQueueKind.DEAD_LETTER else 0
    return [Stranger(*where, *counts) for where, counts in sorted(found.items())]


def refusal(strangers: Sequence[Stranger], catalog: Path | None) -> str:
    shown = "; ".join(map(str, strangers[:SHOWN_MAX]))
    more = f"; and {len(strangers) - SHOWN_MAX} more" if len(strangers) > SHOWN_MAX else ""
    total = sum(each.messages for each in strangers)
    return (
        f"The stores hold {total} messages of entities that the catalog {catalog} does not know: "
        f"{shown}{more}. The catalog is missing, older or another one's, or a store was brought in "
        "from elsewhere. Nothing was changed in the stores. Bring the right files back; or see "
        "what there is with 'busway recover' on the data folder, which can attach it to entities "
        "again or export it."
    )
