"""Strangers over HTTP are poor, too: connections, requests, bytes and time without a token."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from busway.http.strangers import RequestTurns
from busway.testing import Server
from tests.http.asking import manager

WAIT_S = 60.0
CONNECTIONS = 3
REQUESTS = 5
BYTES = 512 * 1024

CONFIG = f"""
[strangers]
http_connections = {CONNECTIONS}
http_requests = {REQUESTS}
http_bytes = {BYTES}
token_wait = "2s"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("orders", config=CONFIG) as running:
        yield running


class Visit:
    """One connection."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
        self.reader = self.socket.makefile("rb")

    def ask(self, path: str = "/health", token: str | None = None, body: bytes = b"") -> str:
        """The head of the reply; empty if the connection has ended."""
        lines = [
            f"{'POST' if body else 'GET'} {path} HTTP/1.1",
            "Host: localhost",
            f"Content-Length: {len(body)}",
        ]
        if token is not None:
            lines.append(f"Authorization: {token}")
        try:
            self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = self.reader.readline()
                if not line:
                    return ""
                head += line
            text = head.decode().lower()
            length = next(
                (
                    int(each.partition(":")[2])
                    for each in text.splitlines()
                    if each.startswith("content-length:")
                ),
                0,
            )
            self.reader.read(length)
        except ConnectionError:
            return ""
        return text

    @property
    def has_ended(self) -> bool:
        """Waits for the end, or for something to read."""
        try:
            return self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture
def visits(server: Server) -> Iterator[list[Visit]]:
    made: list[Visit] = []
    yield made
    for visit in made:
        visit.close()


def test_beyond_their_share_the_oldest_is_closed_and_who_has_a_token_stays(
    server: Server, visits: list[Visit]
) -> None:
    known = Visit(server)
    visits.append(known)
    token = manager(server)
    assert "200" in known.ask("/orders", token).splitlines()[0]
    for _ in range(CONNECTIONS):
        visits.append(Visit(server))
        assert visits[-1].ask().startswith("http/1.1 200")
    oldest = visits[1]
    visits.append(Visit(server))
    assert visits[-1].ask().startswith("http/1.1 200")
    assert oldest.has_ended
    assert known.ask("/orders", token).startswith("http/1.1 200")


def test_a_stranger_is_told_that_its_last_request_was_the_last(
    server: Server, visits: list[Visit]
) -> None:
    visits.append(Visit(server))
    for _ in range(REQUESTS - 1):
        assert "connection: close" not in visits[0].ask()
    assert "connection: close" in visits[0].ask()
    assert visits[0].has_ended
    visits.append(Visit(server))
    token = manager(server)
    for _ in range(3 * REQUESTS):
        assert visits[1].ask("/orders", token).startswith("http/1.1 200")


def test_a_stranger_that_sends_too_much_is_cut_off(server: Server, visits: list[Visit]) -> None:
    visits.append(Visit(server))
    piece = b"x" * 10_000
    head = b"POST /orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
    sent = 0
    try:
        visits[0].socket.sendall(head)
        while sent < 100 * BYTES:
            visits[0].socket.sendall(piece)
            sent += len(piece)
    except OSError:
        pass  # as it should be
    assert sent < 100 * BYTES
    visits.append(Visit(server))
    token = manager(server)
    for _ in range(4):
        reply = visits[1].ask("/orders/messages", token, b"x" * 200_000)
        assert reply.startswith("http/1.1 201")


def upgraded(server: Server) -> Visit:
    visit = Visit(server)
    key = base64.b64encode(os.urandom(16)).decode()
    visit.socket.sendall(
        (
            "GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: AMQPWSB10\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        ).encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += visit.reader.readline()
    assert b" 101 " in head
    return visit


def test_a_websocket_message_that_does_not_end_is_cut_off(
    server: Server, visits: list[Visit]
) -> None:
    visits.append(upgraded(server))
    # A binary message, masked with zeros, that is allowed by its size; half of it comes.
    visits[0].socket.sendall(b"\x82\xff" + (900_000).to_bytes(8, "big") + bytes(4))
    with suppress(OSError):  # cut off while it was sent
        visits[0].socket.sendall(bytes(450_000))
    assert visits[0].has_ended


def test_a_websocket_without_a_token_ends_in_time(server: Server, visits: list[Visit]) -> None:
    """2 s of the file, not the 20 s of the default; the connection is closed either way, so what
    is looked at is that the AMQP in it was opened and then ended."""
    visits.append(upgraded(server))
    sasl = b"AMQP\x03\x01\x00\x00"
    visits[0].socket.sendall(b"\x82" + bytes([0x80 | len(sasl)]) + bytes(4) + sasl)
    assert visits[0].reader.read(1) == b"\x82"
    while not visits[0].has_ended:
        pass


def test_so_many_requests_begin_in_a_round_and_the_others_wait_in_order() -> None:
    async def run() -> list[list[int]]:
        turns, begun = RequestTurns(per_round=4), []
        rounds: list[list[int]] = []

        async def request(number: int) -> None:
            await turns.come()
            begun.append(number)

        tasks = [asyncio.ensure_future(request(number)) for number in range(10)]
        while len(begun) < 10:
            before = len(begun)
            await asyncio.sleep(0)
            if len(begun) > before:
                rounds.append(begun[before:])
        await asyncio.gather(*tasks)
        return rounds

    rounds = asyncio.run(run())
    assert all(len(each) <= 4 for each in rounds), rounds
    assert [number for each in rounds for number in each] == list(range(10))


def test_a_request_whose_client_has_left_takes_no_turn() -> None:
    async def run() -> int:
        turns = RequestTurns(per_round=1)
        tasks = [asyncio.ensure_future(turns.come()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sum(not task.cancelled() for task in tasks)

    assert asyncio.run(run()) == 2
