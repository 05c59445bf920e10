"""Messages go forward, and scheduled ones not before their time (FWD, DLQ-4, SCH-1).

That none is lost or comes twice on its way is `presence`'s and `order`'s business: a message has
one body and, in each entity, one number.
"""

from __future__ import annotations

from busway.sim.checkers.routes import Routes
from busway.sim.history import Delivered, Event, SendStarted, Violation

NAME = "journeys"


class Journeys:
    def __init__(self) -> None:
        self._routes = Routes()
        self._due_ms: dict[int, int] = {}
        self._destinations: dict[int, str] = {}
        self._last_seen: dict[int, int] = {}

    def see(self, now_ms: int, event: Event) -> None:
        self._routes.see(event)
        match event:
            case SendStarted():
                for body in event.bodies:
                    if event.due_ms is not None:
                        self._due_ms[body] = event.due_ms
                    if event.destination is not None:
                        self._destinations[body] = event.destination
            case Delivered():
                self._arrived(now_ms, event)

    def _arrived(self, now_ms: int, event: Delivered) -> None:
        body, incarnation = event.body, event.key.incarnation
        early_ms = self._due_ms.get(body, 0) - now_ms
        if early_ms > 0:
            raise Violation(NAME, f"{body} was delivered {early_ms} ms before its time")
        before = self._last_seen.get(body, incarnation)
        forward = self._routes.from_(before, self._destinations.get(body))
        # Who was deleted before it could answer has not taken it, as far as its source knows.
        if incarnation not in forward and before not in self._routes.deleted:
            raise Violation(NAME, f"{body} went back from {before} to {incarnation}")
        self._last_seen[body] = incarnation
