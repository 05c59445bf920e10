"""Replies name the server and no versions, whoever makes them: strangers would look those up."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from busway.testing import Server
from tests.http.asking import manager

REQUESTS = {
    "a page": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a refusal": b"GET /orders HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no request": b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a header that is too long": b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "a WebSocket": b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\n"
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n",
    "a stream": b"GET /orders/$journal/plan HTTP/1.1\r\nHost: localhost\r\n"
    b"Authorization: %(token)s\r\n\r\n",
    "metrics": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: %(token)s\r\n\r\n",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("orders") as running:
        yield running


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_no_reply_names_a_version(server: Server, request_: bytes) -> None:
    with socket.create_connection(("localhost", server.port), timeout=60) as connection:
        connection.sendall(request_.replace(b"%(token)s", manager(server).encode()))
        head = b""
        while b"\r\n\r\n" not in head:
            chunk = connection.recv(4096)
            assert chunk, head
            head += chunk
    head = head.partition(b"\r\n\r\n")[0]
    assert b"\r\nServer: Busway\r\n" in head + b"\r\n"
    assert b"aiohttp" not in head
    assert b"Python" not in head
