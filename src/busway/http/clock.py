"""`/$busway/clock` and `/$busway/reset`: move the broker's clock, and begin anew, for tests.

    GET  /$busway/clock   what time it is for messages, and how far that is ahead
    POST /$busway/clock   {"advance": "10m"}: so much later, with all that falls due until then;
                          also "PT10M", or {"advance_ms": 600000}
    POST /$busway/reset   no entities but those of the configuration, no messages, and the
                          machine's own time

Moving is for servers that were started for it (`--allow-clock`), and for whoever may manage. All
namespaces of the server have one clock, so all of them notice.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.http.services import Clock, ClockReading
from busway.model.durations import DAY_MS, parse_iso, parse_short

BODY_BYTES_MAX = 4_096
AHEAD_MAX_MS = 3_660 * DAY_MS
"""Ten years: dates stay such that every client can write them."""


async def show(call: Call) -> web.StreamResponse:
    call.demand(Right.MANAGE)
    clock = call.services.clock
    if clock is None:
        return _told(call.now_ms(), 0, movable=False)
    return _shown(clock.reading())


async def advance(call: Call) -> web.StreamResponse:
    clock = _clock(call)
    by_ms = _read(await call.body(BODY_BYTES_MAX))
    ahead_ms = clock.reading().ahead_ms
    if ahead_ms + by_ms > AHEAD_MAX_MS:
        raise HttpError(
            400,
            f"The clock would be {(ahead_ms + by_ms) / DAY_MS:,.0f} days ahead, and may be "
            f"{AHEAD_MAX_MS // DAY_MS:,}. POST /$busway/reset sets it back.",
        )
    return _shown(await clock.advance(by_ms))


async def reset(call: Call) -> web.StreamResponse:
    return _shown(await _clock(call).reset())


def _clock(call: Call) -> Clock:
    call.demand(Right.MANAGE)
    if call.services.clock is None:
        raise HttpError(
            403,
            "The clock of this server cannot be moved. Start it with --allow-clock (or "
            "BUSWAY_ALLOW_CLOCK=1) for tests; never where messages matter.",
        )
    return call.services.clock


def _read(body: bytes) -> int:
    try:
        wanted: Any = json.loads(body)
    except ValueError as error:
        raise _refused(f"The body is not JSON: {error}") from None
    if not isinstance(wanted, dict) or len(wanted) != 1:
        raise _refused("The body is not an object with one entry")
    [(name, value)] = wanted.items()
    match name, value:
        case "advance_ms", int() if not isinstance(value, bool):
            by_ms: int | None = value
        case "advance", str():
            try:
                by_ms = parse_iso(value) if value[:1] in "Pp" else parse_short(value)
            except ValueError:
                by_ms = None
        case _:
            by_ms = None
    if by_ms is None:
        raise _refused(f"{json.dumps(wanted)} says no span of time")
    if by_ms < 0:
        raise _refused("The clock goes ahead only")
    return by_ms


def _refused(what: str) -> HttpError:
    return HttpError(
        400,
        f'{what}. Send {{"advance": "10m"}}, {{"advance": "PT10M"}} or {{"advance_ms": 600000}}.',
    )


def _shown(reading: ClockReading) -> web.Response:
    return _told(reading.now_ms, reading.ahead_ms, movable=True)


def _told(now_ms: int, ahead_ms: int, *, movable: bool) -> web.Response:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    told = {
        "now": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "now_ms": now_ms,
        "ahead_ms": ahead_ms,
        "movable": movable,
    }
    return web.json_response(told)
