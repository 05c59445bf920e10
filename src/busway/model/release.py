"""What this release does not do yet, said plainly instead of done wrongly.

An entity that asks for one of these is refused, whoever asks: a queue that silently lost its
sessions would be worse than none. A release that learns one strikes its row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from busway.model.entities import Queue


@dataclass(frozen=True, slots=True)
class NotYet:
    wire: str
    """The property at the service."""
    what: str
    asked_for: Callable[[Queue], bool]


NOT_YET = (
    NotYet("RequiresSession", "sessions", lambda queue: queue.requires_session),
    NotYet(
        "RequiresDuplicateDetection",
        "duplicate detection",
        lambda queue: queue.requires_duplicate_detection,
    ),
    NotYet("ForwardTo", "forwarding", lambda queue: bool(queue.forward_to)),
    NotYet(
        "ForwardDeadLetteredMessagesTo",
        "forwarding of dead letters",
        lambda queue: bool(queue.forward_dead_letters_to),
    ),
    NotYet(
        "AutoDeleteOnIdle",
        "deleting idle queues",
        lambda queue: queue.auto_delete_on_idle_ms is not None,
    ),
)

TOPICS = False
"""Whether there are topics, subscriptions and rules."""


def not_yet(queue: Queue) -> NotYet | None:
    """The first thing that this queue asks for and this release does not have."""
    return next((row for row in NOT_YET if row.asked_for(queue)), None)
