"""`/$busway/report`: the latest report of the data pipeline, kept for the portal.

    PUT  /$busway/report           {"page": "<!doctype html>..."}, by `busway pipeline report`
    GET  /$busway/report           when it came and how large it is; null if there is none
    POST /$busway/report/link      {"path": ...}: an address that opens it once, within a minute
    GET  /$busway/report/{ticket}  the page

A browser that opens an address sends no token, so the portal asks for a ticket with its own. The
page may run nothing and load nothing: whoever wrote it, it can only be looked at.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.explorer.asking import body_of, told
from busway.http.explorer.message_json import instant
from busway.http.replies import HttpError

REPORT_BYTES_MAX = 8 * 1024 * 1024
TICKET_MS = 60_000
TICKETS_MAX = 100
PAGE_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ReportRoom:
    def __init__(self) -> None:
        self._tickets: dict[str, tuple[str, int]] = {}
        """For which namespace, and until when."""

    async def put(self, call: Call) -> web.StreamResponse:
        call.demand(Right.MANAGE)
        page = (await body_of(call, ("page",), REPORT_BYTES_MAX)).get("page")
        if not isinstance(page, str) or not page.lstrip().lower().startswith("<!doctype html"):
            raise HttpError(400, "'page' must be HTML, as 'busway pipeline report' writes it.")
        await call.services.reports.keep(_namespace(call), page.encode(errors="replace"))
        return told({"size": len(page)})

    async def show(self, call: Call) -> web.StreamResponse:
        call.demand(Right.MANAGE)
        kept = await call.services.reports.latest(_namespace(call))
        described: dict[str, Any] | None = None
        if kept is not None:
            described = {"published": instant(kept.kept_ms), "size": len(kept.page)}
        return told({"report": described})

    async def link(self, call: Call) -> web.StreamResponse:
        call.demand(Right.MANAGE)
        now_ms = call.clock_ms()
        self._tickets = {
            ticket: given for ticket, given in self._tickets.items() if given[1] > now_ms
        }
        if len(self._tickets) >= TICKETS_MAX:
            raise HttpError(429, "Too many addresses of the report wait to be opened. Try again.")
        ticket = call.services.host.random_bytes(16).hex()
        self._tickets[ticket] = (_namespace(call), now_ms + TICKET_MS)
        return told({"path": f"/$busway/report/{ticket}"})

    async def page(self, call: Call) -> web.StreamResponse:
        namespace, until_ms = self._tickets.pop(call.target.rest[1], ("", 0))
        if until_ms <= call.clock_ms() or namespace != _namespace(call):
            raise HttpError(404, "This address opens once, within a minute. Ask the portal again.")
        kept = await call.services.reports.latest(namespace)
        if kept is None:
            raise HttpError(404, "There is no report yet: busway pipeline report --publish.")
        return web.Response(body=kept.page, headers=PAGE_HEADERS)


def _namespace(call: Call) -> str:
    return call.gateway.catalog.namespace.name
