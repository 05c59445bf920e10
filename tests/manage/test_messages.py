"""`busway send|receive|peek`, checked against what Microsoft's SDK sees (both ways)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.manage.conftest import Line

LONG = "60s"
"""For what must come; nothing in a test waits for so long."""
KINDS = ["--partitioned", "--no-partitioned"]
ID = UUID("11111111-2222-3333-4444-555555555555")
MOMENT = datetime(2026, 11, 18, 1, 2, 3, 456_000, tzinfo=UTC)


def taken(line: Line, queue: str, count: int, **how: Any) -> list[Any]:
    found: list[Any] = []
    with (
        line.client() as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete", **how) as receiver,
    ):
        while len(found) < count:
            some = receiver.receive_messages(count - len(found), max_wait_time=60)
            assert some, f"{len(found)} of {count} came"
            found += some
    return found


def send(line: Line, queue: str, *messages: Any) -> None:
    with line.client() as client, client.get_queue_sender(queue) as sender:
        for each in messages:
            sender.send_messages(each)


def counts(line: Line, queue: str) -> dict[str, int]:
    found: dict[str, int] = line.told("queue", "show", queue)["counts"]
    return found


# --- Send ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_sdk_receives_what_was_sent_with_its_types(
    line: Line, new: Callable[..., str], kind: str
) -> None:
    queue = new(kind)
    line.said(
        "send", queue, "hello", "--message-id", "m-1", "--subject", "paid", "--correlation-id",
        "c-1", "--content-type", "text/plain", "--to", "you", "--reply-to", "me",
        "--reply-to-session-id", "s-2", "--partition-key", "k", "--ttl", "1h",
        "--property", "text=a=b", "--property", "i:int=-7", "--property", "l:long=7",
        "--property", "d:double=1.5", "--property", "f:bool=false", "--property", f"u:uuid={ID}",
        "--property", f"t:timestamp={MOMENT.isoformat()}", "--property", "b:binary=AAEC",
        "--property", "plain:colon=x",
    )  # fmt: skip
    (got,) = taken(line, queue, 1)
    assert (str(got), got.message_id, got.subject) == ("hello", "m-1", "paid")
    assert (got.correlation_id, got.content_type) == ("c-1", "text/plain")
    assert (got.to, got.reply_to, got.reply_to_session_id) == ("you", "me", "s-2")
    assert (got.partition_key, got.time_to_live) == ("k", timedelta(hours=1))
    assert got.application_properties == {
        b"text": b"a=b", b"i": -7, b"l": 7, b"d": 1.5, b"f": False, b"u": ID,
        b"t": int(MOMENT.timestamp() * 1000), b"b": b"\x00\x01\x02", b"plain:colon": b"x",
    }  # fmt: skip


def test_a_body_is_read_from_a_file_or_standard_input(
    line: Line, new: Callable[..., str], tmp_path: Path
) -> None:
    queue = new("--no-partitioned")
    (tmp_path / "body").write_bytes(b"\x00\xff\n")
    line.said("send", queue, "--file", str(tmp_path / "body"))
    line.said("send", queue, stdin=b"from\nhere\n")
    line.said("send", queue, "--lines", stdin=b"one\r\ntwo\n\nthree")
    assert [b"".join(each.body) for each in taken(line, queue, 6)] == [
        b"\x00\xff\n", b"from\nhere\n", b"one", b"two", b"", b"three",
    ]  # fmt: skip
    assert "cannot be read" in line.refused(2, "send", queue, "--file", str(tmp_path / "not"))


def test_a_session_and_a_time_to_come(line: Line, new: Callable[..., str]) -> None:
    queue = new("--requires-session")
    line.said("send", queue, "now", "--session-id", "a")
    line.said("send", queue, "later", "--session-id", "a", "--schedule", "2h")
    when = datetime.now(UTC) + timedelta(days=1)
    line.said("send", queue, "tomorrow", "--session-id", "b", "--schedule", when.isoformat())
    assert (counts(line, queue)["active"], counts(line, queue)["scheduled"]) == (1, 2)
    (got,) = taken(line, queue, 1, session_id="a")
    assert (str(got), got.session_id) == ("now", "a")
    later = line.lines("peek", queue, "--state", "scheduled")
    assert sorted(each["body"] for each in later) == ["later", "tomorrow"]
    at = next(each for each in later if each["body"] == "tomorrow")["scheduled_enqueue_time"]
    assert abs(datetime.fromisoformat(at) - when) < timedelta(milliseconds=2)
    assert "session" in line.refused(1, "send", queue, "without")


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_single_messages_to_a_receiver(
    line: Line, new: Callable[..., str], kind: str
) -> None:
    queue = new(kind)
    text = "".join(f"{n}\n" for n in range(250))
    told = line.told("send", queue, "--lines", "--batch", "100", "--partition-key", "k", stdin=text)
    assert told == {"entity": queue, "sent": 250}
    got = taken(line, queue, 250)
    assert [int(str(each)) for each in got] == list(range(250))
    assert len({each.message_id for each in got}) == 250
    line.said("send", queue, "same", "--count", "20", "--batch", "7")
    assert {str(each) for each in taken(line, queue, 20)} == {"same"}


def test_a_batch_is_all_or_nothing(line: Line, new: Callable[..., str]) -> None:
    """The last of them has no session, so none is stored."""
    queue = new("--requires-session", "--no-partitioned")
    objects = [{"body": "1", "session_id": "a"}, {"body": "2"}]
    text = "".join(json.dumps(each) + "\n" for each in objects)
    result = line.type("send", queue, "--json-lines", "--batch", "2", stdin=text)
    assert result.exit_code == 1, result.output
    assert counts(line, queue)["active"] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["send", "q", "x", "--ttl", "soon"], "--ttl is 'soon'"),
        (["send", "q", "x", "--schedule", "soon"], "--schedule is 'soon'"),
        (["send", "q", "x", "--property", "n:int=3000000000"], "'3000000000' is no int"),
        (["send", "q", "x", "--property", "none"], "must be like name=text or name:int=5"),
        (["send", "q", "x", "--count", "2", "--message-id", "m"], "--message-id names one"),
        (["send", "q", "x", "--lines"], "not both"),
        (["receive", "q", "--settle", "eat"], "must be one of complete, abandon"),
        (["receive", "q", "--reason", "x"], "are for --settle dead-letter"),
        (["receive", "q", "--wait", "soon"], "must be a duration such as 5s"),
        (["receive", "q", "--count", "many"], "must be a whole number"),
        (["receive", "q", "--session-id", "a", "--next-session"], "Leave one of them out"),
        (["peek", "q", "--state", "gone"], "must be one of active, scheduled"),
        (["peek", "q", "--where", "a >"], "--where is not a condition"),
    ],
    ids=lambda each: " ".join(each[2:]) if isinstance(each, list) else "",
)
def test_mistakes_are_said_before_anything_is_sent(line: Line, words: list[str], told: str) -> None:
    assert told in line.refused(2, *words)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "Line 1 is not JSON"),
        ("[1]", "Line 1 is not a JSON object"),
        ('{"colour": "red"}', "has no field 'colour'"),
        ('{"application_properties": {"a": {}}}', "must be a text, a number"),
        ('{"time_to_live": "PT0S"}', "above zero"),
        ('{"body_type": "poem"}', "it may be data, string"),
    ],
)
def test_a_line_that_is_no_message_is_said_so(line: Line, text: str, told: str) -> None:
    line.type("queue", "create", "strict")
    result = line.type("send", "strict", "--json-lines", stdin=text)
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert counts(line, "strict")["active"] == 0


# --- Receive -------------------------------------------------------------------------------------


def test_what_the_sdk_sent_is_told_with_its_types(line: Line, new: Callable[..., str]) -> None:
    queue = new("--no-partitioned")
    properties = {
        "s": "x", "i": 7, "d": 0.5, "f": True, "u": ID, "t": MOMENT,
    }  # fmt: skip
    send(
        line,
        queue,
        ServiceBusMessage(
            "hello", message_id="m", subject="s", session_id="a", correlation_id="c", to="t",
            reply_to="r", reply_to_session_id="rs", content_type="text/plain",
            time_to_live=timedelta(minutes=5), application_properties=properties,
        ),
    )  # fmt: skip
    (got,) = line.lines("receive", queue, "--wait", LONG)
    expected = {
        "message_id": "m", "subject": "s", "session_id": "a", "correlation_id": "c", "to": "t",
        "reply_to": "r", "reply_to_session_id": "rs", "content_type": "text/plain",
        "time_to_live": "PT5M", "body": "hello", "state": "active", "delivery_count": 0,
        "sequence_number": 1, "partition": 0,
    }  # fmt: skip
    assert {name: got[name] for name in expected} == expected
    told = got["application_properties"]
    assert (told["s"], told["d"], told["f"]) == ("x", 0.5, True)
    assert told["u"] == ["uuid", str(ID)]
    assert told["t"] == ["timestamp", int(MOMENT.timestamp() * 1000)]
    assert told["i"] == 7
    assert counts(line, queue)["active"] == 0


def messages_of_all_kinds() -> list[Any]:
    return [
        ServiceBusMessage("text", message_id="1", application_properties={"n": 1, "u": ID}),
        ServiceBusMessage(b"\x00\xff", message_id="2", time_to_live=timedelta(days=30)),
        AmqpAnnotatedMessage(data_body=[b"a", b"b"], properties={"message_id": ID}),
        AmqpAnnotatedMessage(value_body="value", properties={"message_id": "4"}),
        AmqpAnnotatedMessage(
            value_body={"k": [1, 2.5, None]}, properties={"message_id": "5"},
            annotations={"mine": 7}, header={"priority": 3, "durable": True},
            footer={"end": "x"},
        ),
        AmqpAnnotatedMessage(sequence_body=[[1, "a"], [True]], properties={"message_id": "6"}),
    ]  # fmt: skip


def seen(message: Any) -> dict[str, Any]:
    """All that a sender can say, as the SDK reads it."""
    raw = message.raw_amqp_message
    body = raw.body
    properties = dict(raw.properties)
    for name in ("creation_time", "absolute_expiry_time"):  # a life begins anew with a send
        properties.pop(name)
    annotations = {k: v for k, v in (raw.annotations or {}).items() if not k.startswith(b"x-opt-")}
    return {
        "kind": raw.body_type,
        "body": body if isinstance(body, dict | str | bytes) else list(body),
        "properties": properties,
        "user": raw.application_properties,
        "annotations": annotations,
        "header": {k: v for k, v in dict(raw.header).items() if k != "delivery_count"},
        "footer": raw.footer,
        "life": message.time_to_live,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_received_as_json_is_sent_again_exactly(
    line: Line, new: Callable[..., str], kind: str
) -> None:
    first, second = new(kind), new(kind)
    send(line, first, *messages_of_all_kinds())
    told = line.said("peek", first, "--count", "0", "--json")
    line.said("send", second, "--json-lines", stdin=told)
    count = len(messages_of_all_kinds())

    def by_id(queue: str) -> dict[str, Any]:
        return {str(each.message_id): seen(each) for each in taken(line, queue, count)}

    originals, copies = by_id(first), by_id(second)
    assert copies == originals
    assert len(copies) == count


@pytest.mark.parametrize("kind", KINDS)
def test_each_way_to_settle(line: Line, new: Callable[..., str], kind: str) -> None:
    queue = new(kind)
    line.said("send", queue, "--lines", "--partition-key", "k", stdin="a\nb\nc\nd\n")
    line.said("receive", queue, "--wait", LONG)
    line.said("receive", queue, "--wait", LONG, "--settle", "defer")
    line.said("receive", queue, "--wait", LONG, "--settle", "dead-letter", "--reason", "Bad",
              "--description", "very bad")  # fmt: skip
    (held,) = line.lines("receive", queue, "--wait", LONG, "--settle", "none")
    (back,) = line.lines("receive", queue, "--wait", LONG, "--settle", "abandon")
    (again,) = line.lines("receive", queue, "--wait", LONG, "--settle", "abandon")
    assert [each["delivery_count"] for each in (held, back, again)] == [0, 0, 1]
    found = counts(line, queue)
    assert (found["active"], found["deferred"], found["dead_letter"]) == (1, 1, 1)
    (dead,) = line.lines("peek", queue, "--dead-letter")
    assert (dead["dead_letter_reason"], dead["body"]) == ("Bad", "c")
    assert dead["dead_letter_error_description"] == "very bad"
    assert "application_properties" not in dead
    with (
        line.client() as client,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        (letter,) = receiver.receive_messages(1, max_wait_time=60)
        assert (letter.dead_letter_reason, str(letter)) == ("Bad", "c")
        receiver.abandon_message(letter)
    (deferred,) = line.lines("peek", queue, "--state", "deferred")
    number = str(deferred["sequence_number"])
    (kept,) = line.lines("receive", queue, "--sequence-number", number, "--settle", "abandon")
    assert (kept["body"], kept["state"]) == ("b", "deferred")
    line.said("receive", queue, "--sequence-number", number)
    assert counts(line, queue)["deferred"] == 0
    line.refused(5, "receive", queue, "--sequence-number", number)


def test_receive_and_delete_needs_no_locks(line: Line, new: Callable[..., str]) -> None:
    queue = new("--no-partitioned")
    line.said("send", queue, "--lines", stdin="a\nb\n")
    got = line.lines("receive", queue, "--receive-and-delete", "--wait", LONG, "--count", "2")
    assert [each["body"] for each in got] == ["a", "b"]
    assert all("lock_token" not in each for each in got)
    assert counts(line, queue)["active"] == 0


def test_all_that_is_there_comes_once_each(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    line.said("send", queue, "--lines", stdin="".join(f"{n}\n" for n in range(300)))
    bodies = line.said("receive", queue, "--count", "300", "--wait", LONG, "--body").split()
    assert sorted(map(int, bodies)) == list(range(300))
    assert counts(line, queue)["active"] == 0
    result = line.type("receive", queue, "--wait", "100ms")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No message came within 100ms" in result.stderr


def test_sessions_by_name_and_the_next_one(line: Line, new: Callable[..., str]) -> None:
    queue = new("--requires-session")
    for session in ("a", "b"):
        line.said(
            "send", queue, "--lines", "--session-id", session, stdin=f"{session}1\n{session}2"
        )
    got = line.lines("receive", queue, "--session-id", "b", "--count", "2", "--wait", LONG)
    assert [each["body"] for each in got] == ["b1", "b2"]
    got = line.lines("receive", queue, "--next-session", "--count", "2", "--wait", LONG)
    assert [(each["session_id"], each["body"]) for each in got] == [("a", "a1"), ("a", "a2")]
    empty = line.type("receive", queue, "--next-session", "--wait", "100ms")
    assert empty.exit_code == 0
    assert "No session has messages" in empty.stderr
    assert "session" in line.refused(1, "receive", queue)


def test_bodies_of_others_do_nothing_to_a_terminal(line: Line, new: Callable[..., str]) -> None:
    queue = new("--no-partitioned")
    line.said("send", queue, "a\x1b[31mred", "--subject", "x\x1b]0;title\x07")
    for verb in ("peek", "receive"):
        assert "\x1b" not in line.said(verb, queue)


# --- Peek ----------------------------------------------------------------------------------------


def test_a_peek_sees_all_partitions_from_a_number_on(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    line.said("send", queue, "--lines", stdin="".join(f"{n}\n" for n in range(600)))
    everything = line.lines("peek", queue, "--count", "0")
    assert sorted(int(each["body"]) for each in everything) == list(range(600))
    assert {each["partition"] for each in everything} == set(range(16))
    numbers = [each["sequence_number"] for each in everything]
    assert numbers == sorted(numbers)
    rest = line.lines("peek", queue, "--from", str(numbers[590]), "--count", "0")
    assert [each["sequence_number"] for each in rest] == numbers[590:]
    assert len(line.lines("peek", queue)) == 10
    head, *rows = line.said("peek", queue, "--count", "3").splitlines()
    assert head.split()[:3] == ["sequence", "number", "state"]
    assert len(rows) == 3
    assert counts(line, queue)["active"] == 600


def test_a_peek_with_a_condition(line: Line, new: Callable[..., str]) -> None:
    queue = new()
    for n in range(4):
        line.said("send", queue, f"{n}", "--property", f"n:int={n}", "--subject", "even"
                  if n % 2 == 0 else "odd", "--session-id", f"s{n}")  # fmt: skip
    found = line.lines("peek", queue, "--where", "n > 1 AND sys.Label = 'even'")
    assert [each["body"] for each in found] == ["2"]
    assert [each["body"] for each in line.lines("peek", queue, "--session-id", "s3")] == ["3"]
    assert "There are no such messages" in line.said("peek", queue, "--state", "transfer")
