"""Rows to messages: `write.format("busway")` against a real broker (P-47)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from busway.pipeline.datasource.options import READ_OPTIONS, WRITE_OPTIONS
from busway.pipeline.datasource.sink import COLUMNS, Sent, SinkError, reconcile
from busway.remote.wire.copies import hashed
from busway.testing.server import Server
from tests.pipeline.streams import started
from tests.sdk.conftest import WAIT_S, everything

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIG = """
[[access]]
name = "only-send"
rights = ["Send"]
key = "c2VuZCBvbmx5IHNlbmQgb25seSBzZW5kIG9ubHkgISE="

[[queues]]
name = "all"
requires_duplicate_detection = true

[[queues]]
name = "twice"
requires_duplicate_detection = true
enable_partitioning = true

[[queues]]
name = "sessions"
requires_duplicate_detection = true
requires_session = true

[[queues]]
name = "source"
capture = true

[[queues]]
name = "copy"
requires_duplicate_detection = true

[[queues]]
name = "forgetful"

[[topics]]
name = "news"
requires_duplicate_detection = true

[[topics.subscriptions]]
name = "all"
"""
ONLY_SEND = "c2VuZCBvbmx5IHNlbmQgb25seSBzZW5kIG9ubHkgISE="


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(config=CONFIG, data=tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def secret(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("secret") / "connection-string"
    file.write_text(server.connection_string)
    return f"file:{file}"


def save(frame: DataFrame, secret: str, **options: Any) -> None:
    given = {"credentialsFrom": secret, **{name: str(value) for name, value in options.items()}}
    frame.write.format("busway").options(**given).mode("append").save()


def received(server: Server, queue: str, **more: Any) -> list[ServiceBusReceivedMessage]:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete", **more) as receiver,
    ):
        return everything(receiver)


def test_every_column_arrives(spark: SparkSession, server: Server, secret: str) -> None:
    soon = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    typed = {
        "n": ["int", 7],
        "big": ["ulong", 2**64 - 1],
        "id": ["uuid", "00000000-0000-0000-0000-000000000007"],
        "at": ["timestamp", 1_763_294_400_000],
    }
    schema = (
        "body binary, body_type string, message_id string, session_id string, partition_key string,"
        "correlation_id string, subject string, content_type string, reply_to string,"
        "reply_to_session_id string, to string, scheduled_time timestamp, time_to_live long,"
        "application_properties map<string,string>, typed_properties string"
    )
    row = (
        b"hello", "string", "m-1", "s-1", "s-1", "c-1", "label", "text/plain", "back", "s-2",
        "there", soon, 3_600_000, {"n": "ignored"}, json.dumps(typed),
    )  # fmt: skip
    save(spark.createDataFrame([row], schema), secret, entity="all")
    (message,) = received(server, "all")
    assert (message.message_id, message.session_id, message.partition_key) == ("m-1", "s-1", "s-1")
    assert (message.correlation_id, message.subject) == ("c-1", "label")
    assert (message.content_type, message.to) == ("text/plain", "there")
    assert (message.reply_to, message.reply_to_session_id) == ("back", "s-2")
    assert message.time_to_live == timedelta(hours=1)
    assert message.scheduled_enqueue_time_utc == soon
    assert message.body_type is AmqpMessageBodyType.VALUE
    assert message.body == b"hello"
    told = {str(name, "utf-8"): value for name, value in message.application_properties.items()}
    assert told.keys() == typed.keys()
    assert (told["n"], told["big"]) == (7, 2**64 - 1)
    assert str(told["id"]) == typed["id"][1]


def test_a_job_that_is_run_twice_stores_once(
    spark: SparkSession, server: Server, secret: str
) -> None:
    frame = spark.range(1_000).selectExpr(
        "cast(id as string) as order_id",
        "concat('order ', id) as text",
        "named_struct('n', cast(id as int), 'even', id % 2 = 0) as application_properties",
    )
    for _ in range(2):
        save(frame, secret, entity="twice", messageIdFrom="order_id", bodyFrom="text")
    messages = received(server, "twice")
    assert sorted(int(str(each.message_id)) for each in messages) == list(range(1_000))
    one = next(each for each in messages if each.message_id == "7")
    assert str(one) == "order 7"
    assert one.application_properties == {b"n": 7, b"even": False}


def test_several_columns_make_an_id(spark: SparkSession, server: Server, secret: str) -> None:
    frame = spark.createDataFrame(
        [("o-1", 1, "a"), ("o-1", 2, "b")], "o string, line int, t string"
    )
    for _ in range(2):
        save(frame, secret, entity="all", messageIdFrom="o,line", bodyFrom="t")
    ids = sorted(str(each.message_id) for each in received(server, "all"))
    assert ids == sorted([hashed(["o-1", 1]), hashed(["o-1", 2])])


def test_equal_rows_are_one_message_where_all_columns_are_the_id(
    spark: SparkSession, server: Server, secret: str
) -> None:
    frame = spark.createDataFrame([("a",), ("a",), ("b",)], "body string")
    save(frame, secret, entity="all", messageIdFrom="*")
    assert sorted(str(each) for each in received(server, "all")) == ["a", "b"]


def test_sessions_come_from_a_column_and_keep_their_order(
    spark: SparkSession, server: Server, secret: str
) -> None:
    frame = spark.range(200).selectExpr(
        "cast(id as string) as message_id",
        "cast(id as string) as body",
        "concat('customer ', id % 3) as customer",
    )
    placed = frame.repartition(3, "customer").sortWithinPartitions(frame["message_id"].cast("int"))
    save(placed, secret, entity="sessions", sessionIdFrom="customer")
    for number in range(3):
        bodies = [
            int(str(each)) for each in received(server, "sessions", session_id=f"customer {number}")
        ]
        assert bodies == list(range(number, 200, 3))


def test_a_journal_can_be_copied_as_a_stream(
    spark: SparkSession, server: Server, secret: str, tmp_path: Path
) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender("source") as sender,
    ):
        sender.send_messages(
            [
                ServiceBusMessage(f"{n}", message_id=f"m-{n}", application_properties={"n": n})
                for n in range(300)
            ]
        )
    for attempt in ("first", "second"):  # another checkpoint: everything is sent again
        stream = (
            spark.readStream.format("busway")
            .options(entity="source", credentialsFrom=secret, events="enqueued")
            .options(maxEventsPerTrigger=100)
            .load()
        )
        query = started(
            stream.writeStream.format("busway")
            .options(entity="copy", credentialsFrom=secret, checkpointLocation=tmp_path / attempt)
            .trigger(availableNow=True)
        )
        query.awaitTermination()
        assert query.exception() is None
    messages = received(server, "copy")
    assert sorted(int(str(each)) for each in messages) == list(range(300))
    assert {each.application_properties[b"n"] for each in messages} == set(range(300))


def test_topics_take_messages(spark: SparkSession, server: Server, secret: str) -> None:
    frame = spark.createDataFrame([("n-1", "x")], "message_id string, body string")
    save(frame, secret, entity="news")
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_subscription_receiver("news", "all") as receiver,
    ):
        (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
        receiver.complete_message(message)
    assert message.message_id == "n-1"


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ("message_id, body", {"entity": "forgetful"}, "does not detect duplicates"),
        ("message_id, body", {"entity": "nowhere"}, "There is no queue or topic 'nowhere'"),
        ("message_id, body", {"entity": "news/Subscriptions/all"}, "Send to its topic"),
        ("message_id, body", {"entity": "sessions"}, "sessionIdFrom"),
        ("message_id, body", {}, "Say which queue or topic"),
        ("message_id, body", {"entity": "all", "messageIdForm": "x"}, "messageIdFrom"),
        ("message_id, body", {"entity": "all", "bodyFrom": "text"}, "no column 'text'"),
        ("message_id, body, sesion_id", {"entity": "all"}, "Is it 'session_id'"),
        ("message_id", {"entity": "all"}, "The rows have no column 'body'"),
        ("body", {"entity": "all"}, "nothing else says when two of them are the same"),
        ("body", {"entity": "all", "bodyFrom": "body", "sharedAccessKey": "x"}, "plans and logs"),
        ("message_id, 1.5d as body", {"entity": "all"}, "must be string or binary"),
        ("cast(null as string) as message_id, body", {"entity": "all"}, "has no message id"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(
    spark: SparkSession, secret: str, columns: str, options: dict[str, str], text: str
) -> None:
    frame = spark.createDataFrame(
        [("m", "b", "s")], "message_id string, body string, sesion_id string"
    ).selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=text):
        save(frame, secret, **options)


def test_without_duplicate_detection_if_the_user_says_so(
    spark: SparkSession, server: Server, secret: str
) -> None:
    frame = spark.createDataFrame([("x",)], "body string")
    for _ in range(2):
        save(frame, secret, entity="forgetful", requireDuplicateDetection="false")
    assert [str(each) for each in received(server, "forgetful")] == ["x", "x"]


def test_a_key_that_may_only_send_cannot_know_and_says_so(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    endpoint = server.connection_string.partition(";")[0]
    text = f"{endpoint};SharedAccessKeyName=only-send;SharedAccessKey={ONLY_SEND}"
    (tmp_path / "secret").write_text(f"{text};UseDevelopmentEmulator=true")
    secret = f"file:{tmp_path / 'secret'}"
    frame = spark.createDataFrame([("k-1", "x")], "message_id string, body string")
    with pytest.raises(Exception, match="takes the right to manage"):
        save(frame, secret, entity="all")
    save(frame, secret, entity="all", requireDuplicateDetection="false")
    assert [each.message_id for each in received(server, "all")] == ["k-1"]


def test_overwriting_is_refused(spark: SparkSession, secret: str) -> None:
    frame = spark.createDataFrame([("m", "b")], "message_id string, body string")
    writer = frame.write.format("busway").options(entity="all", credentialsFrom=secret)
    with pytest.raises(Exception, match="append"):
        writer.mode("overwrite").save()


def test_every_option_and_column_is_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "spark.md").read_text()
    for name in [option.name for option in (*READ_OPTIONS, *WRITE_OPTIONS)] + list(COLUMNS):
        assert f"`{name}`" in text, name


def test_a_commit_counts() -> None:
    reconcile("q", [Sent(3, 3), Sent(0, 0)])
    with pytest.raises(SinkError, match="acknowledged 4 of 5"):
        reconcile("q", [Sent(3, 3), Sent(2, 1)])
    with pytest.raises(SinkError, match="in 1 of 2 tasks"):
        reconcile("q", [Sent(3, 3), None])
