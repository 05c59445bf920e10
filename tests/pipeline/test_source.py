"""Journals in Spark: `format("busway")` against a real broker (P-47, D-31)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pyspark.sql.streaming.datasource import ReadAllAvailable

from busway.pipeline.datasource.options import read_options
from busway.pipeline.datasource.progress import behind
from busway.pipeline.datasource.source import StreamReader
from busway.pipeline.wire.journal import EpochError, Journal
from busway.pipeline.wire.offsets import Offset
from busway.remote import connection
from busway.testing.server import Server
from tests.pipeline.streams import started
from tests.sdk.conftest import received

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[[queues]]
name = "spread"
enable_partitioning = true
capture = true

[[queues]]
name = "plain"
capture = true

[[queues]]
name = "silent"
"""
SENT = 400


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            for queue in ("spread", "plain"):
                with client.get_queue_sender(queue) as sender:
                    sender.send_messages(
                        [
                            ServiceBusMessage(
                                f"body {number}",
                                message_id=f"m-{number}",
                                application_properties={"n": number, "even": number % 2 == 0},
                            )
                            for number in range(SENT)
                        ]
                    )
            with client.get_queue_receiver("plain") as receiver:
                for message in received(receiver, 50):
                    receiver.complete_message(message)
        yield running


@pytest.fixture(scope="module")
def secret(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the connection string is: Spark's processes do not see this one's variables."""
    file = tmp_path_factory.mktemp("secret") / "connection-string"
    file.write_text(server.connection_string)
    return f"file:{file}"


def load(spark: SparkSession, secret: str, **options: Any) -> DataFrame:
    given = {"credentialsFrom": secret, **{name: str(value) for name, value in options.items()}}
    return spark.read.format("busway").options(**given).load()


def test_a_batch_has_every_event_with_its_message(spark: SparkSession, secret: str) -> None:
    rows = load(spark, secret, entity="spread").where("event = 'enqueued'").collect()
    assert sorted(row.message_id for row in rows) == sorted(f"m-{n}" for n in range(SENT))
    row = next(row for row in rows if row.message_id == "m-7")
    assert (row.body, row.application_properties) == (b"body 7", {"n": "7", "even": "false"})
    assert len({row.partition for row in rows}) == 1  # one batch goes to one partition


def test_events_of_a_life_are_in_order(spark: SparkSession, secret: str) -> None:
    rows = load(spark, secret, entity="plain", columns="journal_offset,event,sequence_number")
    first = rows.where("sequence_number = 1").orderBy("journal_offset").collect()
    assert [row.event for row in first] == ["enqueued", "delivered", "completed"]
    offsets = sorted(row.journal_offset for row in rows.collect())
    assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("journal_offset < 10", 10),
        ("journal_offset >= 5 and journal_offset <= 9", 5),
        ("partition = 3", 0),
        ("partition in (0, 3) and event = 'completed'", 50),
        ("event_time > timestamp '2020-01-01'", SENT + 100),
        ("event_time < timestamp '2020-01-01'", 0),
    ],
)
def test_filters_narrow_what_is_read(
    spark: SparkSession, secret: str, condition: str, count: int
) -> None:
    assert load(spark, secret, entity="plain").where(condition).count() == count


def test_a_stream_takes_so_much_at_a_time_and_ends(
    spark: SparkSession, secret: str, tmp_path: Path, server: Server
) -> None:
    sizes: list[int] = []
    stream = (
        spark.readStream.format("busway")
        .options(entity="spread", credentialsFrom=secret, maxEventsPerTrigger=150, consumer="test")
        .load()
    )
    query = started(
        stream.writeStream.foreachBatch(lambda batch, number: sizes.append(batch.count()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    query.awaitTermination()
    assert sum(sizes) == SENT
    assert max(sizes) <= 150
    assert query.lastProgress is not None
    assert "epoch" in query.lastProgress.sources[0].endOffset
    # Its last batch is done, and no other one will say so.
    allowed = connection.read(server.connection_string).pass_for("spread")
    with Journal("spread", allowed) as journal:
        held = {each.name: each.lag_rows for each in journal.consumers()}
    assert held["test"] == 0


def test_how_far_behind_a_stream_is_comes_from_its_progress() -> None:
    def told(read: Offset | None, newest: Offset | None) -> dict[str, Any]:
        source = {
            "endOffset": None if read is None else read.to_dict(),
            "latestOffset": None if newest is None else newest.to_json(),
            "processedRowsPerSecond": 12.5,
        }
        return {"sources": [{"latestOffset": None}, {"latestOffset": "9"}, source]}

    newest = Offset("e", {0: 10, 1: 5, 2: 7})
    found = behind(told(Offset("e", {0: 4, 1: 5}), newest))
    assert found == {"events": 13, "partitions": {0: 6, 2: 7}, "events_per_second": 12.5}
    assert behind(told(newest, newest))["events"] == 0
    assert behind(told(None, newest))["events"] == 22
    assert behind(told(newest, None)) == behind(None) == {
        "events": 0, "partitions": {}, "events_per_second": 0.0,
    }  # fmt: skip


def test_a_position_says_where_to_begin(spark: SparkSession, secret: str, server: Server) -> None:
    allowed = connection.read(server.connection_string).pass_for("plain")
    with Journal("plain", allowed) as journal:
        heads = journal.heads()
    late = heads.latest.next[0] - 7
    text = f'{{"epoch":"{heads.epoch}","p":{{"00":{late}}},"v":1}}'
    assert load(spark, secret, entity="plain", startingPosition=text).count() == 7
    assert load(spark, secret, entity="plain", startingPosition="latest").count() == 0
    assert load(spark, secret, entity="plain", startingPosition="-1h").count() == SENT + 100


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"entity": "silent"}, "not captured"),
        ({"entity": "nowhere"}, "There is no queue, topic or subscription 'nowhere'"),
        ({}, "Say which queue or topic"),
        ({"entity": "plain", "startingOffset": "latest"}, "Did you mean 'startingPosition'"),
        ({"entity": "plain", "connectionString": "x"}, "Spark shows options in plans and logs"),
        ({"entity": "plain", "columns": "bodi"}, "there is no 'bodi'"),
        ({"entity": "plain", "startingPosition": "yesterday"}, "must be earliest, latest"),
    ],
)
def test_what_is_wrong_is_said(
    spark: SparkSession, secret: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception, match=text):
        load(spark, secret, **options).count()


def test_d_31_offsets_of_another_incarnation_are_refused_whatever_they_are(
    spark: SparkSession, secret: str, server: Server
) -> None:
    """Also those that lie at, or behind, the end of the journal that is there now: they would pass
    over what it has."""
    allowed = connection.read(server.connection_string).pass_for("plain")
    with Journal("plain", allowed) as journal:
        heads = journal.heads()
    for place in (0, heads.latest.next[0], heads.latest.next[0] + 100):
        old = Offset("1-aa", {0: place})
        reader = StreamReader(read_options({"entity": "plain", "credentialsFrom": secret}))
        with pytest.raises(EpochError, match="was migrated, or deleted and created again"):
            reader.latestOffset(old.to_dict(), ReadAllAvailable())
        reader.stop()
        with pytest.raises(Exception, match="was migrated, or deleted and created again"):
            load(spark, secret, entity="plain", startingPosition=old.to_json()).count()


def test_the_key_is_in_no_plan(spark: SparkSession, secret: str, server: Server) -> None:
    key = server.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    frame = load(spark, secret, entity="plain")
    plan = frame._jdf.queryExecution().toString()
    assert "busway" in plan
    assert key not in plan
