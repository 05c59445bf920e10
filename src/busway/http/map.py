"""`GET /$busway/map`: which partition lies in which store, how full it is, and how the stores are.

For whoever may manage the namespace. Its entities come in pages, in the order of their names.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from busway.cluster.catalog import Catalog
from busway.gateway.auth import Right
from busway.gateway.router import is_partitioned
from busway.http.calls import Call
from busway.http.depths import depth_of
from busway.http.health import Examiner, Finding, told
from busway.http.replies import HttpError
from busway.http.services import Store
from busway.http.steps import in_steps
from busway.model.entities import Entity, Subscription
from busway.model.names import name_key

PAGE = 100
PAGE_MAX = 1_000
AVAILABLE = "Available"
LIMITED = "Limited"
UNKNOWN = "unknown"
"""The state of a partition whose store is not this server's any more."""


class MapRoom:
    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner

    async def answer(self, call: Call) -> web.StreamResponse:
        call.demand(Right.MANAGE)
        skip = _number(call, "skip", 0, 1 << 31)
        top = _number(call, "top", PAGE, PAGE_MAX)
        pattern = call.request.query.get("entity", "*")
        found = await self._examiner.examine_all(call.services)
        stores = {store.store_id: store for store, _ in found if store.store_id is not None}
        entities = entities_named(call.gateway.catalog, pattern)
        page = entities[skip : skip + top]
        node = call.gateway.settings.node
        body: dict[str, Any] = {
            "namespace": call.gateway.catalog.namespace.name,
            "stores": [describe_store(store, finding) for store, finding in found],
            "entities": [
                _describe(each, stores, node)
                async for each in in_steps(page, lambda entity: len(entity.placement))
            ],
            "total": len(entities),
            "next": None,
        }
        if skip + len(page) < len(entities):
            query = {"entity": pattern, "skip": str(skip + top), "top": str(top)}
            body["next"] = f"/$busway/map?{urlencode(query)}"
        text = await asyncio.to_thread(json.dumps, body)  # a page of sixteenfold topics is long
        return web.json_response(text=text, headers={"Cache-Control": "no-store"})


def describe_store(store: Store, finding: Finding) -> dict[str, Any]:
    fault, delay_s = store.faults.told
    return {
        "name": store.name,
        "id": store.store_id,
        **told(finding),
        "problem": None if finding.reason is None else problem_of(store),
        "damaged_messages": store.broker.quarantined,
        "fault": fault.value,
        "delay_ms": round(delay_s * 1000),
    }


def problem_of(store: Store) -> str | None:
    """What its last try to open said, or what was found at start."""
    problem = store.broker.problem
    return store.problem if problem is None else str(problem)


def all_entities(catalog: Catalog) -> Iterator[Entity]:
    """Queues, then topics, each followed by its subscriptions; in the order of their names."""
    yield from catalog.queues()
    for topic in catalog.topics():
        yield topic
        yield from catalog.subscriptions(topic)


def entities_named(catalog: Catalog, pattern: str) -> list[Entity]:
    """By their own name, or that of their topic; `*` stands for anything."""
    wanted = name_key(pattern.strip("/"))
    if wanted == "*":
        return list(all_entities(catalog))
    matches = re.compile(translate(wanted)).match
    return [
        entity
        for entity in all_entities(catalog)
        if matches(entity.key)
        or (isinstance(entity, Subscription) and matches(name_key(entity.topic)))
    ]


def _describe(entity: Entity, stores: Mapping[str, Store], node: str) -> dict[str, Any]:
    partitions = [
        _describe_partition(entity, index, stores.get(store_id), node)
        for index, store_id in enumerate(entity.placement)
    ]
    whole = all(_serves(stores.get(store_id)) for store_id in entity.placement)
    return {
        "name": entity.path,
        "type": entity.entity_type.lower(),
        "partitioned": is_partitioned(entity),
        "availability": AVAILABLE if whole else LIMITED,  # P-43
        "partitions": partitions,
    }


def _describe_partition(
    entity: Entity, index: int, store: Store | None, node: str
) -> dict[str, Any]:
    depth = None if store is None else depth_of(store.broker, entity, index)
    return {
        "partition": index,
        "store": None if store is None else store.name,
        "broker": node,
        "state": UNKNOWN if store is None else store.broker.state.value,
        "depth": None if depth is None else {"messages": depth.messages, **depth._asdict()},
    }


def _serves(store: Store | None) -> bool:
    return store is not None and store.broker.available


def _number(call: Call, name: str, default: int, most: int) -> int:
    text = call.request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most):
        raise HttpError(400, f"'{name}' is '{text}', and must be a whole number up to {most}.")
    return int(text)


def names(stores: Sequence[Store]) -> str:
    """For texts that say which there are."""
    return ", ".join(store.name for store in stores)
