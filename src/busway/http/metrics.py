"""`GET /metrics` for Prometheus: what is counted anyway, put together when it is asked for.

Label sets are bounded. Entities have series of their own up to a limit, and keep them once they
have; the rest are one entity called `(other)`. Partitions have some where an entity is partitioned,
up to a limit as well. Collecting takes small steps, so that ten thousand queues hold up nobody;
writing it down is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import hdrs, web

from busway.gateway.auth import Right
from busway.gateway.gateway import Gateway
from busway.http.calls import Call
from busway.http.census import Census, NodeFigures, Others, take_census
from busway.http.replies import HttpError
from busway.http.services import Services


class MetricsRoom:
    def __init__(self) -> None:
        self._others: dict[str, Others] = {}
        self._shown: dict[str, dict[int, None]] = {}
        """By namespace: the incarnations that have series of their own, first come first."""
        self._under_way: dict[tuple[str, ...], asyncio.Task[NodeFigures]] = {}

    async def answer(self, call: Call) -> web.StreamResponse:
        services = call.services
        if call.method not in ("GET", "HEAD"):
            raise HttpError(405, "Metrics can only be asked for, with GET.", headers=ALLOW)
        gateways: Sequence[Gateway] = services.gateways()
        if not services.metrics_open:
            call.demand(Right.MANAGE)
            gateways = [call.gateway]  # a key of one namespace tells nothing about the others
        figures = await self._figures(services, gateways)
        headers = call.request.headers
        accept = headers.get(hdrs.ACCEPT, "")
        compress = "gzip" in headers.get(hdrs.ACCEPT_ENCODING, "")
        body, content_type, encoding = await asyncio.to_thread(_write, figures, accept, compress)
        reply = {hdrs.CONTENT_TYPE: content_type, hdrs.CACHE_CONTROL: "no-store"}
        if encoding is not None:
            reply[hdrs.CONTENT_ENCODING] = encoding
        return web.Response(body=body, headers=reply)

    async def _figures(self, services: Services, gateways: Sequence[Gateway]) -> NodeFigures:
        """Who asks while somebody else's answer is being collected gets that."""
        names = tuple(gateway.catalog.namespace.name for gateway in gateways)
        task = self._under_way.get(names)
        if task is None:
            task = asyncio.create_task(self._collect(services, gateways, names))
            self._under_way[names] = task
            task.add_done_callback(lambda _: self._under_way.pop(names, None))
        return await asyncio.shield(task)

    async def _collect(
        self, services: Services, gateways: Sequence[Gateway], names: Sequence[str]
    ) -> NodeFigures:
        censuses: list[Census] = []
        for gateway, name in zip(gateways, names, strict=True):
            shown = self._shown.setdefault(name, {})
            others = self._others.setdefault(name, Others())
            censuses.append(await take_census(services, gateway, name, shown, others))
        return NodeFigures.of(services, censuses)


ALLOW = {"Allow": "GET, HEAD"}


def _write(figures: NodeFigures, accept: str, compress: bool) -> tuple[bytes, str, str | None]:
    from busway.http.exposition import written  # at the first scrape (D-33)

    return written(figures, accept, compress=compress)
