"""Sending with HTTP requests (http.md section 9), seen by HTTP and by the Python SDK over AMQP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiveMode

from busway.model.partitioning import partition_of_key
from busway.testing import Server
from tests.http.rest_client import Rest, open_socket, raw_request

CONFIG = """
[[queues]]
name = "plain"

[[queues]]
name = "parts"
partitioned = true

[[queues]]
name = "sessions"
requires_session = true

[[queues]]
name = "once"
partitioned = true
requires_duplicate_detection = true

[[queues]]
name = "off"
status = "Disabled"

[[queues]]
name = "full"
status = "SendDisabled"

[[topics]]
name = "news"
partitioned = true

[[topics.subscriptions]]
name = "all"

[[topics.subscriptions]]
name = "urgent"
rules = [{ name = "urgent", sql_filter = "Level > 3 AND sys.Label = 'alarm'" }]
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(config=CONFIG) as running:
        yield running


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    client = Rest(server)
    yield client
    client.close()


@pytest.fixture(scope="module")
def sdk(server: Server) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(server.connection_string) as client:
        yield client


def received(sdk: ServiceBusClient, queue: str) -> ServiceBusReceivedMessage:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with sdk.get_queue_receiver(queue, receive_mode=mode) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=30)
    return message


# --- One message ---------------------------------------------------------------------------------


def test_what_is_sent_is_there_for_the_sdk_with_all_that_was_said(
    rest: Rest, sdk: ServiceBusClient
) -> None:
    broker = {
        "MessageId": "id-1",
        "CorrelationId": "correlated",
        "Label": "greeting",
        "To": "you",
        "ReplyTo": "me",
        "ReplyToSessionId": "back",
        "PartitionKey": "key",
        "TimeToLive": 90.5,
        "ForcePersistence": True,
        "NobodyKnowsThis": {"a": 1},
    }
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Text": '"Gr\\u00fc\\u00dfe"',
        "Bare": "no quotes",
        "Yes": "true",
        "Count": "5",
        "Large": "5000000000",
        "Ratio": "0.25",
        "When": '"Sun, 06 Nov 1994 08:49:37 GMT"',
        "Nothing": "null",
        "BuswayProperties": json.dumps({"two words": 1, "Date": "any"}),
        "x-ms-retrypolicy": "NoRetry",
        "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    assert rest.send("plain", "Grüße", broker, headers).status == 201
    message = received(sdk, "plain")
    assert b"".join(message.body) == "Grüße".encode()
    assert message.message_id == "id-1"
    assert message.correlation_id == "correlated"
    assert message.subject == "greeting"
    assert message.to == "you"
    assert message.reply_to == "me"
    assert message.reply_to_session_id == "back"
    assert message.partition_key == "key"
    assert message.time_to_live == timedelta(seconds=90.5)
    assert message.content_type == "text/plain; charset=utf-8"
    properties = {
        (name.decode() if isinstance(name, bytes) else name): _text(value)
        for name, value in (message.application_properties or {}).items()
    }
    assert properties == {
        "Text": "Grüße",
        "Bare": "no quotes",
        "Yes": True,
        "Count": 5,
        "Large": 5_000_000_000,
        "Ratio": 0.25,
        "When": 784111777000,
        "Nothing": None,
        "two words": 1,
        "Date": "any",
    }


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def test_the_reply_is_empty_and_says_so(rest: Rest) -> None:
    reply = rest.send("plain", "a body")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (201, b"", "0")
    rest.taken("plain", 1)


def test_a_message_needs_no_body_and_no_properties(rest: Rest) -> None:
    rest.sent("plain", b"")
    reply = rest.delete("plain")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (200, b"", "0")
    assert len(reply.broker["MessageId"]) == 32  # given, as on AMQP


def test_bytes_stay_bytes(rest: Rest) -> None:
    body = bytes(range(256)) * 4
    rest.sent("plain", body)
    assert rest.delete("plain").body == body


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_headers_beyond_ascii_are_utf_8_or_else_latin_1(
    rest: Rest, server: Server, encoding: str
) -> None:
    head = raw_request(server, "POST", "/plain/messages", "Content-Length: 0").decode()
    said = f'{head[:-2]}BrokerProperties: {{"Label": "für"}}\r\nName: süß\r\n\r\n'
    with open_socket(server) as wire:
        wire.sendall(said.encode(encoding))
        assert wire.recv(12) == b"HTTP/1.1 201"
    reply = rest.delete("plain")
    assert reply.broker["Label"] == "für"
    assert json.loads(reply.headers["name"]) == "süß"


def test_a_body_may_come_in_pieces(rest: Rest, server: Server) -> None:
    """http.md section 1 (5): chunked, and after a question whether it is welcome."""
    with open_socket(server) as wire:
        wire.sendall(
            raw_request(
                server,
                "POST",
                "/plain/messages",
                "Transfer-Encoding: chunked",
                "Expect: 100-continue",
            )
        )
        assert wire.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.sendall(b"5\r\nhello\r\n")
        wire.sendall(b"6\r\n world\r\n0\r\n\r\n")
        assert wire.recv(12) == b"HTTP/1.1 201"
    assert rest.taken("plain", 1) == ["hello world"]


def test_many_requests_go_over_one_connection(rest: Rest, server: Server) -> None:
    """http.md section 1 (5)."""
    with open_socket(server) as wire:
        wire.sendall(raw_request(server, "POST", "/plain/messages", "Content-Length: 0") * 20)
        said = b""
        while said.count(b"HTTP/1.1 201") < 20:
            piece = wire.recv(65536)
            assert piece
            said += piece
    rest.taken("plain", 20)


# --- Time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["rfc 1123", "iso 8601"])
def test_a_scheduled_message_comes_at_its_time(rest: Rest, written: str) -> None:
    """SCH-1."""
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6)
    text = format_datetime(due, usegmt=True) if written == "rfc 1123" else due.isoformat()
    rest.sent("parts", "later", ScheduledEnqueueTimeUtc=text)
    assert rest.is_empty("parts")
    reply = rest.delete("parts")
    assert reply.text == "later"
    assert reply.broker["ScheduledEnqueueTimeUtc"] == format_datetime(due, usegmt=True)
    assert time.time() >= due.timestamp() - 0.5  # broker time is not the machine's clock (D-25)


def test_what_is_scheduled_for_the_past_is_there_at_once(rest: Rest) -> None:
    rest.sent("plain", "now", ScheduledEnqueueTimeUtc="Sun, 06 Nov 1994 08:49:37 GMT")
    assert rest.taken("plain", 1) == ["now"]


def test_a_message_lives_as_long_as_it_says(rest: Rest) -> None:
    """TTL-1, TTL-4."""
    rest.sent("plain", "gone", TimeToLive=0.2)
    rest.sent("plain", "there", TimeToLive=60)
    deadline = time.monotonic() + 120
    while (found := rest.locked("plain")).text == "gone":
        assert time.monotonic() < deadline
        rest.unlock(found)
    assert found.text == "there"
    assert found.broker["TimeToLive"] == 60
    rest.complete(found)


@pytest.mark.parametrize("forever", [922337203685.4775, 1e300, 10**400], ids=["net", "", "huge"])
def test_the_longest_time_to_live_is_none(rest: Rest, forever: float) -> None:
    rest.sent("plain", "for ever", TimeToLive=forever)
    assert "TimeToLive" not in rest.delete("plain").broker


@pytest.mark.parametrize("queue", ["plain", "parts"])
@pytest.mark.parametrize(
    "said", [{"TimeToLive": 100 * 86_400}, {"TimeToLiveTimeSpan": "100.00:00:00"}]
)
def test_a_time_to_live_may_be_longer_than_a_header_of_amqp_can_say(
    rest: Rest, queue: str, said: dict[str, Any]
) -> None:
    """TTL-1: 32 bits of milliseconds are 49 days."""
    rest.sent(queue, "long", **said)
    assert rest.delete(queue).broker["TimeToLive"] == 100 * 86_400


# --- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("[]", "is not a JSON object"),
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 30_000, "nested too deeply"),
        ('{"TimeToLive": NaN}', "NaN is not JSON"),
        ('{"TimeToLive": 0}', "must be above zero"),
        ('{"TimeToLive": -1}', "must be above zero"),
        ('{"TimeToLive": "5"}', "must be a number of seconds"),
        ('{"TimeToLive": true}', "must be a number of seconds"),
        ('{"TimeToLiveTimeSpan": "soon"}', "time span"),
        ('{"MessageId": 5}', "must be text in quotes"),
        ('{"Label": ["a"]}', "must be text in quotes"),
        ('{"Label": "\\ud800"}', "surrogate"),
        ('{"ScheduledEnqueueTimeUtc": "soon"}', "must be an instant"),
        ('{"MessageId": "' + "x" * 129 + '"}', "more than 128 characters"),
        ('{"SessionId": "a", "PartitionKey": "b"}', "must be the same"),  # P-20
    ],
)
def test_broker_properties_that_make_no_sense_are_refused(
    rest: Rest, header: str, said: str
) -> None:
    reply = rest.send("parts", "x", headers={"BrokerProperties": header})
    assert reply.status == 400, reply.text
    assert said in reply.text
    assert rest.is_empty("parts")


@pytest.mark.parametrize(
    ("entity", "status", "said"),
    [
        ("nowhere", 410, "could not be found"),
        ("news/subscriptions/all", 400, "Send to its queue or topic instead"),
        ("news/subscriptions/nobody", 410, "could not be found"),
        ("plain/$DeadLetterQueue", 400, "Send to its queue or topic instead"),
        ("off", 400, "is currently disabled"),
        ("full", 400, "is currently disabled for Send operations"),
        ("sessions", 400, "The SessionId was not set"),
        ("once", 400, "must have either PartitionKey or MessageId"),  # P-21
    ],
)
def test_some_places_take_no_messages(rest: Rest, entity: str, status: int, said: str) -> None:
    reply = rest.send(entity, "x")
    assert reply.status == status
    assert said in reply.text


@pytest.mark.parametrize("how", ["length", "chunks", "properties", "batch"])
def test_a_message_that_is_too_large_is_refused(rest: Rest, how: str) -> None:
    """LIM-1: 403, and the connection goes on."""
    body: Any = b"x" * (256 * 1024)
    match how:
        case "length":
            reply = rest.send("plain", body + b"x")
        case "chunks":
            reply = rest.request("POST", "/plain/messages", iter([body, b"x"]))  # type: ignore[arg-type]
        case "properties":
            reply = rest.send("plain", body)
        case _:
            reply = rest.batch("plain", [{"Body": "x" * 100_000}] * 3)
    assert reply.status == 403, reply.text
    assert "exceeds the limit" in reply.text
    assert rest.is_empty("plain")


# --- Batches -------------------------------------------------------------------------------------


def test_a_batch_is_several_messages(rest: Rest, sdk: ServiceBusClient) -> None:
    items = [
        {"Body": "first"},
        {
            "Body": "zweite: ü",
            "BrokerProperties": {
                "Label": "M2",
                "TimeToLiveTimeSpan": "0.00:01:40",
                "ContentType": "text/x",
            },
            "UserProperties": {"Priority": "High", "n": 3, "f": 1.5, "b": False, "none": None},
        },
    ]
    reply = rest.batch("plain", items)
    assert (reply.status, reply.body) == (201, b"")
    assert rest.taken("plain", 1) == ["first"]
    second = rest.delete("plain")
    assert second.text == "zweite: ü"
    assert second.broker["Label"] == "M2"
    assert second.broker["TimeToLive"] == 100
    assert second.headers["content-type"] == "text/x"
    names = ("priority", "n", "f", "b", "none")
    assert [second.headers[name] for name in names] == ['"High"', "3", "1.5", "false", "null"]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "The batch has no messages"),
        ({}, "A batch is a JSON array of objects"),
        ("not json", "The batch is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ([{"Body": "a"}, 5], "Message 1 of the batch is not a JSON object"),
        ([{"Body": "a"}, {}], "has no 'Body'"),
        ([{"Body": "a"}, {"Body": 5}], "one that is not text"),
        ('[{"Body": "\\ud800"}]', "surrogate"),
        ([{"Body": "a"}, {"Body": "b", "BrokerProperties": []}], "must be JSON objects"),
        ([{"Body": "a"}, {"Body": "b", "BrokerProperties": "x"}], "must be JSON objects"),
        ([{"Body": "a"}, {"Body": "b", "UserProperties": {"x": []}}], "list or an object"),
        ([{"Body": "a"}, {"Body": "b", "BrokerProperties": {"TimeToLive": 0}}], "above zero"),
        ([{"Body": "a"}, {"Body": "b", "BrokerProperties": {"Label": 1}}], "text in quotes"),
        (
            [
                {"Body": "a", "BrokerProperties": {"PartitionKey": "x"}},
                {"Body": "b", "BrokerProperties": {"PartitionKey": "y"}},
            ],
            "distinct SessionId or PartitionKey",
        ),
    ],
)
def test_a_batch_is_taken_whole_or_not_at_all(rest: Rest, items: Any, said: str) -> None:
    """MSG-7, PRT-7."""
    reply = rest.batch("parts", items)
    assert reply.status == 400, reply.text
    assert said in reply.text
    assert rest.is_empty("parts")


def test_a_batch_of_one_key_stays_in_order(rest: Rest) -> None:
    items = [{"Body": str(n), "BrokerProperties": {"PartitionKey": "k"}} for n in range(10)]
    assert rest.batch("parts", items).status == 201
    assert rest.taken("parts", 10) == [str(n) for n in range(10)]


# --- Partitions ----------------------------------------------------------------------------------


def partition_of_reply(broker: dict[str, Any]) -> int:
    return int(broker["SequenceNumber"]) >> 48


def test_messages_without_a_key_take_the_partitions_in_turn(rest: Rest) -> None:
    """P-22."""
    rest.sent("parts", *(str(n) for n in range(32)))
    partitions = [partition_of_reply(rest.delete("parts").broker) for _ in range(32)]
    assert sorted(partitions) == sorted([*range(16), *range(16)])


@pytest.mark.parametrize("name", ["PartitionKey", "SessionId"])
def test_a_key_says_the_partition(rest: Rest, name: str) -> None:
    """P-18, P-19."""
    for key in ("a", "b", "c"):
        rest.sent("parts", "x", "y", **{name: key})
        found = [rest.delete("parts").broker for _ in range(2)]
        assert {partition_of_reply(each) for each in found} == {partition_of_key(key, 16)}
        assert {each[name] for each in found} == {key}


def test_duplicates_are_taken_and_dropped(rest: Rest) -> None:
    """DUP-2, P-21."""
    rest.sent("once", "first", "second", MessageId="same")
    rest.sent("once", "other", MessageId="another")
    assert sorted(rest.taken("once", 2)) == ["first", "other"]
    assert rest.is_empty("once")


def test_a_topic_gives_each_subscription_its_copy(rest: Rest) -> None:
    rest.sent("news", "calm", Label="alarm")
    assert rest.send("news", "fire", {"Label": "alarm"}, {"Level": "5"}).status == 201
    assert rest.send("news", "no alarm", {"Label": "x"}, {"Level": "5"}).status == 201
    assert sorted(rest.taken("news/subscriptions/all", 3)) == ["calm", "fire", "no alarm"]
    assert rest.taken("news/Subscriptions/urgent", 1) == ["fire"]
    assert rest.is_empty("news/subscriptions/urgent")


def test_a_session_can_be_sent_to(rest: Rest, sdk: ServiceBusClient) -> None:
    rest.sent("sessions", "in it", SessionId="s1")
    with sdk.get_queue_receiver("sessions", session_id="s1") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=30)
        assert str(message) == "in it"
        assert message.session_id == "s1"
        receiver.complete_message(message)
