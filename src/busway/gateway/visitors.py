"""Requests that wait for a message, and have no link that could be detached.

Each is told when its entity changes under it (STA-2, STA-5) and when the node is about to stop.
"""

from __future__ import annotations

from typing import Protocol

from busway.cluster.catalog import Catalog, Change
from busway.model.errors import NOT_FOUND, BusError


class Visitor(Protocol):
    @property
    def incarnation(self) -> int: ...

    def entity_changed(self) -> None:
        """The entity is another than it was: look again whether it may be received from."""

    def fail(self, error: BusError) -> None:
        """There is nothing to wait for any more."""


class Visitors:
    """All of one gateway."""

    def __init__(self, catalog: Catalog) -> None:
        self._waiting: dict[Visitor, None] = {}
        catalog.listen(self._changed)

    def come(self, visitor: Visitor) -> None:
        self._waiting[visitor] = None

    def go(self, visitor: Visitor) -> None:
        self._waiting.pop(visitor, None)

    def send_away(self, error: BusError) -> None:
        for visitor in list(self._waiting):
            visitor.fail(error)

    def _changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if before is None or change.rule is not None:
            return  # a rule changes what comes later, not who receives it (RUL-6)
        for visitor in list(self._waiting):
            if visitor.incarnation != before.incarnation:
                continue
            if after is None:
                visitor.fail(BusError(NOT_FOUND, uri=before.path))
            else:
                visitor.entity_changed()
