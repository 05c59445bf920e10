"""What a message carries there and back: bodies, properties and annotations, unchanged (MSG-4)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from tests.sdk.conftest import QueueUnderTest

A_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
A_MOMENT = datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC)
A_MOMENT_MS = int(A_MOMENT.timestamp() * 1000)


def typed(amqp_type: str, value: Any) -> dict[str, Any]:
    """A value with its AMQP type said, as the SDK's encoder takes it."""
    return {TYPE: amqp_type, VALUE: value}


PROPERTY_VALUES = {
    # name: (what is sent, what the SDK shows of it on receipt). Of what the SDK can write, all but
    # decimal128 is here: it cannot read its own.
    "null": (None, None),
    "true": (True, True),
    "false": (False, False),
    "string": ("größer als 🚌", "größer als 🚌".encode()),
    "empty-string": ("", b""),
    "long-string": ("x" * 1000, b"x" * 1000),
    "int": (-123_456, -123_456),
    "small-int": (7, 7),
    "double": (3.141592653589793, 3.141592653589793),
    "infinity": (float("inf"), float("inf")),
    "uuid": (A_UUID, A_UUID),
    "datetime": (A_MOMENT, A_MOMENT_MS),
    "ubyte": (typed(AMQPTypes.ubyte, 255), 255),
    "ushort": (typed(AMQPTypes.ushort, 65_535), 65_535),
    "uint": (typed(AMQPTypes.uint, 2**32 - 1), 2**32 - 1),
    "ulong": (typed(AMQPTypes.ulong, 2**64 - 1), 2**64 - 1),
    "byte": (typed(AMQPTypes.byte, -128), -128),
    "short": (typed(AMQPTypes.short, -32_768), -32_768),
    "long": (typed(AMQPTypes.long, -(2**63)), -(2**63)),
    "float": (typed(AMQPTypes.float, 0.5), 0.5),
    "timestamp": (typed(AMQPTypes.timestamp, A_MOMENT_MS), A_MOMENT_MS),
    "binary": (typed(AMQPTypes.binary, b"\x00\xff"), b"\x00\xff"),
    "symbol": (typed(AMQPTypes.symbol, b"a-symbol"), b"a-symbol"),
}


def test_application_properties_of_every_type_come_back(queue: QueueUnderTest) -> None:
    sent = {name: value for name, (value, _) in PROPERTY_VALUES.items()}
    queue.send(ServiceBusMessage("typed", application_properties=sent))
    shown = queue.receive_one().application_properties
    assert shown == {name.encode(): value for name, (_, value) in PROPERTY_VALUES.items()}


def test_properties_come_back_with_the_types_they_had(queue: QueueUnderTest) -> None:
    types = {name.encode(): type(shown) for name, (_, shown) in PROPERTY_VALUES.items()}
    sent = {name: value for name, (value, _) in PROPERTY_VALUES.items()}
    queue.send(ServiceBusMessage("typed", application_properties=sent))
    shown = queue.receive_one().application_properties
    assert {name: type(value) for name, value in shown.items()} == types


def test_system_properties_come_back(queue: QueueUnderTest) -> None:
    fields = {
        "message_id": "an id",
        "correlation_id": "another's id",
        "content_type": "application/json; charset=utf-8",
        "subject": "order.placed",
        "to": "somewhere",
        "reply_to": "answers",
        "reply_to_session_id": "answers of one",
        "session_id": "one",
        "partition_key": "one",
        "time_to_live": timedelta(hours=1),
    }
    queue.send(ServiceBusMessage("complete", **fields))
    message = queue.receive_one()
    assert {name: getattr(message, name) for name in fields} == fields


def test_the_broker_adds_number_time_state_and_lock(queue: QueueUnderTest) -> None:
    """amqp.md 12."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    queue.send("stamped")
    message = queue.receive_one()
    assert message.sequence_number >= 1
    assert before <= message.enqueued_time_utc <= datetime.now(UTC)
    assert isinstance(message.lock_token, uuid.UUID)
    assert message.locked_until_utc > datetime.now(UTC)
    assert message.delivery_count == 0


def test_a_message_without_an_id_is_given_one(queue: QueueUnderTest) -> None:
    """MSG-5, as the JavaScript SDK needs it: it cannot settle a message that has none."""
    queue.send(AmqpAnnotatedMessage(data_body=b"nameless"))
    assert len(queue.receive_one().message_id or "") == 32


@pytest.mark.parametrize("message_id", ["text", 4711, A_UUID, b"\x01\x02"], ids=type)
def test_message_ids_keep_their_type(queue: QueueUnderTest, message_id: Any) -> None:
    properties = {"message_id": message_id, "correlation_id": message_id}
    queue.send(AmqpAnnotatedMessage(data_body=b"x", properties=properties))
    received = queue.receive_one().raw_amqp_message.properties
    shown = message_id.encode() if isinstance(message_id, str) else message_id
    assert (received.message_id, received.correlation_id) == (shown, shown)


BODIES = {
    "data": ({"data_body": b"bytes"}, AmqpMessageBodyType.DATA, [b"bytes"]),
    "empty-data": ({"data_body": b""}, AmqpMessageBodyType.DATA, [b""]),
    "several-data": ({"data_body": [b"one", b"two"]}, AmqpMessageBodyType.DATA, [b"one", b"two"]),
    "sequence": (
        {"sequence_body": [1, "two", 3.0, None, True]},
        AmqpMessageBodyType.SEQUENCE,
        [[1, b"two", 3.0, None, True]],
    ),
    "several-sequences": (
        {"sequence_body": [[1, 2], [3, [4]]]},
        AmqpMessageBodyType.SEQUENCE,
        [[1, 2], [3, [4]]],
    ),
    "value-text": ({"value_body": "text"}, AmqpMessageBodyType.VALUE, b"text"),
    "value-number": ({"value_body": 4711}, AmqpMessageBodyType.VALUE, 4711),
    "value-map": (
        {"value_body": {"key": [1, {"inner": A_UUID}]}},
        AmqpMessageBodyType.VALUE,
        {b"key": [1, {b"inner": A_UUID}]},
    ),
    "nothing": ({"value_body": None}, AmqpMessageBodyType.VALUE, None),
}


@pytest.mark.parametrize("body", list(BODIES))
def test_bodies_of_every_kind_come_back(queue: QueueUnderTest, body: str) -> None:
    sent, body_type, shown = BODIES[body]
    queue.send(AmqpAnnotatedMessage(**sent))
    message = queue.receive_one()
    assert message.body_type == body_type
    received = message.body if body_type is AmqpMessageBodyType.VALUE else list(message.body)
    assert received == shown


def test_all_sections_of_an_annotated_message_come_back(queue: QueueUnderTest) -> None:
    """amqp.md 12; the broker's own annotations stand beside the sender's."""
    properties = {
        "message_id": "m",
        "user_id": b"somebody",
        "to": "t",
        "subject": "s",
        "reply_to": "r",
        "correlation_id": "c",
        "content_type": "text/plain",
        "content_encoding": "identity",
        "creation_time": A_MOMENT_MS,
        "absolute_expiry_time": A_MOMENT_MS + 1000,
        "group_id": "g",
        "group_sequence": 7,
        "reply_to_group_id": "rg",
    }
    queue.send(
        AmqpAnnotatedMessage(
            data_body=b"all of it",
            header={"durable": True, "priority": 9, "first_acquirer": True},
            properties=properties,
            application_properties={"a": 1},
            annotations={"x-opt-mine": "kept", "x-opt-number": 5},
            footer={"checksum": 99},
        )
    )
    raw = queue.receive_one().raw_amqp_message
    shown = {k: v.encode() if isinstance(v, str) else v for k, v in properties.items()}
    del shown["absolute_expiry_time"]  # the broker's to say: enqueued time and time to live
    received = {name: getattr(raw.properties, name) for name in shown}
    assert received == shown
    assert (raw.header.durable, raw.header.priority) == (True, 9)
    assert raw.application_properties == {b"a": 1}
    assert raw.annotations[b"x-opt-mine"] == b"kept"
    assert raw.annotations[b"x-opt-number"] == 5
    assert raw.footer == {b"checksum": 99}


def test_a_batch_keeps_what_each_of_its_messages_carries(queue: QueueUnderTest) -> None:
    """amqp.md 13: the envelope is for routing only."""
    queue.sender.send_messages(
        [
            ServiceBusMessage(
                f"message {number}",
                message_id=f"id {number}",
                subject=f"subject {number}",
                application_properties={"number": number},
            )
            for number in range(5)
        ]
    )
    received = [
        (str(m), m.message_id, m.subject, m.application_properties) for m in queue.peek_all()
    ]
    assert received == [
        (f"message {number}", f"id {number}", f"subject {number}", {b"number": number})
        for number in range(5)
    ]
