"""Why the broker itself dead-letters a message (DLQ-3): reasons and the service's exact texts."""

from __future__ import annotations

from busway.amqp.sections import merge_changes
from busway.model.errors import BusError

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
"""The application properties that tell a reader of the dead-letter queue what happened (DLQ-2)."""


def _because(reason: str, description: str) -> dict[str, str]:
    return {REASON: reason, DESCRIPTION: description}


def expired() -> dict[str, str]:
    """TTL-6."""
    return _because("TTLExpiredException", "The message expired and was dead lettered.")


def delivered_too_often(max_delivery_count: int) -> dict[str, str]:
    """DLV-5."""
    return _because(
        "MaxDeliveryCountExceeded",
        f"Message could not be consumed after {max_delivery_count} delivery attempts.",
    )


def without_session() -> dict[str, str]:
    """SES-1: a copy for a subscription with sessions."""
    return _because(
        "Session id is null.",
        "Session enabled entity doesn't allow a message whose session identifier is null.",
    )


def forwarded_too_often(hops_max: int) -> dict[str, str]:
    """FWD-3."""
    return _because(
        "MaxTransferHopCountExceeded",
        "The maximum number of allowed hops when forwarding between queues has been exceeded. "
        f"This value is set to {hops_max}.",
    )


def not_forwarded(error: BusError) -> dict[str, str]:
    """FWD-4: the destination is full, disabled or gone."""
    return _because(error.kind.name, error.text)


def filter_failed(reason: str, description: str) -> dict[str, str]:
    """RUL-4."""
    return _because(reason, description)


def merged(changes: bytes | None, reason: dict[str, str]) -> bytes:
    """A message's changes with the reason among them."""
    return merge_changes(changes, dict(reason))
