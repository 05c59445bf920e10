"""A running server, as somebody with its connection string sees it over HTTP."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from html import unescape
from typing import Any

from busway.remote import connection
from busway.remote.connection import ConnectionStringError, Credentials
from busway.remote.console import FAILED, NO_RIGHTS, NOT_FOUND, UNREACHABLE
from busway.remote.trust import UntrustedError, dial

STATUSES = {401: NO_RIGHTS, 404: NOT_FOUND}
"""Which exit status an HTTP status is."""
TOKEN_LIVES_S = 300
ANSWER_S = 30.0


class RemoteError(Exception):
    """What went wrong, and what to do about it; for a person."""

    def __init__(
        self, text: str, facts: dict[str, Any] | None = None, exit_status: int = FAILED
    ) -> None:
        super().__init__(text)
        self.exit_status = exit_status
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
        self.check_is_busway()
        _, data = self.request(method, path, body, entity)
        try:
            return json.loads(data) if data else None
        except ValueError as error:
            raise RemoteError(
                f"What answers at {self.address} is not a Busway server of this version."
            ) from error

    def check_is_busway(self) -> None:
        if self._endpoint.is_azure:
            raise RemoteError(
                f"{self._endpoint.host} is a namespace of Azure Service Bus, and this asks for "
                "what only a Busway server tells."
            )

    def request(
        self,
        method: str,
        path: str,
        body: str | bytes | None,
        entity: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[http.client.HTTPMessage, bytes]:
        """The headers and the body of what was answered, if that was a success."""
        signed = {"Authorization": self.token(entity), **(headers or {})}
        try:
            with closing(dial(self._endpoint, ANSWER_S)) as line:
                line.request(method, path, body, signed)
                reply = line.getresponse()
                data = reply.read()
        except UntrustedError as error:
            raise RemoteError(str(error), exit_status=UNREACHABLE) from error
        except ConnectionRefusedError as error:
            raise RemoteError(
                f"Nobody listens at {self.address}. Is the server running, and is this the "
                "connection string that it has printed?",
                exit_status=UNREACHABLE,
            ) from error
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            text = f"The server at {self.address} cannot be asked: {what}."
            raise RemoteError(text, exit_status=UNREACHABLE) from error
        if reply.status not in (http.client.OK, http.client.CREATED):
            facts = _facts(data)
            text = self._refused(reply.status, data.decode(errors="replace"), facts)
            raise RemoteError(text, facts, STATUSES.get(reply.status, FAILED))
        return reply.headers, data

    def token(self, entity: str = "", lasts_s: int = TOKEN_LIVES_S) -> str:
        """For everything, or for one entity and what is below it."""
        return self._credentials.pass_for(entity, lasts_s).token

    def _refused(self, status: int, body: str, facts: dict[str, Any]) -> str:
        detail = re.search(r"<Detail>(.*?)</Detail>", body, re.DOTALL)
        text = detail[1] if detail else str(facts.get("detail", f"HTTP status {status}."))
        text = re.sub(r"^SubCode=\d+\. ", "", text)
        text = unescape(text.partition(" TrackingId:")[0].partition(" To know more visit ")[0])
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
