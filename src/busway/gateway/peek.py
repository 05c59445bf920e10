"""Peek over all partitions of an entity, in numeric order, within one call (D-26, P-30, P-32).

A partition is left only when it has nothing more at or after the number asked for, so a caller that
repeats from the last number it saw sees every message once. One that is ill is skipped and logged:
a part of the truth now is better than an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from busway.gateway.router import Router
from busway.model.entities import Entity
from busway.model.errors import BusError
from busway.model.limits import PEEK_REPLY_MAX_BYTES
from busway.model.message import Message, MessageState, partition_of, sequence_number
from busway.store.base import READ_ROWS_MAX, SubQueueKey, SubQueueKind

log = logging.getLogger("busway.gateway")

PEEK_OVERHEAD_BYTES = 128
"""Of each message in the reply: what the broker adds to it, and the map around it."""


class PeekWalk:
    """One peek on its way through the partitions."""

    def __init__(
        self,
        router: Router,
        entity: Entity,
        kind: SubQueueKind,
        count: int,
        done: Callable[[list[Message]], None],
    ) -> None:
        self._router = router
        self._entity = entity
        self._kind = kind
        self._count = count
        self._done = done
        self._found: list[Message] = []
        self._size = 0
        self._partition = 0
        self._asked = 0
        self._room = 0
        self._session_id: str | None = None
        self._state: MessageState | None = None
        self._first, self._stop = 0, len(entity.placement)
        self.is_at_the_end = False
        """Whether there was nothing more behind what was found."""

    def within(self, session_id: str | None, partition: int | None) -> PeekWalk:
        """Only this session's messages, in this partition if it is known to have them all."""
        self._session_id = session_id
        if partition is not None:
            self._first, self._stop = partition, partition + 1
        return self

    def in_state(self, state: MessageState | None) -> PeekWalk:
        """Only messages in this state; in any for None."""
        self._state = state
        return self

    def walk(self, from_number: int) -> None:
        """Go on from this number; partitions without an owner are passed over."""
        self._partition = partition_of(from_number)
        if self._partition < self._first:
            self._partition, from_number = self._first, sequence_number(self._first, 0)
        while self._partition < self._stop:
            owner = self._router.owner(self._entity, self._partition)
            if owner is not None and owner.available:
                key = SubQueueKey(self._entity.incarnation, self._partition, self._kind)
                self._asked = min(self._count - len(self._found), READ_ROWS_MAX)
                self._room = PEEK_REPLY_MAX_BYTES - self._size
                owner.peek(
                    key,
                    from_number,
                    self._asked,
                    self._room,
                    self._answered,
                    self._session_id,
                    self._state,
                )
                return
            self._skip("it is unavailable")
            from_number = sequence_number(self._partition, 0)
        self.is_at_the_end = True
        self._done(self._found)

    def _answered(self, outcome: list[Message] | BusError) -> None:
        if isinstance(outcome, BusError):
            self._skip(str(outcome))
            self.walk(sequence_number(self._partition, 0))
            return
        page_size = 0
        for message in outcome:
            page_size += message.size
            self._size += message.size + PEEK_OVERHEAD_BYTES
            if self._size > PEEK_REPLY_MAX_BYTES and self._found:
                self._done(self._found)
                return
            self._found.append(message)
        if len(self._found) >= self._count or self._size >= PEEK_REPLY_MAX_BYTES:
            self._done(self._found)
        elif len(outcome) < self._asked and page_size < self._room:
            # Neither the rows nor the bytes ran out, so the partition did.
            self.walk(sequence_number(self._partition + 1, 0))
        else:
            self.walk(self._found[-1].number + 1)

    def _skip(self, why: str) -> None:
        log.warning("peek skips partition %d of %s: %s", self._partition, self._entity.path, why)
        self._partition += 1
