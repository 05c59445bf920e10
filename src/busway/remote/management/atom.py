"""The Atom interface of the service, from the client's side (http.md 4): entries in, entries out.

It speaks to Busway and to a real namespace alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element, ParseError

from busway.http.atom.markup import ATOM, INSTANCE, SERVICE, Markup, document, element
from busway.remote.client import RemoteError, RemoteServer
from busway.remote.connection import Credentials

API_VERSION = "2021-05"
PAGE = 100
ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FORWARD_TOKENS = {
    "ForwardTo": "ServiceBusSupplementaryAuthorization",
    "ForwardDeadLetteredMessagesTo": "ServiceBusDlqSupplementaryAuthorization",
}
"""Headers with a token that may send to where messages go on to."""


@dataclass(frozen=True, slots=True)
class Entry:
    title: str
    description: Element
    """The one element of its content."""


class Atom:
    """Raises `RemoteError`."""

    def __init__(self, credentials: Credentials) -> None:
        self._server = RemoteServer(credentials)
        self._host = credentials.endpoint.host

    @property
    def address(self) -> str:
        return self._server.address

    def get(self, path: str) -> Entry:
        _, data = self._server.request("GET", _url(path), None)
        found = self._entries(data)
        if not found:  # the real service answers so where there is nothing
            raise RemoteError(f"There is no '{path}' at {self.address}.", exit_status=5)
        return found[0]

    def put(
        self, path: str, description: Markup, *, change: bool, destinations: Mapping[str, str]
    ) -> Entry:
        """Make it, or change what is there. `destinations`: where its messages go on to."""
        headers = {"Content-Type": ENTRY_TYPE}
        if change:
            headers["If-Match"] = "*"
        for name, entity in destinations.items():
            headers[FORWARD_TOKENS[name]] = self._server.token(entity)
        content = element("content", description, {"type": "application/xml"})
        body = document(element("entry", content, {"xmlns": ATOM}))
        _, data = self._server.request("PUT", _url(path), body, headers=headers)
        return self._entries(data)[0]

    def delete(self, path: str) -> None:
        self._server.request("DELETE", _url(path), None)

    def entries(self, path: str) -> Iterator[Entry]:
        skip = 0
        while True:
            query = {"$skip": str(skip), "$top": str(PAGE)}
            _, data = self._server.request("GET", _url(path, query), None)
            page = self._entries(data)
            yield from page
            skip += len(page)
            if len(page) < PAGE:
                return

    def _entries(self, data: bytes) -> list[Entry]:
        from defusedxml.ElementTree import fromstring

        try:
            root: Element = fromstring(data)
        except ParseError as error:
            raise RemoteError(f"What {self.address} answers is not Atom: {error}.") from error
        name = f"{{{ATOM}}}entry"
        found = [root] if root.tag == name else root.findall(name)
        entries = []
        for each in found:
            content = each.find(f"{{{ATOM}}}content")
            if content is not None and len(content):
                entries.append(Entry(each.findtext(f"{{{ATOM}}}title") or "", content[0]))
        return entries


def service_element(name: str, inner: list[Markup]) -> Markup:
    return element(name, inner, {"xmlns": SERVICE, "xmlns:i": INSTANCE})


def again(part: Element) -> Markup:
    """An element that was read, to be sent back as it was."""
    from xml.etree.ElementTree import tostring

    return Markup(tostring(part, encoding="unicode").strip())


def _url(path: str, query: Mapping[str, str] | None = None) -> str:
    asked = urlencode({**(query or {}), "api-version": API_VERSION}, safe="$")
    return f"/{quote(path, safe='/$')}?{asked}"
