"""`GET /$busway/entities`: what the namespace has, with counts and totals, for lists and charts.

Queues, topics and subscriptions in the order of their names, in pages; `?search=` keeps those
whose path contains it. Totals only grow while the server runs: rates are the caller's to take.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.census import Figures, figures_of
from busway.http.explorer.asking import number
from busway.http.explorer.message_json import instant
from busway.http.explorer.overview import summary
from busway.http.map import all_entities
from busway.http.steps import in_steps
from busway.model.names import name_key

TOP = 500
TOP_MAX = 2_000


async def answer(call: Call) -> web.StreamResponse:
    call.demand(Right.MANAGE)
    skip, top = number(call, "skip", 0, 1 << 31), number(call, "top", TOP, TOP_MAX)
    search = call.request.query.get("search", "")
    catalog = call.gateway.catalog
    entities = [each for each in all_entities(catalog) if name_key(search) in each.key]
    stores = {store.store_id: store for store in call.services.stores()}
    page = entities[skip : skip + top]
    listed = []
    async for entity in in_steps(page, lambda each: len(each.placement)):
        whole = Figures()
        for index, store_id in enumerate(entity.placement):
            whole.add(figures_of(entity, index, stores.get(store_id)))
        listed.append(summary(entity, whole))
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
        query = {"search": search, "skip": str(skip + top), "top": str(top)}
        body["next"] = f"/$busway/entities?{urlencode(query)}"
    text = await asyncio.to_thread(json.dumps, body)
    return web.json_response(text=text, headers={"Cache-Control": "no-store"})
