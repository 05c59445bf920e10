"""Messages of one entity, taken and looked at: with locks or without, of a session or not.

A `Receiver` is one connection. Taking under a lock is followed by `settle`, which has the broker's
word when it returns; what was taken and not settled is handed back by `close`, without counting as
delivered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from types import TracebackType
from typing import Any
from uuid import UUID

from busway.amqp.events import TransferReceived
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, DeliveryState, Error, Modified, Rejected, Released
from busway.amqp.types import Array, Int, Symbol, Timestamp, UInt
from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.model.errors import TIMEOUT
from busway.model.message import partition_of
from busway.model.names import DEAD_LETTER_NODE
from busway.remote.connection import Credentials
from busway.remote.wire.conditions import broker_facts
from busway.remote.wire.line import BrokenError, Line, RefusedError, text_of

PEEKED_AT_A_TIME = 250
NUMBERS_AT_A_TIME = 250
CREDIT_MAX = 500
DRAIN_S = 10.0
LISTING_FROM_MS = 253_402_300_800_000
"""The year 10000, by which sessions that have messages are asked for (management-amqp.md 5.4)."""
SESSIONS_AT_A_TIME = 100
DEAD_LETTER_CONDITION = "com.microsoft:dead-letter"


class Settlement(Enum):
    COMPLETE = "complete"
    ABANDON = "abandon"
    DEFER = "defer"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class Taken:
    payload: bytes
    delivery_id: int | None = None
    """Of one that came by the link; deferred ones come otherwise."""
    token: UUID | None = None
    """None if it is gone from the broker already."""

    @property
    def number(self) -> int:
        return int(broker_facts(self.payload)[0].get("x-opt-sequence-number", 0))


class Receiver:
    """Raises `RefusedError`, `BrokenError` or `OSError`."""

    def __init__(self, address: str, credentials: Credentials, *, delete: bool = False) -> None:
        """`address` may be a sub-queue. `delete`: what is taken is gone from the broker at once."""
        self.address = address
        self._delete = delete
        self._link: Link | None = None
        self.session_id: str | None = None
        entity = address.partition("/$")[0]
        self._line = Line(address, credentials.pass_for(entity))

    def __enter__(self) -> Receiver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._line.close()

    # --- sessions --------------------------------------------------------------------------------

    def open_session(self, session_id: str | None, wait_s: float) -> bool:
        """Hold a session, or the next one with messages; whether there was one within `wait_s`."""
        try:
            self._link, self.session_id = self._line.session_receiver(
                self.address, session_id, wait_s, settled=self._delete
            )
        except RefusedError as error:
            if error.condition != TIMEOUT.condition:
                raise
            return False
        return True

    def leave_session(self) -> None:
        assert self._link is not None
        self._line.detach(self._link)
        self._link, self.session_id = None, None

    def session_state(self) -> bytes | None:
        state = self._line.ask("get-session-state", self._session(), self._link)
        found: bytes | None = state.get("session-state")
        return found

    def set_session_state(self, state: bytes | None) -> None:
        self._line.ask("set-session-state", {**self._session(), "session-state": state}, self._link)

    def session_ids(self) -> Iterator[str]:
        """Of those that have messages or a state."""
        skip = 0
        while True:
            asked = {
                "last-updated-time": Timestamp(LISTING_FROM_MS),
                "skip": Int(skip),
                "top": Int(SESSIONS_AT_A_TIME),
            }
            found = self._line.ask("get-message-sessions", asked).get("sessions-ids") or []
            yield from (str(each) for each in found)
            skip += len(found)
            if not found:
                return

    def _session(self) -> dict[str, Any]:
        return {} if self.session_id is None else {"session-id": self.session_id}

    # --- looking ---------------------------------------------------------------------------------

    def peek(self, first: int = 0, session_id: str | None = None) -> Iterator[bytes]:
        """All messages from a sequence number on. Nothing is locked, nothing counts."""
        after = first
        while True:
            asked: dict[str, Any] = {
                "from-sequence-number": after,
                "message-count": Int(PEEKED_AT_A_TIME),
            }
            if session_id is not None:
                asked["session-id"] = session_id
            found = self._line.ask("peek-message", asked).get("messages", [])
            if not found:
                return
            for each in found:
                yield each["message"]
            last = broker_facts(found[-1]["message"])[0]["x-opt-sequence-number"]
            after = int(last) + 1

    # --- taking ----------------------------------------------------------------------------------

    def take(self, count: int, wait_s: float) -> list[Taken]:
        """Up to `count` messages, as soon as there are some; none if none comes in `wait_s`."""
        line = self._line
        if self._link is None:
            self._link = line.receiver(self.address, settled=self._delete)
        link = self._link
        link.set_credit(min(count, CREDIT_MAX))
        line.wait(lambda: bool(line.arrived), wait_s)
        # The credit that is left is taken back, so that nothing comes that nobody waits for.
        if link.credit:
            link.set_credit(link.credit, drain=True)
        if not line.wait(lambda: link.credit == 0, DRAIN_S):
            raise BrokenError("the broker does not answer")
        arrived, line.arrived = line.arrived, []
        return [self._taken(each) for each in arrived]

    def _taken(self, event: TransferReceived) -> Taken:
        if self._delete:
            return Taken(event.payload)
        return Taken(event.payload, event.delivery_id, UUID(bytes_le=event.tag))

    def take_deferred(self, numbers: Sequence[int]) -> list[Taken]:
        """Deferred ones, by their numbers; of one partition at a time (DEF-2)."""
        by_partition: dict[int, list[int]] = {}
        for each in numbers:
            by_partition.setdefault(partition_of(each), []).append(each)
        found: list[Taken] = []
        for members in by_partition.values():
            for start in range(0, len(members), NUMBERS_AT_A_TIME):
                asked = {
                    "sequence-numbers": Array(members[start : start + NUMBERS_AT_A_TIME], int),
                    "receiver-settle-mode": UInt(0 if self._delete else 1),
                    **self._session(),
                }
                answer = self._line.ask("receive-by-sequence-number", asked, self._link)
                found += [
                    Taken(each["message"], None, None if self._delete else each["lock-token"])
                    for each in answer.get("messages", [])
                ]
        return found

    # --- settling --------------------------------------------------------------------------------

    def settle(
        self,
        taken: Sequence[Taken],
        how: Settlement,
        *,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        """Settle them, and wait for the broker's word."""
        by_link = [each.delivery_id for each in taken if each.delivery_id is not None]
        if by_link:
            self._settle_on_link(by_link, _state(how, reason, description))
        tokens = [each.token for each in taken if each.delivery_id is None and each.token]
        if tokens:
            asked: dict[str, Any] = {
                "disposition-status": STATUSES[how],
                "lock-tokens": Array(tokens, UUID),
                **self._session(),
            }
            if how is Settlement.DEAD_LETTER:
                asked["deadletter-reason"] = reason or ""
                asked["deadletter-description"] = description or ""
            self._line.ask("update-disposition", asked, self._link)

    def _settle_on_link(self, ids: list[int], state: DeliveryState) -> None:
        line, waiting = self._line, set(ids)
        assert self._link is not None
        self._link.settle(ids, state, settled=False)
        problem: list[Error | None] = []

        def confirmed() -> bool:
            settled, line.settled = line.settled, []
            for delivered, outcome in settled:
                waiting.difference_update(delivered)
                refused = isinstance(outcome, Rejected) and outcome.error is not None
                if refused and isinstance(outcome, Rejected):
                    problem.append(outcome.error)
            return not waiting

        line.until(confirmed)
        if problem:
            error = problem[0]
            raise RefusedError(text_of(error), None if error is None else error.condition)

    def hand_back(self, taken: Sequence[Taken]) -> None:
        """Unlock them, without counting as delivered (DLV-1)."""
        ids = [each.delivery_id for each in taken if each.delivery_id is not None]
        if ids and self._link is not None:
            self._link.settle(ids, Released())  # a lock that has run out has done so already
            self._line.write()

    # --- removing --------------------------------------------------------------------------------

    def delete_batch(self, count: int) -> int:
        """Active ones that nobody has locked, enqueued by now; how many were removed."""
        now = datetime.now(UTC)
        asked = {
            "message-count": Int(count),
            "enqueued-time-utc": Timestamp(int(now.timestamp() * 1000) + 1),
        }
        answer = self._line.ask("batch-delete-messages", asked)
        return int(answer.get("message-count", 0))

    def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), NUMBERS_AT_A_TIME):
            some = Array(list(numbers[start : start + NUMBERS_AT_A_TIME]), int)
            self._line.ask("cancel-scheduled-message", {"sequence-numbers": some})


STATUSES = {
    Settlement.COMPLETE: "completed",
    Settlement.ABANDON: "abandoned",
    Settlement.DEFER: "defered",  # sic: what the service knows
    Settlement.DEAD_LETTER: "suspended",
}


def _state(how: Settlement, reason: str | None, description: str | None) -> DeliveryState:
    match how:
        case Settlement.COMPLETE:
            return Accepted()
        case Settlement.ABANDON:
            return Modified(delivery_failed=True)
        case Settlement.DEFER:
            return Modified(delivery_failed=True, undeliverable_here=True)
    info = {
        Symbol(name): text for name, text in ((REASON, reason), (DESCRIPTION, description)) if text
    }
    return Rejected(Error(DEAD_LETTER_CONDITION, None, info or None))


def dead_letters_of(entity: str) -> str:
    return f"{entity}/{DEAD_LETTER_NODE}"


def patience(wait_s: float) -> Iterator[float]:
    """How much of a wait is left, each time it is asked; ends when nothing is."""
    until = time.monotonic() + wait_s
    while True:
        left = until - time.monotonic()
        if left <= 0:
            return
        yield left
