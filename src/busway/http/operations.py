"""The pages for operators: who answers which, and what they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from busway.http import migrations
from busway.http.calls import Call
from busway.http.faults import FaultRoom
from busway.http.health import Examiner, HealthRoom
from busway.http.map import MapRoom
from busway.http.metrics import MetricsRoom
from busway.http.replies import HttpError
from busway.http.targets import Kind


class OwnPages:
    """`/$busway/...`: what is ours and not the service's."""

    def __init__(self, examiner: Examiner) -> None:
        self._map = MapRoom(examiner)
        self._faults = FaultRoom(examiner)

    async def answer(self, call: Call) -> web.StreamResponse:
        match [call.target.rest[0].lower() if call.target.rest else "", *call.target.rest[1:]]:
            case ["map"] if call.method in ("GET", "HEAD"):
                return await self._map.answer(call)
            case ["stores", name, word] if word.lower() == "fault":
                return await self._faults.answer(call, name)
            case ["migrations", *rest]:
                return await migrations.answer(call, rest)
        raise HttpError(
            404,
            "There are GET /$busway/map, POST /$busway/stores/{store}/fault and "
            "/$busway/migrations here.",
        )


def rooms() -> Mapping[Kind, Callable[[Call], Awaitable[web.StreamResponse]]]:
    """One set of them for each server."""
    examiner = Examiner()
    return {
        Kind.HEALTH: HealthRoom(examiner).answer,
        Kind.METRICS: MetricsRoom().answer,
        Kind.BUSWAY: OwnPages(examiner).answer,
    }
