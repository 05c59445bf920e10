"""A replay sends what was sent: messages of every kind, compared by their bytes (P-47)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from busway.amqp.codec import encode_value, scan_message
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import encode_message, read_application_properties
from busway.amqp.types import Described, Int, Symbol, Timestamp, ULong
from busway.model.partitioning import message_id_text
from busway.pipeline.jobs.capture import Capture, CaptureSettings
from busway.pipeline.jobs.replay import Replay, ReplayError, Selection
from busway.pipeline.lake.lake import Lake
from busway.pipeline.wire.journal import Journal
from busway.pipeline.wire.offsets import Span
from busway.remote import connection
from busway.remote.wire.copies import ORIGINAL_ID, copy_of
from busway.remote.wire.sender import Sender
from busway.testing.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[[queues]]
name = "exact"
requires_duplicate_detection = true
capture = true

[[queues]]
name = "exact-copy"
requires_duplicate_detection = true
partitioned = true
capture = true

[[queues]]
name = "others"
requires_duplicate_detection = true
capture = true

[[topics]]
name = "news"
partitioned = true

[[topics.subscriptions]]
name = "all"
capture = true

[[topics.subscriptions.rules]]
name = "mark"
sql_filter = "1 = 1"
action = "SET marked = 'yes'"
"""
NOW_MS = time.time_ns() // 1_000_000
FRONT = encode_message(
    header=Header(True, 7, 60_000, None, None),
    annotations={Symbol("x-opt-partition-key"): "k", Symbol("mine"): [Int(1)]},
)
LATER = Properties(
    message_id=UUID(int=7), user_id=b"me", content_encoding="gzip", creation_time=NOW_MS,
    absolute_expiry_time=NOW_MS + 86_400_000, group_id="k", group_sequence=3,
)  # fmt: skip
TYPED = {"i": Int(1), "u": ULong(2), "w": Timestamp(5), "s": Symbol("x"), "b": b"y", "n": None}
KINDS = {
    "data": encode_message(properties=LATER, application_properties=TYPED, data=b"one"),
    "long data": encode_message(properties=Properties(message_id=b"binary"), data=b"x" * 300),
    "wide data": encode_message(properties=Properties(message_id="w"))
    + bytes.fromhex("005375b000000001") + b"x",
    "two data": encode_message(properties=Properties(message_id=ULong(9)), data=b"a")
    + encode_message(data=b"b") + bytes.fromhex("005378c10100"),
    "sequences": encode_message(properties=Properties(message_id="q"))
    + encode_value(Described(ULong(0x76), [1, "a"])) * 2,
    "value": encode_message(properties=Properties(message_id="v"), body={"a": [Int(1), None]}),
    "text": encode_message(properties=Properties(message_id="t"), body="text é"),
    "null": encode_message(properties=Properties(message_id="0"), body=None),
    "nothing": encode_message(properties=Properties(message_id="-")),
}  # fmt: skip


def raws(server: Server, queue: str) -> list[bytes]:
    """What senders sent, as the journal tells it."""
    allowed = connection.read(server.connection_string).pass_for(queue)
    with Journal(queue, allowed) as journal:
        heads = journal.heads()
        return [
            row["raw"]
            for partition, end in heads.latest.next.items()
            for batch in journal.read(heads.epoch, Span(partition, 0, end), ["event", "raw"])
            for row in batch.to_pylist()
            if row["event"] == "enqueued"
        ]


def captured(
    spark: SparkSession, server: Server, entity: str, folder: Path
) -> tuple[Lake, dict[str, str]]:
    """A lake with all that happened to it so far, and how Spark reaches the broker."""
    secret = folder / "connection-string"
    secret.write_text(server.connection_string)
    options = {"credentialsFrom": f"file:{secret}"}
    lake = Lake(folder / "lake")
    credentials = connection.read(server.connection_string)
    capture = Capture(lake, credentials, CaptureSettings((entity,)))
    capture.begin(once=True)
    capture.run(spark, once=True)
    return lake, options


def test_messages_of_every_kind_are_the_same_to_the_byte(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also one that was dropped as a duplicate is not there twice, and one that was scheduled and
    fell due is sent at once (SCH-1, SCH-3, DUP-3)."""
    with Server(config=CONFIG, data=tmp_path / "data") as server:
        credentials = connection.read(server.connection_string)
        scheduled = encode_message(
            annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(NOW_MS)},
            properties=Properties(message_id="scheduled"),
            data=b"late",
        )
        sent = [FRONT + bare for bare in KINDS.values()]
        messages = [*sent, sent[0], scheduled]
        Sender("exact", credentials.pass_for("exact")).send_all(messages)
        before = raws(server, "exact")
        assert len(before) == len(KINDS) + 1
        lake, options = captured(spark, server, "exact", tmp_path)

        def replay(to: str, **more: Any) -> Replay:
            plan = f"to-{to}"
            return Replay(spark, lake, Selection("exact"), to, plan, sink_options=options, **more)

        def copies_in(to: str, **more: Any) -> list[bytes]:
            job = replay(to, **more)
            assert job.send(job.plan()).sent == len(before)
            return raws(server, to)

        assert sorted(copies_in("exact-copy", keep_ids=True)) == sorted(before)
        by_id = {message_id_text(scan_message(each).message_id): each for each in before}
        for copy in copies_in("others"):
            seen = scan_message(copy)
            original = by_id.pop(read_application_properties(seen.bare)[ORIGINAL_ID])
            assert copy == copy_of(original, 0, message_id=str(seen.message_id))
        assert by_id == {}
        job = replay("exact", keep_ids=True)
        planned = job.plan()
        with pytest.raises(ReplayError, match="may drop its own messages"):
            job.send(planned)


def test_what_a_subscription_got_goes_to_a_queue(spark: SparkSession, tmp_path: Path) -> None:
    """With what its rules have set, because that is the message that it got (ACT-1)."""
    entity = "news/Subscriptions/all"
    with Server(config=CONFIG, data=tmp_path / "data") as server:
        credentials = connection.read(server.connection_string)
        sent = encode_message(properties=Properties(message_id="n"), data=b"news")
        Sender("news", credentials.pass_for("news")).send_all([sent])
        lake, options = captured(spark, server, entity, tmp_path)
        job = Replay(
            spark, lake, Selection(entity), "others", "plan", sink_options=options, keep_ids=True
        )
        assert job.send(job.plan()).sent == 1
        (copy,) = raws(server, "others")
    seen = scan_message(copy)
    assert seen.message_id == "n"
    assert read_application_properties(seen.bare)["marked"] == "yes"
    assert seen.bare.endswith(encode_message(data=b"news"))
