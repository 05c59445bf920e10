"""Management requests as a program without a library would make them, and replies taken apart."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote_plus
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from busway.gateway.auth import sign
from busway.testing import Server

ATOM = "http://www.w3.org/2005/Atom"
SERVICE = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
SCHEMA = "http://www.w3.org/2001/XMLSchema"
UNLIMITED = "P10675199DT2H48M5.4775807S"
ROOT = "RootManageSharedAccessKey"


def token(resource: str, key: str, rule: str = ROOT, lasts_s: int = 300) -> str:
    quoted, expiry = quote_plus(resource), str(int(time.time()) + lasts_s)
    signature = quote_plus(sign(quoted, expiry, key))
    return f"SharedAccessSignature sr={quoted}&sig={signature}&se={expiry}&skn={quote_plus(rule)}"


def atom(name: str) -> str:
    return f"{{{ATOM}}}{name}"


def service(name: str) -> str:
    return f"{{{SERVICE}}}{name}"


def entry(description: str) -> bytes:
    """A body as JavaScript writes it: both namespaces are defaults where they begin."""
    return (
        f'<?xml version="1.0"?><entry xmlns="{ATOM}"><content type="application/xml">'
        f"{description}</content></entry>"
    ).encode()


def description(kind: str, inner: str = "", **elements: object) -> bytes:
    """`description("Queue", LockDuration="PT30S")`"""
    written = "".join(f"<{name}>{escape(str(value))}</{name}>" for name, value in elements.items())
    opening = f'{kind}Description xmlns="{SERVICE}" xmlns:i="{INSTANCE}"'
    return entry(f"<{opening}>{written}{inner}</{kind}Description>")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes = field(repr=False)

    @property
    def root(self) -> Element:
        return ElementTree.fromstring(self.body)

    @property
    def content(self) -> Element:
        (found,) = self.root.findall(f"{atom('content')}/*")
        return found

    @property
    def names(self) -> list[str]:
        """Of the description's elements, in their order."""
        return [child.tag.rpartition("}")[2] for child in self.content]

    def text(self, path: str) -> str | None:
        """Of an element of the description: `Status`, `Filter/SqlExpression`."""
        found = self.content.find("/".join(map(service, path.split("/"))))
        return None if found is None else found.text or ""

    def moment(self, path: str) -> datetime:
        """Of an element: as texts instants do not compare, their last zeros are not written."""
        return datetime.fromisoformat(self.text(path) or "")

    @property
    def entries(self) -> list[Element]:
        return self.root.findall(atom("entry"))

    @property
    def titles(self) -> list[str | None]:
        return [each.findtext(atom("title")) for each in self.entries]

    @property
    def links(self) -> dict[str | None, str | None]:
        return {link.get("rel"): link.get("href") for link in self.root.findall(atom("link"))}

    @property
    def detail(self) -> str:
        """Of an error, whose form is checked."""
        root = self.root
        assert root.tag == "Error"
        assert root.findtext("Code") == str(self.status)
        assert self.headers["content-type"] == "application/xml; charset=utf-8"
        return root.findtext("Detail") or ""

    def count(self, name: str) -> int:
        return int(self.content.findtext(f"{service('CountDetails')}/{{{COUNTS}}}{name}") or -1)


class Management:
    """A client with the right to manage, over plain HTTP."""

    def __init__(self, server: Server) -> None:
        parts = dict(
            part.partition("=")[::2] for part in server.connection_string.strip(";").split(";")
        )
        self.authority = parts["Endpoint"].removeprefix("sb://").rstrip("/")
        self.key = parts["SharedAccessKey"]
        self._connection = http.client.HTTPConnection(self.authority, timeout=60)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        api_version: str | None = "2021-05",
        authorization: str | None = None,
    ) -> Reply:
        if api_version is not None:
            path += ("&" if "?" in path else "?") + f"api-version={api_version}"
        if authorization is None:
            authorization = token(f"https://{self.authority}", self.key)
        sent = {"Authorization": authorization, **(headers or {})}
        self._connection.request(
            method, path, body, {name: text for name, text in sent.items() if text}
        )
        response = self._connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, received, response.read())

    def get(self, path: str, **options: Any) -> Reply:
        return self.request("GET", path, **options)

    def delete(self, path: str, **options: Any) -> Reply:
        return self.request("DELETE", path, **options)

    def put(self, path: str, body: bytes, **options: Any) -> Reply:
        return self.request("PUT", path, body, **options)

    def update(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Reply:
        return self.put(path, body, headers={"If-Match": "*", **(headers or {})}, **options)

    def create(self, kind: str, path: str, inner: str = "", **elements: object) -> Reply:
        reply = self.put(path, description(kind, inner, **elements))
        assert reply.status == 201, reply.body
        return reply

    def pages(self, path: str, top: int) -> Sequence[list[str | None]]:
        """Titles, page by page, by following the links."""
        pages = []
        following: str | None = f"{path}?$skip=0&$top={top}"
        while following is not None:
            reply = self.get(following, api_version=None)
            assert reply.status == 200
            pages.append(reply.titles)
            href = reply.links.get("next")
            following = None if href is None else href.partition(self.authority)[2]
        return pages

    def close(self) -> None:
        self._connection.close()
