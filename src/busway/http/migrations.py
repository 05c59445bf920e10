"""`/$busway/migrations`: a queue or topic becomes partitioned, or conventional again, with all it
holds.

    POST   /$busway/migrations                  {"entity": "orders", "partitioned": true} starts it;
                                                "capture": true keeps the journals of both
    GET    /$busway/migrations/{entity}         how far it is
    POST   /$busway/migrations/{entity}/switch  the new one takes the name, once all is moved
    DELETE /$busway/migrations/{entity}         call it off: ask again until its phase is "none"

For whoever may manage the namespace. Each may be asked for again, also after a crash of the server:
what has happened already is not done twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from busway.cluster.migrations import check
from busway.gateway import migrations
from busway.gateway.auth import Right
from busway.gateway.migrations import Progress
from busway.http.calls import Call
from busway.http.map import all_entities
from busway.http.replies import HttpError
from busway.model.errors import INVALID_OPERATION, BusError
from busway.model.names import name_key
from busway.model.properties import FORWARDS

BODY_BYTES_MAX = 4_096
SWITCH = "switch"


async def answer(call: Call, rest: Sequence[str]) -> web.StreamResponse:
    call.demand(Right.MANAGE)
    try:
        return _told(call, await _progress(call, rest))
    except HttpError as error:
        return _refusal(error.status, error.text)
    except BusError as error:
        return _refusal(409 if error.kind is INVALID_OPERATION else error.kind.status, error.text)


async def _progress(call: Call, rest: Sequence[str]) -> Progress:
    gateway = call.gateway
    if call.method == "POST" and not rest:
        wanted = _read(await call.body(BODY_BYTES_MAX))
        return migrations.start(gateway, **wanted)
    if call.method == "POST" and len(rest) > 1 and rest[-1].lower() == SWITCH:
        return migrations.switch(gateway, "/".join(rest[:-1]))
    if call.method == "GET" and rest:
        return migrations.progress(gateway, "/".join(rest))
    if call.method == "DELETE" and rest:
        return migrations.call_off(gateway, "/".join(rest))
    raise HttpError(
        405,
        "A migration is started with POST /$busway/migrations, looked at with GET "
        "/$busway/migrations/{name}, ended with POST /$busway/migrations/{name}/switch and "
        "called off with DELETE /$busway/migrations/{name}.",
    )


def _refusal(status: int, detail: str) -> web.Response:
    return web.json_response({"code": status, "detail": detail}, status=status)


def _told(call: Call, found: Progress) -> web.Response:
    body = {
        "entity": found.entity,
        "partitioned": found.partitioned,
        "phase": found.phase.value,
        "twin": found.twin,
        "left": dict(found.left),
        "moved": dict(found.moved),
        "locked": found.locked,
        "problems": list(found.problems),
        "called_off": found.called_off,
        "parts": [
            {
                "entity": part.entity,
                "twin": part.twin,
                "left": dict(part.left),
                "moved": dict(part.moved),
            }
            for part in found.parts
        ],
        **_around(call, found),
    }
    return web.json_response(body, headers={"Cache-Control": "no-store"})


def _around(call: Call, found: Progress) -> dict[str, Any]:
    """What somebody wants to know before it is started: why it would be refused, and who sends to
    it by forwarding, and so has to wait while it is stopped."""
    catalog = call.gateway.catalog
    source = catalog.find(found.entity)
    refusal = None
    if found.phase.value == "none" and source is not None:
        try:
            check(catalog, source, partitioned=not found.partitioned)
        except BusError as error:
            refusal = error.text
    key = name_key(found.entity)
    forwarding = [
        each.path
        for each in all_entities(catalog)
        if any(name_key(getattr(each, row.field, None) or "") == key for row in FORWARDS)
    ]
    return {"refusal": refusal, "forwarded_by": forwarding}


def _read(body: bytes) -> dict[str, Any]:
    try:
        wanted: Any = json.loads(body)
    except ValueError as error:
        raise _refused(f"the body is not JSON: {error}") from None
    if not isinstance(wanted, dict):
        raise _refused("the body is not an object")
    unknown = sorted(set(wanted) - {"entity", "partitioned", "capture"})
    if unknown:
        raise _refused(f"'{unknown[0]}' is not known")
    entity, partitioned = wanted.get("entity"), wanted.get("partitioned")
    capture = wanted.get("capture", False)
    if not isinstance(entity, str) or not entity:
        raise _refused("it does not name a queue or topic")
    if not isinstance(partitioned, bool) or not isinstance(capture, bool):
        raise _refused("'partitioned' and 'capture' are true or false")
    return {"path": entity, "partitioned": partitioned, "capture": capture}


def _refused(what: str) -> HttpError:
    return HttpError(
        400,
        f"{what[0].upper()}{what[1:]}. Send an object with 'entity', a queue or topic, and "
        "'partitioned', true or false; 'capture' is true to keep the journals of the move.",
    )
