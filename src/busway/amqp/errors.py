"""What goes wrong on the wire, and the conditions that AMQP names for it.

`ProtocolError` is the only exception that leaves the codec for bad input; a connection turns it
into the `error` of a close, end or detach (AMQP 1.0, sections 2.8.15 to 2.8.18).
"""

from __future__ import annotations

# AMQP 1.0, section 2.8.15: errors of any scope.
INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LOCKED = "amqp:resource-locked"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
ILLEGAL_STATE = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"

# Section 2.8.16: of a connection.
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
CONNECTION_REDIRECT = "amqp:connection:redirect"

# Section 2.8.17: of a session.
WINDOW_VIOLATION = "amqp:session:window-violation"
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"

# Section 2.8.18: of a link.
DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
LINK_REDIRECT = "amqp:link:redirect"
STOLEN = "amqp:link:stolen"

# Section 4.5.8: of a transaction.
TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT = "amqp:transaction:timeout"


class ProtocolError(Exception):
    """The peer broke the protocol: what it did, under the name that AMQP gives it."""

    def __init__(self, condition: str, description: str) -> None:
        self.condition = condition
        self.description = description
        super().__init__(condition, description)

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}"
