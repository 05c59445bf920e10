"""Instants in the service's three forms: for people, for the envelope, and as ticks."""

from __future__ import annotations

from datetime import datetime, timedelta

from busway.filters.values import DATETIME_MAX_TICKS, EPOCH_TICKS, TICKS_PER_MS

NEVER = "0001-01-01T00:00:00Z"
TICKS_PER_SECOND = 1000 * TICKS_PER_MS
_YEAR_1 = datetime(1, 1, 1)


def instant(ms: int | None) -> str:
    """Milliseconds since 1970, so that later ones compare as greater; None and 0 are never."""
    return f"{of_ticks(ticks_of(ms - ms % 1000))}.{ms % 1000:03d}Z" if ms else NEVER


def whole_seconds(ms: int) -> str:
    """As `published` and `updated` have it (http.md 4)."""
    return f"{of_ticks(ticks_of(ms - ms % 1000))}Z" if ms else NEVER


def ticks_of(ms: int) -> int:
    """100 ns each, since the year 1."""
    return ms * TICKS_PER_MS + EPOCH_TICKS


def of_ticks(ticks: int) -> str:
    """Without a zone. What the calendar does not reach is its first or last instant."""
    ticks = min(max(ticks, 0), DATETIME_MAX_TICKS)
    seconds, rest = divmod(ticks, TICKS_PER_SECOND)
    text = (_YEAR_1 + timedelta(seconds=seconds)).isoformat()
    return f"{text}.{rest:07d}".rstrip("0") if rest else text
