"""A received message that is sent again, as the SDK lets one do it: the usual way to resubmit.

The SDK reads strings as octets and writes binaries for them, so that nearly every property has
another type the second time. The broker takes them as the texts that they are.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from tests.sdk.conftest import QueueUnderTest
from tests.sdk.test_contents import BODIES, PROPERTY_VALUES

FIELDS: dict[str, Any] = {
    "message_id": "an id",
    "correlation_id": "another's id",
    "content_type": "application/json; charset=utf-8",
    "subject": "order placed, für dich",
    "to": "somewhere",
    "reply_to": "answers",
    "reply_to_session_id": "answers of one",
    "session_id": "one",
    "partition_key": "one",
    "time_to_live": timedelta(hours=1),
}


INT_MAX = 2**31 - 1
"""The SDK writes what it has read as an integer with 32 bits, or not at all."""


def resend(queue: QueueUnderTest, messages: Any) -> None:
    for message in messages if isinstance(messages, list) else [messages]:
        annotations = message.raw_amqp_message.annotations
        if annotations[b"x-opt-sequence-number"] > INT_MAX:  # has the partition in it (P-31)
            del annotations[b"x-opt-sequence-number"]
    queue.sender.send_messages(messages)


def again(queue: QueueUnderTest, *messages: Any) -> dict[str, Any]:
    """Send, receive, send what was received and settle it, twice; the last ones by their ids."""
    queue.send(*messages)
    for _ in range(2):
        for message in queue.receive(len(messages)):
            resend(queue, message)
            queue.receiver.complete_message(message)
    return {each.message_id or "": each for each in queue.receive(len(messages))}


def test_each_property_survives_alone_and_with_the_others(queue: QueueUnderTest) -> None:
    shapes = {name: {name: value} for name, value in FIELDS.items()}
    shapes["session_id"]["partition_key"] = "one"
    shapes |= {"all": FIELDS, "none": {}}
    shapes = {name: {**fields, "message_id": name} for name, fields in shapes.items()}
    received = again(queue, *(ServiceBusMessage("x", **fields) for fields in shapes.values()))
    assert received.keys() == shapes.keys()
    for name, fields in shapes.items():
        assert {field: getattr(received[name], field) for field in fields} == fields
        assert received[name].delivery_count == 0


def test_application_properties_survive(queue: QueueUnderTest) -> None:
    """Texts come back as octets: the SDK shows them so and says no more of them."""
    values = {
        name: each
        for name, each in PROPERTY_VALUES.items()
        # Octets are read as UTF-8 by the SDK when it sends them again.
        if name != "binary" and (not isinstance(each[1], int) or abs(each[1]) <= INT_MAX)
    }
    sent = {name: value for name, (value, _) in values.items()}
    message = ServiceBusMessage("typed", message_id="typed", application_properties=sent)
    shown = {name.encode(): value for name, (_, value) in values.items()}
    assert again(queue, message)["typed"].application_properties == shown


def test_bodies_survive(queue: QueueUnderTest) -> None:
    messages = [
        AmqpAnnotatedMessage(**sent, properties={"message_id": name})
        for name, (sent, _, _) in BODIES.items()
    ]
    received = again(queue, *messages)
    assert received.keys() == BODIES.keys()
    for name, (_, body_type, shown) in BODIES.items():
        body = received[name].body
        assert received[name].body_type == body_type
        assert (body if body_type is AmqpMessageBodyType.VALUE else list(body)) == shown


def test_every_section_survives(queue: QueueUnderTest) -> None:
    sent = AmqpAnnotatedMessage(
        data_body=b"all of it",
        header={"durable": True, "priority": 9},
        delivery_annotations={"x-opt-way": "by air", "x-opt-none": None},
        annotations={"x-opt-mine": 5},
        properties={"message_id": "whole"},
        application_properties={"a": 1},
        footer={"checksum": 99},
    )
    message = again(queue, sent)["whole"]
    raw = message.raw_amqp_message
    assert (raw.header.durable, raw.header.priority) == (True, 9)
    assert raw.annotations[b"x-opt-mine"] == 5
    assert raw.application_properties == {b"a": 1}
    assert raw.footer == {b"checksum": 99}
    assert raw.delivery_annotations == {
        b"x-opt-lock-token": message.lock_token,
        b"x-opt-way": b"by air",
        b"x-opt-none": None,
    }


def test_a_batch_of_received_messages_is_sent(queue: QueueUnderTest) -> None:
    fields = {**FIELDS, "message_id": None}
    queue.send(*(ServiceBusMessage(f"m{n}", **fields) for n in range(5)))
    messages = queue.receive(5)
    resend(queue, messages)
    for message in messages:
        queue.receiver.complete_message(message)
    received = queue.receive(5)
    assert sorted(str(each) for each in received) == [f"m{n}" for n in range(5)]
    assert {each.subject for each in received} == {FIELDS["subject"]}


@pytest.mark.queue(requires_duplicate_detection=True)
def test_the_id_is_still_the_same(queue: QueueUnderTest) -> None:
    """DUP-1: a message sent again is a duplicate, whatever type its id has now."""
    queue.send(ServiceBusMessage("first", message_id="an id"))
    message = queue.receive_one()
    resend(queue, message)
    queue.receiver.complete_message(message)
    queue.send(ServiceBusMessage("last", message_id="another id"))
    assert str(queue.receive_one()) == "last"


def test_a_dead_letter_is_sent_again(queue: QueueUnderTest, dead_letters: Any) -> None:
    queue.send(ServiceBusMessage("dead", **FIELDS))
    queue.receiver.dead_letter_message(queue.receive_one(), reason="because")
    (dead,) = queue.receive_from(queue.dead_letters)
    resend(queue, dead)
    queue.dead_letters.complete_message(dead)
    alive = queue.receive_one()
    assert {name: getattr(alive, name) for name in FIELDS} == FIELDS
