"""Removing messages of an entity: active, scheduled and deferred ones, also of sessions.

Active ones are deleted in batches, which the service refuses for some entities; those are received
and deleted. Scheduled ones are cancelled, deferred ones received by their numbers. Only what was
there when it was counted is removed: an application that goes on sending is not fought with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from busway.model.errors import NOT_FOUND, UNAUTHORIZED
from busway.model.message import MessageState
from busway.remote.connection import Credentials
from busway.remote.wire.conditions import delivered
from busway.remote.wire.line import RefusedError
from busway.remote.wire.receiving import Receiver

DELETED_AT_A_TIME = 500
WAIT_S = 2.0
"""How long a receiver waits that deletes what it gets: it was there a moment ago."""
SESSION_WAIT_S = 1.0


@dataclass(slots=True)
class Purged:
    removed: dict[str, int] = field(default_factory=dict)
    """By state."""
    left: int = 0
    """Counted, and not removed: others hold them."""


class Purge:
    """Raises `RefusedError`, `BrokenError` or `OSError`."""

    def __init__(self, address: str, credentials: Credentials, states: Collection[str]) -> None:
        self._address = address
        self._credentials = credentials
        self._states = [each.name.lower() for each in MessageState if each.name.lower() in states]
        self._numbers: dict[str, list[tuple[int, str | None]]] = {}
        """By state: sequence numbers, and the sessions that they belong to."""
        self._done = Purged()

    def count(self) -> dict[str, int]:
        """How many there are, by state; by peeking, which needs no right to manage."""
        found: dict[str, list[tuple[int, str | None]]] = {each: [] for each in self._states}
        with Receiver(self._address, self._credentials) as receiver:
            for payload in receiver.peek():
                message = delivered(payload)
                state = message.state.name.lower()
                if state in found:
                    found[state].append((message.number, message.session_id))
        self._numbers = found
        return {state: len(numbers) for state, numbers in found.items()}

    def nothing(self) -> Purged:
        self._done.removed = dict.fromkeys(self._states, 0)
        return self._done

    def remove(self, on_removed: Callable[[int], None] = lambda count: None) -> Purged:
        done = self.nothing()

        def tell(state: str, count: int) -> None:
            done.removed[state] += count
            on_removed(sum(done.removed.values()))

        if active := len(self._numbers.get("active", ())):
            self._remove_active(active, lambda count: tell("active", count))
        if scheduled := self._numbers.get("scheduled"):
            numbers = [number for number, _ in scheduled]
            tell("scheduled", self._cancel(numbers))
        if deferred := self._numbers.get("deferred"):
            self._remove_deferred(deferred, lambda count: tell("deferred", count))
        counted = sum(map(len, self._numbers.values()))
        done.left = max(0, counted - sum(done.removed.values()))
        return done

    # --- active ----------------------------------------------------------------------------------

    def _remove_active(self, count: int, tell: Callable[[int], None]) -> None:
        left = count
        with Receiver(self._address, self._credentials) as receiver:
            while left:
                try:
                    deleted = receiver.delete_batch(min(left, DELETED_AT_A_TIME))
                except RefusedError as error:
                    if error.condition in (NOT_FOUND.condition, UNAUTHORIZED.condition):
                        raise
                    break  # the service has it not for every entity
                if not deleted:
                    return
                left -= deleted
                tell(deleted)
        sessions = any(session is not None for _, session in self._numbers["active"])
        if left and sessions and "/$" not in self._address:
            self._receive_sessions(left, tell)
        elif left:
            self._receive(left, tell)

    def _receive(self, left: int, tell: Callable[[int], None]) -> None:
        with Receiver(self._address, self._credentials, delete=True) as receiver:
            while left:
                taken = receiver.take(min(left, DELETED_AT_A_TIME), WAIT_S)
                if not taken:
                    return
                left -= len(taken)
                tell(len(taken))

    def _receive_sessions(self, left: int, tell: Callable[[int], None]) -> None:
        sessions = Counter(session for _, session in self._numbers["active"])
        with Receiver(self._address, self._credentials, delete=True) as receiver:
            for session_id, count in sessions.items():
                if not receiver.open_session(session_id, SESSION_WAIT_S):
                    continue
                while count:
                    taken = receiver.take(min(count, DELETED_AT_A_TIME), WAIT_S)
                    if not taken:
                        break
                    count -= len(taken)
                    tell(len(taken))
                receiver.leave_session()

    # --- scheduled and deferred ------------------------------------------------------------------

    def _cancel(self, numbers: list[int]) -> int:
        """One by one where it cannot be done together: some may have become active meanwhile."""
        with Receiver(self._address, self._credentials) as receiver:
            try:
                receiver.cancel_scheduled(numbers)
                return len(numbers)
            except RefusedError as error:
                if error.condition == UNAUTHORIZED.condition:
                    raise
            return sum(_tried(lambda n=n: receiver.cancel_scheduled([n])) for n in numbers)  # type: ignore[misc]

    def _remove_deferred(
        self, deferred: list[tuple[int, str | None]], tell: Callable[[int], None]
    ) -> None:
        by_session: dict[str | None, list[int]] = {}
        for number, session in deferred:
            by_session.setdefault(None if "/$" in self._address else session, []).append(number)
        with Receiver(self._address, self._credentials, delete=True) as receiver:
            for session_id, numbers in by_session.items():
                held = False
                if session_id is not None:
                    try:
                        held = receiver.open_session(session_id, SESSION_WAIT_S)
                    except RefusedError:
                        held = False  # a queue without sessions, or one that another holds
                for number in numbers:
                    tell(_tried(lambda n=number: receiver.take_deferred([n])))  # type: ignore[misc]
                if held:
                    receiver.leave_session()


def _tried(step: Callable[[], object]) -> int:
    """1 if it was done; 0 if the broker says no, because it is locked or gone."""
    try:
        step()
    except RefusedError as error:
        if error.condition == UNAUTHORIZED.condition:
            raise
        return 0
    return 1
