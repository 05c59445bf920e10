"""Requests that wait for a message, and have no link that could be detached.

Each is told when its entity changes under it (STA-2, STA-5) and when the node is about to stop.
Where one has been, others are expected: a seat is kept there, so that consecutive receives do not
make every partition introduce itself again (P-28, P-29).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from busway.broker.seams import Grant, Timer
from busway.cluster.catalog import Change
from busway.gateway.fanin import FanIn
from busway.model.errors import NOT_FOUND, BusError
from busway.model.message import Message

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

SEAT_KEPT_MS = 60_000


class Visitor(Protocol):
    @property
    def incarnation(self) -> int: ...

    def entity_changed(self) -> None:
        """The entity is another than it was: look again whether it may be received from."""

    def fail(self, error: BusError) -> None:
        """There is nothing to wait for any more."""


class Seat:
    """A link without credit: its fan-in stays, and goes on hearing which partitions are ready."""

    __slots__ = ("used_ms",)

    delete = False

    def __init__(self) -> None:
        self.used_ms = 0

    def free_credit(self) -> int:
        return 0

    def lend(self, grant: Grant) -> None:
        raise AssertionError("a seat has no credit")

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        raise AssertionError("a seat has no credit")

    def finished(self, grant: Grant) -> None:
        raise AssertionError("a seat has no credit")


class Visitors:
    """All of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._host = gateway.host
        self._waiting: dict[Visitor, None] = {}
        self._seats: dict[FanIn, Seat] = {}
        self._timer: Timer | None = None
        gateway.catalog.listen(self._changed)

    def come(self, visitor: Visitor, fan_in: FanIn) -> None:
        self._waiting[visitor] = None
        seat = self._seats.get(fan_in)
        if seat is None:
            seat = self._seats[fan_in] = Seat()
            fan_in.join(seat)
            self._arm()
        seat.used_ms = self._host.now_ms()

    def go(self, visitor: Visitor) -> None:
        self._waiting.pop(visitor, None)

    def send_away(self, error: BusError) -> None:
        for visitor in list(self._waiting):
            visitor.fail(error)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self._host.at(self._host.now_ms() + SEAT_KEPT_MS, self._look_at_seats)

    def _look_at_seats(self) -> None:
        self._timer = None
        unused_ms = self._host.now_ms() - SEAT_KEPT_MS
        for fan_in in [each for each, seat in self._seats.items() if seat.used_ms <= unused_ms]:
            fan_in.leave(self._seats.pop(fan_in))
        if self._seats:
            self._arm()

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
        for fan_in in [each for each in self._seats if each.incarnation == before.incarnation]:
            fan_in.leave(self._seats.pop(fan_in))
