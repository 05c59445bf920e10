"""What requests of the explorer bring: numbers and times in queries, JSON in bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.http.rest.values import instant_ms
from busway.model.entities import Entity
from busway.model.errors import NOT_FOUND, BusError

T = TypeVar("T")

BODY_BYTES_MAX = 1024 * 1024
ANSWER_S = 60.0


def entity_of(call: Call) -> Entity:
    entity = call.gateway.find(call.target.address)
    if entity is None:
        raise BusError(NOT_FOUND, uri=call.uri)
    return entity


def number(call: Call, name: str, default: int, most: int) -> int:
    text = call.request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= most):
        raise HttpError(400, f"'{name}' is '{text[:40]}', and must be a whole number up to {most}.")
    return int(text)


def instant(call: Call, name: str) -> int | None:
    text = call.request.query.get(name)
    if text is None:
        return None
    try:
        return instant_ms(text)
    except ValueError as error:
        raise HttpError(400, f"'{name}': {error}. Write 2026-11-06T08:49:37Z.") from None


async def body_of(
    call: Call, fields: tuple[str, ...], max_bytes: int = BODY_BYTES_MAX
) -> dict[str, Any]:
    """A JSON object with these fields and no others."""
    content = await call.body(max_bytes)
    try:
        wanted: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"The body is not JSON: {error}.") from None
    if not isinstance(wanted, dict):
        raise HttpError(400, f"The body must be a JSON object with {', '.join(fields)}.")
    unknown = sorted(set(wanted) - set(fields))
    if unknown:
        known = ", ".join(fields)
        raise HttpError(400, f"'{unknown[0]}' is not known here. There are {known}.")
    return wanted


async def answered(ask: Callable[[Callable[[T | BusError], None]], None]) -> T:
    """The answer of a broker; raises its error, and *server busy* if it does not come."""
    outcome: asyncio.Future[T | BusError] = asyncio.get_running_loop().create_future()

    def done(result: T | BusError) -> None:
        if not outcome.done():
            outcome.set_result(result)

    ask(done)
    try:
        async with asyncio.timeout(ANSWER_S):
            result = await outcome
    except TimeoutError:
        text = f"The messaging store did not answer within {ANSWER_S:.0f} seconds. Try again."
        raise HttpError(503, text) from None
    if isinstance(result, BusError):
        raise result
    return result


def told(body: dict[str, Any]) -> web.Response:
    return web.json_response(body, headers={"Cache-Control": "no-store"})
