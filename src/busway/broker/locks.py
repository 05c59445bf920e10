"""Locks on messages: their tokens, who holds what, when they run out (LOCK-1 to LOCK-8, D-23).

Taking or renewing a lock writes nothing (D-5): this table is memory, and void after a restart. Old
tokens are told apart by the store's epoch inside them, so no look-up can find the wrong message.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from operator import itemgetter

from busway.broker.seams import SessionLock
from busway.model.message import Message

TOKEN_BYTES = 16
_RANDOM_BYTES = 10
_BLOCK_TOKENS = 512
"""Random bytes are drawn for this many tokens at a time (D-10)."""

_PREFIX = struct.Struct("<HI")


class TokenMint:
    """Makes lock tokens: partition (16 bit), store epoch (32), random (80)."""

    def __init__(self, epoch: int, random_bytes: Callable[[int], bytes]) -> None:
        self._epoch = epoch & 0xFFFFFFFF
        self._random_bytes = random_bytes
        self._block = b""
        self._used = 0

    def make(self, partition: int) -> bytes:
        start = self._used
        if start == len(self._block):
            self._block = self._random_bytes(_RANDOM_BYTES * _BLOCK_TOKENS)
            start = 0
        self._used = start + _RANDOM_BYTES
        return _PREFIX.pack(partition, self._epoch) + self._block[start : self._used]


def token_partition(token: bytes) -> int | None:
    """The partition that a token names, for routing; None if it is no token of ours."""
    return _PREFIX.unpack_from(token)[0] if len(token) == TOKEN_BYTES else None


class LockTable:
    """The locks of one sub-queue. Expiry is a queue per lock duration, oldest first.

    An entry of such a queue is stale once its message was settled, locked anew or renewed; stale
    ones are dropped when they reach the front, and all at once when they outnumber the locks.
    """

    def __init__(self) -> None:
        self._held: dict[bytes, Message] = {}
        self._sessions: dict[bytes, SessionLock] = {}
        """By token: the session lock under which the message was delivered (SES-5)."""
        self._expiries: dict[int, deque[tuple[int, bytes, Message]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._held.values())

    def get(self, token: bytes) -> Message | None:
        return self._held.get(token)

    def session_of(self, message: Message) -> SessionLock | None:
        """The session lock that it was delivered under, whether that is over or not."""
        return self._sessions.get(message.lock_token or b"")

    def take(self, message: Message, token: bytes, now_ms: int, duration_ms: int) -> None:
        """LOCK-1, LOCK-2: the lock's time runs from here."""
        assert message.lock_token is None
        assert message.staged is None
        message.lock_token = token
        self._held[token] = message
        self._expire_at(message, token, now_ms + duration_ms, duration_ms)

    def take_in_session(self, message: Message, token: bytes, session: SessionLock) -> None:
        """SES-5: it lasts as long as the session's lock, and has no time of its own."""
        assert message.lock_token is None
        assert message.staged is None
        message.lock_token = token
        message.locked_until_ms = session.locked_until_ms
        self._held[token] = message
        self._sessions[token] = session
        session.held[token] = message

    def renew(self, message: Message, now_ms: int, duration_ms: int) -> int:
        """LOCK-3: from now, not from the old expiry."""
        assert message.lock_token is not None
        self._expire_at(message, message.lock_token, now_ms + duration_ms, duration_ms)
        return message.locked_until_ms

    def drop(self, message: Message) -> SessionLock | None:
        """The message is settled, released, or its lock has run out.

        Gives the session lock that it was delivered under, if it was under one.
        """
        assert message.lock_token is not None
        token = message.lock_token
        del self._held[token]
        message.lock_token = None
        session = self._sessions.pop(token, None)
        if session is not None:
            del session.held[token]
            return session
        for queue in self._expiries.values():
            while queue and _stale(queue[0]):
                queue.popleft()
            if len(queue) > 2 * len(self._held) + 1_000:
                fresh = [entry for entry in queue if not _stale(entry)]
                queue.clear()
                queue.extend(fresh)
        return None

    def expired(self, now_ms: int) -> list[Message]:
        """Messages whose lock has run out and whose settlement is not already on its way (D-1)."""
        found: dict[bytes, Message] = {}  # a lock that is watched again has two entries
        for queue in self._expiries.values():
            while queue and (queue[0][0] <= now_ms or _stale(queue[0])):
                entry = queue.popleft()
                if not _stale(entry) and entry[2].staged is None:
                    found[entry[1]] = entry[2]
        return list(found.values())

    def watch_again(self, message: Message) -> None:
        """A settlement failed: the lock goes on, and its expiry, maybe past, must be seen."""
        assert message.lock_token is not None
        queue = self._expiries.setdefault(0, deque())
        insort(queue, (message.locked_until_ms, message.lock_token, message), key=itemgetter(0))

    def next_due_ms(self) -> int | None:
        return min((queue[0][0] for queue in self._expiries.values() if queue), default=None)

    def _expire_at(self, message: Message, token: bytes, due_ms: int, duration_ms: int) -> None:
        message.locked_until_ms = due_ms
        queue = self._expiries.get(duration_ms)
        if queue is None:
            queue = self._expiries[duration_ms] = deque()
        queue.append((due_ms, token, message))


def _stale(entry: tuple[int, bytes, Message]) -> bool:
    due_ms, token, message = entry
    return message.lock_token is not token or message.locked_until_ms != due_ms
