"""Messages keep what they carry: all fields, bodies and property types that .NET has."""

from __future__ import annotations

from typing import Any

import pytest
from sdk import result
from world import World, message, receive_one, seconds

# isort: split

import System
from Azure.Core.Amqp import AmqpMessageBody
from Azure.Messaging.ServiceBus import ServiceBusMessage
from System.Collections.Generic import List
from System.Linq import Enumerable

VALUES: dict[str, Any] = {
    "byte": System.Byte(200),
    "sbyte": System.SByte(-5),
    "short": System.Int16(-300),
    "ushort": System.UInt16(60_000),
    "int": System.Int32(-70_000),
    "uint": System.UInt32(4_000_000_000),
    "long": System.Int64(-5_000_000_000),
    "ulong": System.UInt64(18_000_000_000_000_000_000),
    "float": System.Single(1.5),
    "double": System.Double(2.25),
    "decimal": System.Decimal(1234567),
    "char": System.Char("x"),
    "bool": System.Boolean(True),
    "string": "text with ünïcode",
    "guid": System.Guid("6f1a5bb2-9d36-4b4f-9f37-6e5f0a4c1f11"),
    "datetime": System.DateTime(2026, 2, 3, 4, 5, 6, System.DateTimeKind.Utc),
    "offset": System.DateTimeOffset(2026, 2, 3, 4, 5, 6, System.TimeSpan.Zero),
    "span": System.TimeSpan(1, 2, 3, 4, 5),
    "uri": System.Uri("https://example.com/a?b=c"),
}


def described(properties: Any) -> dict[str, str]:
    """Type and text of each value as .NET sees it; Python would make plain numbers of many."""
    values = Enumerable.ToArray[System.Object](properties.Values)
    types = System.Type.GetTypeArray(values)
    return {
        key: f"{kind.Name} {System.Convert.ToString(value)}"
        for key, kind, value in zip(properties.Keys, types, values, strict=True)
    }


@pytest.mark.short
def test_all_types_of_application_properties_come_back_as_they_were(world: World) -> None:
    queue = world.queue()
    sent = message("typed")
    for name, value in VALUES.items():
        sent.ApplicationProperties[name] = value
    expected = described(sent.ApplicationProperties)
    assert len({text.partition(" ")[0] for text in expected.values()}) == len(VALUES)
    world.send(queue, sent)
    found = receive_one(world.receiver(queue))
    assert described(found.ApplicationProperties) == expected


def test_a_null_property_comes_back_as_null(world: World) -> None:
    queue = world.queue()
    sent = message("null")
    sent.ApplicationProperties["nothing"] = None
    world.send(queue, sent)
    found = receive_one(world.receiver(queue))
    assert list(found.ApplicationProperties.Keys) == ["nothing"]
    assert found.ApplicationProperties["nothing"] is None


@pytest.mark.short
def test_the_fields_of_a_message_come_back(world: World) -> None:
    queue = world.queue()
    fields = {
        "MessageId": "id 7",
        "CorrelationId": "correlation",
        "ContentType": "application/json",
        "Subject": "subject",
        "To": "somebody",
        "ReplyTo": "me",
        "ReplyToSessionId": "my session",
        "PartitionKey": "key",
    }
    world.send(queue, message('{"a": 1}', **fields))
    found = receive_one(world.receiver(queue))
    assert {name: getattr(found, name) for name in fields} == fields
    assert found.Body.ToString() == '{"a": 1}'
    assert found.SequenceNumber > 0
    assert found.LockToken


def test_a_message_may_be_empty(world: World) -> None:
    queue = world.queue()
    world.send(queue, ServiceBusMessage())
    assert receive_one(world.receiver(queue)).Body.ToArray().Length == 0


def test_bodies_of_bytes_values_and_sequences_keep_their_kind(world: World) -> None:
    queue = world.queue()
    bytes_sent = ServiceBusMessage(System.BinaryData(System.Array[System.Byte](list(range(256)))))
    value_sent = message("", PartitionKey="k")
    value_sent.GetRawAmqpMessage().Body = AmqpMessageBody.FromValue(System.Int64(5_000_000_000))
    rows = List[System.Collections.Generic.IList[System.Object]]()
    for row in ((System.Int32(1), "one"), (System.Int32(2), "two")):
        made = List[System.Object]()
        for value in row:
            made.Add(value)
        rows.Add(made)
    rows_sent = message("", PartitionKey="k")
    rows_sent.GetRawAmqpMessage().Body = AmqpMessageBody.FromSequence(rows)
    receiver = world.receiver(queue, deletes=True)

    world.send(queue, bytes_sent)
    assert list(receive_one(receiver).Body.ToArray()) == list(range(256))
    world.send(queue, value_sent)
    body = receive_one(receiver).GetRawAmqpMessage().Body
    is_value, value = body.TryGetValue(None)
    assert (is_value, value) == (True, 5_000_000_000)
    world.send(queue, rows_sent)
    body = receive_one(receiver).GetRawAmqpMessage().Body
    is_sequence, sequence = body.TryGetSequence(None)
    assert is_sequence
    assert [list(row) for row in sequence] == [[1, "one"], [2, "two"]]


def test_the_raw_sections_of_a_message_come_back(world: World) -> None:
    queue = world.queue()
    sent = message("raw")
    raw = sent.GetRawAmqpMessage()
    raw.Header.Durable = True
    raw.Header.Priority = 7
    raw.Footer["footer"] = "end"
    raw.MessageAnnotations["my-annotation"] = "kept"
    raw.Properties.GroupSequence = 5
    world.send(queue, sent)
    found = receive_one(world.receiver(queue)).GetRawAmqpMessage()
    assert found.Header.Priority == 7
    assert found.Footer["footer"] == "end"
    assert found.MessageAnnotations["my-annotation"] == "kept"
    assert found.Properties.GroupSequence == 5


def test_a_large_message_is_split_into_frames_and_put_together(world: World) -> None:
    queue = world.queue()
    body = "".join(chr(ord("a") + n % 26) for n in range(250_000))
    world.send(queue, body)
    receiver = world.receiver(queue)
    assert receive_one(receiver).Body.ToString() == body
    assert result(receiver.ReceiveMessageAsync(seconds(0.2))) is None
