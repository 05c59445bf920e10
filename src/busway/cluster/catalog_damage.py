"""What tells a damaged catalog: checksums of its rows, and a look at its log before SQLite's own.

SQLite notices damage to its own structure, not to what it keeps: a changed letter in a description
would be another entity. And it takes a log as far as it can be read; what lies behind a bad place
would be gone without a word.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

from busway.store.base import StoreUnavailable
from busway.store.checksums import of_values
from busway.store.sqlite_guard import SMALLEST_PAGE, check_length
from busway.store.sqlite_log import log_of, scan_log

log = logging.getLogger("busway.cluster")

WHAT_TO_DO: Final = (
    "Put back a backup of the data folder with 'busway restore'. Without one, move the catalog and"
    " its log away, start with a configuration that declares the entities, and attach the messages"
    " with 'busway recover'."
)

FIRST_CHECKED_FORMAT: Final = 6
ENTITY_COLUMNS: Final = (
    "kind, path, incarnation, version, description, namespace, path_key, checksum"
)
RULE_COLUMNS: Final = "number, subscription, name_key, rules.description, rules.checksum"


def is_sound(row: tuple[Any, ...]) -> bool:
    """Its last value is the checksum of those before. Rows of older versions have none until they
    are written again."""
    *values, checksum = row
    return checksum is None or checksum == of_values(*values)


def file_finding(path: Path) -> str | None:
    """What is wrong with a catalog that nobody has open, or None. Nothing is changed."""
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return None  # it was not there, and is made
    if size < SMALLEST_PAGE:
        return f"The catalog {path} was cut to {size} bytes."
    scan = scan_log(log_of(path))
    if scan is not None and scan.is_damaged:
        where = "its first bytes" if not scan.header_is_valid else f"frame {scan.valid_frames + 1}"
        return (
            f"The log of the catalog {path} is damaged: it cannot be read from {where} on, and"
            f" about {scan.lost_commits} changes behind it cannot be reached."
        )
    if scan is not None and scan.has_torn_end:
        log.warning(
            "the log of the catalog %s has an end that cannot be read. A machine that stops in the"
            " middle of a change leaves that; if it did not, the last change may be lost.",
            path,
        )
    try:
        check_length(path, scan, "catalog", what_to_do="")
    except StoreUnavailable as error:
        return str(error).strip()
    return None
