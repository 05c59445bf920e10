"""A running server, as somebody with its connection string sees it over HTTP."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from typing import Any

from busway.remote import connection
from busway.remote.connection import ConnectionStringError

TOKEN_LIVES_S = 300
ANSWER_S = 30.0


class RemoteError(Exception):
    """What went wrong, and what to do about it; for a person."""


class RemoteServer:
    """Signs requests with the key of its connection string. Raises `RemoteError`."""

    def __init__(self, connection_string: str) -> None:
        try:
            self._credentials = connection.read(connection_string)
        except ConnectionStringError as error:
            raise RemoteError(str(error)) from error
        self._endpoint = self._credentials.endpoint

    @property
    def address(self) -> str:
        return f"{self._endpoint.host}:{self._endpoint.port}"

    def get(self, path: str) -> Any:
        return self._call("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        return self._call("POST", path, json.dumps(body))

    def _call(self, method: str, path: str, body: str | None) -> Any:
        line = self._connection()
        try:
            line.request(method, path, body, {"Authorization": self.token()})
            reply = line.getresponse()
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
            line.close()
        if reply.status != http.client.OK:
            raise RemoteError(self._refused(reply.status, data.decode(errors="replace")))
        try:
            return json.loads(data)
        except ValueError as error:
            raise RemoteError(
                f"What answers at {self.address} is not a Busway server of this version."
            ) from error

    def _connection(self) -> http.client.HTTPConnection:
        endpoint = self._endpoint
        if not endpoint.tls:
            return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=ANSWER_S)
        return http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=ANSWER_S, context=ssl.create_default_context()
        )

    def token(self, entity: str = "", lasts_s: int = TOKEN_LIVES_S) -> str:
        """For everything, or for one entity and what is below it."""
        return self._credentials.pass_for(entity, lasts_s).token

    def _refused(self, status: int, body: str) -> str:
        detail = re.search(r"<Detail>(.*?)</Detail>", body, re.DOTALL)
        text = re.sub(r"^SubCode=\d+\. ", "", detail[1]) if detail else f"HTTP status {status}."
        text = text.partition(" TrackingId:")[0].replace("&lt;", "<").replace("&gt;", ">")
        if status == http.client.UNAUTHORIZED:
            return (
                f"The server at {self.address} does not accept the key of "
                f"'{self._credentials.rule}', or that rule may not manage. It says: {text}"
            )
        return text
