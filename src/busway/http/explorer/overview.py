"""One entity, as its overview shows it: what it is, what it holds, how its partitions are."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from aiohttp import web

from busway.broker.counting import WAIT_STEPS
from busway.gateway.router import is_partitioned
from busway.http.calls import Call
from busway.http.census import Figures, figures_of, oldest_of
from busway.http.depths import EMPTY
from busway.http.explorer.asking import entity_of, told
from busway.http.explorer.message_json import instant
from busway.http.map import AVAILABLE, LIMITED
from busway.model.entities import Entity, Subscription, Topic

HIDDEN = frozenset({"authorization_rules", "placement", "incarnation", "version", "migration"})
"""What has a page of its own, or means nothing to a person."""


async def show(call: Call) -> web.StreamResponse:
    entity = entity_of(call)
    stores = {store.store_id: store for store in call.services.stores()}
    detours = call.gateway.router.detours(entity)
    whole = Figures()
    partitions = []
    for index, store_id in enumerate(entity.placement):
        store = stores.get(store_id)
        figures = figures_of(entity, index, store)
        whole.add(figures)
        partitions.append(
            {
                "partition": index,
                "store": None if store is None else store.name,
                "broker": None if store is None else f"broker of {store.name}",
                "node": call.gateway.settings.node,
                "state": "unknown" if store is None else store.broker.state.value,
                "available": store is not None and store.broker.available,
                "depth": depth_json(figures),
                "totals": figures.totals._asdict(),
                "pinned_sends_refused": detours.refused.get(index, 0),  # P-24
            }
        )
    body = summary(entity, whole) | {
        "now": instant(call.now_ms()),
        "oldest_active": instant(await oldest_of(call.services, entity)),
        "settings": settings_of(entity),
        "waits": waits_json(whole),
        "rerouted": detours.rerouted,  # P-23
        "partitions": partitions,
    }
    if isinstance(entity, Topic):
        names = [each.name for each in call.gateway.catalog.subscriptions(entity)]
        body["subscriptions"] = names
    return told(body)


def summary(entity: Entity, figures: Figures) -> dict[str, Any]:
    """What a list of entities has of each."""
    limit = None if isinstance(entity, Subscription) else entity.total_size_mb
    return {
        "path": entity.path,
        "type": entity.entity_type.lower(),
        "status": entity.status.value,
        "partitioned": is_partitioned(entity),
        "partition_count": len(entity.placement),
        "availability": LIMITED if figures.unavailable else AVAILABLE,  # P-43
        "depth": depth_json(figures),
        "totals": figures.totals._asdict(),
        "waited_ms": 0 if figures.waits is None else figures.waits.total_ms,
        "max_size_mb": limit,  # P-15: of all partitions together
        "captured": entity.capture,
        "requires_session": getattr(entity, "requires_session", False),
        "forward_to": getattr(entity, "forward_to", None),
        "created": instant(entity.created_ms),
        "updated": instant(entity.updated_ms),
    }


def depth_json(figures: Figures) -> dict[str, int]:
    depth = figures.depth or EMPTY
    return {"messages": depth.messages, **depth._asdict()}


def waits_json(figures: Figures) -> list[int]:
    """How many messages waited how long until they were received for good: at `i` those that
    waited below `2 ** i` ms, and not below half of that; the last are all that waited longer."""
    return [0] * WAIT_STEPS if figures.waits is None else list(figures.waits.counts)


def settings_of(entity: Entity) -> dict[str, Any]:
    """The description as it is stored, in plain values."""
    return {
        each.name: _plain(getattr(entity, each.name))
        for each in fields(entity)
        if each.name not in HIDDEN
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return value if isinstance(value, str | int | float | bool | None) else str(value)
