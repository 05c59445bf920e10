"""Signed HTTP requests to a server, for tests: with nothing but Python's own library.

`testing/` imports nothing else of Busway (see `plugin.py`), so this is also an example of how a
client in another language would do it: a shared access signature in the header Authorization.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import time
from typing import Any
from urllib.parse import quote_plus

TOKEN_LIVES_S = 300
ANSWER_S = 60.0


class RequestError(Exception):
    """The server said no; the text is its own."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Requests:
    """Signs with the key of a connection string; one connection for each request."""

    def __init__(self, connection_string: str) -> None:
        parts = dict(part.split("=", 1) for part in connection_string.strip(";").split(";") if part)
        endpoint = parts["Endpoint"].removeprefix("sb://").rstrip("/")
        self._host, _, port = endpoint.partition(":")
        self._port = int(port)
        self._rule, self._key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]

    def json(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.send(method, path, data, "application/json"))

    def send(self, method: str, path: str, body: bytes | None, content_type: str) -> bytes:
        line = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        headers = {"Authorization": self._token(), "Content-Type": content_type}
        try:
            line.request(method, path, body, headers)
            reply = line.getresponse()
            data = reply.read()
        finally:
            line.close()
        if reply.status >= 400:
            text = data.decode(errors="replace")
            detail = re.search(r"<Detail>(?:SubCode=\d+\. )?(.*?)</Detail>", text, re.DOTALL)
            raise RequestError(reply.status, detail[1] if detail else text)
        return data

    def _token(self) -> str:
        resource = quote_plus(f"http://{self._host}/")
        expires = int(time.time()) + TOKEN_LIVES_S
        signed = f"{resource}\n{expires}".encode()
        digest = hmac.new(self._key.encode(), signed, hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest))
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={self._rule}"
