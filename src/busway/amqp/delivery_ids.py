"""Delivery ids: numbers that wrap at 2^32 (AMQP 2.8.10), named in dispositions by ranges.

A range costs a peer eight bytes, whatever it spans; what it costs us must depend on what we have
on record, never on its width.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence, Sized
from typing import Protocol

from busway.amqp.errors import INVALID_FIELD, ProtocolError

MASK = 0xFFFF_FFFF
_HALF = 0x8000_0000


class Known(Sized, Container[int], Protocol):
    """Ids on record: a dictionary by delivery id."""

    def __iter__(self) -> Iterator[int]: ...


def runs(delivery_ids: Sequence[int]) -> list[tuple[int, int]]:
    """The ids as ranges `(first, last)` that hold no other id."""
    if len(delivery_ids) == 1:
        return [(delivery_ids[0], delivery_ids[0])]
    ranges: list[tuple[int, int]] = []
    first = last = -1
    for delivery_id in sorted(delivery_ids):
        if delivery_id == last:
            continue
        if delivery_id != last + 1 or first < 0:
            if first >= 0:
                ranges.append((first, last))
            first = delivery_id
        last = delivery_id
    if first >= 0:
        ranges.append((first, last))
    return ranges


LOOKS_PER_FRAME = 16
"""So many ids are looked at in about the time that handling another frame takes."""


def look_cost(known: Sized, first: int, last: int) -> int:
    """For how many frames it counts to `pick` this range."""
    return min(len(known), (last - first) & MASK) // LOOKS_PER_FRAME


def pick(known: Known, first: int, last: int) -> tuple[list[int], list[tuple[int, int]]]:
    """The known ids of a peer's range, in order, and the ranges between them that are unknown."""
    span = (last - first) & MASK
    if span >= _HALF:
        raise ProtocolError(INVALID_FIELD, f"disposition from {first} back to {last}")
    if span < len(known):
        distances = [d for d in range(span + 1) if (first + d) & MASK in known]
    else:
        distances = sorted(d for i in known if (d := (i - first) & MASK) <= span)
    unknown: list[tuple[int, int]] = []
    expected = 0
    for distance in distances:
        if distance > expected:
            unknown.append(((first + expected) & MASK, (first + distance - 1) & MASK))
        expected = distance + 1
    if expected <= span:
        unknown.append(((first + expected) & MASK, last))
    return [(first + distance) & MASK for distance in distances], unknown
