"""From rows of the table `events` to the messages that a replay sends, in Spark's tasks.

A row's envelope and body are the message as its sender sent it. Rows of a lake that was filled by
an older version have no envelope: there it is made of their columns, which tell all but headers,
annotations of the application's own and some rarer fields.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from busway.amqp.sections import put_body
from busway.pipeline.wire.messages import body_section, encode
from busway.remote.wire.copies import copy_of

if TYPE_CHECKING:
    import pyarrow as pa

ENCODED_ROW = "encoded binary"
COLUMNS = ("message_id", "session_id", "partition_key", "correlation_id", "subject",
           "content_type", "reply_to", "reply_to_session_id", "to", "typed_properties", "body",
           "body_type", "envelope")  # fmt: skip
"""What a message is made of; beside them `new_id`."""


def encoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` runs: rows in, one encoded copy for each out, in their order."""
    import pyarrow as pa

    for batch in batches:
        now_ms = time.time_ns() // 1_000_000
        copies = [copy_of(sent(row), now_ms, message_id=row["new_id"]) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_pydict({"encoded": pa.array(copies, pa.binary())})


def sent(row: Mapping[str, Any]) -> bytes:
    """The message of a row, as its sender sent it."""
    if row["envelope"] is None:
        return encode({name: row[name] for name in COLUMNS})
    return put_body(row["envelope"], body_section(row["body"], row["body_type"]))
