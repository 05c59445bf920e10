"""A virtual network: bytes in order, in chunks cut anywhere, late by the seed, lost with the wire.

A `Wire` joins the two engines of one connection, a client's and a gateway's. What is on the way
when it is cut never arrives; each side learns of the cut in its own time.
"""

from __future__ import annotations

from collections.abc import Callable

from busway.amqp.connection import Connection
from busway.amqp.events import Event
from busway.gateway.connection import GatewayConnection
from busway.sim.scheduler import Scheduler

DELAY_MAX_MS = 20
FRAMES_PER_TURN = 5
"""Few, so that others come in between."""


class Direction:
    """One way of a wire."""

    def __init__(self, scheduler: Scheduler, arrived: Callable[[bytes], None]) -> None:
        self._scheduler = scheduler
        self._random = scheduler.random
        self._arrived = arrived
        self._last_ms = 0
        self.cut = False

    def write(self, data: bytes) -> None:
        offset = 0
        while offset < len(data):
            rest = len(data) - offset
            # Mostly whole, sometimes in pieces of any size: a frame may end anywhere.
            size = rest if self._random.randrange(3) else self._random.randint(1, rest)
            self._send(data[offset : offset + size])
            offset += size

    def _send(self, chunk: bytes) -> None:
        delay_ms = self._random.choice((0, 0, 1, self._random.randint(0, DELAY_MAX_MS)))
        self._last_ms = max(self._last_ms, self._scheduler.now_ms() + delay_ms)
        self._scheduler.at(self._last_ms, lambda: None if self.cut else self._arrived(chunk))


class Wire:
    """Carries what both engines write, until it is cut."""

    def __init__(
        self,
        scheduler: Scheduler,
        client: Connection,
        on_events: Callable[[list[Event]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._client = client
        self._server: GatewayConnection | None = None
        self._on_events = on_events
        self._on_lost = on_lost
        self._up = Direction(scheduler, self._arrived_up)
        self._down = Direction(scheduler, self._arrived_down)
        self.is_cut = False
        self._is_stalled = False
        self._turn_is_due = False
        client.on_output = lambda: scheduler.soon(self._pump_up)

    def join(self, server: GatewayConnection) -> None:
        self._server = server
        self._scheduler.soon(self._pump_up)

    def server_has_output(self) -> None:
        """The gateway's `on_output`."""
        self._scheduler.soon(self._pump_down)

    def cut(self, *, server_is_dead: bool = False) -> None:
        """Both ends lose it: the client now, the gateway whenever it notices, if it lives."""
        if self.is_cut:
            return
        self.is_cut = self._up.cut = self._down.cut = True
        server = self._server
        if server_is_dead:
            self._server = None  # what it has read is lost with it
        elif server is not None:
            self._scheduler.after(self._scheduler.random.randint(0, 2_000), server.lost)
        events = self._client.eof()
        self._on_events(events)
        self._on_lost()

    def stall(self) -> None:
        """The client reads nothing: the gateway's socket is full."""
        if not self.is_cut and self._server is not None:
            self._is_stalled = True
            self._server.pause_output()

    def go_on(self) -> None:
        if self._is_stalled:
            self._is_stalled = False
            if not self.is_cut and self._server is not None:
                self._server.resume_output()
                self._pump_down()

    def tick(self, now_ms: int) -> None:
        if not self.is_cut and self._server is not None:
            self._on_events(self._client.tick(now_ms))
            self._server.tick(now_ms)

    def _pump_up(self) -> None:
        data = self._client.take_output()
        if data and not self.is_cut:
            self._up.write(data)

    def _pump_down(self) -> None:
        if self._server is None or self.is_cut or self._is_stalled:
            return
        data = self._server.take_output()
        if data:
            self._down.write(data)

    def _arrived_up(self, chunk: bytes) -> None:
        assert self._server is not None
        self._server.feed(chunk)
        if not self._turn_is_due:
            self._take_turn()

    def _take_turn(self) -> None:
        """As a listener gives them: what is left waits until others had theirs."""
        self._turn_is_due = False
        if self._server is None or self._server.finished:
            return
        self._server.advance(FRAMES_PER_TURN)
        if self._server.has_input:
            self._turn_is_due = True
            self._scheduler.next_round(self._take_turn)

    def _arrived_down(self, chunk: bytes) -> None:
        self._on_events(self._client.receive(chunk))
        if self._client.closed:
            self.cut()
