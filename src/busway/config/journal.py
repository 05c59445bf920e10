"""How much of journals is kept: `[journal]` of a file, and the `capture` of its entities (D-31)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from busway.config.errors import wrong_value
from busway.config.tables import check_keys, table_in
from busway.model.journal import JournalLimits
from busway.model.retention import LIMITS, OWN_LIMITS, OwnLimits, read_limit

KEYS = tuple(LIMITS)


def read_journal_limits(document: Mapping[str, Any], file: str) -> JournalLimits:
    """The defaults, but for what the file states. Raises `ConfigError`."""
    table = table_in(document, "journal", file)
    return JournalLimits(**_stated(table, f"{file}: [journal]", KEYS))


def read_capture(value: object, where: str) -> dict[str, Any]:
    """The fields of an entity that its `capture` states. A table means on, with limits of its own;
    what it leaves out is as the server has it, so an empty one takes all of them back."""
    if isinstance(value, bool):
        return {"capture": value}
    if not isinstance(value, dict):
        allowed = 'true, false, or a table such as { retention = "3d" }'
        raise wrong_value(where, "capture", value, allowed)
    limits = OwnLimits(**_stated(value, f"{where}: capture", OWN_LIMITS))
    return {"capture": True, "capture_limits": limits}


def _stated(table: Mapping[str, Any], where: str, known: Iterable[str]) -> dict[str, int]:
    check_keys(where, table, known)
    stated = {}
    for key, value in table.items():
        try:
            stated[LIMITS[key]] = read_limit(key, value)
        except ValueError as allowed:
            raise wrong_value(where, key, value, str(allowed)) from None
    return stated
