"""Batches of many messages, read in slices: one slice is a step of their connection's turn.

Until the last message of a batch is read, nothing of it is handed to a partition, and nothing that
the connection has sent after it is looked at. If the connection or the link ends meanwhile, or the
link's entity is deleted, nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from busway.amqp.errors import ProtocolError
from busway.model.errors import BusError

T = TypeVar("T")

SLICE_MESSAGES = 64
"""About 0.3 ms."""
MEMBER_BYTES = 512
"""What a message of a batch takes in memory beside its own bytes; thousands of them may have only
a few bytes each."""


class Sliced(Protocol):
    """Work of a connection that does not fit into one step of its turn."""

    def advance(self) -> bool:
        """Do a slice of it; True when all is done."""

    def drop(self) -> None:
        """It will not go on."""


class BatchReading(Generic[T]):
    """Reads messages one by one; `done` with all of them, or `refuse` with the first error."""

    def __init__(
        self,
        payloads: list[bytes],
        read: Callable[[bytes], T],
        done: Callable[[list[T]], None],
        refuse: Callable[[BusError | ProtocolError], None],
        *,
        is_void: Callable[[], bool],
        dropped: Callable[[], None],
        slice_messages: int = SLICE_MESSAGES,
    ) -> None:
        self._payloads = payloads
        self._read = read
        self._done = done
        self._refuse = refuse
        self._is_void = is_void
        """Whether nobody wants it any more: its link is gone."""
        self._dropped = dropped
        self._slice_messages = slice_messages
        self._found: list[T] = []

    def advance(self) -> bool:
        if self._is_void():
            self.drop()
            return True
        start = len(self._found)
        try:
            for payload in self._payloads[start : start + self._slice_messages]:
                self._found.append(self._read(payload))
        except (BusError, ProtocolError) as error:
            self.drop()
            self._refuse(error)
            return True
        if len(self._found) < len(self._payloads):
            return False
        self.drop()
        self._done(self._found)
        return True

    def drop(self) -> None:
        self._dropped()


def memory_of(payload_bytes: int, messages: int) -> int:
    """What counts against the node's budget until a batch is committed (D-8)."""
    return payload_bytes + MEMBER_BYTES * (messages - 1)
