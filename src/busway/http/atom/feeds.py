"""The Atom envelope: entries, feeds and their pages (http.md 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from busway.http.atom.instants import whole_seconds
from busway.http.atom.markup import ATOM, Markup, element
from busway.http.replies import HttpError

ENTRY_TYPE = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE = "application/atom+xml;type=feed;charset=utf-8"
PAGE = 100
PAGE_MAX = 1000
SKIP, TOP = "$skip", "$top"


@dataclass(frozen=True, slots=True)
class Entry:
    address: str
    """Its path is as it was requested, upper and lower case too: JavaScript's client cuts names
    out of it."""
    title: str
    """The thing's own name: Python's client lists by it."""
    published_ms: int
    updated_ms: int
    content: Markup
    author: str | None = None
    """The namespace, where the thing is a queue, a topic or the namespace itself."""


def write_entry(entry: Entry, *, outermost: bool = True) -> Markup:
    inner = [
        element("id", entry.address),
        _title(entry.title),
        element("published", whole_seconds(entry.published_ms)),
        element("updated", whole_seconds(entry.updated_ms)),
    ]
    if entry.author is not None:
        inner.append(element("author", [element("name", entry.author)]))
    inner += [
        _link("self", entry.address),
        element("content", entry.content, {"type": "application/xml"}),
    ]
    return element("entry", inner, {"xmlns": ATOM} if outermost else None)


@dataclass(frozen=True, slots=True)
class Page:
    skip: int = 0
    top: int = PAGE

    @property
    def end(self) -> int:
        return self.skip + self.top


def page_of(query: Mapping[str, str]) -> Page:
    """Both numbers may be left out; one that is none is a mistake (http.md 4)."""
    return Page(_number(query, SKIP, 0), min(_number(query, TOP, PAGE), PAGE_MAX))


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise HttpError(400, f"{name} must be a whole number from 0 on, and is '{text[:40]}'.")
    return int(text)


def write_feed(
    title: str,
    address: str,
    updated_ms: int,
    entries: Sequence[Markup],
    following: Mapping[str, str] | None = None,
) -> Markup:
    """`following` is the query of the next page, None on the last one. Python's client takes the
    second of exactly two links for the next page, so the order matters."""
    links = [_link("self", address)]
    if following is not None:
        links.append(_link("next", f"{address}?{urlencode(following, safe='$')}"))
    inner = [
        _title(title),
        element("id", address),
        element("updated", whole_seconds(updated_ms)),
        *links,
        *entries,
    ]
    return element("feed", inner, {"xmlns": ATOM})


def below(address: str, name: str) -> str:
    """The address of what a list has, from that of the list."""
    return f"{address.rstrip('/')}/{quote(name, safe='/$')}"


def _title(text: str) -> Markup:
    return element("title", text, {"type": "text"})


def _link(relation: str, address: str) -> Markup:
    return element("link", "", {"rel": relation, "href": address})
