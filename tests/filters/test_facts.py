"""What filters see of a message, decoded once (SQL-3, SQL-7, D-15)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from busway.amqp.codec import encode_value
from busway.amqp.sections import merge_changes
from busway.amqp.types import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    ULong,
)
from busway.filters.errors import FilterError
from busway.filters.evaluator import Compiler
from busway.filters.facts import SYSTEM, MessageFacts
from busway.filters.parser import parse_filter
from busway.filters.values import DateTime, Opaque, TimeSpan, from_amqp, text_of, to_amqp
from busway.model.message import Message, MessageState
from tests.filters.messages import decide, message

KNOWN = """ContentType CorrelationId DeadLetterSource DeliveryCount EnqueuedSequenceNumber
EnqueuedTimeUtc ExpiresAtUtc Label Subject MessageId PartitionKey ReplyTo ReplyToSessionId
ScheduledEnqueueTimeUtc SequenceNumber SessionId Size State TimeToLive To ViaPartitionKey"""


class TestSystemProperties:
    """SQL-3"""

    def test_the_known_names_are_those_of_the_rule(self) -> None:
        assert set(SYSTEM) == set(KNOWN.split())

    def test_each_is_read_from_its_place(self) -> None:
        pairs = {
            Symbol("x-opt-partition-key"): "pk",
            Symbol("x-opt-via-partition-key"): "via",
            Symbol("x-opt-scheduled-enqueue-time"): Timestamp(7),
        }
        encoded = b"".join(encode_value(key) + encode_value(item) for key, item in pairs.items())
        sent = message(
            annotations=encoded,
            annotation_items=6,
            content_type="json",
            correlation_id="c",
            subject="l",
            message_id="m",
            reply_to="r",
            reply_to_group_id="rs",
            group_id="s",
            to="t",
            ttl_ms=3,
            number=42,
            enqueued_ms=5,
            expires_ms=8,
        )
        sent.delivery_count = 2
        sent.state = MessageState.SCHEDULED
        facts = MessageFacts(sent)
        assert {name: read(facts) for name, read in SYSTEM.items()} == {
            "ContentType": "json",
            "CorrelationId": "c",
            "DeadLetterSource": None,
            "DeliveryCount": 2,
            "EnqueuedSequenceNumber": 42,
            "EnqueuedTimeUtc": DateTime.of_ms(5),
            "ExpiresAtUtc": DateTime.of_ms(8),
            "Label": "l",
            "MessageId": "m",
            "PartitionKey": "pk",
            "ReplyTo": "r",
            "ReplyToSessionId": "rs",
            "ScheduledEnqueueTimeUtc": DateTime.of_ms(7),
            "SequenceNumber": 42,
            "SessionId": "s",
            "Size": sent.size,
            "State": 2,
            "Subject": "l",
            "TimeToLive": TimeSpan.of_ms(3),
            "To": "t",
            "ViaPartitionKey": "via",
        }

    @pytest.mark.parametrize(
        ("wire", "text"),
        [
            ("abc", "abc"),
            (ULong(17), "17"),
            (UUID(int=255), "00000000-0000-0000-0000-0000000000ff"),
            (b"\x01\xff", "01ff"),
        ],
    )
    def test_ids_are_texts_whatever_their_type_on_the_wire(self, wire: Any, text: str) -> None:
        """D-15"""
        facts = MessageFacts(message(message_id=wire, correlation_id=wire))
        assert SYSTEM["MessageId"](facts) == text
        assert SYSTEM["CorrelationId"](facts) == text


class TestUserProperties:
    @pytest.mark.parametrize(
        ("amqp", "value"),
        [
            (None, None),
            (True, True),
            (5, 5),
            (Int(-5), -5),
            (ULong(2**64 - 1), 2**64 - 1),
            (2.5, 2.5),
            (Float(0.5), 0.5),
            ("x", "x"),
            (Symbol("x"), "x"),
            (Char("x"), "x"),
            (b"\x01", b"\x01"),
            (UUID(int=1), UUID(int=1)),
            (Timestamp(1000), DateTime(621_355_968_010_000_000)),
            (Timestamp(-(2**63)), DateTime(0)),
            (Described(Symbol("com.microsoft:timespan"), 5), TimeSpan(5)),
            (Described(Symbol("com.microsoft:datetime-offset"), 5), DateTime(5)),
            (Described(Symbol("com.microsoft:uri"), "http://x"), "http://x"),
            (Described(Symbol("other"), "x"), Opaque(Described(Symbol("other"), "x"))),
            ([1], Opaque([1])),
            (Decimal32(bytes.fromhex("32800001")), 1.0),
            (Decimal64(bytes.fromhex("b1c000000000007b")), -123.0),
            (Decimal128(bytes.fromhex("303e000000000000000000000000000f")), 1.5),
            (Decimal128(bytes.fromhex("78" + "00" * 15)), math.inf),
        ],
    )
    def test_every_amqp_type_becomes_a_kind_of_filters(self, amqp: Any, value: Any) -> None:
        """SQL-7"""
        seen = MessageFacts(message({"a": amqp})).user["a"]
        assert seen == value
        assert type(seen) is type(value)

    def test_a_decimal_that_is_no_number_is_none(self) -> None:
        assert math.isnan(from_amqp(Decimal32(bytes.fromhex("7c000000"))))

    def test_arrays_and_python_times_are_read_too(self) -> None:
        assert type(from_amqp(Array([1]))) is Opaque
        assert from_amqp(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == DateTime.of_ms(1000)
        assert from_amqp(timedelta(seconds=1)) == TimeSpan.of_ms(1000)

    def test_values_can_be_written_again(self) -> None:
        assert to_amqp(DateTime.of_ms(5)) == Timestamp(5)
        assert to_amqp(TimeSpan(5)) == Described(Symbol("com.microsoft:timespan"), 5)
        assert to_amqp(Opaque([1])) == [1]

    def test_values_have_the_texts_of_dot_net(self) -> None:
        assert text_of(True) == "True"
        assert text_of(TimeSpan(-(86_400 + 3_661) * 10_000_000)) == "-1.01:01:01"
        assert text_of(TimeSpan(5)) == "00:00:00.0000005"
        assert text_of(DateTime.of_ms(1500)) == "1970-01-01T00:00:01.5000000Z"

    def test_what_settlements_changed_is_what_is_seen(self) -> None:
        changes = merge_changes(None, {"COLOR": "blue"})
        assert decide("color = 'blue' AND size = 1", {"color": "red", "size": 1}, changes=changes)

    def test_nothing_is_decoded_twice(self) -> None:
        facts = MessageFacts(message({"a": 1}, subject="x"))
        assert facts.user is facts.user
        assert facts.properties is facts.properties
        assert facts.correlated is facts.correlated

    @pytest.mark.parametrize("text", ["a = 1", "sys.Label = 'x'", "sys.PartitionKey = 'x'"])
    def test_a_message_that_cannot_be_read_is_an_error(self, text: str) -> None:
        broken = Message(bare=b"\x00\x53\x73\xff", size=4, annotations=b"\xff")
        decision = Compiler(lambda: UUID(int=0)).predicate(parse_filter(text))
        with pytest.raises(FilterError, match="cannot be read"):
            decision(MessageFacts(broken))
