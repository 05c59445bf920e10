"""`GET /$busway/nodes`: the processes that serve, with their stores and what they are busy with.

There is one in this release, and it answers for itself; a list, so that clients need not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from busway import __version__
from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.health import ILL, OK, Examiner

PROCESS = {
    "process_resident_memory_bytes": "memory_bytes",
    "process_start_time_seconds": "started_s",
    "process_cpu_seconds_total": "processor_s",
}


def nodes_page(examiner: Examiner) -> Callable[[Call], Awaitable[web.StreamResponse]]:
    async def answer(call: Call) -> web.StreamResponse:
        call.demand(Right.MANAGE)
        services, gateway = call.services, call.gateway
        found = await examiner.examine_all(services)
        ill = sum(finding.reason is not None for _, finding in found)
        node = {
            "name": gateway.settings.node,
            "status": ILL if ill else OK,
            "version": __version__,
            "stores": [store.name for store, _ in found],
            "ill_stores": ill,
            "amqp_connections": len(gateway.connections),
            "http_connections": len(gateway.callers),
            "uncommitted_bytes": gateway.budget.used_bytes,
            "uncommitted_bytes_max": gateway.budget.limit_bytes,
            **await asyncio.to_thread(_process),
        }
        return web.json_response({"nodes": [node]}, headers={"Cache-Control": "no-store"})

    return answer


def _process() -> dict[str, Any]:
    """What the system tells of this process; nothing where it tells nothing."""
    from prometheus_client import ProcessCollector  # at the first request (D-33)

    return {
        PROCESS[sample.name]: sample.value
        for family in ProcessCollector(registry=None).collect()
        for sample in family.samples
        if sample.name in PROCESS
    }
