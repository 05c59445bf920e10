"""Journals told by hand: events of messages whose fate is known, for tables made from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from busway.pipeline.lake.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
COLUMNS = tuple(column.name for column in EVENTS.columns)


@dataclass
class Story:
    """Events of one entity, in the order in which they are told."""

    entity: str = "orders"
    epoch: str = "e1"
    subscription: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _offsets: dict[int, int] = field(default_factory=dict)

    def tell(
        self, event: str, number: int, at_s: float, *, partition: int = 0, **more: Any
    ) -> None:
        offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + 1
        when = NOON + timedelta(seconds=at_s)
        row = dict.fromkeys(COLUMNS) | {
            "entity": self.entity,
            "subscription": self.subscription,
            "epoch": self.epoch,
            "partition": partition,
            "journal_offset": offset,
            "event": event,
            "event_time": when,
            "event_date": when.date(),
            "sub_queue": "main",
            "sequence_number": number,
            "related_sequence_number": None,
            "delivery_count": 0,
            "schema_version": 1,
        }
        if event in ("enqueued", "scheduled"):
            row |= {
                "message_id": f"m-{number}",
                "body": b"b-%d" % number,
                "body_size": 10,
                "message_size": 100,
                "application_properties": {"n": str(number)},
            }
        self.events.append(row | more)

    def frame(self, spark: SparkSession, first: int = 0, last: int | None = None) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(EVENTS.layout().schema)
        rows = [tuple(event[name] for name in schema.names) for event in self.events[first:last]]
        return spark.createDataFrame(rows, schema=schema)
