"""A listener whose gateway and HTTP the tests play themselves."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress

from busway.runtime.host import Host
from busway.runtime.listener import Listener, ListenerLimits, Peer
from tests.runtime.wire import WAIT_S

HELLO = b"hello"


class FakeClient:
    """A gateway's connection that knows one word, and answers every byte with `answer`."""

    def __init__(self, peer: Peer, on_output: Callable[[], None]) -> None:
        self.peer = peer
        self.on_output = on_output
        self.received = b""
        self.unhandled = b""
        self.output = b""
        self.answer = b""
        self.greeted = False
        self.is_stranger = False
        self.finished = False
        self.paused = False
        self.ticks = 0
        self.was_lost = asyncio.Event()
        self.got_bytes = asyncio.Event()

    def feed(self, data: bytes) -> None:
        self.unhandled += data

    @property
    def has_input(self) -> bool:
        return bool(self.unhandled)

    def advance(self, frames_max: int) -> None:
        """A byte is a frame."""
        data, self.unhandled = self.unhandled[:frames_max], self.unhandled[frames_max:]
        self.received += data
        self.greeted = self.greeted or self.received.startswith(HELLO)
        self.got_bytes.set()
        if b"mistake" in data:
            raise ValueError("a mistake of ours")
        for _ in data:
            if self.answer:
                self.say(self.answer)

    def say(self, data: bytes) -> None:
        self.output += data
        self.on_output()

    def take_output(self) -> bytes:
        data, self.output = self.output, b""
        return data

    def pause_output(self) -> None:
        self.paused = True

    def resume_output(self) -> None:
        self.paused = False

    def tick(self, now_ms: int) -> None:
        self.ticks += 1

    def close(self, condition: str, description: str) -> None:
        self.say(f"closed: {condition}: {description}".encode())
        self.finished = True

    def lost(self) -> None:
        self.was_lost.set()


class FakeRequests(asyncio.Protocol):
    """The HTTP side of a connection: it keeps what comes, and tells of a whole head."""

    def __init__(self, side: FakeHttp) -> None:
        self.side = side
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.side.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if b"\r\n\r\n" in self.received:
            self.side.heard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.side.connections.remove(self)


class FakeHttp:
    """What stands for `HttpServer`."""

    def __init__(self) -> None:
        self.connections: list[FakeRequests] = []
        self.heard: Callable[[asyncio.BaseProtocol], None] = lambda protocol: None

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    def protocol(self) -> FakeRequests:
        return FakeRequests(self)

    async def close(self, wait_s: float) -> None:
        pass


class Port:
    """A listener on a free port, and the clients that it has made."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, **limits: int) -> None:
        self.host = Host(asyncio.get_running_loop(), movable=True)
        self.clients: list[FakeClient] = []
        self.http = FakeHttp()
        self.http_is_ready = asyncio.Event()
        self.http_is_ready.set()
        self.full = False
        self.listener = Listener(
            self.host,
            self.connect,
            limits=ListenerLimits(**limits),
            over_budget=lambda: self.full,
            tls=tls,
            load_http=self.load_http,
        )

    async def load_http(self) -> FakeHttp:
        await self.http_is_ready.wait()
        return self.http

    def connect(self, peer: Peer, on_output: Callable[[], None]) -> FakeClient:
        self.clients.append(FakeClient(peer, on_output))
        return self.clients[-1]

    async def open(self) -> Port:
        self.port = await self.listener.open("127.0.0.1", 0)
        return self

    async def call(
        self, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connecting = asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        return await asyncio.wait_for(connecting, WAIT_S)

    async def greet(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, FakeClient]:
        before = len(self.clients)
        reader, writer = await self.call()
        writer.write(HELLO)
        await until(lambda: len(self.clients) > before and self.clients[before].greeted)
        return reader, writer, self.clients[before]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What the server said before it closed or cut off the connection."""
    said = b""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(WAIT_S):
            while piece := await reader.read(65536):
                said += piece
    return said
