"""Requests to a real server, as any client of HTTP would send them."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from busway.gateway.auth import sign
from busway.testing import Server

ANSWER_S = 60.0


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(
    server: Server,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """A body that is no text is sent as JSON; without a token, nobody in particular asks."""
    connection = http.client.HTTPConnection("localhost", server.port, timeout=ANSWER_S)
    sent = dict(headers or {}) | ({} if token is None else {"Authorization": token})
    content = body if body is None or isinstance(body, str) else json.dumps(body)
    try:
        connection.request(method, path, content, sent)
        reply = connection.getresponse()
        got = {name.lower(): value for name, value in reply.getheaders()}
        data = reply.read()
    finally:
        connection.close()
    if got.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    return Reply(reply.status, got, data)


def token_of(connection_string: str, path: str = "") -> str:
    """A token for what lies at this path and below, signed with the key of a connection string."""
    fields = dict(part.split("=", 1) for part in connection_string.split(";") if part)
    host = urlsplit(fields["Endpoint"]).hostname
    resource = quote_plus(f"http://{host}/{path}")
    expiry = str(int(time.time()) + 600)
    signature = quote_plus(sign(resource, expiry, fields["SharedAccessKey"]))
    rule = fields["SharedAccessKeyName"]
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


def manager(server: Server) -> str:
    return token_of(server.connection_string)


def make(server: Server, store: str, mode: str, **more: int) -> Any:
    """Tell a store to be ill, or well, and what the server says of it then."""
    path = f"/$busway/stores/{store}/fault"
    reply = ask(server, "POST", path, {"mode": mode, **more}, token=manager(server))
    assert reply.status == 200, reply.text
    return reply.json


def map_of(server: Server, query: str = "") -> Any:
    reply = ask(server, "GET", f"/$busway/map{query}", token=manager(server))
    assert reply.status == 200, reply.text
    return reply.json


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Metrics:
    """What a scrape said."""

    def __init__(self, text: str) -> None:
        self._samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def of(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """All series of this name that have these labels, by all their labels."""
        wanted = set(labels.items())
        return {
            tuple(sorted(found)): value
            for (sample, found), value in self._samples.items()
            if sample == name and wanted <= found
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Of the one series that has these labels."""
        found = self.of(name, **labels)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def sum(self, name: str, **labels: str) -> float:
        return sum(self.of(name, **labels).values())

    def labels(self, name: str, label: str) -> set[str]:
        return {dict(found)[label] for found in self.of(name)}

    def __len__(self) -> int:
        return len(self._samples)


def metrics_of(server: Server) -> Metrics:
    reply = ask(server, "GET", "/metrics", token=manager(server))
    assert reply.status == 200, reply.text
    return Metrics(reply.text)
