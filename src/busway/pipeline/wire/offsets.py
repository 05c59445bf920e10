"""Where a reader stands in the journal of an entity: the next offset of each partition.

Spark compares offsets as JSON text, so equal ones must have equal texts: keys sorted and padded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1


class OffsetError(Exception):
    """A text or a table that is no offset of ours."""


@dataclass(frozen=True, slots=True)
class Offset:
    epoch: str
    """Of the entity's incarnation: one that was deleted and made again has another."""
    next: Mapping[int, int]
    """By partition: what is read next."""

    def to_dict(self) -> dict[str, Any]:
        digits = max(2, len(str(max(self.next, default=0))))
        places = {
            f"{partition:0{digits}d}": self.next[partition] for partition in sorted(self.next)
        }
        return {"epoch": self.epoch, "p": places, "v": VERSION}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def from_dict(cls, value: object) -> Offset:
        match value:
            case {"epoch": str(epoch), "p": dict(places), "v": 1}:
                pass
            case {"v": int(version)} if version != VERSION:
                raise OffsetError(
                    f"The offset is of version {version} and this Busway reads version {VERSION}: "
                    "it was written by a newer one."
                )
            case _:
                raise OffsetError(f"This is no offset of a journal: {_shown(value)}")
        try:
            following = {int(partition): _number(offset) for partition, offset in places.items()}
        except ValueError:
            raise OffsetError(f"This is no offset of a journal: {_shown(value)}") from None
        return cls(epoch, following)

    @classmethod
    def from_json(cls, text: str) -> Offset:
        try:
            return cls.from_dict(json.loads(text))
        except ValueError:
            raise OffsetError(f"This is no offset of a journal: {_shown(text)}") from None

    def rows_until(self, end: Offset) -> int:
        """How many rows lie between; a partition that only `end` has counts from its beginning."""
        return sum(offset - self.next.get(partition, 0) for partition, offset in end.next.items())


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one partition's journal: from `start` on, up to and without `end`."""

    partition: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def spans(start: Offset, end: Offset) -> list[Span]:
    """What there is to read between two offsets of one epoch."""
    between = [
        Span(partition, start.next.get(partition, 0), stop)
        for partition, stop in sorted(end.next.items())
    ]
    return [span for span in between if span.rows > 0]


def limited(between: list[Span], rows: int) -> list[Span]:
    """At most so many rows of them, fair: a small one is whole before a large one has more."""
    kept = []
    for place, span in enumerate(sorted(between, key=lambda each: each.rows)):
        share = rows // (len(between) - place)
        # What is left over by the division goes to the last ones, which are the largest.
        end = min(span.end, span.start + share)
        rows -= end - span.start
        if end > span.start:
            kept.append(Span(span.partition, span.start, end))
    return sorted(kept, key=lambda each: each.partition)


def grouped(between: list[Span], tasks: int) -> list[list[Span]]:
    """The spans as about `tasks` pieces of work of about equal size.

    The partitions of an entity are more than a small machine's cores, and each task costs more than
    reading a few rows. A span that is much larger than the others is cut, as any range can be read.
    """
    rows = sum(span.rows for span in between)
    if rows == 0:
        return []
    size = -(-rows // max(1, tasks))
    groups: list[list[Span]] = [[]]
    room = size
    for span in between:
        start = span.start
        while start < span.end:
            if room == 0:
                groups.append([])
                room = size
            end = min(span.end, start + room)
            groups[-1].append(Span(span.partition, start, end))
            room -= end - start
            start = end
    return groups


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
