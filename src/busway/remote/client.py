"""A running server, as somebody with its connection string sees it over HTTP."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import closing
from dataclasses import replace
from typing import Any

from busway.remote import connection
from busway.remote.connection import ConnectionStringError, Credentials
from busway.remote.trust import UntrustedError, dial

TOKEN_LIVES_S = 300
ANSWER_S = 30.0


class RemoteError(Exception):
    """What went wrong, and what to do about it; for a person."""

    def __init__(self, text: str, facts: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.facts = facts or {}
        """What the server said of it for programs, if it did."""

    @property
    def word(self) -> str | None:
        return self.facts.get("error")


class RemoteServer:
    """Signs requests with the key of its connection string. Raises `RemoteError`."""

    def __init__(self, server: str | Credentials) -> None:
        """A server by its connection string, or by what was read of it."""
        try:
            self._credentials = (
                server if isinstance(server, Credentials) else connection.read(server)
            )
        except ConnectionStringError as error:
            raise RemoteError(str(error)) from error
        self._endpoint = self._credentials.endpoint

    @property
    def address(self) -> str:
        return f"{self._endpoint.host}:{self._endpoint.port}"

    def get(self, path: str, entity: str = "") -> Any:
        """`entity`: with a signature for this one alone, so that a rule of its own opens it."""
        return self._call("GET", path, None, entity)

    def post(self, path: str, body: Any) -> Any:
        return self._call("POST", path, json.dumps(body))

    def put(self, path: str, body: Any, entity: str = "") -> Any:
        return self._call("PUT", path, json.dumps(body), entity)

    def delete(self, path: str) -> None:
        self._call("DELETE", path, None)

    def connection_string_of(self, rule: str, key: str) -> str:
        """For this server, with the key of another rule."""
        return replace(self._credentials, rule=rule, key=key).connection_string

    def nearest(self, entity: str) -> str | None:
        """The entity that somebody may have meant who misspelt it, of those that begin alike. None
        if there is none, or the key may not look."""
        from difflib import get_close_matches
        from urllib.parse import urlencode

        query = urlencode({"entity": f"{entity[:1]}*", "top": "1000"})
        try:
            there = self.get(f"/$busway/map?{query}")["entities"]
        except RemoteError:
            return None
        names = {each["name"].lower(): str(each["name"]) for each in there}
        near = get_close_matches(entity.lower(), names, 1)
        return names[near[0]] if near else None

    def _call(self, method: str, path: str, body: str | None, entity: str = "") -> Any:
        try:
            with closing(dial(self._endpoint, ANSWER_S)) as line:
                line.request(method, path, body, {"Authorization": self.token(entity)})
                reply = line.getresponse()
                data = reply.read()
        except UntrustedError as error:
            raise RemoteError(str(error)) from error
        except ConnectionRefusedError as error:
            raise RemoteError(
                f"Nobody listens at {self.address}. Is the server running, and is this the "
                "connection string that it has printed?"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            raise RemoteError(f"The server at {self.address} cannot be asked: {what}.") from error
        if reply.status not in (http.client.OK, http.client.CREATED):
            facts = _facts(data)
            text = self._refused(reply.status, data.decode(errors="replace"), facts)
            raise RemoteError(text, facts)
        try:
            return json.loads(data) if data else None
        except ValueError as error:
            raise RemoteError(
                f"What answers at {self.address} is not a Busway server of this version."
            ) from error

    def token(self, entity: str = "", lasts_s: int = TOKEN_LIVES_S) -> str:
        """For everything, or for one entity and what is below it."""
        return self._credentials.pass_for(entity, lasts_s).token

    def _refused(self, status: int, body: str, facts: dict[str, Any]) -> str:
        detail = re.search(r"<Detail>(.*?)</Detail>", body, re.DOTALL)
        text = detail[1] if detail else str(facts.get("detail", f"HTTP status {status}."))
        text = re.sub(r"^SubCode=\d+\. ", "", text)
        text = text.partition(" TrackingId:")[0].replace("&lt;", "<").replace("&gt;", ">")
        if status == http.client.UNAUTHORIZED:
            return (
                f"The server at {self.address} does not accept the key of "
                f"'{self._credentials.rule}', or that rule may not manage. It says: {text}"
            )
        return text


def _facts(body: bytes) -> dict[str, Any]:
    """An error that is told in JSON; empty if it is told otherwise."""
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
