"""`GET /$busway/entities`: what the namespace has, with counts and totals, for lists and charts.

    ?search=    only those whose path contains it
    ?captured=1  only those whose journal is kept
    ?sort=      path (the default), or a figure, the largest first: active, scheduled, deferred,
                dead_letter, bytes, messages_in, messages_out
    ?reverse=1  the other way round
    ?skip=, top=  which page

By path, queues come first, then topics, each followed by its subscriptions. Totals only grow while
the server runs: rates are the caller's to take.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.census import Figures, figures_of
from busway.http.depths import EMPTY
from busway.http.explorer.asking import number
from busway.http.explorer.message_json import instant
from busway.http.explorer.overview import summary
from busway.http.map import all_entities
from busway.http.replies import HttpError
from busway.http.services import Store
from busway.http.steps import in_steps
from busway.model.entities import Entity
from busway.model.names import name_key

TOP = 500
TOP_MAX = 2_000
PATH = "path"
DEPTHS = ("active", "scheduled", "deferred", "dead_letter", "bytes")
TOTALS = ("messages_in", "messages_out")


async def answer(call: Call) -> web.StreamResponse:
    call.demand(Right.MANAGE)
    skip, top = number(call, "skip", 0, 1 << 31), number(call, "top", TOP, TOP_MAX)
    query = call.request.query
    search, sort, is_reverse = query.get("search", ""), query.get("sort", PATH), "reverse" in query
    catalog = call.gateway.catalog
    wanted = name_key(search)
    entities = [each for each in all_entities(catalog) if wanted in name_key(each.path)]
    if "captured" in query:
        entities = [each for each in entities if each.capture]
    stores = {store.store_id: store for store in call.services.stores() if store.store_id}
    ordered = await _sorted(entities, sort, stores)
    if is_reverse:
        ordered = ordered[::-1]
    page = ordered[skip : skip + top]
    listed = []
    async for entity in in_steps(page, _weight):
        listed.append(summary(entity, _whole(entity, stores)))
    namespace = catalog.namespace
    body: dict[str, Any] = {
        "namespace": namespace.name,
        "tier": namespace.tier.value,
        "namespace_partitions": namespace.partitions,
        "allow_faults": call.services.allow_faults,
        "now": instant(call.now_ms()),
        "entities": listed,
        "total": len(entities),
        "next": None,
    }
    if skip + len(page) < len(entities):
        following = {"search": search, "sort": sort, "skip": str(skip + top), "top": str(top)}
        following |= {name: "1" for name in ("reverse", "captured") if name in query}
        body["next"] = f"/$busway/entities?{urlencode(following)}"
    text = await asyncio.to_thread(json.dumps, body)
    return web.json_response(text=text, headers={"Cache-Control": "no-store"})


async def _sorted(
    entities: Sequence[Entity], sort: str, stores: Mapping[str, Store]
) -> Sequence[Entity]:
    """Only an order by a figure has to look at all of them; what is equal stays in order."""
    if sort == PATH:
        return entities
    if sort not in DEPTHS and sort not in TOTALS:
        known = ", ".join((PATH, *DEPTHS, *TOTALS))
        raise HttpError(400, f"'sort' is '{sort[:40]}'. There are {known}.")
    found: dict[int, int] = {}
    async for entity in in_steps(entities, _weight):
        whole = _whole(entity, stores)
        place: Any = whole.totals if sort in TOTALS else whole.depth or EMPTY
        found[entity.incarnation] = getattr(place, sort)
    return sorted(entities, key=lambda each: -found[each.incarnation])


def _whole(entity: Entity, stores: Mapping[str, Store]) -> Figures:
    whole = Figures()
    for index, store_id in enumerate(entity.placement):
        whole.add(figures_of(entity, index, stores.get(store_id)))
    return whole


def _weight(entity: Entity) -> int:
    return len(entity.placement)
