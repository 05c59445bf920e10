"""Receiving with HTTP requests (http.md section 9): peek-lock, receive-and-delete, waiting."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from busway.amqp import codec
from busway.testing import Server
from tests.http.rest_client import ANSWER_S, Rest, open_socket, raw_request, until

CONFIG = """
[[queues]]
name = "plain"

[[queues]]
name = "parts"
partitioned = true

[[queues]]
name = "shared"
partitioned = true

[[queues]]
name = "brief"
max_delivery_count = 2

[[queues]]
name = "sessions"
requires_session = true

[[queues]]
name = "off"
status = "ReceiveDisabled"

[[queues]]
name = "forwards"
forward_to = "plain"

[[topics]]
name = "news"

[[topics.subscriptions]]
name = "all"
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


MILLISECOND = 0.001
"""The server counts in whole ones: what it waits may be less by a part of one."""


def moment(text: str) -> datetime:
    return parsedate_to_datetime(text).replace(tzinfo=UTC)


# --- What comes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["plain", "parts"])
def test_a_locked_message_says_all_about_itself(rest: Rest, server: Server, queue: str) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    reply = rest.send(
        queue,
        "a body",
        {"MessageId": "m", "Label": "l", "CorrelationId": "c", "PartitionKey": "k", "To": "t"},
        {"Content-Type": "text/plain", "Customer": '"ABC"', "Amount": "12"},
    )
    assert reply.status == 201
    found = rest.locked(queue)
    assert found.text == "a body"
    assert found.headers["content-type"] == "text/plain"
    assert (found.headers["customer"], found.headers["amount"]) == ('"ABC"', "12")
    said = found.broker
    number, token = said["SequenceNumber"], said["LockToken"]
    authority = f"localhost:{server.port}"
    assert found.headers["location"] == f"http://{authority}/{queue}/messages/{number}/{token}"
    assert str(UUID(token)) == token
    assert before <= moment(said["EnqueuedTimeUtc"]) < moment(said["LockedUntilUtc"])
    assert {name: said[name] for name in ("MessageId", "Label", "CorrelationId", "To")} == {
        "MessageId": "m",
        "Label": "l",
        "CorrelationId": "c",
        "To": "t",
    }
    assert said["PartitionKey"] == "k"
    assert (said["DeliveryCount"], said["State"], said["EnqueuedSequenceNumber"]) == (
        1,
        "Active",
        0,
    )
    assert rest.complete(found).status == 200


def test_what_is_deleted_has_no_lock(rest: Rest) -> None:
    """D-6."""
    rest.sent("plain", "once")
    reply = rest.delete("plain")
    assert (reply.status, reply.text) == (200, "once")
    assert not {"LockToken", "LockedUntilUtc"} & set(reply.broker)
    assert "location" not in reply.headers
    assert rest.is_empty("plain")


def test_the_location_is_as_the_client_wrote_its_request(rest: Rest, server: Server) -> None:
    rest.sent("plain", "x")
    path = "/Plain/Messages/Head?timeout=30"
    reply = rest.request("POST", path, headers={"Host": f"127.0.0.1:{server.port}"})
    assert reply.headers["location"].startswith(f"http://127.0.0.1:{server.port}/Plain/Messages/")
    assert rest.complete(reply).status == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_client_finds_its_request_again(rest: Rest, method: str) -> None:
    """http.md section 8."""
    said = {"x-ms-client-request-id": "mine-17"}
    assert rest.send("plain", "x", headers=said).headers["x-ms-client-request-id"] == "mine-17"
    reply = rest.request(method, "/plain/messages/head?timeout=30", headers=said)
    assert reply.headers["x-ms-client-request-id"] == "mine-17"
    if method == "POST":
        assert rest.complete(reply).status == 200


def test_a_partitioned_queue_gives_all_it_has(rest: Rest) -> None:
    """P-26, P-29, P-46: whichever partitions they are in, and each once."""
    rest.sent("parts", *(str(n) for n in range(40)))
    assert sorted(rest.taken("parts", 40), key=int) == [str(n) for n in range(40)]
    assert rest.is_empty("parts")


def test_a_deferred_message_is_not_received(rest: Rest, sdk: ServiceBusClient) -> None:
    """DEF-1: only its number brings it back, and requests have no operation for that."""
    rest.sent("plain", "for later")
    with sdk.get_queue_receiver("plain") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=30)
        receiver.defer_message(message)
        assert message.sequence_number is not None
        assert rest.is_empty("plain")
        (message,) = receiver.receive_deferred_messages(message.sequence_number)
        receiver.complete_message(message)


# --- What came by AMQP ---------------------------------------------------------------------------


def test_properties_of_every_type_come_as_headers(rest: Rest, sdk: ServiceBusClient) -> None:
    number = uuid4()
    properties: dict[Any, Any] = {
        "Text": 'quoted "text", ü, \r\nInjected: yes',
        "Flag": True,
        "Count": 5,
        "Ratio": 0.5,
        "Id": number,
        "When": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "two words": "a name that no header can have",
        "ключ": 1,
        "Transfer-Encoding": "chunked",
        "content-length": 0,
        "Location": "http://evil.example/",
        "Set-Cookie": "a=b",
        "BrokerProperties": "{}",
    }
    with sdk.get_queue_sender("plain") as sender:
        sender.send_messages(ServiceBusMessage(b"x", application_properties=properties))
    reply = rest.locked("plain")
    header = reply.headers
    assert json.loads(header["text"]) == 'quoted "text", ü, \r\nInjected: yes'
    assert "injected" not in header
    assert (header["flag"], header["count"], header["ratio"]) == ("true", "5", "0.5")
    assert header["id"] == f'"{number}"'
    assert header["when"] == '"Fri, 02 Jan 2026 03:04:05 GMT"'
    assert json.loads(header["buswayproperties"]) == {
        "two words": "a name that no header can have",
        "ключ": 1,
        "Transfer-Encoding": "chunked",
        "content-length": 0,
        "Location": "http://evil.example/",
        "Set-Cookie": "a=b",
        "BrokerProperties": "{}",
    }
    assert reply.text == "x"
    assert "set-cookie" not in header
    assert rest.complete(reply).status == 200


def test_what_is_received_can_be_sent_again_as_it_was(rest: Rest, sdk: ServiceBusClient) -> None:
    properties: dict[Any, Any] = {"Text": "ü", "Flag": False, "Count": 5, "two words": 1.5}
    with sdk.get_queue_sender("plain") as sender:
        sender.send_messages(ServiceBusMessage(b"x", application_properties=properties))
    first = rest.delete("plain")
    again = {
        name: value for name, value in first.headers.items() if name in ("text", "flag", "count")
    }
    again["BuswayProperties"] = first.headers["buswayproperties"]
    assert rest.send("plain", first.body, headers=again).status == 201
    second = rest.delete("plain")
    for name in ("text", "flag", "count", "buswayproperties"):
        assert second.headers[name] == first.headers[name]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"data_body": [b"one ", b"two"]}, b"one two"),
        ({"value_body": "Grüße"}, "Grüße".encode()),
        ({"value_body": b"\x00\xff"}, b"\x00\xff"),
        ({"value_body": {"a": 1}}, None),
        ({"sequence_body": [[1, "a"], [True]]}, None),
    ],
    ids=["data", "text", "binary", "map", "sequence"],
)
def test_every_body_has_a_form(
    rest: Rest, sdk: ServiceBusClient, body: dict[str, Any], expected: bytes | None
) -> None:
    message = AmqpAnnotatedMessage(
        **body, properties=AmqpMessageProperties(content_type="some/thing", message_id=b"\x01")
    )
    with sdk.get_queue_sender("plain") as sender:
        sender.send_messages(message)
    reply = rest.delete("plain")
    assert reply.headers["content-type"] == "some/thing"
    if expected is not None:
        assert reply.body == expected
        return
    value, end = codec.decode_value(reply.body)  # otherwise its encoded form
    if "value_body" in body:
        assert (value, end) == ({"a": 1}, len(reply.body))
    else:
        assert (value, codec.decode_value(reply.body, end)[0]) == ([1, "a"], [True])


# --- Sub-queues ----------------------------------------------------------------------------------


def test_dead_letters_are_received_where_they_are(rest: Rest) -> None:
    """DLV-3, DLQ-2: the reason is among the properties."""
    rest.sent("brief", "poison")
    for _ in range(2):
        assert rest.unlock(rest.locked("brief")).status == 200
    assert rest.is_empty("brief")
    found = rest.locked("brief/$DeadLetterQueue")
    assert found.text == "poison"
    assert found.headers["deadletterreason"] == '"MaxDeliveryCountExceeded"'
    assert "deadlettererrordescription" in found.headers
    assert f"/brief/$DeadLetterQueue/messages/{found.broker['SequenceNumber']}/" in found.location
    assert rest.complete(found).status == 200
    assert rest.is_empty("brief/$deadletterqueue")


def test_a_subscription_has_a_dead_letter_queue_too(rest: Rest, sdk: ServiceBusClient) -> None:
    rest.sent("news", "bad news")
    with sdk.get_subscription_receiver("news", "all") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=30)
        receiver.dead_letter_message(message, reason="too bad", error_description="für alle")
    found = rest.delete("news/subscriptions/all/$DeadLetterQueue")
    assert found.text == "bad news"
    assert found.headers["deadletterreason"] == '"too bad"'
    assert json.loads(found.headers["deadlettererrordescription"]) == "für alle"
    assert rest.is_empty("news/subscriptions/all")


def test_what_could_not_be_forwarded_is_a_dead_letter(rest: Rest) -> None:
    """FWD-4: the queue that it was to go to is no more."""
    for name, forward_to in (("aim", None), ("bow", "aim")):
        assert rest.request("PUT", f"/{name}?api-version=2021-05", queue(forward_to)).status == 201
    assert rest.request("DELETE", "/aim?api-version=2021-05").status == 200
    rest.sent("bow", "astray")
    assert rest.taken("bow/$DeadLetterQueue", 1) == ["astray"]
    assert rest.is_empty("bow/$Transfer/$DeadLetterQueue")


def queue(forward_to: str | None = None) -> str:
    """A description for management."""
    inner = "" if forward_to is None else f"<ForwardTo>{forward_to}</ForwardTo>"
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        '<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/'
        f'connect">{inner}</QueueDescription></content></entry>'
    )


@pytest.mark.parametrize(
    ("entity", "status", "said"),
    [
        ("nowhere", 410, "could not be found"),
        ("news/subscriptions/nobody", 410, "could not be found"),
        ("news", 404, "Receive from one of its subscriptions"),
        ("news/$DeadLetterQueue", 410, "could not be found"),
        ("sessions", 400, "non-sessionful message receiver"),
        ("off", 400, "is currently disabled for Receive operations"),
        ("forwards", 400, "auto-forwarding"),
        ("plain/$Transfer", 404, "could not be found"),
        ("plain/$Elsewhere", 404, "could not be found"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_some_places_give_no_messages(
    rest: Rest, method: str, entity: str, status: int, said: str
) -> None:
    reply = rest.request(method, f"/{entity}/messages/head?timeout=0")
    assert reply.status == status
    assert said in reply.text


# --- Waiting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["plain", "parts"])
@pytest.mark.parametrize("timeout", ["0", "0.2", "1"])
def test_nothing_in_time_is_204(rest: Rest, queue: str, timeout: str) -> None:
    started = time.monotonic()
    reply = rest.peek_lock(queue, timeout)
    assert (reply.status, reply.body) == (204, b"")
    assert time.monotonic() - started >= float(timeout) - MILLISECOND


@pytest.mark.parametrize("timeout", ["", "-1", "soon", "1e3", "NaN", "1,5", "٣", "9" * 10])
def test_a_timeout_is_a_number_of_seconds(rest: Rest, timeout: str) -> None:
    reply = rest.peek_lock("plain", quote(timeout))
    assert reply.status == 400
    assert "number of seconds" in reply.text


@pytest.mark.parametrize("queue", ["plain", "parts"])
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_who_waits_gets_what_comes(rest: Rest, server: Server, queue: str, method: str) -> None:
    with open_socket(server) as wire:
        wire.sendall(raw_request(server, method, f"/{queue}/messages/head"))
        rest.sent(queue, "at last")
        said = read_reply(wire)
    assert said.endswith(b"at last")
    assert said.startswith(b"HTTP/1.1 201" if method == "POST" else b"HTTP/1.1 200")


def read_reply(wire: socket.socket) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        piece = wire.recv(65536)
        assert piece, said
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    (length,) = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while len(body) < length:
        body += wire.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("queue", ["plain", "parts"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_who_leaves_while_it_waits_takes_nothing_along(
    rest: Rest, server: Server, queue: str, how: str
) -> None:
    """A message that is delivered meanwhile is released, its count unchanged (DLV-1)."""
    for round_ in range(5):
        gone = [open_socket(server) for _ in range(4)]
        for wire in gone:
            wire.sendall(raw_request(server, "POST", f"/{queue}/messages/head"))
        for wire in gone:
            if how == "reset":
                linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            wire.close()
        rest.sent(queue, f"kept {round_}")
        found = rest.locked(queue)
        assert found.text == f"kept {round_}"
        assert found.broker["DeliveryCount"] == 1
        assert rest.complete(found).status == 200
        assert rest.is_empty(queue)


def test_a_waiting_request_ends_when_its_queue_does(rest: Rest, server: Server) -> None:
    """STA-5."""
    assert rest.request("PUT", "/doomed?api-version=2021-05", queue()).status == 201
    with open_socket(server) as first, open_socket(server) as second:
        for wire in (first, second):
            wire.sendall(raw_request(server, "POST", "/doomed/messages/head"))
        # Asked later and answered after a while: the two before are waiting by now.
        assert rest.peek_lock("doomed", 0.2).status == 204
        assert rest.request("DELETE", "/doomed?api-version=2021-05").status == 200
        for wire in (first, second):
            assert read_reply(wire).startswith(b"HTTP/1.1 410")


# --- Others --------------------------------------------------------------------------------------


def test_requests_take_turns_with_each_other_and_with_links(
    rest: Rest, server: Server, sdk: ServiceBusClient
) -> None:
    """P-26: whoever waits gets its share, and each message goes to one of them.

    How large a share is depends on how fast each of them asks again; so it goes on until all have
    had theirs, which who is passed over never has.
    """
    share, count, lock = 20, 0, threading.Lock()
    got: dict[str, list[str]] = {"a": [], "b": [], "link": []}
    over = threading.Event()

    def by_requests(name: str) -> None:
        client = Rest(server)
        while not over.is_set():
            if (reply := client.delete("shared", timeout=1)).status == 200:
                with lock:
                    got[name].append(reply.text)
        client.close()

    def by_link() -> None:
        with sdk.get_queue_receiver("shared", prefetch_count=0) as receiver:
            opened.set()
            while not over.is_set():
                for message in receiver.receive_messages(max_message_count=5, max_wait_time=1):
                    receiver.complete_message(message)
                    with lock:
                        got["link"].append(str(message))

    def received() -> int:
        return sum(map(len, got.values()))

    opened = threading.Event()
    with ThreadPoolExecutor() as pool:
        link = pool.submit(by_link)
        assert opened.wait(ANSWER_S)
        waiting = [pool.submit(by_requests, name) for name in ("a", "b")]
        try:
            while count < 400 or min(map(len, got.values())) <= share:
                assert count < 8_000, {name: len(texts) for name, texts in got.items()}
                items = [{"Body": str(n)} for n in range(count, count + 50)]
                assert rest.batch("shared", items).status == 201
                count += 50
            until(lambda: received() >= count)
        finally:
            over.set()
        for each in (link, *waiting):
            each.result(ANSWER_S)
    assert sorted(int(text) for texts in got.values() for text in texts) == list(range(count))


def test_messages_on_disk_are_found_by_who_does_not_wait(tmp_path: Path) -> None:
    """After a restart they are in the store only, and have to be paged in."""
    server = Server("plain", partitioned=["parts"], data=tmp_path)
    with server:
        rest = Rest(server)
        for queue in ("plain", "parts"):
            rest.sent(queue, *(str(n) for n in range(20)))
        server.restart()
        for queue in ("plain", "parts"):
            rest = Rest(server)
            replies = [rest.delete(queue, timeout=0) for _ in range(21)]
            assert [reply.status for reply in replies] == [200] * 20 + [204]
            rest.close()


def test_who_waits_is_told_that_the_server_stops() -> None:
    with Server("plain") as server, open_socket(server) as waiting:
        waiting.sendall(raw_request(server, "POST", "/plain/messages/head"))
        assert Rest(server).peek_lock("plain", 0.2).status == 204
        assert server.stop() == 0
        said = read_reply(waiting)
    assert said.startswith(b"HTTP/1.1 503")
    assert b"shutting down" in said
