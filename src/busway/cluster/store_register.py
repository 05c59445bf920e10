"""Which stores there are, in order, and which of them are well (D-14)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreStanding:
    """A configured store: well if `problem` is None, otherwise *ill* and why (D-14)."""

    position: int
    store_id: str | None
    """The id that the catalog knows for this position."""
    problem: str | None = None


def compare(known: Sequence[str], found: Sequence[str | None]) -> list[StoreStanding]:
    """The standing of each configured store, in order.

    `known` are the ids that the catalog expects, `found` those inside the stores, None for one that
    is missing or cannot be opened. A store behind the known ones is new, and gets its own id.
    """
    kept = list(known[: len(found)])
    standings = []
    for position, store_id in enumerate(found):
        expected = kept[position] if position < len(kept) else None
        problem = _objection(position, store_id, expected, kept)
        if problem is None and expected is None:
            if position == len(kept) and store_id is not None:
                kept.append(store_id)
                expected = store_id
            else:
                problem = f"store {position} cannot be added before those in front of it"
        standings.append(StoreStanding(position, expected, problem))
    return standings


def _objection(
    position: int, found: str | None, expected: str | None, known: list[str]
) -> str | None:
    """Why the store found at a position cannot be used; None if it can (D-14)."""
    if expected is None:
        if found is None:
            return f"store {position} is not there yet and could not be made"
        if found in known:
            return f"store {position} is a copy of store {known.index(found)} ({found})"
        return None
    if found is None:
        return (
            f"store {position} ({expected}) is missing or cannot be opened; it holds messages, so "
            "no empty one is put in its place"
        )
    if found != expected:
        return f"store {position} is {found}, and the catalog expects {expected} there"
    return None
