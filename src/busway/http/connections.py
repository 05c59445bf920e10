"""`GET /$busway/connections`: who is connected over AMQP, with their links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from busway.gateway.auth import Right
from busway.gateway.browser import BrowserEndpoint
from busway.gateway.connection import Endpoint, GatewayConnection
from busway.gateway.coordinator import CoordinatorEndpoint
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.sender import SenderEndpoint
from busway.http.calls import Call
from busway.http.explorer.asking import number
from busway.http.steps import in_steps

TOP = 200
TOP_MAX = 1_000
PRODUCT_CHARS_MAX = 200


async def answer(call: Call) -> web.StreamResponse:
    call.demand(Right.MANAGE)
    skip, top = number(call, "skip", 0, 1 << 31), number(call, "top", TOP, TOP_MAX)
    connections = list(call.gateway.connections)
    page = connections[skip : skip + top]
    listed = [_described(each) async for each in in_steps(page, lambda one: 1 + len(one.endpoints))]
    return web.json_response(
        {
            "connections": listed,
            "total": len(connections),
            "http_connections": len(call.gateway.callers),
        },
        headers={"Cache-Control": "no-store"},
    )


def _described(connection: GatewayConnection) -> dict[str, Any]:
    opened = connection.engine.remote_open
    return {
        "id": connection.peer.connection_id,
        "address": connection.peer.address,
        "transport": "websocket" if connection.websocket else "amqp",
        "container": None if opened is None else opened.container_id,
        "product": None if opened is None else _product(opened.properties),
        "access_rules": connection.tokens.rule_names,
        "links": [_link(each) for each in connection.endpoints],
    }


def _link(endpoint: Endpoint) -> dict[str, Any]:
    link = endpoint.link
    told: dict[str, Any] = {"name": link.name, "role": _role(endpoint), "credit": link.credit}
    if isinstance(endpoint, SenderEndpoint | ReceiverEndpoint | BrowserEndpoint):
        told["entity"] = endpoint.entity.path
    elif not isinstance(endpoint, CoordinatorEndpoint):
        address = endpoint.address
        told["node"] = "$cbs" if address.cbs else f"{address.node}/$management".lstrip("/")
    return told


def _product(properties: Mapping[Any, Any] | None) -> str | None:
    """What the client's library says of itself; SDKs write it in different ways."""
    if not properties:
        return None
    told = {str(name): value for name, value in properties.items()}
    words = [told[name] for name in ("product", "version") if isinstance(told.get(name), str)]
    text = " ".join(words) or told.get("user-agent")
    return text[:PRODUCT_CHARS_MAX] if isinstance(text, str) else None


def _role(endpoint: Endpoint) -> str:
    """As the client sees it."""
    if isinstance(endpoint, SenderEndpoint):
        return "sender"
    if isinstance(endpoint, BrowserEndpoint):
        return "browser"
    if isinstance(endpoint, ReceiverEndpoint):
        return "receiver"
    return "transactions" if isinstance(endpoint, CoordinatorEndpoint) else "requests"
