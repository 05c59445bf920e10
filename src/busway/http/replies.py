"""Replies that are the same everywhere: errors as the service words them (http.md section 5)."""

from __future__ import annotations

from xml.sax.saxutils import escape

from aiohttp import web

ERROR_TYPE = "application/xml; charset=utf-8"


class HttpError(Exception):
    """A request is refused with a status that the table of errors does not have for it."""

    def __init__(
        self,
        status: int,
        text: str,
        *,
        sub_code: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.sub_code = status * 100 if sub_code is None else sub_code
        self.headers = headers or {}


def empty(status: int, headers: dict[str, str] | None = None) -> web.Response:
    """Nothing to say: clients want `Content-Length: 0` where a body could be."""
    return web.Response(status=status, headers=headers)


def error(status: int, detail: str, headers: dict[str, str] | None = None) -> web.Response:
    """`detail` comes with its sub-code and tracking; both SDKs show it to people."""
    body = f"<Error><Code>{status}</Code><Detail>{escape(_legal(detail))}</Detail></Error>"
    return web.Response(
        status=status,
        body=body.encode(),
        headers={"Content-Type": ERROR_TYPE, **(headers or {})},
    )


def _legal(text: str) -> str:
    """Without what XML cannot hold; a name from a stranger's path may have anything."""
    return "".join(c if c in "\t\n\r" or " " <= c < "\ud800" or c > "\udfff" else "?" for c in text)
