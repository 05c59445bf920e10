"""A client of REST messaging, as a program without any library would be one."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from busway.gateway import auth
from busway.testing import Server

ANSWER_S = 60.0


def token(
    server: Server,
    path: str = "",
    *,
    lasts_s: int = 600,
    key: str | None = None,
    rule: str | None = None,
) -> str:
    """For what lies at this path and below, signed with the root key if no other is named."""
    fields = dict(part.split("=", 1) for part in server.connection_string.split(";") if part)
    return auth.write(
        f"http://localhost:{server.port}/{path}",
        rule or fields["SharedAccessKeyName"],
        key or fields["SharedAccessKey"],
        int(time.time()) + lasts_s,
    )


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes = field(repr=False)

    @property
    def broker(self) -> dict[str, Any]:
        found = json.loads(self.headers["brokerproperties"])
        assert isinstance(found, dict)
        return found

    @property
    def location(self) -> str:
        """Without scheme and authority."""
        return urlsplit(self.headers["location"]).path

    @property
    def text(self) -> str:
        return self.body.decode()


class Rest:
    """One connection that is kept alive, with a token for everything unless told otherwise."""

    def __init__(self, server: Server, authorization: str | None = None) -> None:
        self.server = server
        self.authorization = token(server) if authorization is None else authorization
        self._connection = http.client.HTTPConnection("localhost", server.port, timeout=ANSWER_S)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Reply:
        """A header that is None is not sent."""
        sent = {
            name: value
            for name, value in {"Authorization": self.authorization, **(headers or {})}.items()
            if value is not None
        }
        content = body.encode() if isinstance(body, str) else body
        self._connection.request(method, path, content, sent)
        response = self._connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, received, response.read())

    def send(
        self,
        entity: str,
        body: bytes | str = b"",
        broker: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        described = {} if broker is None else {"BrokerProperties": json.dumps(broker)}
        return self.request("POST", f"/{entity}/messages", body, {**described, **(headers or {})})

    def sent(self, entity: str, *bodies: bytes | str, **broker: Any) -> None:
        """One by one, each of which must be taken."""
        for body in bodies:
            reply = self.send(entity, body, broker)
            assert (reply.status, reply.body) == (201, b""), reply.text

    def batch(self, entity: str, items: Any) -> Reply:
        kind = {"Content-Type": "application/vnd.microsoft.servicebus.json"}
        content = items if isinstance(items, str) else json.dumps(items)
        return self.request("POST", f"/{entity}/messages", content, kind)

    def peek_lock(self, entity: str, timeout: float | str = 30) -> Reply:
        return self.request("POST", f"/{entity}/messages/head?timeout={timeout}")

    def locked(self, entity: str) -> Reply:
        reply = self.peek_lock(entity)
        assert reply.status == 201, reply.text
        return reply

    def delete(self, entity: str, timeout: float | str = 30) -> Reply:
        return self.request("DELETE", f"/{entity}/messages/head?timeout={timeout}")

    def taken(self, entity: str, count: int) -> list[str]:
        """The bodies of so many messages, received and deleted."""
        replies = [self.delete(entity) for _ in range(count)]
        assert {reply.status for reply in replies} <= {200}
        return [reply.text for reply in replies]

    def is_empty(self, entity: str) -> bool:
        reply = self.delete(entity, timeout=0)
        assert reply.status in (200, 204), reply.text
        return reply.status == 204

    def complete(self, locked: Reply) -> Reply:
        return self.request("DELETE", locked.location)

    def unlock(self, locked: Reply) -> Reply:
        return self.request("PUT", locked.location)

    def renew(self, locked: Reply) -> Reply:
        return self.request("POST", locked.location)

    def close(self) -> None:
        self._connection.close()


def raw_request(server: Server, method: str, path: str, *headers: str) -> bytes:
    """The bytes of a request with a token and no body."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: localhost:{server.port}",
        f"Authorization: {token(server)}",
        *headers,
    ]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def open_socket(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), ANSWER_S)


def until(condition: Callable[[], Any]) -> Any:
    """What the condition says once it says something."""
    deadline = time.monotonic() + ANSWER_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
    return result
