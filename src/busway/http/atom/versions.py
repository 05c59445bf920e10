"""The api-versions that are spoken, and which elements came when (http.md 2, P-9)."""

from __future__ import annotations

from busway.http.replies import HttpError

KNOWN = (
    "2013-07",
    "2013-08",
    "2013-09",
    "2013-10",
    "2014-01",
    "2014-05",
    "2014-09",
    "2015-01",
    "2015-08",
    "2016-07",
    "2017-04",
    "2021-05",
    "2024-05",
)
FIRST, NEWEST = KNOWN[0], KNOWN[-1]
PARTITIONING = "2013-10"
"""An older one does not know EnablePartitioning (P-9)."""
MESSAGE_SIZE = "2021-05"
FILTER_COUNTS = "2024-05"


def version_of(said: str | None) -> str:
    """The newest, if a request does not say. They are dates, so later ones compare as greater."""
    if said is None:
        return NEWEST
    if said not in KNOWN:
        raise HttpError(
            400, f"The api-version '{said[:40]}' is not known. Known are {', '.join(KNOWN)}."
        )
    return said
