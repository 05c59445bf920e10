"""AMQP over WebSocket: a transport for the listener's connections, like TCP and TLS (amqp.md 17).

The bytes of AMQP come in binary messages, split and merged as the client likes. What is made of
them, time-outs, limits and the goodbye are the listener's, for which this is one more transport. A
client's pings are answered; ours are AMQP's own empty frames.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.http.services import AmqpWire
from busway.http.strangers import Caller

SUB_PROTOCOLS = ("AMQPWSB10", "amqp")
"""The service's name for it, which every SDK offers, and the registered one."""
MESSAGE_BYTES_MAX = 1024 * 1024
"""Of a message that comes in. Clients send the frames of AMQP, of 64 KiB, one by one or a few."""
MESSAGE_BYTES_SENT = 256 * 1024
"""Clients have limits as well: aiohttp's, which Python's SDK uses, is 4 MiB."""
CLOSE_WAIT_S = 5.0
"""How long a client may take to answer our close."""


async def answer(call: Call) -> web.StreamResponse:
    """Serves the connection for as long as it lasts."""
    request = call.request
    check(request)
    socket = web.WebSocketResponse(
        protocols=SUB_PROTOCOLS,
        timeout=CLOSE_WAIT_S,
        compress=False,  # messages are mostly small, and a small one must not become a large one
        max_msg_size=MESSAGE_BYTES_MAX,
        writer_limit=0,  # a send ends when the transport has room again
    )
    if not socket.can_prepare(request):
        raise HttpError(400, "The request for a WebSocket is not complete (RFC 6455, 4.1).")
    await socket.prepare(request)
    assert request.transport is not None
    wire = call.services.amqp()
    if isinstance(request.protocol, Caller):
        request.protocol.becomes_websocket(lambda: wire.is_known)
    await WebSocketTransport(socket, request.transport).serve(wire)
    return socket


def check(request: web.BaseRequest) -> None:
    """Say what is missing, while there is still a reply to say it in."""
    if (
        request.method != hdrs.METH_GET
        or request.headers.get(hdrs.UPGRADE, "").strip().lower() != "websocket"
    ):
        raise HttpError(
            400,
            "This is the address of AMQP over WebSocket. Connect with a WebSocket client, or with "
            "TransportType.AmqpOverWebsocket of the Azure SDKs.",
        )
    offered = request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "")
    if not {name.strip() for name in offered.split(",")} & set(SUB_PROTOCOLS):
        known = " or ".join(SUB_PROTOCOLS)
        raise HttpError(
            400, f"The WebSocket sub-protocol must be {known}; '{offered}' was offered."
        )


class WebSocketTransport(asyncio.Transport):
    """What asyncio's transports are to a protocol, on a WebSocket that aiohttp reads and writes."""

    def __init__(self, socket: web.WebSocketResponse, below: asyncio.Transport) -> None:
        super().__init__()
        self._socket = socket
        self._below = below
        self._protocol: AmqpWire | None = None
        self._unsent: list[bytes] = []
        self._has_work = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_sending = False
        self._is_full = False
        self._closing = False

    async def serve(self, protocol: AmqpWire) -> None:
        """Until either side closes; the protocol is told of the end in any case."""
        self._protocol = protocol
        protocol.connection_made(self)
        writing = asyncio.create_task(self._write_on(protocol))
        try:
            await self._read_on(protocol)
            if self._closing:
                await writing  # our last words, and the client's answer to them
        finally:
            writing.cancel()
            problem = self._socket.exception()
            protocol.connection_lost(problem if isinstance(problem, Exception) else None)

    async def _read_on(self, protocol: AmqpWire) -> None:
        async for message in self._socket:
            if message.type is WSMsgType.ERROR:
                return
            if message.type is not WSMsgType.BINARY:
                reason = b"AMQP comes in binary messages."
                await self._socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=reason)
                return
            protocol.data_received(message.data)
            await self._may_read.wait()

    async def _write_on(self, protocol: AmqpWire) -> None:
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while self._unsent:
                    data = b"".join(self._unsent)
                    self._unsent.clear()
                    self._is_sending = True
                    for start in range(0, len(data), MESSAGE_BYTES_SENT):
                        await self._socket.send_bytes(data[start : start + MESSAGE_BYTES_SENT])
                    self._is_sending = False
                if self._is_full:
                    self._is_full = False
                    protocol.resume_writing()
                if self._closing:
                    await self._socket.close()
                    return
        except ConnectionError:
            self._may_read.set()  # whoever waits to read finds out that nobody is there any more

    # --- what the protocol asks of a transport ---------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._unsent.append(bytes(data))
        self._has_work.set()
        if self._is_sending and not self._is_full:  # what went before still waits for room
            self._is_full = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def close(self) -> None:
        """After what was written."""
        self._closing = True
        self._has_work.set()
        self._may_read.set()

    def abort(self) -> None:
        self._may_read.set()
        self._below.abort()

    def is_closing(self) -> bool:
        return self._closing or self._below.is_closing()

    def is_reading(self) -> bool:
        return self._may_read.is_set()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)
