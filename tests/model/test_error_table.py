"""The table of errors: what clients see on the wire (amqp.md section 15)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from busway.model import errors
from busway.model.errors import KINDS, BusError, ErrorKind, with_tracking

GOLDEN = [
    (
        errors.NOT_FOUND,
        {"uri": "sb://ns/orders"},
        "amqp:not-found",
        404,
        "The messaging entity 'sb://ns/orders' could not be found. To know more visit "
        "https://aka.ms/sbResourceMgrExceptions.",
    ),
    (
        errors.LOCK_LOST,
        {},
        "com.microsoft:message-lock-lost",
        410,
        "The lock supplied is invalid. Either the lock expired, or the message has already been "
        "removed from the queue.",
    ),
    (
        errors.SESSION_CANNOT_BE_LOCKED,
        {"session_id": "s1"},
        "com.microsoft:session-cannot-be-locked",
        410,
        "The requested session 's1' cannot be accepted. It may be locked by another receiver.",
    ),
    (
        errors.SESSION_ID_MISSING,
        {},
        "amqp:not-allowed",
        400,
        "The SessionId was not set on a message, and it cannot be sent to the entity. Entities "
        "that have session support enabled can only receive messages that have the SessionId set "
        "to a valid value.",
    ),
    (
        errors.SESSION_REQUIRED,
        {},
        "amqp:not-allowed",
        400,
        "It is not possible for an entity that requires sessions to create a non-sessionful "
        "message receiver.",
    ),
    (
        errors.SESSION_NOT_ALLOWED,
        {},
        "amqp:not-allowed",
        400,
        "A sessionful message receiver cannot be created on an entity that does not require "
        "sessions. Ensure RequiresSession is set to true when creating a Queue or Subscription to "
        "enable sessionful behavior.",
    ),
    (
        errors.ENTITY_DISABLED,
        {"uri": "sb://ns/orders"},
        "com.microsoft:entity-disabled",
        400,
        "Messaging entity 'sb://ns/orders' is currently disabled.",
    ),
    (
        errors.SEND_DISABLED,
        {"uri": "sb://ns/orders"},
        "com.microsoft:entity-disabled",
        400,
        "Messaging entity 'sb://ns/orders' is currently disabled for Send operations.",
    ),
    (
        errors.RECEIVE_DISABLED,
        {"uri": "sb://ns/orders"},
        "com.microsoft:entity-disabled",
        400,
        "Messaging entity 'sb://ns/orders' is currently disabled for Receive operations.",
    ),
    (
        errors.QUOTA_EXCEEDED,
        {"entity_type": "Queue", "name": "orders", "size_bytes": 11, "max_bytes": 10},
        "amqp:resource-limit-exceeded",
        403,
        "The maximum entity size has been reached or exceeded for Queue: 'orders'. "
        "Size of entity in bytes:11, Max entity size in bytes:10.",
    ),
    (
        errors.MESSAGE_NOT_FOUND,
        {},
        "com.microsoft:message-not-found",
        404,
        "Failed to lock one or more specified messages. Either the message is already locked or "
        "does not exist",
    ),
    (
        errors.CANCEL_NOT_FOUND,
        {"numbers": "1, 2"},
        "com.microsoft:message-not-found",
        404,
        "Messages not found. Missing sequence numbers: 1, 2",
    ),
    (
        errors.BATCH_KEYS_DIFFER,
        {},
        "amqp:not-allowed",
        400,
        "Batching brokered messages with distinct SessionId or PartitionKey is not supported for "
        "an entity with partitioning enabled.",
    ),
    (
        errors.PARTITION_KEY_MISSING,
        {},
        "amqp:not-allowed",
        400,
        "Message to a partitioned entity with duplicate detection enabled must have either "
        "PartitionKey or MessageId",
    ),
    (
        errors.TRANSACTION_UNKNOWN,
        {},
        "amqp:transaction:unknown-id",
        400,
        "Transaction hasn't been declared yet, or has already been discharged",
    ),
    (
        errors.UNAUTHORIZED,
        {"claim": "Send", "uri": "sb://ns/orders"},
        "amqp:unauthorized-access",
        401,
        "Unauthorized access. 'Send' claim(s) are required to perform this operation. "
        "Resource: 'sb://ns/orders'.",
    ),
]


@pytest.mark.parametrize(
    ("kind", "fields", "condition", "status", "text"), GOLDEN, ids=lambda x: getattr(x, "name", "")
)
def test_the_service_says(
    kind: ErrorKind, fields: dict[str, Any], condition: str, status: int, text: str
) -> None:
    error = BusError(kind, **fields)
    assert (error.condition, kind.status, error.text, str(error)) == (condition, status, text, text)


def test_javascript_and_java_recognise_a_missing_entity_by_its_text() -> None:
    text = BusError(errors.NOT_FOUND, uri="sb://ns/q").text
    assert re.search(r"The messaging entity '.*' could not be found", text)


STATUS_OF_CONDITION = {
    # management-amqp.md section 3
    "com.microsoft:argument-error": {400},
    "com.microsoft:argument-out-of-range": {400},
    "com.microsoft:entity-disabled": {400},
    "amqp:not-allowed": {400, 403, 409},  # the last one over HTTP alone
    "amqp:unauthorized-access": {401},
    "amqp:resource-limit-exceeded": {403},
    "amqp:link:message-size-exceeded": {403},
    "amqp:not-found": {404},
    "com.microsoft:message-not-found": {404},
    "com.microsoft:session-not-found": {404},
    "com.microsoft:timeout": {408, 503},
    "com.microsoft:entity-already-exists": {409},
    "com.microsoft:message-lock-lost": {410},
    "com.microsoft:session-lock-lost": {410},
    "com.microsoft:session-cannot-be-locked": {410},
    "amqp:internal-error": {500},
    "amqp:not-implemented": {501},
    "com.microsoft:server-busy": {503},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
class TestEveryKind:
    def test_has_the_status_that_clients_expect_of_its_condition(self, kind: ErrorKind) -> None:
        assert kind.status in STATUS_OF_CONDITION.get(kind.condition, {kind.status})

    def test_has_a_sub_code_that_begins_with_its_status(self, kind: ErrorKind) -> None:
        throttled = 50009  # the service's own number, in its own text
        assert kind.sub_code // 100 == kind.status or kind.sub_code == throttled

    def test_can_be_raised_with_the_fields_that_it_names(self, kind: ErrorKind) -> None:
        fields: dict[str, Any] = {name: f"<{name}>" for name in kind.fields}
        assert all(value in BusError(kind, **fields).text for value in fields.values())

    def test_is_retried_by_clients_only_if_that_can_help(self, kind: ErrorKind) -> None:
        transient = {408, 500, 503}
        lasting = (errors.TRANSACTION_TIMEOUT, errors.DATA_DAMAGED)
        assert kind.retryable == (kind.status in transient and kind not in lasting)


def test_names_of_kinds_are_unique() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_braces_in_a_name_are_just_text() -> None:
    assert "'{0}{x}'" in BusError(errors.NOT_FOUND, uri="{0}{x}").text


def test_an_error_says_whether_it_was_certainly_refused() -> None:
    assert not BusError(errors.SERVER_BUSY).refused
    assert BusError(errors.SERVER_BUSY, refused=True).refused


def test_a_description_ends_with_what_support_would_ask_for() -> None:
    text = with_tracking("Busy.", "5f3c_G1", "ns:Queue:orders", "2026-01-02T03:04:05")
    assert text == (
        "Busy. TrackingId:5f3c_G1, SystemTracker:ns:Queue:orders, Timestamp:2026-01-02T03:04:05"
    )
