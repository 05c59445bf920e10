"""Whether the stores serve: `/health` asks each for an empty commit, `/health/live` asks nobody.

Neither wants a token, so names and states are all that they tell. Who asks often, or while a store
hangs, gets the answer that others wait for: strangers cannot make a store busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from busway import __version__
from busway.broker.broker import Broker
from busway.broker.commits import WayState
from busway.broker.seams import Host
from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.http.services import Services, Store
from busway.model.errors import BusError

ROUND_TRIP_MAX_MS = 2_000
"""A store that takes longer for nothing is ill."""
ASKED_AGAIN_AFTER_MS = 1_000

OK = "ok"
ILL = "ill"

REASONS = {
    WayState.OPENING: "It is gone or cannot be opened. It is tried again every second.",
    WayState.HUNG: "It has not answered for seconds, and gets no work until it does.",
    WayState.REFUSING: "It refuses commits or cannot be read. It is tried again every second.",
    WayState.FENCED: "Another process has taken it.",
    WayState.STOPPED: "It has been closed, because the server is being stopped.",
}
LATE = f"A commit of nothing takes longer than {ROUND_TRIP_MAX_MS / 1000:g} s."
FULL = "Its disk is full: messages can be received and not sent."


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a store."""

    state: WayState
    round_trip_ms: int | None = None
    """Of an empty commit; None if there was none in time."""
    reason: str | None = None
    """Why it is ill; None if it is not."""

    @property
    def status(self) -> str:
        return OK if self.reason is None else ILL


class _RoundTrip:
    """An empty commit under way or done; `took_ms` is None if it failed."""

    def __init__(self, store: Store, host: Host) -> None:
        self.began_ms = host.now_ms()
        self.took_ms: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        def done(error: BusError | None) -> None:
            self.took_ms.set_result(None if error else host.now_ms() - self.began_ms)

        try:
            store.broker.probe(done)
        except BusError:
            self.took_ms.set_result(None)

    async def end(self, host: Host) -> None:
        """It is done, or has taken too long already."""
        left_ms = self.began_ms + ROUND_TRIP_MAX_MS - host.now_ms()
        await asyncio.wait([self.took_ms], timeout=max(0, left_ms) / 1000)


class Examiner:
    """Asks stores how they are: one round trip at a time for each, however many want to know."""

    def __init__(self) -> None:
        self._round_trips: dict[str, _RoundTrip] = {}

    async def examine(self, store: Store, host: Host, *, again: bool = False) -> Finding:
        """`again`: an answer from before this call is not good enough."""
        broker = store.broker
        if not broker.available:
            return Finding(broker.state, reason=why_not(broker))
        trip = self._round_trips.get(store.name)
        if trip is not None and again:
            await trip.end(host)
            if not trip.took_ms.done():
                return Finding(broker.state, reason=LATE)  # none is begun behind one that hangs
        now_ms = host.now_ms()
        fresh_ms = 0 if again else ASKED_AGAIN_AFTER_MS
        if trip is None or (trip.took_ms.done() and now_ms - trip.began_ms >= fresh_ms):
            trip = self._round_trips[store.name] = _RoundTrip(store, host)
        await trip.end(host)
        took_ms = trip.took_ms.result() if trip.took_ms.done() else None
        if not broker.available:
            return Finding(broker.state, took_ms, why_not(broker))
        if took_ms is None or took_ms > ROUND_TRIP_MAX_MS:
            return Finding(broker.state, reason=LATE)
        return Finding(broker.state, took_ms, FULL if broker.disk_full else None)

    async def examine_all(self, services: Services) -> Sequence[tuple[Store, Finding]]:
        stores = services.stores()
        found = await asyncio.gather(*(self.examine(each, services.host) for each in stores))
        return list(zip(stores, found, strict=True))


class HealthRoom:
    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner

    async def answer(self, call: Call) -> web.StreamResponse:
        if call.method not in ("GET", "HEAD"):
            raise HttpError(405, "Health can only be asked for, with GET.", headers=ALLOW)
        if call.target.raw.strip("/").lower() != "health":
            return _reply(200, {"status": OK, "version": __version__})
        found = await self._examiner.examine_all(call.services)
        well = all(finding.reason is None for _, finding in found)
        return _reply(
            200 if well else 503,
            {
                "status": OK if well else ILL,
                "version": __version__,
                "stores": [
                    {
                        "name": store.name,
                        **told(finding),
                        "damaged_messages": store.broker.quarantined,
                    }
                    for store, finding in found
                ],
                "damaged_journal_rows": call.services.journals.damaged_rows,
            },
        )


def why_not(broker: Broker) -> str:
    """Why a store does not serve, in words that name nothing of it: everybody may ask."""
    problem = broker.problem
    if broker.state is WayState.OPENING and problem is not None and problem.ailment is not None:
        return problem.ailment.sentence
    return REASONS[broker.state]


ALLOW = {"Allow": "GET, HEAD"}


def told(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it."""
    return {
        "status": finding.status,
        "state": finding.state.value,
        "round_trip_ms": finding.round_trip_ms,
        "reason": finding.reason,
    }


def _reply(status: int, body: dict[str, Any]) -> web.Response:
    return web.json_response(body, status=status, headers={"Cache-Control": "no-store"})
