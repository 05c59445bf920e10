"""Connections: bytes from clients to the gateway, and what it answers back.

This file owns what happens between a transport (TCP, TLS or WebSocket) and a `ClientConnection` of
the gateway:

* reading and writing by callbacks, one write per connection and iteration of the loop (D-10);
* turns: what one connection has sent is handled in slices, so that the others are heard in between
  (`turns.py`);
* backpressure by bytes: a client that does not read is given nothing more and is not read from;
  nobody is read from while the node holds too many uncommitted bytes (D-8);
* limits for strangers: how many sockets, how long one may stay silent, how long one may take to
  leave (that there are too many connections is said by the gateway: LIM-9);
* one timer for all connections, for keep-alives and deadlines.

Who comes in, and what it speaks, is `sniffing.py`'s; what comes by HTTP is `busway.http`'s.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, cast

from busway.broker.seams import Timer
from busway.runtime.host import Host
from busway.runtime.sniffing import Entrance, EntranceLimits, Hosts
from busway.runtime.turns import Turns

log = logging.getLogger(__name__)

TICK_MS = 1_000
BUDGET_LOOK_MS = 10
"""How often the budget is looked at again while connections are held for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    sockets_max: int = 5_100
    """More are cut off without a word. Leave some room above LIM-9, so that the first ones beyond
    it hear from the gateway why they are refused."""
    silence_ms: int = 5_000
    """A stranger has sent nothing valid by then: dropped (D-32)."""
    leaving_ms: int = 5_000
    """A connection that is closing gets this long to take what was written to it."""
    output_high_bytes: int = 512 * 1024
    output_low_bytes: int = 128 * 1024
    backlog: int = 1_024


class ClientConnection(Protocol):
    """What the gateway makes of one connection; the listener owns the socket under it."""

    @property
    def greeted(self) -> bool:
        """The peer has spoken valid AMQP."""

    @property
    def is_stranger(self) -> bool:
        """No valid token or password was shown yet."""

    @property
    def finished(self) -> bool:
        """Nothing more will be said: write what is left and close the socket."""

    def feed(self, data: bytes) -> None:
        """Keep what was read until `advance` handles it."""

    @property
    def has_input(self) -> bool: ...

    def advance(self, frames_max: int) -> None:
        """Handle about so many frames of what was fed."""

    def take_output(self) -> bytes: ...

    def pause_output(self) -> None:
        """The socket is full: hand out no more deliveries."""

    def resume_output(self) -> None: ...

    def tick(self, now_ms: int) -> None:
        """Called about once a second: keep-alives, time-outs."""

    def close(self, condition: str, description: str) -> None:
        """Say `close` with this error."""

    def lost(self) -> None:
        """The socket is gone, whoever closed it."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, for logs and for what depends on it."""

    connection_id: str
    address: str
    loopback: bool
    encrypted: bool = False
    """Nobody between us can read along."""
    websocket: bool = False


Connect = Callable[[Peer, Callable[[], None]], ClientConnection]
"""Makes the gateway's side of a connection; the callback tells that output waits to be taken."""


class HttpSide(Protocol):
    """What answers the connections that speak HTTP: `busway.http.server.HttpServer`."""

    heard: Callable[[asyncio.BaseProtocol], None]
    """Called at each request: its connection has sent a whole head."""

    @property
    def connection_count(self) -> int: ...

    def protocol(self) -> asyncio.Protocol:
        """For one connection."""

    def tick(self, now_ms: int) -> None:
        """About once a second."""

    async def close(self, wait_s: float) -> None:
        """Let requests that are being answered end; then close every connection."""


class Wire(asyncio.Protocol):
    """One transport and the gateway's connection on it."""

    def __init__(self, listener: Listener, *, owns_socket: bool = True) -> None:
        self.owns_socket = owns_socket
        """False for a WebSocket, whose socket is counted as HTTP's already."""
        self._listener = listener
        self._host = listener.host
        self._transport: asyncio.Transport | None = None
        self._dirty = False
        self._full = False
        self._held = False
        self._behind = False
        self._leaving = False
        self.client: ClientConnection | None = None
        self.peer = Peer("", "", False)
        self.deadline_ms = 0
        """While it is a stranger or leaving: when it is cut off."""

    # --- called by the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        transport = self._transport = cast(asyncio.Transport, transport)
        limits = self._listener.limits
        transport.set_write_buffer_limits(limits.output_high_bytes, limits.output_low_bytes)
        self._listener.arrived(self, transport)

    def data_received(self, data: bytes) -> None:
        client = self.client
        if client is None or self._leaving:
            return
        client.feed(data)
        if not self._behind and self.take_turn():
            self._listener.turns.wait(self)

    def take_turn(self) -> bool:
        """Handle what was read, for as long as a turn lasts; True if something is left."""
        client = self.client
        if client is None or self._leaving:
            return False
        if not self._held and not self._full:
            try:
                self._listener.turns.handle(client)
            except Exception:
                self._fail("reading failed in an unforeseen way")
                return False
            if self.deadline_ms and client.greeted:
                self._listener.greeted(self)
            if client.finished:
                self.wants_to_write()
            elif self._listener.over_budget():
                self._listener.hold(self)
        if self._behind != client.has_input:
            self._behind = client.has_input
            self._choose_reading()
        # Who may not go on now is called for when it may.
        return self._behind and not self._held and not self._full

    def _go_on(self) -> None:
        if self._behind and not self._held and not self._full:
            self._listener.turns.wait(self)

    def pause_writing(self) -> None:
        self._full = True
        self._choose_reading()
        if self.client is not None:
            self.client.pause_output()

    def resume_writing(self) -> None:
        self._full = False
        self._choose_reading()
        self._go_on()
        if self.client is not None:
            self.client.resume_output()

    def connection_lost(self, exc: Exception | None) -> None:
        client, self.client, self._transport = self.client, None, None
        if client is not None:
            try:
                client.lost()
            except Exception:
                log.exception("losing a connection failed", extra=self.named())
        # Who has said goodbye may hang up before ours is written: Python's SDK does.
        self._listener.left(self, None if self._leaving else exc)

    # --- called by the listener and the gateway ----------------------------------------------

    @property
    def is_stranger(self) -> bool:
        return self.client is not None and not self.client.greeted

    @property
    def is_known(self) -> bool:
        """It has shown a valid token or password."""
        return self.client is not None and not self.client.is_stranger

    def named(self) -> dict[str, str]:
        """For `extra=` of a log line."""
        return {"connection": self.peer.connection_id, "peer": self.peer.address}

    def wants_to_write(self) -> None:
        """Written once, at the end of this iteration, however often it is called (D-10)."""
        if not self._dirty:
            self._dirty = True
            self._listener.dirty(self)

    def write(self) -> None:
        self._dirty = False
        client, transport = self.client, self._transport
        if client is None or transport is None or self._leaving:
            return
        try:
            data = client.take_output()
        except Exception:
            self._fail("writing failed in an unforeseen way")
            return
        if data:
            transport.write(data)
        if client.finished:
            self._leaving = True
            self._listener.leaving(self)
            transport.close()

    def tick(self, now_ms: int) -> None:
        if self.client is None or self._leaving:
            return
        try:
            self.client.tick(now_ms)
        except Exception:
            self._fail("a tick failed in an unforeseen way")
            return
        if self.client.finished:
            self.wants_to_write()

    def say_close(self, condition: str, description: str) -> None:
        if self.client is None or self._leaving:
            return
        if not self.client.greeted:
            self.cut_off()
            return
        self.client.close(condition, description)
        self._listener.leaving(self)
        self.wants_to_write()

    def cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def hold(self, held: bool) -> None:
        self._held = held
        self._choose_reading()
        self._go_on()

    def _choose_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._held or self._full or self._behind:
            if transport.is_reading():
                transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()

    def _fail(self, text: str) -> None:
        """A mistake of ours ends this connection, never another one."""
        log.exception(text, extra=self.named())
        self.cut_off()


class Listener:
    """Everything that is connected to the ports of a node."""

    def __init__(
        self,
        host: Host,
        connect: Connect,
        *,
        limits: ListenerLimits | None = None,
        over_budget: Callable[[], bool] = lambda: False,
        tls: ssl.SSLContext | None = None,
        load_http: Callable[[], Awaitable[HttpSide]] | None = None,
    ) -> None:
        self.host = host
        self.limits = limits or ListenerLimits()
        self.over_budget = over_budget
        """Whether the node holds more uncommitted bytes than it may (D-8)."""
        self.turns = Turns(host)
        self._connect = connect
        self._load_http = load_http
        self._http: asyncio.Future[HttpSide] | None = None
        self._entrance = Entrance(
            host,
            Hosts(amqp=lambda: Wire(self), http=self._http_protocol if load_http else None),
            EntranceLimits(
                silence_ms=self.limits.silence_ms,
                leaving_ms=self.limits.leaving_ms,
                backlog=self.limits.backlog,
            ),
            tls=tls,
            is_full=lambda: self.connection_count >= self.limits.sockets_max,
        )
        self._wires: dict[Wire, None] = {}
        self._wires_in_http = 0
        self._waiting: dict[Wire, None] = {}
        """Strangers and those that are leaving; the deadline of each is in it."""
        self._dirty: list[Wire] = []
        self._held: dict[Wire, None] = {}
        self._reading_stopped = False
        self._next_id = 1
        self._tick_timer: Timer | None = None
        self._budget_timer: Timer | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    # --- opening and closing -----------------------------------------------------------------

    async def open(self, address: str, port: int) -> int:
        """Accept connections there, too. Port 0 takes a free one; the port is returned."""
        taken = await self._entrance.open(address, port)
        if self._tick_timer is None:
            self._tick_timer = self.host.at(self.host.now_ms() + TICK_MS, self._tick)
        return taken

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Show this certificate to new connections."""
        self._entrance.tls = tls

    def stop_accepting(self) -> None:
        self._entrance.close()

    def stop_reading(self) -> None:
        """Take no new work from anybody; what is in flight can still be answered."""
        self._reading_stopped = True
        for wire in self._wires:
            wire.hold(True)

    async def close(self, condition: str, description: str, *, wait_s: float) -> None:
        """Say goodbye to everybody; those who do not leave in time are cut off."""
        self.stop_accepting()
        self._reading_stopped = False
        for wire in list(self._wires):
            wire.hold(False)
            wire.say_close(condition, description)
        try:
            await asyncio.wait_for(self._empty.wait(), wait_s)
        except TimeoutError:
            log.info("%d connections did not leave in time", len(self._wires))
        for wire in list(self._wires):
            wire.cut_off()
        # Only now: a WebSocket is a request that lasts as long as the connection in it.
        if self._http is not None and self._http.done():
            await self._http.result().close(wait_s)
        if self._tick_timer is not None:
            self._tick_timer.cancel()

    @property
    def connection_count(self) -> int:
        """Sockets, whatever is spoken on them."""
        wires = len(self._wires) - self._wires_in_http
        http = self._http.result().connection_count if self._http and self._http.done() else 0
        return self._entrance.count + wires + http

    # --- HTTP --------------------------------------------------------------------------------

    def wire_in_http(self) -> Wire:
        """For AMQP on a WebSocket."""
        return Wire(self, owns_socket=False)

    async def _http_protocol(self) -> asyncio.Protocol:
        if self._http is None:
            assert self._load_http is not None
            self._http = asyncio.ensure_future(self._load_http())
        http = await asyncio.shield(self._http)
        http.heard = self._entrance.heard
        return http.protocol()

    # --- called by wires ---------------------------------------------------------------------

    def arrived(self, wire: Wire, transport: asyncio.Transport) -> None:
        peername = transport.get_extra_info("peername")
        host = str(peername[0]) if isinstance(peername, tuple) else "local"
        port = f":{peername[1]}" if isinstance(peername, tuple) else ""
        loopback = host.startswith("127.") or host in ("::1", "local")
        encrypted = transport.get_extra_info("sslcontext") is not None
        wire.peer = Peer(
            f"c{self._next_id}", f"{host}{port}", loopback, encrypted, not wire.owns_socket
        )
        self._next_id += 1
        wire.client = self._connect(wire.peer, wire.wants_to_write)
        self._wires[wire] = None
        self._wires_in_http += not wire.owns_socket
        self._empty.clear()
        self._expect(wire, self.limits.silence_ms)
        log.info("connection opened", extra=wire.named())

    def greeted(self, wire: Wire) -> None:
        wire.deadline_ms = 0
        self._waiting.pop(wire, None)

    def leaving(self, wire: Wire) -> None:
        self._expect(wire, self.limits.leaving_ms)

    def left(self, wire: Wire, problem: Exception | None) -> None:
        if wire not in self._wires:
            return
        del self._wires[wire]
        self._wires_in_http -= not wire.owns_socket
        self._waiting.pop(wire, None)
        self._held.pop(wire, None)
        self.turns.forget(wire)
        reason = {"reason": str(problem)} if problem else {}
        log.info("connection closed", extra=wire.named() | reason)
        if not self._wires:
            self._empty.set()

    def dirty(self, wire: Wire) -> None:
        if not self._dirty:
            self.host.last(self._write)
        self._dirty.append(wire)

    def hold(self, wire: Wire) -> None:
        """Read no more from this connection until the budget allows it."""
        wire.hold(True)
        self._held[wire] = None
        if self._budget_timer is None:
            due_ms = self.host.now_ms() + BUDGET_LOOK_MS
            self._budget_timer = self.host.at(due_ms, self._look_at_budget)

    # --- turns and timers --------------------------------------------------------------------

    def _expect(self, wire: Wire, wait_ms: int) -> None:
        wire.deadline_ms = self.host.steady_ms() + wait_ms
        self._waiting[wire] = None

    def _write(self) -> None:
        dirty, self._dirty = self._dirty, []
        for wire in dirty:
            wire.write()
        if self._held and not self._reading_stopped and not self.over_budget():
            self._release()

    def _look_at_budget(self) -> None:
        self._budget_timer = None
        if self._reading_stopped:
            return
        if self.over_budget():
            self._budget_timer = self.host.at(
                self.host.now_ms() + BUDGET_LOOK_MS, self._look_at_budget
            )
        else:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, {}
        for wire in held:
            wire.hold(False)
        if self._budget_timer is not None:
            self._budget_timer.cancel()
            self._budget_timer = None

    def _tick(self) -> None:
        now_ms = self.host.steady_ms()
        self._tick_timer = self.host.at(self.host.now_ms() + TICK_MS, self._tick)
        self._entrance.tick(now_ms)
        if self._http is not None and self._http.done() and self._http.exception() is None:
            self._http.result().tick(now_ms)
        for wire in [wire for wire in self._waiting if wire.deadline_ms <= now_ms]:
            said = "it said nothing valid" if wire.is_stranger else "it did not take our last words"
            log.info("connection dropped: %s in time", said, extra=wire.named())
            self._waiting.pop(wire)
            wire.cut_off()
        for wire in list(self._wires):
            wire.tick(now_ms)
