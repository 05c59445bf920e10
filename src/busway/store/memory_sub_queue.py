"""One sub-queue of the memory store: its messages in every order that reads ask for, its sessions,
duplicate marks and transfer marks. It only changes; taking back is its disk's (`memory`)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import inf

from busway.model.message import Message, MessageState
from busway.store.base import Counters, DuplicateMark, SessionRecord, SubQueueKey
from busway.store.ordered import OrderedKeys

TransferKey = tuple[int, int]
"""Source incarnation and partition (D-27)."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    active: int = 0
    state: bytes | None = None
    updated_ms: int | None = None
    """Of the state; None if there is none."""
    name: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.active == 0 and self.state is None


NO_SESSION = StoredSession()


class StoredSubQueue:
    __slots__ = (
        "_by_session",
        "_by_state",
        "_digests",
        "counters",
        "duplicates",
        "key",
        "messages",
        "sessions",
        "transfers",
    )

    def __init__(self, key: SubQueueKey) -> None:
        self.key = key
        self.counters = Counters()
        self.messages: dict[int, Message] = {}
        self.sessions: dict[str, StoredSession] = {}
        self.duplicates: dict[bytes, int] = {}
        self.transfers: dict[TransferKey, int] = {}
        self._by_state = {state: OrderedKeys[int]() for state in MessageState}
        self._by_session: dict[str, OrderedKeys[int]] = {}
        self._digests: list[bytes] | None = None
        """The duplicates in order, if that is known: a history is read in one go (D-13)."""

    def add(self, message: Message) -> None:
        number, session_id = message.number, message.session_id
        self.messages[number] = message
        self._by_state[message.state].add(number)
        if session_id is not None:
            numbers = self._by_session.get(session_id)
            if numbers is None:
                numbers = self._by_session[session_id] = OrderedKeys()
            numbers.add(number)

    def take(self, number: int) -> Message | None:
        message = self.messages.pop(number, None)
        if message is None:
            return None
        self._by_state[message.state].discard(number)
        if message.session_id is not None:
            numbers = self._by_session[message.session_id]
            numbers.discard(number)
            if not numbers:
                del self._by_session[message.session_id]
        return message

    def mark(self, digest: bytes, until_ms: int | None) -> None:
        """Remember a duplicate until then, or forget it (None)."""
        if until_ms is None:
            del self.duplicates[digest]
            self._digests = None
            return
        if digest not in self.duplicates:
            self._digests = None
        self.duplicates[digest] = until_ms

    @property
    def is_empty(self) -> bool:
        return not (self.messages or self.sessions or self.duplicates or self.transfers)

    # --- reading ---------------------------------------------------------------------------------

    def numbers(self, after: int | None = None) -> Iterator[int]:
        return merge(*(numbers.after(after) for numbers in self._by_state.values()))

    def page(
        self,
        after: int,
        state: MessageState | None,
        session_id: str | None,
        rows: int,
        size: int,
    ) -> list[Message]:
        found: list[Message] = []
        for number in self._numbers_of(after, state, session_id):
            message = self.messages[number]
            if state is not None and message.state is not state:
                continue  # of this session, but in another state
            if len(found) == rows or (size <= 0 and found):
                break
            found.append(message)
            size -= message.size
        return found

    def _numbers_of(
        self, after: int, state: MessageState | None, session_id: str | None
    ) -> Iterator[int]:
        if session_id is not None:
            of_session = self._by_session.get(session_id)
            return iter(()) if of_session is None else of_session.after(after)
        return self.numbers(after) if state is None else self._by_state[state].after(after)

    def session_records(self, slot: int) -> list[SessionRecord]:
        in_order = sorted(self.sessions, key=lambda id_: (self._first_active(id_), id_))
        kept = [(id_, self.sessions[id_]) for id_ in in_order]
        return [
            SessionRecord(
                slot, id_, each.active, each.updated_ms, len(each.state or b""), each.name
            )
            for id_, each in kept
        ]

    def _first_active(self, session_id: str) -> float:
        """Its number; above all others if there is none."""
        numbers = self._by_session.get(session_id)
        active = (
            number
            for number in (() if numbers is None else numbers.after(None))
            if self.messages[number].state is MessageState.ACTIVE
        )
        return next(active, inf)

    def duplicate_marks(
        self, slot: int, after: bytes, now_ms: int, rows: int
    ) -> list[DuplicateMark]:
        if self._digests is None:
            self._digests = sorted(self.duplicates)
        behind = islice(self._digests, bisect_right(self._digests, after), None)
        marks = (DuplicateMark(slot, digest, self.duplicates[digest]) for digest in behind)
        return list(islice((mark for mark in marks if mark.until_ms > now_ms), rows))
