"""What clients without a valid token may have: `[strangers]` of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from busway.config.errors import wrong_value
from busway.config.tables import check_keys, table_in
from busway.model.durations import SECOND_MS, parse_duration
from busway.model.strangers import RANGES, StrangerShare

_TIMES = {"token_wait": "token_wait_ms", "http_idle": "http_idle_ms"}
KEYS = {
    **{name: name for name in RANGES if not name.endswith("_ms")},
    **_TIMES,
}
"""From words to the fields of `StrangerShare`."""


def read_stranger_share(document: Mapping[str, Any], file: str) -> StrangerShare:
    """The defaults, but for what the file states. Raises `ConfigError`."""
    table = table_in(document, "strangers", file)
    where = f"{file}: [strangers]"
    check_keys(where, table, KEYS)
    return StrangerShare(**{KEYS[key]: _number(key, value, where) for key, value in table.items()})


def _number(key: str, value: object, where: str) -> int:
    least, most = RANGES[KEYS[key]]
    if key in _TIMES:
        span_ms = None
        if isinstance(value, str):
            try:
                span_ms = parse_duration(value)
            except ValueError:
                span_ms = None
        if span_ms is None or not least <= span_ms <= most:
            allowed = f'a duration such as "20s", {least // SECOND_MS} to {most // SECOND_MS} s'
            raise wrong_value(where, key, value, allowed)
        return span_ms
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise wrong_value(where, key, value, f"a whole number, {least} to {most}")
    return value
