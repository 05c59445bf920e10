"""Streaming queries on a busy machine: Spark gives a reader ten seconds to start, and no setting
makes that longer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STARTS_MAX = 5
GIVEN_UP = "Python worker failed to connect back"
LOOK_EVERY_S = 0.1


def started(writer: DataStreamWriter) -> StreamingQuery:
    """The query, once its reader is there."""
    for _ in range(STARTS_MAX - 1):
        query = writer.start()
        if not _was_given_up(query):
            return query
    return writer.start()


def _was_given_up(query: StreamingQuery) -> bool:
    while query.isActive and str(query.status["message"]).startswith("Initializing"):
        time.sleep(LOOK_EVERY_S)
    problem = query.exception()
    return problem is not None and GIVEN_UP in str(problem)
