"""What an error on the wire says of the command that it answers: not done, or nobody knows."""

from __future__ import annotations

from busway.amqp.performatives import Error
from busway.model.errors import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    SESSION_LOCK_LOST,
    TRANSACTION_ROLLBACK,
)
from busway.sim.history import Answer

DEFINITE = {
    kind.condition
    for kind in (LOCK_LOST, NOT_FOUND, QUOTA_EXCEEDED, SESSION_LOCK_LOST, TRANSACTION_ROLLBACK)
}
"""Conditions that say by themselves that nothing was done; *server busy* does not."""

OK, NO_CONTENT = 200, 204
DEFINITE_STATUSES = {LOCK_LOST.status, MESSAGE_NOT_FOUND.status}
"""The same of requests."""


def answer_of(error: Error | None) -> Answer:
    definite = error is not None and error.condition in DEFINITE
    return Answer.REFUSED if definite else Answer.UNKNOWN


def is_over_quota(error: Error | None) -> bool:
    """The entity's own; a store without room says *server busy* (D-9)."""
    return error is not None and error.condition == QUOTA_EXCEEDED.condition


def answer_of_status(status: int | None) -> Answer:
    if status == OK:
        return Answer.DONE
    return Answer.REFUSED if status in DEFINITE_STATUSES else Answer.UNKNOWN
