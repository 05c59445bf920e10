"""A client that may misbehave: the engine of `busway.amqp` for the polite part, raw frames for the rest."""
from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
import time
from urllib.parse import quote_plus

from busway.amqp import codec
from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import Attached, Begun, Closed, Detached, Disposed, Opened, TransferReceived
from busway.amqp.link import LinkRole
from busway.amqp.performatives import Properties, Source, Target
from busway.amqp.sections import encode_message, read_application_properties
from busway.gateway import auth

KEY = "a-key-for-hostile-clients"
RULE = "RootManageSharedAccessKey"
BATCH_FORMAT = 0x80013700


class Gone(Exception):
    """The broker has ended the connection."""


class WebSocket:
    """Binary messages, masked as a client must, over a socket."""

    def __init__(self, below: socket.socket) -> None:
        self._below = below
        key = base64.b64encode(os.urandom(16)).decode()
        below.sendall(
            f"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n".encode())
        self._rest = b""
        while b"\r\n\r\n" not in self._rest:
            data = below.recv(65536)
            if not data:
                raise Gone
            self._rest += data
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise Gone(head.split(b"\r\n")[0].decode())

    def sendall(self, data: bytes) -> None:
        for start in range(0, len(data), 60_000):
            piece = data[start : start + 60_000]
            head = bytes([0x82]) + (
                bytes([0x80 | len(piece)]) if len(piece) < 126 else bytes([0xFE]) + struct.pack(">H", len(piece)))
            self._below.sendall(head + b"\0\0\0\0" + piece)

    def recv(self, _: int) -> bytes:
        while True:
            if len(self._rest) >= 2:
                size, at = self._rest[1] & 127, 2
                if size == 126 and len(self._rest) >= 4:
                    size, at = struct.unpack(">H", self._rest[2:4])[0], 4
                elif size == 127 and len(self._rest) >= 10:
                    size, at = struct.unpack(">Q", self._rest[2:10])[0], 10
                if size < 126 or at > 2:
                    if len(self._rest) >= at + size:
                        kind, payload = self._rest[0] & 15, self._rest[at : at + size]
                        self._rest = self._rest[at + size :]
                        if kind == 8:
                            return b""
                        if kind in (0, 2):
                            return payload
                        continue
            data = self._below.recv(262144)
            if not data:
                return b""
            self._rest += data

    def settimeout(self, timeout: float | None) -> None:
        self._below.settimeout(timeout)

    def close(self) -> None:
        self._below.close()


def tcp(port: int, timeout: float = 30.0) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def tls(port: int, timeout: float = 30.0) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(tcp(port, timeout))


def sas(path: str = "") -> str:
    resource = quote_plus(f"sb://localhost/{path}")
    expiry = str(int(time.time()) + 3600)
    return (f"SharedAccessSignature sr={resource}&sig={quote_plus(auth.sign(resource, expiry, KEY))}"
            f"&se={expiry}&skn={RULE}")


class Client:
    """One connection. `known` has a token (a password by SASL PLAIN), a stranger has none."""

    def __init__(self, port: int, *, known: bool = True, face: str = "amqp", timeout: float = 30.0) -> None:
        if face == "amqp":
            self.sock = tcp(port, timeout)
        elif face == "tls":
            self.sock = tls(port, timeout)
        else:
            self.sock = WebSocket(tcp(port, timeout))
        self.engine = Connection(
            ConnectionSettings(container_id="hostile", hostname="localhost", handle_max=255,
                               credentials=(RULE, KEY) if known else None),
            role=Role.CLIENT)
        self.events = []
        self.sent = 0
        self.tags = 0
        self.engine.open()
        self.wait(Opened)
        self.session = self.engine.begin()
        self.wait(Begun)

    # The polite part.

    def flush(self) -> None:
        data = self.engine.take_output()
        if data:
            self.raw(data)

    def pump(self) -> None:
        """Read once."""
        self.flush()
        data = self.sock.recv(262144)
        if not data:
            raise Gone
        self.events += self.engine.receive(data)
        self.flush()

    def wait(self, kind, match=lambda event: True):
        while True:
            for index, event in enumerate(self.events):
                if isinstance(event, kind) and match(event):
                    del self.events[index]
                    return event
                if isinstance(event, Closed):
                    raise Gone(str(event.error))
                if isinstance(event, Detached) and kind is not Detached:
                    raise Gone(str(event.error))
            self.pump()

    def sender(self, path: str, name: str = "s"):
        link = self.session.attach(f"{name}-{os.urandom(4).hex()}", LinkRole.SENDER, source=Source(path), target=Target(path),
                                   rcv_settle_mode=0)
        self.wait(Attached, lambda event: event.link is link)
        return link

    def receiver(self, path: str, name: str = "r", *, delete: bool = False, **options):
        link = self.session.attach(f"{name}-{os.urandom(4).hex()}", LinkRole.RECEIVER, source=Source(path, **options),
                                   target=Target(path),
                                   snd_settle_mode=1 if delete else 0, rcv_settle_mode=0 if delete else 1)
        self.wait(Attached, lambda event: event.link is link)
        return link

    def send(self, link, payload: bytes, message_format: int = 0):
        self.tags += 1
        link.credit = max(link.credit, 1)
        number = link.send(payload, self.tags.to_bytes(4, "big"), message_format=message_format)
        return self.wait(Disposed, lambda event: number in event.delivery_ids and event.link is link).state

    def fill(self, path: str, count: int, size: int = 100, batch: int = 500) -> None:
        link = self.sender(path)
        one = message(b"x" * size)
        for start in range(0, count, batch):
            self.send(link, batch_of([one] * min(batch, count - start)), BATCH_FORMAT)

    def requests(self, node: str):
        name = os.urandom(4).hex()
        replies = self.session.attach(f"rep-{name}", LinkRole.RECEIVER, source=Source(node), target=Target(f"me-{name}"))
        link = self.session.attach(f"req-{name}", LinkRole.SENDER, source=Source(f"me-{name}"), target=Target(node))
        self.wait(Attached, lambda event: event.link is link)
        replies.set_credit(1000)
        return link, replies, f"me-{name}"

    def ask(self, links, properties: dict, body) -> dict:
        link, _, me = links
        self.tags += 1
        link.credit = max(link.credit, 1)
        link.send(request(properties, body, me, self.tags), self.tags.to_bytes(4, "big"), settled=True)
        event = self.wait(TransferReceived, lambda event: event.link is links[1])
        return read_application_properties(event.payload)

    def put_token(self) -> None:
        links = self.requests("$cbs")
        answer = self.ask(links, {"operation": "put-token", "type": "servicebus.windows.net:sastoken",
                                  "name": "sb://localhost/"}, sas())
        assert answer["status-code"] == 202, answer

    def close(self) -> None:
        self.sock.close()

    # The rest.

    def raw(self, data: bytes) -> None:
        self.sock.sendall(data)
        self.sent += len(data)

    def frame(self, performative, payload: bytes = b"", channel: int | None = None) -> bytes:
        return codec.encode_frame(self.session.channel if channel is None else channel, performative, payload)


def message(body: bytes = b"x", **properties) -> bytes:
    return encode_message(properties=Properties(**properties), application_properties={}, body=body)


def batch_of(messages: list[bytes]) -> bytes:
    return b"".join(b"\x00\x53\x75" + codec.encode_value(each) for each in messages)


def request(properties: dict, body, reply_to: str, number: int) -> bytes:
    return encode_message(properties=Properties(message_id=f"m{number}", reply_to=reply_to),
                          application_properties=properties, body=body)
