"""The `[journal]` table of a configuration file: how much of journals is kept (D-31)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from busway.config.errors import wrong_value
from busway.config.tables import check_keys, table_in
from busway.model.durations import MINUTE_MS, parse_duration
from busway.model.journal import JournalLimits
from busway.model.limits import MIB

SPANS = {"retention": "retention_ms", "hold": "hold_ms"}
SIZES = {"max_size_mb": "size_bytes", "held_size_mb": "held_bytes"}
KEYS = (*SPANS, *SIZES)

SPAN_MIN_MS = MINUTE_MS
SIZE_MIN_MB, SIZE_MAX_MB = 1, 1 << 30


def read_journal_limits(document: Mapping[str, Any], file: str) -> JournalLimits:
    """The defaults, but for what the file states. Raises `ConfigError`."""
    where = f"{file}: [journal]"
    table = table_in(document, "journal", file)
    check_keys(where, table, KEYS)
    stated: dict[str, int] = {}
    for key, value in table.items():
        if key in SPANS:
            stated[SPANS[key]] = _span(value, where, key)
        elif isinstance(value, bool) or not isinstance(value, int):
            raise wrong_value(where, key, value, "a whole number of megabytes")
        elif not SIZE_MIN_MB <= value <= SIZE_MAX_MB:
            raise wrong_value(where, key, value, f"{SIZE_MIN_MB} to {SIZE_MAX_MB}")
        else:
            stated[SIZES[key]] = value * MIB
    return JournalLimits(**stated)


def _span(value: object, where: str, key: str) -> int:
    allowed = 'a duration of a minute or more, such as "7d" or "PT12H"'
    span_ms = None
    if isinstance(value, str):
        try:
            span_ms = parse_duration(value)
        except ValueError:
            span_ms = None
    if span_ms is None or span_ms < SPAN_MIN_MS:
        raise wrong_value(where, key, value, allowed)
    return span_ms
