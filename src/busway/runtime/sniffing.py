"""The ports of a node, and what those who come in by them speak (D-32).

Every port takes AMQP, HTTP and TLS with either of them inside, so that one connection string serves
both planes of every SDK. This file owns a connection until that is known:

* a look at the first byte, without taking it, tells TLS from the rest: what was read already could
  not be given back to the TLS of the event loop;
* the first byte that comes out, of TLS or of the socket itself, picks the protocol that owns the
  connection from then on. It is handed over with that byte, and nothing is in its way any more;
* limits for strangers: how many sockets, and how long each may take to say whom it wants.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import cast

from busway.runtime.host import Host

log = logging.getLogger(__name__)

ACCEPTS_MAX = 16
"""Connections taken in a row before those who are there already get their turn."""
REST_MS = 1_000
"""How long nobody is accepted after the system could not, for want of files or memory mostly."""
HTTP_READY_MS = 60_000
"""How much longer a client may wait for us while HTTP is made ready."""

TLS_RECORD = 0x16
"""How a TLS client begins: a record of the handshake (RFC 8446, 5.1)."""
TLS_REFUSED = bytes([0x15, 3, 3, 0, 2, 2, 40])
"""A fatal alert, *handshake failure*: what a TLS client understands where there is no TLS."""


class Speech(Enum):
    AMQP = "AMQP"
    HTTP = "HTTP"
    TLS = "TLS"


def speech_of(first_byte: int) -> Speech:
    """By one byte: no method of HTTP that anybody uses begins with the A of `AMQP`.

    What is none of the three goes to AMQP, which tells a stranger what it speaks (AMQP 2.2).
    """
    if first_byte == TLS_RECORD:
        return Speech.TLS
    return Speech.HTTP if ord("B") <= first_byte <= ord("Z") else Speech.AMQP


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Who takes over a connection once it is known what it speaks."""

    amqp: Callable[[], asyncio.Protocol]
    http: Callable[[], Awaitable[asyncio.Protocol]] | None = None
    """Takes a while at first: what HTTP needs is imported then (D-33)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntranceLimits:
    silence_ms: int
    leaving_ms: int
    backlog: int


class Arrival(asyncio.Protocol):
    """A connection from its acceptance until somebody takes it over."""

    def __init__(self, entrance: Entrance, accepted: socket.socket, address: str) -> None:
        self._entrance = entrance
        self._socket = accepted
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._said = b""
        self.address = address
        self.deadline_ms = 0

    # --- the socket itself -------------------------------------------------------------------

    def wait_for_first_byte(self) -> None:
        self._entrance.loop.add_reader(self._socket, self._look)

    def _look(self) -> None:
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        loop = self._entrance.loop
        loop.remove_reader(self._socket)
        if not first:
            self.cut_off()
        elif speech_of(first[0]) is not Speech.TLS:
            self._task = loop.create_task(self._connect(None))
        elif self._entrance.tls is not None:
            self._task = loop.create_task(self._connect(self._entrance.tls))
        else:
            self._refuse_tls()

    async def _connect(self, tls: ssl.SSLContext | None) -> None:
        loop, limits = self._entrance.loop, self._entrance.limits
        try:
            if tls is None:
                await loop.connect_accepted_socket(lambda: self, self._socket)
            else:
                await loop.connect_accepted_socket(
                    lambda: self,
                    self._socket,
                    ssl=tls,
                    ssl_handshake_timeout=limits.silence_ms / 1000,
                    ssl_shutdown_timeout=limits.leaving_ms / 1000,
                )
        except OSError as error:  # that of TLS is one, too
            log.info("connection failed before it began: %s", error, extra=self.named())
            self._entrance.gone(self)

    def _refuse_tls(self) -> None:
        log.info(
            "connection refused: it speaks TLS, and this server has no certificate; "
            "start it with --tls, or connect without TLS (UseDevelopmentEmulator=true)",
            extra=self.named(),
        )
        try:
            self._socket.recv(65536)  # unread bytes would turn the end into a reset
            self._socket.send(TLS_REFUSED)
        except OSError:
            log.debug("a client left before it was told that there is no TLS", extra=self.named())
        self.cut_off()

    # --- called by the event loop, in TLS or not ---------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        is_first = not self._said
        self._said += data
        if not is_first:
            return  # HTTP is being made ready, and this is more for it
        if speech_of(data[0]) is Speech.HTTP and self._entrance.hosts.http is not None:
            assert self._transport is not None
            self._transport.pause_reading()
            self._task = self._entrance.loop.create_task(self._meet_http())
        else:
            self._hand_over(self._entrance.hosts.amqp())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._entrance.gone(self)

    # --- the handing over --------------------------------------------------------------------

    async def _meet_http(self) -> None:
        assert self._entrance.hosts.http is not None
        self.deadline_ms += HTTP_READY_MS  # not the stranger is slow now
        try:
            protocol = await self._entrance.hosts.http()
        except Exception:
            log.exception("HTTP cannot be served", extra=self.named())
            self.cut_off()
            return
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self._entrance.expect_head(self, protocol)
            transport.resume_reading()  # first: the protocol may have reasons to pause again
            self._hand_over(protocol)

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        transport, said = self._transport, self._said
        assert transport is not None
        self._said = b""
        self._entrance.gone(self)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(said)

    def cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()
        else:
            self._entrance.loop.remove_reader(self._socket)
            self._socket.close()
        self._entrance.gone(self)

    @property
    def has_left(self) -> bool:
        return self._transport is not None and self._transport.is_closing()

    def named(self) -> dict[str, str]:
        """For `extra=` of a log line."""
        return {"peer": self.address}


class Entrance:
    """The ports that are listened on, and those who have come in and are not placed yet."""

    def __init__(
        self,
        host: Host,
        hosts: Hosts,
        limits: EntranceLimits,
        *,
        tls: ssl.SSLContext | None = None,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.loop = host.loop
        self.hosts = hosts
        self.limits = limits
        self.tls = tls
        self._host = host
        self._is_full = is_full
        self._doors: list[socket.socket] = []
        self._arrivals: dict[Arrival, None] = {}
        self._heads: dict[asyncio.BaseProtocol, Arrival] = {}
        """Connections that speak HTTP and have not sent the whole head of a request yet."""

    async def open(self, address: str, port: int) -> int:
        """Accept connections from now on. Port 0 takes a free one; the port is returned."""
        found = await self.loop.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        doors: list[socket.socket] = []
        try:
            for family, kind, protocol, _, place in dict.fromkeys(found):
                door = socket.socket(family, kind, protocol)
                doors.append(door)
                door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                door.bind((place[0], port, *place[2:]))
                port = door.getsockname()[1]  # the same one for all addresses of a name
                door.setblocking(False)
                door.listen(self.limits.backlog)
        except OSError:
            for door in doors:
                door.close()
            raise
        self._doors += doors
        for door in doors:
            self.loop.add_reader(door, self._accept, door)
        return port

    def close(self) -> None:
        """Accept nobody any more; who was not placed yet is sent away."""
        doors, self._doors = self._doors, []
        for door in doors:
            self.loop.remove_reader(door)
            door.close()
        for arrival in list(self._arrivals):
            arrival.cut_off()

    @property
    def count(self) -> int:
        return len(self._arrivals)

    def heard(self, protocol: asyncio.BaseProtocol) -> None:
        """A whole head of a request has come by this connection."""
        self._heads.pop(protocol, None)

    def tick(self, now_ms: int) -> None:
        for arrival in [each for each in self._arrivals if each.deadline_ms <= now_ms]:
            self._drop(arrival)
        for protocol, arrival in list(self._heads.items()):
            if arrival.deadline_ms <= now_ms:
                del self._heads[protocol]
                if not arrival.has_left:
                    self._drop(arrival)

    # --- called by arrivals ------------------------------------------------------------------

    def deadline_ms(self) -> int:
        return self._host.steady_ms() + self.limits.silence_ms

    def expect_head(self, arrival: Arrival, protocol: asyncio.BaseProtocol) -> None:
        arrival.deadline_ms = self.deadline_ms()
        self._heads[protocol] = arrival

    def gone(self, arrival: Arrival) -> None:
        self._arrivals.pop(arrival, None)

    # --- accepting ---------------------------------------------------------------------------

    def _accept(self, door: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, place = door.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("nobody can be accepted for a moment: %s", error)
                self.loop.remove_reader(door)
                self._host.at(self._host.now_ms() + REST_MS, lambda: self._go_on(door))
                return
            self._take_in(accepted, f"{place[0]}:{place[1]}")

    def _go_on(self, door: socket.socket) -> None:
        if door in self._doors:
            self.loop.add_reader(door, self._accept, door)

    def _take_in(self, accepted: socket.socket, address: str) -> None:
        if self._is_full() and self._arrivals:
            # Who has said nothing yet goes first: it must not keep out who has a token to show.
            self._drop(next(iter(self._arrivals)))
        if self._is_full():
            log.warning("connection cut off: too many of them", extra={"peer": address})
            accepted.close()
            return
        accepted.setblocking(False)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # some systems find out here that it has left already
            accepted.close()
            return
        arrival = Arrival(self, accepted, address)
        arrival.deadline_ms = self.deadline_ms()
        self._arrivals[arrival] = None
        arrival.wait_for_first_byte()

    def _drop(self, arrival: Arrival) -> None:
        log.info("connection dropped: it said nothing valid in time", extra=arrival.named())
        arrival.cut_off()
