"""The dead-letter queue of an entity: looked at, and taken from message by message.

Looking is a peek: nothing is locked and nothing counts as delivered. Taking is receiving under a
lock. What is not removed stays locked until the end, so that it does not come again and again, and
is handed back then without counting as delivered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from busway.amqp.codec import decode_value, scan_message
from busway.amqp.events import TransferReceived
from busway.amqp.performatives import Accepted, Header, Released
from busway.amqp.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SCHEDULED_ENQUEUE_TIME,
    encode_message,
    read_annotations,
    read_application_properties,
    read_properties,
    walk_sections,
)
from busway.amqp.types import Array, Int, Symbol
from busway.broker.dead_letters import DESCRIPTION, REASON
from busway.broker.journal_properties import text_of as property_text
from busway.model.partitioning import message_id_text
from busway.pipeline.line import Line, RefusedError
from busway.pipeline.messages import ORIGINAL_ID, hashed
from busway.remote.connection import Pass

log = logging.getLogger(__name__)

PEEKED_AT_A_TIME = 500
TAKEN_AT_A_TIME = 200
TOKENS_AT_A_TIME = 500
LOCK_S_LEAST = 1.0
NODE = "$DeadLetterQueue"


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
    application_properties: dict[str, str | None]
    body: bytes


@dataclass(frozen=True, slots=True)
class Taken:
    """One that is locked for us."""

    delivery_id: int
    token: UUID
    payload: bytes
    letter: DeadLetter


def read_letter(payload: bytes) -> DeadLetter:
    """What a broker delivers, or shows in a peek."""
    annotations: dict[str, Any] = {}
    delivery_count, body = 0, b""
    for code, start, value, _ in walk_sections(payload):
        if code == MESSAGE_ANNOTATIONS:
            annotations = {str(k): v for k, v in decode_value(payload, value)[0].items()}
        elif code == HEADER:
            fields = decode_value(payload, start)[0].value
            delivery_count = int(fields[4] or 0) if len(fields) > 4 else 0
        elif code in BODY:
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
        {name: property_text(value) for name, value in user.items()},
        body,
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


def copy_of(payload: bytes, message_id: str) -> bytes:
    """The message as its sender sent it, under another id.

    What brokers have written on it is gone, and with it why it was dead-lettered; the body and the
    other properties are the same to the byte.
    """
    seen = scan_message(payload)
    properties = read_properties(seen.bare)
    user = read_application_properties(seen.bare)
    kept = {name: value for name, value in user.items() if name not in (REASON, DESCRIPTION)}
    if properties.message_id is not None:
        kept.setdefault(ORIGINAL_ID, message_id_text(properties.message_id))
    properties.message_id = message_id
    # The old moment would end it at once; its time to live begins anew.
    properties.absolute_expiry_time = properties.creation_time = None
    annotations = {
        Symbol(name): value
        for name, value in read_annotations(seen.annotations).items()
        if name != SCHEDULED_ENQUEUE_TIME.decode()
    }
    front = encode_message(
        header=None if seen.ttl_ms is None else Header(ttl=seen.ttl_ms),
        annotations=annotations or None,
        properties=properties,
        application_properties=kept or None,
    )
    rest = [
        seen.bare[start:stop]
        for code, start, _, stop in walk_sections(seen.bare)
        if code not in (PROPERTIES, APPLICATION_PROPERTIES)
    ]
    return b"".join([front, *rest])


class DeadLetterQueue:
    """One connection to it. Raises `line.RefusedError`, `line.BrokenError` or `OSError`."""

    def __init__(self, entity: str, allowed: Pass) -> None:
        self.entity = entity
        self._line = Line(f"{entity}/{NODE}", allowed)
        self._link: Any = None
        self._held: dict[int, Taken] = {}
        """By delivery id: what is locked for us and not removed."""
        self._lock_s = 0.0
        self._renewed_at = 0.0

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

    def take(self) -> list[Taken]:
        """Some that were not taken yet; none if there are no more."""
        line = self._line
        if self._link is None:
            self._link = line.receiver(f"{self.entity}/{NODE}")
            self._renewed_at = time.monotonic()
        link = self._link
        self._renew_in_time()
        link.set_credit(TAKEN_AT_A_TIME, drain=True)
        line.until(lambda: link.credit == 0)
        arrived, line.arrived = line.arrived, []
        taken = [self._taken(each) for each in arrived]
        self._held.update((each.delivery_id, each) for each in taken)
        return taken

    def _taken(self, event: TransferReceived) -> Taken:
        letter = read_letter(event.payload)
        for code, _, value, _ in walk_sections(event.payload):
            if code == MESSAGE_ANNOTATIONS:
                until = decode_value(event.payload, value)[0].get(Symbol("x-opt-locked-until"))
                lock_s = int(until) / 1000 - time.time()
                self._lock_s = max(LOCK_S_LEAST, min(self._lock_s or lock_s, lock_s))
        return Taken(event.delivery_id, UUID(bytes_le=event.tag), event.payload, letter)

    def complete(self, taken: Sequence[Taken]) -> set[int]:
        """Remove them; the delivery ids of those that the broker confirms are gone."""
        waiting = {each.delivery_id for each in taken}
        confirmed: set[int] = set()
        self._link.settle(sorted(waiting), Accepted(), settled=False)
        line = self._line

        def answered() -> bool:
            settled, line.settled = line.settled, []
            for delivery_ids, state in settled:
                waiting.difference_update(delivery_ids)
                if isinstance(state, Accepted):
                    confirmed.update(delivery_ids)
            return not waiting

        if waiting:
            line.until(answered)
        for delivery_id in confirmed:
            self._held.pop(delivery_id, None)
        return confirmed & {each.delivery_id for each in taken}

    def _renew_in_time(self) -> None:
        if not self._held or time.monotonic() - self._renewed_at < self._lock_s / 3:
            return
        self._renewed_at = time.monotonic()
        held, self._held = list(self._held.values()), {}
        for first in range(0, len(held), TOKENS_AT_A_TIME):
            some = held[first : first + TOKENS_AT_A_TIME]
            tokens = Array([each.token for each in some], UUID)
            try:
                self._line.ask("renew-lock", {"lock-tokens": tokens})
                self._held.update((each.delivery_id, each) for each in some)
            except RefusedError as error:
                log.info("locks that have run out: %s", error)  # they will come again

    def close(self) -> None:
        """Hand back what is held, and leave."""
        try:
            if self._link is not None and self._held:
                self._link.settle(sorted(self._held), Released())
                self._line.write()
        except OSError as problem:
            # The broker hands them back when it sees that the connection is gone.
            log.debug("left without a word: %s", problem)
        finally:
            self._line.close()
