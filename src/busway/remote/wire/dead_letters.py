"""The dead-letter queue of an entity: looked at, and moved from message by message.

Looking is a peek: nothing is locked and nothing counts as delivered. Moving is receiving under a
lock, and one transaction that sends a copy and removes the dead letter: both happen or neither,
whatever breaks (TXN-2). The copy goes by way of the entity itself (TXN-3), so it needs no key of
the dead letter's partition (P-33), and arrives once (D-27).

What is not moved stays locked until the end, so that it does not come again and again, and is
handed back then without counting as delivered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from busway.amqp.codec import decode_value
from busway.amqp.events import TransferReceived
from busway.amqp.link import Link
from busway.amqp.performatives import (
    Accepted,
    Declared,
    Rejected,
    Released,
    TransactionalState,
)
from busway.amqp.sections import (
    BODY,
    MESSAGE_ANNOTATIONS,
    encode_message,
    read_application_properties,
    read_properties,
    walk_sections,
)
from busway.amqp.types import Array, Described, Int, Symbol, ULong
from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.broker.journal_properties import text_of as property_text
from busway.model.errors import TRANSACTION_ROLLBACK, TRANSACTION_TIMEOUT
from busway.model.names import DEAD_LETTER_NODE, SUBSCRIPTIONS_NODE
from busway.model.partitioning import message_id_text
from busway.remote.connection import Credentials
from busway.remote.wire.conditions import broker_facts
from busway.remote.wire.copies import hashed
from busway.remote.wire.line import BrokenError, Line, RefusedError, text_of

log = logging.getLogger(__name__)

PEEKED_AT_A_TIME = 500
TAKEN_AT_A_TIME = 200
TOKENS_AT_A_TIME = 500
LOCK_S_LEAST = 1.0
RENEWED_AFTER = 1 / 3
"""Of the time that a lock lasts."""
DEFERRED = 1
"""What `x-opt-message-state` says of one that waits to be asked for by its number (MSG-1)."""


DECLARE, DISCHARGE = ULong(0x31), ULong(0x32)
NOT_DONE = {TRANSACTION_ROLLBACK.condition, TRANSACTION_TIMEOUT.condition}


class RolledBackError(Exception):
    """The broker did nothing of what it was asked for, and why."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One of them, as far as a person or a condition wants to know."""

    sequence_number: int
    message_id: str | None
    session_id: str | None
    subject: str | None
    correlation_id: str | None
    content_type: str | None
    reason: str | None
    description: str | None
    enqueued_time: datetime
    delivery_count: int
    state: str
    """active, or deferred by a receiver of dead letters"""
    application_properties: dict[str, str | None]
    body: bytes
    payload: bytes
    """All of it, as it came."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One that is locked for us."""

    delivery_id: int
    token: UUID
    payload: bytes
    letter: DeadLetter


def read_letter(payload: bytes) -> DeadLetter:
    """What a broker delivers, or shows in a peek."""
    annotations, delivery_count = broker_facts(payload)
    body = b""
    for code, _, value, _ in walk_sections(payload):
        if code in BODY:
            content = decode_value(payload, value)[0]
            body += content if isinstance(content, bytes) else str(content).encode()
    properties = read_properties(payload)
    user = read_application_properties(payload)
    told = properties.message_id
    return DeadLetter(
        int(annotations["x-opt-sequence-number"]),
        None if told is None else message_id_text(told),
        properties.group_id,
        properties.subject,
        None if properties.correlation_id is None else message_id_text(properties.correlation_id),
        properties.content_type,
        _text(user.get(REASON)),
        _text(user.get(DESCRIPTION)),
        datetime.fromtimestamp(int(annotations["x-opt-enqueued-time"]) / 1000, UTC),
        delivery_count,
        "deferred" if annotations.get("x-opt-message-state") == DEFERRED else "active",
        {name: property_text(value) for name, value in user.items()},
        body,
        payload,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def new_id(entity: str, letter: DeadLetter) -> str:
    """The id of its copy: the same for the same dead letter, and for no other one."""
    return hashed(
        [
            "triage",
            entity.lower(),
            letter.sequence_number,
            int(letter.enqueued_time.timestamp() * 1000),
            letter.message_id,
        ]
    )


def top_level(entity: str) -> str:
    """The queue itself, or the topic of a subscription."""
    path, node, _ = _split(entity)
    return path if node else entity


def subscription_of(entity: str) -> str | None:
    _, node, name = _split(entity)
    return name if node else None


def _split(entity: str) -> tuple[str, bool, str]:
    node = f"/{SUBSCRIPTIONS_NODE}/".lower()
    place = entity.lower().rfind(node)
    if place < 0:
        return entity, False, ""
    return entity[:place], True, entity[place + len(node) :]


class DeadLetterQueue:
    """One connection to it, and to where dead letters are moved, if they are.

    Raises `line.RefusedError`, `line.BrokenError` or `OSError`.
    """

    def __init__(self, entity: str, credentials: Credentials, to: str | None = None) -> None:
        self._address = f"{entity}/{DEAD_LETTER_NODE}"
        self._line = Line(self._address, credentials.pass_for(entity))
        self._to = to
        self._held: dict[int, UUID] = {}
        """By delivery id: the locks of what was taken and is not moved."""
        self._at_a_time = TAKEN_AT_A_TIME
        self._lock_s = 0.0
        self._renewed_at = time.monotonic()
        if to is None:
            return
        try:
            via = top_level(entity)
            for each in {via, to}:
                self._line.show_pass(each, credentials.pass_for(each))
            self._receiver = self._line.receiver(self._address)
            self._sender = self._line.sender(via, destination=to)
            self._coordinator = self._coordinator_of_line()
        except BaseException:
            self._line.close()
            raise

    def _coordinator_of_line(self) -> Link:
        try:
            return self._line.coordinator()
        except RefusedError as error:
            raise RefusedError(
                "Dead letters are moved in transactions, so that each is there once, and this "
                f"namespace has none; the tier Basic has not (TXN-7). The broker says: {error}"
            ) from error

    def peek(self) -> Iterator[DeadLetter]:
        """All of them, in the order of their numbers."""
        after = 0
        while True:
            asked = {"from-sequence-number": after, "message-count": Int(PEEKED_AT_A_TIME)}
            answer = self._line.ask("peek-message", asked)
            letters = [read_letter(each["message"]) for each in answer.get("messages", [])]
            if not letters:
                return
            yield from letters
            after = letters[-1].sequence_number + 1

    # --- taking and moving -----------------------------------------------------------------------

    def take(self) -> list[Taken]:
        """Some that were not taken yet; none if there are no more."""
        line, link = self._line, self._receiver
        self._renew_in_time()
        link.set_credit(self._at_a_time, drain=True)
        line.until(lambda: link.credit == 0)
        arrived, line.arrived = line.arrived, []
        taken = [self._taken(each) for each in arrived]
        self._held.update((each.delivery_id, each.token) for each in taken)
        return taken

    def _taken(self, event: TransferReceived) -> Taken:
        letter = read_letter(event.payload)
        for code, _, value, _ in walk_sections(event.payload):
            if code == MESSAGE_ANNOTATIONS:
                until = decode_value(event.payload, value)[0].get(Symbol("x-opt-locked-until"))
                lock_s = int(until) / 1000 - time.time()
                self._lock_s = max(LOCK_S_LEAST, min(self._lock_s or lock_s, lock_s))
        return Taken(event.delivery_id, UUID(bytes_le=event.tag), event.payload, letter)

    def move(self, copies: Sequence[tuple[Taken, bytes]]) -> None:
        """Send copies of dead letters of one partition and remove those, all of it or nothing.

        Raises `RolledBackError` for nothing; then they are handed back, and come again. A
        connection that breaks leaves open which of both it was.
        """
        self._renew_in_time()
        line = self._line
        declared = self._coordinate(DECLARE, None)
        if not isinstance(declared, Declared):
            raise BrokenError("a transaction was not declared")
        ids = [taken.delivery_id for taken, _ in copies]
        for each in ids:
            self._held.pop(each, None)
        state = TransactionalState(declared.txn_id, Accepted())
        self._receiver.settle(ids, state, settled=False)
        for _, copy in copies:
            line.until(lambda: self._sender.credit > 0)
            line.send(self._sender, copy, TransactionalState(declared.txn_id))
        outcome = self._coordinate(DISCHARGE, declared.txn_id, False)
        line.settled.clear()
        if isinstance(outcome, Accepted):
            return
        error = outcome.error if isinstance(outcome, Rejected) else None
        if error is None or error.condition not in NOT_DONE:
            raise BrokenError(text_of(error))
        # Without counting as delivered (DLV-1). Locks that have run out have done so already.
        self._receiver.settle(ids, Released())
        self._at_a_time = max(1, self._at_a_time // 2)  # it may have been too much for their locks
        raise RolledBackError(text_of(error))

    def _coordinate(self, command: ULong, *fields: object) -> object:
        """What the coordinator says to a command. Other answers repeat what a discharge tells."""
        line = self._line
        line.until(lambda: self._coordinator.credit > 0)
        line.answers.clear()
        asked = line.send(self._coordinator, encode_message(body=Described(command, list(fields))))
        found: list[object] = []

        def answered() -> bool:
            answers, line.answers = line.answers, []
            found.extend(state for ids, state in answers if asked in ids)
            return bool(found)

        line.until(answered)
        return found[0]

    # --- locks -----------------------------------------------------------------------------------

    def _renew_in_time(self) -> None:
        if time.monotonic() - self._renewed_at < self._lock_s * RENEWED_AFTER:
            return
        self._renewed_at = time.monotonic()
        held = list(self._held.items())
        for first in range(0, len(held), TOKENS_AT_A_TIME):
            self._renew(held[first : first + TOKENS_AT_A_TIME])

    def _renew(self, held: Sequence[tuple[int, UUID]]) -> None:
        """A lock that has run out is forgotten: what it held will come again."""
        tokens = Array([token for _, token in held], UUID)
        try:
            self._line.ask("renew-lock", {"lock-tokens": tokens})
        except RefusedError as error:
            if len(held) == 1:
                log.info("a lock has run out: %s", error)
                self._held.pop(held[0][0], None)
                return
            middle = len(held) // 2
            self._renew(held[:middle])
            self._renew(held[middle:])

    def close(self) -> None:
        """Hand back what is held, and leave."""
        try:
            if self._held:
                self._receiver.settle(sorted(self._held), Released())
                self._line.write()
        except OSError as problem:
            # The broker hands them back when their locks run out.
            log.debug("left without a word: %s", problem)
        finally:
            self._line.close()
