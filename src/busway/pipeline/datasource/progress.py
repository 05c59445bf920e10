"""How far behind a stream is, from what Spark tells of its progress.

A source in Python cannot put figures of its own there. It reports the newest offset, and that of
the last batch is there, too: what lies between is to be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from busway.pipeline.wire.offsets import Offset, OffsetError


def behind(progress: Any) -> dict[str, Any]:
    """Of a query's `lastProgress`, or of a listener's event; of the first source that is a journal.

    All zero for a query that has told nothing yet.
    """
    for source in _sources(progress):
        read, newest = (_offset(source, name) for name in ("endOffset", "latestOffset"))
        if newest is None:
            continue
        places = {} if read is None or read.epoch != newest.epoch else read.next
        left = {part: end - places.get(part, 0) for part, end in newest.next.items()}
        return {
            "events": sum(left.values()),
            "partitions": {part: count for part, count in sorted(left.items()) if count},
            "events_per_second": float(source.get("processedRowsPerSecond") or 0.0),
        }
    return {"events": 0, "partitions": {}, "events_per_second": 0.0}


def _sources(progress: Any) -> list[Mapping[str, Any]]:
    if progress is None:
        return []
    told = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    found: list[Mapping[str, Any]] = told["sources"]
    return found


def _offset(source: Mapping[str, Any], name: str) -> Offset | None:
    value = source.get(name)
    if value is None:
        return None
    try:
        return Offset.from_json(value) if isinstance(value, str) else Offset.from_dict(value)
    except OffsetError:
        return None  # a source of another kind
