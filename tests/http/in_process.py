"""The real HTTP server over a gateway in memory, in this very process: quick enough for fuzzing.

Requests are bytes on a socket, so that no library tidies them up first.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from xml.etree import ElementTree

from busway.gateway import auth
from busway.http.server import HttpServer
from busway.http.services import Services
from busway.runtime.journal_readers import JournalReaders
from busway.runtime.reports import Reports
from tests.gateway.world import HOST, KEY, World
from tests.http.atom_client import ROOT

EXPIRY = "9999999999"
ANSWER_S = 60.0


def no_amqp() -> asyncio.Protocol:
    raise AssertionError("nobody asks for a WebSocket here")


def is_no_request(headers: Mapping[str, str]) -> bool:
    """The words of aiohttp for bytes that it cannot read; it closes the connection then."""
    return headers.get("content-type", "").startswith("text/plain")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def check(self) -> None:
        """The law: no request is our mistake, and every body can be read."""
        assert self.status < 500, self.body
        if self.status == 400 and is_no_request(self.headers):
            return
        if self.headers.get("content-type", "").startswith("application/json"):
            json.loads(self.body)
        elif self.body:
            ElementTree.fromstring(self.body)


class Errors(logging.Handler):
    """What went wrong without a client being told."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class HttpInProcess:
    def __init__(self) -> None:
        self.world = World()
        self.errors = Errors()
        self._loop = asyncio.new_event_loop()
        self._server: Any = None
        self._http: HttpServer | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        resource = f"sb://{HOST}"
        signature = auth.sign(resource, EXPIRY, KEY)
        quoted = signature.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
        self.authorization = (
            f"SharedAccessSignature sr={resource}&sig={quoted}&se={EXPIRY}&skn={ROOT}"
        )

    def __enter__(self) -> Self:
        gateway = self.world.gateway
        services = Services(
            host=self.world.scheduler,
            gateway_of=lambda hostname: gateway,
            gateways=lambda: (gateway,),
            stores=lambda: (),
            journals=JournalReaders(
                {name: store.journal_handle() for name, store in self.world.stores.items()}
            ),
            reports=Reports(None, self.world.scheduler),
            amqp=no_amqp,
        )

        async def start() -> None:
            self._http = HttpServer(services)
            self._server = await asyncio.get_running_loop().create_server(
                self._http.protocol, "127.0.0.1", 0
            )

        self._loop.run_until_complete(start())
        logging.getLogger().addHandler(self.errors)
        return self

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self._server.close()
            if self._streams is not None:
                self._streams[1].close()
            assert self._http is not None
            await self._http.close(0)

        self._loop.run_until_complete(stop())
        self._loop.close()
        logging.getLogger().removeHandler(self.errors)

    def request(
        self,
        method: str,
        path: str | bytes,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        if isinstance(path, str):
            path = path.encode("utf-8", "surrogatepass")
        lines = {
            "Host": HOST,
            "Authorization": self.authorization,
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        data = method.encode() + b" " + path + b" HTTP/1.1\r\n" + head.encode() + b"\r\n" + body
        answer = self._loop.run_until_complete(
            asyncio.wait_for(self._exchange(data, has_body=method != "HEAD"), ANSWER_S)
        )
        self.world.settle()
        errors, self.errors.records = self.errors.records, []
        assert not errors, errors[0].getMessage()
        return answer

    async def _exchange(self, data: bytes, *, has_body: bool) -> Answer:
        if self._streams is None:
            port = self._server.sockets[0].getsockname()[1]
            self._streams = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = self._streams
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        length = int(headers.get("content-length", 0)) if has_body else 0
        body = await reader.readexactly(length)
        if "close" in headers.get("connection", "") or is_no_request(headers):
            writer.close()
            self._streams = None
        return Answer(int(head[0].split(" ")[1]), headers, body)
