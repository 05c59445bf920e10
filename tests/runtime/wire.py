"""A client of raw bytes: enough AMQP to greet a server, and to see how it says goodbye."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any

from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import Closed, Event, Opened

WAIT_S = 60.0


class WebSocketAsSocket:
    """As much of a socket as a raw client uses, on one of websocket-client's connections."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def recv(self, size: int) -> bytes:
        said: bytes = self._connection.recv()
        return said

    def sendall(self, data: bytes) -> None:
        self._connection.send_binary(data)

    def close(self) -> None:
        self._connection.close()


class RawClient:
    """The engine's client side on a blocking socket."""

    def __init__(
        self, port: int, wire: Any = None, credentials: tuple[str, str] | None = None
    ) -> None:
        self.socket = wire or socket.create_connection(("127.0.0.1", port), WAIT_S)
        settings = ConnectionSettings(container_id="test", credentials=credentials)
        self.engine = Connection(settings, role=Role.CLIENT)
        self.events: list[Event] = []

    @classmethod
    def in_websocket(cls, connection: Any) -> RawClient:
        return cls(0, WebSocketAsSocket(connection))

    def open(self) -> RawClient:
        self.engine.open()
        self.until(Opened)
        return self

    def until(self, kind: type[Event]) -> Event:
        """Talk until an event of this kind has come."""
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    return event
            self.write()
            data = self.socket.recv(65536)
            self.events += self.engine.receive(data) if data else self.engine.eof()
            assert data or any(isinstance(event, kind) for event in self.events), "cut off"

    def write(self) -> None:
        output = self.engine.take_output()
        if output:
            self.socket.sendall(output)

    def until_closed(self) -> Closed:
        event = self.until(Closed)
        assert isinstance(event, Closed)
        self.write()
        return event

    def read_to_end(self) -> bytes:
        """Bytes as they come, until the server closes or cuts off."""
        said = b""
        try:
            while piece := self.socket.recv(65536):
                said += piece
        except ConnectionResetError:
            pass
        return said

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.socket.close()
