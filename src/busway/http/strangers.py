"""Connections that speak HTTP and have shown no valid token: their share, and turns of requests.

A connection is a stranger until a request on it shows a valid token, or, if it became a WebSocket,
the AMQP in it does. All requests take turns, so that many connections that ask at once do not keep
those who speak AMQP waiting; strangers have fewer turns than the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from busway.model.strangers import StrangerShare

log = logging.getLogger("busway.http")

STRANGERS_PER_ROUND = 4
KNOWN_PER_ROUND = 16
"""Requests that are begun in one iteration of the loop: about 0.3 ms each."""
WEBSOCKET_BYTES_MAX = 128 * 1024
"""Of AMQP in a WebSocket, whose own bound of bytes for strangers ends it before; this holds for a
message that never ends."""


class RequestTurns:
    """Lets so many through in each iteration of the loop, in the order in which they came."""

    def __init__(self, per_round: int) -> None:
        self._per_round = per_round
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def come(self) -> None:
        loop = asyncio.get_running_loop()
        if self._used == 0 and not self._waiting:
            loop.call_soon(self._round)
        if self._used < self._per_round and not self._waiting:
            self._used += 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _round(self) -> None:
        self._used = 0
        while self._waiting and self._used < self._per_round:
            mine = self._waiting.popleft()
            if not mine.done():  # its client has not left
                mine.set_result(None)
                self._used += 1
        if self._used:
            asyncio.get_running_loop().call_soon(self._round)


class Caller(RequestHandler):
    """One connection: aiohttp's, with what it has done before it was known."""

    __slots__ = ("_bytes", "_bytes_max", "_proved", "heard_ms", "is_answered", "requests", "share")

    def __init__(self, share: Strangers, manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self.share = share
        self.requests = 0
        self.is_answered = False
        """A request of it is being answered."""
        self.heard_ms = 0
        self._bytes = 0
        self._bytes_max = share.limits.http_bytes
        self._proved: Callable[[], bool] | None = None

    @property
    def is_stranger(self) -> bool:
        return self in self.share

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.share.arrived(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.share.left(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_stranger:
            self._bytes += len(data)
            if self._bytes > self._bytes_max and not self._has_proved():
                log.info("connection closed: it sent too much without a valid token")
                assert self.transport is not None
                self.transport.abort()
                return
        super().data_received(data)

    def _has_proved(self) -> bool:
        if self._proved is not None and self._proved():
            self.share.left(self)
            return True
        return False

    def becomes_websocket(self, proved: Callable[[], bool]) -> None:
        """AMQP from now on, with a bound of its own; `proved` says whether it has a token."""
        self._proved = proved
        self._bytes_max = self._bytes + WEBSOCKET_BYTES_MAX

    @property
    def is_websocket(self) -> bool:
        return self._proved is not None


class Strangers:
    """All of a node."""

    def __init__(self, limits: StrangerShare, now_ms: Callable[[], int]) -> None:
        self.limits = limits
        self._now_ms = now_ms
        self._callers: dict[Caller, None] = {}
        self._turns = RequestTurns(STRANGERS_PER_ROUND)
        self._turns_of_known = RequestTurns(KNOWN_PER_ROUND)

    def __contains__(self, caller: object) -> bool:
        return caller in self._callers

    def __len__(self) -> int:
        return len(self._callers)

    def arrived(self, caller: Caller) -> None:
        caller.heard_ms = self._now_ms()
        self._callers[caller] = None
        if len(self._callers) > self.limits.http_connections:
            self._send_away(next(iter(self._callers)), "too many connections without a token")

    def left(self, caller: Caller) -> None:
        """It has ended, or has shown a valid token."""
        self._callers.pop(caller, None)

    async def turn(self, caller: object) -> None:
        """Wait until a request of this connection may begin."""
        known = caller not in self._callers
        if isinstance(caller, Caller):
            caller.is_answered = True
        await (self._turns_of_known if known else self._turns).come()

    def asked(self, caller: object) -> bool:
        """A request of it is being answered: whether that is its last one."""
        if not isinstance(caller, Caller) or caller not in self._callers:
            return False
        caller.requests += 1
        caller.is_answered = False
        caller.heard_ms = self._now_ms()
        return caller.requests >= self.limits.http_requests

    def tick(self, now_ms: int) -> None:
        """About once a second."""
        for caller in list(self._callers):
            if caller.is_websocket:
                caller._has_proved()  # how long it may wait for a token is AMQP's to say
            elif now_ms - caller.heard_ms >= self.limits.http_idle_ms:
                self._send_away(caller, "it asked for nothing, and has shown no valid token")

    def _send_away(self, caller: Caller, why: str) -> None:
        log.info("connection closed: %s", why)
        self._callers.pop(caller, None)
        caller.close()  # after the reply that it waits for, if there is one
        if caller.transport is not None and (caller.is_websocket or not caller.is_answered):
            caller.transport.close()
