"""How much of journals is kept: the words for it, in files and requests, and what they may be.

A server has a limit of each kind (`[journal]`); an entity may have its own of some (D-31).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from busway.model.durations import MINUTE_MS, format_iso, parse_duration
from busway.model.limits import MIB

LIMITS = {
    "retention": "retention_ms",
    "max_size_mb": "size_bytes",
    "held_size_mb": "held_bytes",
    "hold": "hold_ms",
}
"""From words to the fields of `JournalLimits`."""
OWN_LIMITS = ("retention", "max_size_mb", "held_size_mb")
"""Those that an entity may have of its own. How long a hold lasts is its reader's to say."""

SPAN_MIN_MS = MINUTE_MS
SIZE_MIN_MB, SIZE_MAX_MB = 1, 1 << 30
_SIZE_ENDING = "_mb"


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """What an entity says itself; None: as the server has it."""

    retention_ms: int | None = None
    size_bytes: int | None = None
    held_bytes: int | None = None

    def stated(self) -> dict[str, int]:
        return {field: value for field, value in asdict(self).items() if value is not None}

    def __bool__(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = OwnLimits()


def read_limit(word: str, value: object) -> int:
    """The number of a field. Raises `ValueError` with what is allowed instead."""
    if word.endswith(_SIZE_ENDING):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("a whole number of megabytes")
        if not SIZE_MIN_MB <= value <= SIZE_MAX_MB:
            raise ValueError(f"{SIZE_MIN_MB} to {SIZE_MAX_MB}")
        return value * MIB
    span_ms = None
    if isinstance(value, str):
        try:
            span_ms = parse_duration(value)
        except ValueError:
            span_ms = None
    if span_ms is None or span_ms < SPAN_MIN_MS:
        raise ValueError('a duration of a minute or more, such as "7d" or "PT12H"')
    return span_ms


def show_limit(word: str, number: int) -> str | int:
    """As it is written in requests and replies."""
    return number // MIB if word.endswith(_SIZE_ENDING) else format_iso(number)
