"""Sends of requests: messages that come with no link, whose credit would hold them back.

A request is refused instead while more waits for commits than the node may hold (D-8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from busway.gateway.envelope import Part
from busway.gateway.router import Destination, Dispatch, PendingSend
from busway.model.errors import SERVER_BUSY, BusError

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway


def dispatch(
    gateway: Gateway,
    entity: Destination,
    parts: Sequence[Part],
    size: int,
    done: Callable[[BusError | None], None],
) -> None:
    """Hand the parts over; `done` when all of them are committed, or one is not (D-29)."""
    budget = gateway.budget
    if budget.exceeded:
        raise BusError(SERVER_BUSY, refused=True)
    budget.take(size)

    def answered(error: BusError | None) -> None:
        budget.give(size)
        done(error)

    Dispatch(gateway.router, entity, [PendingSend(*part) for part in parts], answered).start()
