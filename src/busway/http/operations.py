"""The pages for operators: who answers which, and what they share.

`own_pages` is the table of what is below `/$busway/`; a page that is not in it is not found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from aiohttp import hdrs, web

from busway.gateway.auth import Right
from busway.http import clock, connections, entities, migrations, rules
from busway.http.calls import Call
from busway.http.faults import FaultRoom
from busway.http.health import Examiner, HealthRoom
from busway.http.map import MapRoom
from busway.http.metrics import MetricsRoom
from busway.http.nodes import nodes_page
from busway.http.replies import HttpError
from busway.http.reports import ReportRoom
from busway.http.targets import Kind

Answer = Callable[[Call], Awaitable[web.StreamResponse]]


class OwnPage(NamedTuple):
    method: str
    path: str
    """Below `/$busway/`. `{name}` stands for one segment, `{name...}` for one or more."""
    answer: Answer

    def is_at(self, segments: Sequence[str]) -> bool:
        parts = self.path.split("/")
        many = next((place for place, part in enumerate(parts) if part.endswith("...}")), None)
        if many is not None and len(segments) > len(parts):
            parts[many : many + 1] = ["{}"] * (len(segments) - len(parts) + 1)
        return len(parts) == len(segments) and all(
            part.startswith("{") or part == segment.lower()
            for part, segment in zip(parts, segments, strict=True)
        )


def own_pages(examiner: Examiner) -> tuple[OwnPage, ...]:
    faults, reports = FaultRoom(examiner), ReportRoom()

    def fault(call: Call) -> Awaitable[web.StreamResponse]:
        return faults.answer(call, call.target.rest[1])

    def migration(call: Call) -> Awaitable[web.StreamResponse]:
        return migrations.answer(call, call.target.rest[1:])

    return (
        OwnPage("GET", "map", MapRoom(examiner).answer),
        OwnPage("GET", "entities", entities.answer),
        OwnPage("GET", "nodes", nodes_page(examiner)),
        OwnPage("GET", "connections", connections.answer),
        OwnPage("GET", "rules", rules.show_all),
        OwnPage("GET", "rules/{name}", rules.show),
        OwnPage("PUT", "rules/{name}", rules.put),
        OwnPage("DELETE", "rules/{name}", rules.remove),
        OwnPage("POST", "rules/{name}/renew", rules.renew),
        OwnPage("GET", "stores/{store}/fault", fault),
        OwnPage("POST", "stores/{store}/fault", fault),
        OwnPage("GET", "clock", clock.show),
        OwnPage("POST", "clock", clock.advance),
        OwnPage("POST", "reset", clock.reset),
        OwnPage("GET", "report", reports.show),
        OwnPage("PUT", "report", reports.put),
        OwnPage("POST", "report/link", reports.link),
        OwnPage("GET", "report/{ticket}", reports.page),
        OwnPage("POST", "migrations", migration),
        OwnPage("POST", "migrations/{queue...}/switch", migration),
        OwnPage("GET", "migrations/{queue...}", migration),
        OwnPage("DELETE", "migrations/{queue...}", migration),
    )


class OwnPages:
    """`/$busway/...`: what is ours and not the service's."""

    def __init__(self, examiner: Examiner) -> None:
        self._pages = own_pages(examiner)

    async def answer(self, call: Call) -> web.StreamResponse:
        here = [page for page in self._pages if page.is_at(call.target.rest)]
        method = "GET" if call.method == "HEAD" else call.method
        for page in here:
            if page.method == method:
                return await page.answer(call)
        if not here:
            there = dict.fromkeys(f"/$busway/{page.path}" for page in self._pages)
            raise HttpError(404, f"There are {', '.join(there)} here.")
        call.demand(Right.MANAGE)
        allowed = ", ".join(page.method for page in here)
        raise HttpError(
            405,
            f"{call.method} is not a request that this page takes; it takes {allowed}.",
            headers={hdrs.ALLOW: allowed},
        )


def rooms() -> Mapping[Kind, Answer]:
    """One set of them for each server."""
    examiner = Examiner()
    return {
        Kind.HEALTH: HealthRoom(examiner).answer,
        Kind.METRICS: MetricsRoom().answer,
        Kind.BUSWAY: OwnPages(examiner).answer,
    }
