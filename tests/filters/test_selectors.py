"""Selectors of JMS clients: what they take and what they refuse (JMS 2.0, section 3.8)."""

from __future__ import annotations

import pytest

from busway.amqp.codec import scan_message
from busway.amqp.performatives import Header, Properties
from busway.amqp.sections import encode_message
from busway.amqp.types import Int
from busway.filters.errors import FilterSyntaxError
from busway.filters.selectors import HEADERS, compile_selector
from busway.model.message import Message


def some_message() -> Message:
    properties = Properties(
        message_id="ID:1",
        user_id=b"somebody",
        to="orders",
        subject="kind",
        reply_to="answers",
        correlation_id="c-1",
        content_type="text/plain",
        content_encoding="identity",
        absolute_expiry_time=2_000,
        creation_time=1_000,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="rg",
    )
    user = {"colour": "red", "size": Int(7), "price": 1.5, "urgent": True, "text": "it's 10%"}
    payload = encode_message(
        header=Header(durable=True, priority=7), properties=properties, application_properties=user
    )
    found = scan_message(payload)
    return Message(
        bare=found.bare,
        size=len(payload),
        header=found.header,
        session_id="g",
        delivery_count=2,
    )


MATCHES = [
    "colour = 'red'",
    "colour <> 'blue' AND size > 5",
    "size BETWEEN 5 AND 7",
    "size NOT BETWEEN 8 AND 9 AND price < 2",
    "size + 1 BETWEEN 2 * 4 AND 8",
    "colour IN ('red', 'green')",
    "colour NOT IN ('blue')",
    "colour LIKE 'r_d'",
    "text LIKE '%10!%' ESCAPE '!'",
    "text = 'it''s 10%'",
    "missing IS NULL AND colour IS NOT NULL",
    "urgent",
    "urgent = TRUE AND NOT urgent = FALSE",
    "NOT (colour = 'blue') AND (urgent OR missing)",
    "TRUE",
    "-size = -7 AND size / 2 = 3",
    "JMSPriority = 7 AND JMSPriority >= 5",
    "JMSDeliveryMode = 'PERSISTENT'",
    "JMSMessageID = 'ID:1'",
    "JMSCorrelationID = 'c-1'",
    "JMSType = 'kind'",
    "JMSTimestamp = 1000",
    "JMSXGroupID = 'g' AND JMSXGroupSeq = 3",
    "JMSXDeliveryCount = 3",
    "JMSXUserID = 'somebody' AND amqp.user_id = 'somebody'",
    "amqp.priority = 7 AND amqp.durable",
    "amqp.message_id = 'ID:1' AND amqp.correlation_id = 'c-1' AND amqp.subject = 'kind'",
    "amqp.creation_time = 1000 AND amqp.absolute_expiry_time = 2000",
    "amqp.to = 'orders' AND amqp.reply_to = 'answers' AND amqp.group_id = 'g'",
    "amqp.group_sequence = 3 AND amqp.reply_to_group_id = 'rg'",
    "amqp.content_type = 'text/plain' AND amqp.content_encoding = 'identity'",
]

MISSES = [
    "colour = 'blue'",
    "size BETWEEN 8 AND 9",
    "NOT urgent",
    "missing",
    "missing = 1",
    "NOT missing = 1",  # unknown either way
    "colour > 5",  # cannot be compared
    "JMSPriority < 5",
    "FALSE",
]


@pytest.mark.parametrize("text", MATCHES)
def test_a_selector_takes_what_it_describes(text: str) -> None:
    selects = compile_selector(text)
    assert selects is not None
    assert selects(some_message())


@pytest.mark.parametrize("text", MISSES)
def test_a_selector_leaves_what_it_does_not_describe(text: str) -> None:
    selects = compile_selector(text)
    assert selects is not None
    assert not selects(some_message())


@pytest.mark.parametrize("header", HEADERS)
def test_every_header_can_be_asked_of_a_message_that_has_none(header: str) -> None:
    selects = compile_selector(f"{header} IS NULL OR {header} IS NOT NULL")
    assert selects is not None
    assert selects(Message(bare=b"", size=0))


def test_without_a_header_a_message_has_the_defaults() -> None:
    selects = compile_selector("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT'")
    assert selects is not None
    assert selects(Message(bare=b"", size=0))


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_selector_is_none(text: str) -> None:
    assert compile_selector(text) is None


REFUSED = [
    "colour =",
    "colour = 'red",
    "size BETWEEN 5",
    "size BETWEEN 5 OR 7",
    "JMSDestination = 'orders'",
    "JMSReplyTo IS NULL",
    "sys.Label = 'x'",
    "amqp.nothing = 1",
    "newid() = 1",
    "colour = @parameter",
    "EXISTS (sys.Label)",
    "5",
    "x" * 1025,
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError):
        compile_selector(text)
