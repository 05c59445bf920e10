"""A running server, as somebody with its connection string sees it over HTTP."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from typing import Any
from urllib.parse import urlsplit

from busway.gateway import auth

TOKEN_LIVES_S = 300
ANSWER_S = 30.0
PLAIN_PORT = 5672
TLS_PORT = 5671
"""Where a connection string without a port means; every port of a server speaks HTTP."""


class RemoteError(Exception):
    """What went wrong, and what to do about it; for a person."""


class RemoteServer:
    """Signs requests with the key of its connection string. Raises `RemoteError`."""

    def __init__(self, connection_string: str) -> None:
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (part.partition("=") for part in connection_string.split(";"))
        }
        try:
            endpoint = urlsplit(fields["endpoint"])
            self._rule = fields["sharedaccesskeyname"]
            self._key = fields["sharedaccesskey"]
            self._host, port = endpoint.hostname or "", endpoint.port
        except (KeyError, ValueError):
            self._host = ""
        if not self._host:
            raise RemoteError(
                "The connection string is not one. It is the line that 'busway serve' prints: "
                "Endpoint=sb://...;SharedAccessKeyName=...;SharedAccessKey=..."
            )
        self._plain = fields.get("usedevelopmentemulator", "").lower() == "true"
        self._port = port or (PLAIN_PORT if self._plain else TLS_PORT)

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._call("POST", path, json.dumps(body))

    def _call(self, method: str, path: str, body: str | None) -> Any:
        connection = self._connection()
        try:
            connection.request(method, path, body, {"Authorization": self.token()})
            reply = connection.getresponse()
            data = reply.read()
        except ssl.SSLCertVerificationError as error:
            raise RemoteError(
                f"The certificate of {self.address} is not trusted: {error.verify_message}. Name "
                "the file of its authority in the variable SSL_CERT_FILE."
            ) from error
        except ConnectionRefusedError as error:
            raise RemoteError(
                f"Nobody listens at {self.address}. Is the server running, and is this the "
                "connection string that it has printed?"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise RemoteError(f"The server at {self.address} cannot be asked: {what}.") from error
        finally:
            connection.close()
        if reply.status != http.client.OK:
            raise RemoteError(self._refused(reply.status, data.decode(errors="replace")))
        try:
            return json.loads(data)
        except ValueError as error:
            raise RemoteError(
                f"What answers at {self.address} is not a Busway server of this version."
            ) from error

    def _connection(self) -> http.client.HTTPConnection:
        if self._plain:
            return http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=ANSWER_S, context=context
        )

    def token(self, entity: str = "", lasts_s: int = TOKEN_LIVES_S) -> str:
        """For everything, or for one entity and what is below it."""
        resource = f"sb://{self._host}/{entity}"
        return auth.write(resource, self._rule, self._key, int(time.time()) + lasts_s)

    def _refused(self, status: int, body: str) -> str:
        detail = re.search(r"<Detail>(.*?)</Detail>", body, re.DOTALL)
        text = re.sub(r"^SubCode=\d+\. ", "", detail[1]) if detail else f"HTTP status {status}."
        text = text.partition(" TrackingId:")[0].replace("&lt;", "<").replace("&gt;", ">")
        if status == http.client.UNAUTHORIZED:
            return (
                f"The server at {self.address} does not accept the key of '{self._rule}', or that "
                f"rule may not manage. It says: {text}"
            )
        return text
