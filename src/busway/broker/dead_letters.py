"""Why the broker itself dead-letters a message (DLQ-3): reasons and the service's exact texts."""

from __future__ import annotations

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
"""The application properties that tell a reader of the dead-letter queue what happened (DLQ-2)."""


def expired() -> dict[str, str]:
    """TTL-6."""
    return {
        REASON: "TTLExpiredException",
        DESCRIPTION: "The message expired and was dead lettered.",
    }


def delivered_too_often(max_delivery_count: int) -> dict[str, str]:
    """DLV-5."""
    return {
        REASON: "MaxDeliveryCountExceeded",
        DESCRIPTION: f"Message could not be consumed after {max_delivery_count} delivery attempts.",
    }
