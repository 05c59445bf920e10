"""A broker of which one store in four can be taken away and given back while a test goes on (N-14).

What every SDK must see of it (P-24, P-41): a send whose key lies in that store is refused in a way
that the SDK takes for passing, and tries again by itself; sends with other keys, on the same link,
are taken as if nothing were. Suites in other languages reach `switch` by two plain requests:

    GET {BUSWAY_ILL_SWITCH}/gone     the store is away when this is answered
    GET {BUSWAY_ILL_SWITCH}/none     it serves again when this is answered
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote_plus

from busway.gateway.auth import sign
from busway.model.partitioning import partition_of_key
from busway.testing.server import Server

QUEUE = "partly-ill"
STORES = 4
PARTITIONS = 16
HEALTHY_KEYS = 12
WAIT_S = 60.0


class PartlyIll:
    """`ill_key` lies in the store that goes, each of `healthy_keys` in one that stays."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.connection_string = server.connection_string
        (entity,) = self._ask("GET", "/$busway/map")["entities"]
        places = [partition["store"] for partition in entity["partitions"]]
        assert len(places) == PARTITIONS
        keys = [f"key-{number}" for number in range(100)]
        at = {key: places[partition_of_key(key, PARTITIONS)] for key in keys}
        self.ill_key = keys[0]
        self._store = at[self.ill_key]
        self.healthy_keys = [key for key in keys if at[key] != self._store][:HEALTHY_KEYS]

    def switch(self, mode: str) -> None:
        """`gone` or `none`; done when the store is so."""
        path, wanted = f"/$busway/stores/{self._store}/fault", mode == "none"
        told = self._ask("POST", path, {"mode": mode})
        deadline = time.monotonic() + WAIT_S
        while (told["state"] == "serving") != wanted:
            assert time.monotonic() < deadline, f"{self._store} should be {mode}: {told}"
            told = self._ask("GET", path)

    @property
    def environment(self) -> dict[str, str]:
        """What a suite is told of it, beside the switch."""
        return {
            "BUSWAY_ILL_CONNECTION_STRING": self.connection_string,
            "BUSWAY_ILL_KEY": self.ill_key,
            "BUSWAY_HEALTHY_KEYS": ",".join(self.healthy_keys),
        }

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("localhost", self.server.port, timeout=WAIT_S)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Authorization": self._token()})
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        assert reply.status == 200, content
        return json.loads(content)

    def _token(self) -> str:
        parts = dict(part.split("=", 1) for part in self.connection_string.strip(";").split(";"))
        resource, expiry = quote_plus("http://localhost/"), str(int(time.time()) + 600)
        signature = quote_plus(sign(resource, expiry, parts["SharedAccessKey"]))
        rule = parts["SharedAccessKeyName"]
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={rule}"


@contextmanager
def partly_ill() -> Iterator[PartlyIll]:
    arguments = ["--stores", str(STORES), "--allow-faults"]
    with Server(partitioned=[QUEUE], arguments=arguments) as server:
        yield PartlyIll(server)


@contextmanager
def switched_by_requests(broker: PartlyIll) -> Iterator[str]:
    """The address of the switch, for programs in other languages."""

    class Switch(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mode = self.path.strip("/")
            if mode in ("gone", "none"):
                broker.switch(mode)
            self.send_response(204 if mode in ("gone", "none") else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """It is no news."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Switch)
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
