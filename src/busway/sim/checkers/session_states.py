"""A session's state is the last one that was acknowledged, or one that nobody knows of (SES-10)."""

from __future__ import annotations

from dataclasses import dataclass, field

from busway.sim.history import (
    Answer,
    Event,
    QueueDeleted,
    SessionAccepted,
    StateRead,
    StateReadStarted,
    StateSetEnded,
    StateSetStarted,
    Violation,
)
from busway.store.base import SubQueueKey

NAME = "session states"

Place = tuple[SubQueueKey, str]


@dataclass(slots=True)
class Known:
    """What a session's state may be: the last certain one, and those that may have come after."""

    certain: bytes | None = None
    open: dict[int, bytes | None] = field(default_factory=dict)
    """By change, in the order in which they were asked for."""

    @property
    def possible(self) -> set[bytes | None]:
        return {self.certain, *self.open.values()}


class SessionStates:
    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._states: dict[Place, Known] = {}
        self._changes: dict[int, Place] = {}
        self._reads: dict[int, tuple[Place, set[bytes | None]]] = {}
        """While they are under way: everything that they may see."""
        self._deleted: set[int] = set()

    def see(self, now_ms: int, event: Event) -> None:
        match event:
            case QueueDeleted(incarnation):
                self._deleted.add(incarnation)
            case SessionAccepted():
                self._places[event.holding] = (event.key, event.session_id)
            case StateSetStarted(change, holding, state):
                place = self._changes[change] = self._places[holding]
                self._known(place).open[change] = state
                self._widen(place)
            case StateSetEnded(change, answer):
                self._ended(change, self._changes[change], answer)
            case StateReadStarted(read, holding):
                place = self._places[holding]
                self._reads[read] = (place, self._known(place).possible)
            case StateRead(read, state):
                place, possible = self._reads.pop(read)
                if state not in possible:
                    raise Violation(NAME, f"{place} has the state {state!r}, none of {possible}")

    def _known(self, place: Place) -> Known:
        return self._states.setdefault(place, Known())

    def _widen(self, place: Place) -> None:
        for of, possible in self._reads.values():
            if of == place:
                possible |= self._known(place).possible

    def _ended(self, change: int, place: Place, answer: Answer) -> None:
        known = self._known(place)
        if change not in known.open:
            return  # a later one is done, and its answer came first: on another connection
        if answer is Answer.REFUSED:
            del known.open[change]
        elif answer is Answer.DONE:
            known.certain = known.open[change]
            for earlier in list(known.open):
                if earlier <= change:
                    del known.open[earlier]
            self._widen(place)

    def check_found(self, found: dict[Place, bytes | None]) -> None:
        """`found` is what the stores hold, at rest."""
        for place in {**found, **self._states}:
            if place[0].incarnation in self._deleted:
                continue
            known, state = self._known(place), found.get(place)
            if state not in known.possible:
                raise Violation(NAME, f"{place} keeps {state!r}, none of {known.possible}")
