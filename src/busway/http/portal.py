"""`/portal`: the web page, as files. It asks for everything else with the token of its user.

The files hold no secret and change nothing, so they are for everybody. What a page may load and
run is told by its content security policy: files of this server only, and no script inside HTML.
A browser keeps the files and asks each time whether they have changed, so that an upgrade shows at
once; what it gets is compressed.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Awaitable, Callable
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from aiohttp import hdrs, web

from busway.http.calls import Call
from busway.http.replies import HttpError, empty

HOME = "/portal/"
START = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}

Room = Callable[[Call], Awaitable[web.StreamResponse]]


class Page(NamedTuple):
    content: bytes
    compressed: bytes
    content_type: str
    etag: str


async def answer(call: Call) -> web.StreamResponse:
    rest = call.target.rest
    if not rest and not call.target.raw.endswith("/"):
        return empty(308, {hdrs.LOCATION: HOME})
    page = await asyncio.to_thread(_page, rest or (START,))
    headers = {**HEADERS, hdrs.ETAG: page.etag, hdrs.CONTENT_TYPE: page.content_type}
    asked = call.request.headers
    if page.etag in asked.get(hdrs.IF_NONE_MATCH, ""):
        return empty(304, headers)
    if "gzip" in asked.get(hdrs.ACCEPT_ENCODING, ""):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=page.compressed, headers=headers)
    return web.Response(body=page.content, headers=headers)


def for_browsers(otherwise: Room) -> Room:
    """The root of the server: a person with a browser is led to the portal, nobody else."""

    async def root(call: Call) -> web.StreamResponse:
        headers = call.request.headers
        wants_page = "text/html" in headers.get(hdrs.ACCEPT, "")
        if wants_page and call.method in ("GET", "HEAD") and hdrs.AUTHORIZATION not in headers:
            return empty(302, {hdrs.LOCATION: HOME})
        return await otherwise(call)

    return root


@lru_cache(maxsize=128)
def _page(path: tuple[str, ...]) -> Page:
    """Read once: an installed file does not change while the server runs."""
    ending = path[-1].rpartition(".")[2]
    place = files("busway.portal")
    for part in path:
        # One step down at a time, never up or to a hidden file.
        if part.startswith(".") or "/" in part or "\\" in part or ending not in TYPES:
            raise _not_there(path)
        place = place.joinpath(part)
    if not place.is_file():
        raise _not_there(path)
    content = place.read_bytes()
    # The same file in two forms: the tag is a weak one.
    etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Page(content, gzip.compress(content, mtime=0), TYPES[ending], etag)


def _not_there(path: tuple[str, ...]) -> HttpError:
    return HttpError(404, f"The portal has no file '{'/'.join(path)[:100]}'. It begins at {HOME}.")
