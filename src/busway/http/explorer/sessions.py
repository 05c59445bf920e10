"""Sessions of an entity: which there are, and the state of one."""

from __future__ import annotations

from base64 import b64encode
from functools import partial

from aiohttp import web

from busway.http.calls import Call
from busway.http.explorer.asking import answered, entity_of, number, told
from busway.http.replies import HttpError
from busway.model.errors import BusError
from busway.store.base import SubQueueKey, SubQueueKind

TOP = 200
TOP_MAX = 1_000


async def show_all(call: Call) -> web.StreamResponse:
    """SES-11: those that have messages or a state, in the order of their ids."""
    entity = entity_of(call)
    skip, top = number(call, "skip", 0, 1 << 31), number(call, "top", TOP, TOP_MAX)
    wanted = call.request.query.get("search", "").lower()
    found: dict[str, int] = {}
    for partition in range(len(entity.placement)):
        key = SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN)
        try:
            owner = call.gateway.router.available_owner(entity, partition)
            names = owner.sessions(key, None)
        except BusError:
            continue  # the others are told; the map shows which partition is unavailable
        found.update((each, partition) for each in names if wanted in each.lower())
    page = sorted(found)[skip : skip + top]
    return told(
        {
            "sessions": [{"session_id": each, "partition": found[each]} for each in page],
            "total": len(found),
        }
    )


async def show(call: Call) -> web.StreamResponse:
    entity, session_id = entity_of(call), call.target.rest[1]
    for partition in range(len(entity.placement)):
        key = SubQueueKey(entity.incarnation, partition, SubQueueKind.MAIN)
        owner = call.gateway.router.owner(entity, partition)
        if owner is None or not owner.available or session_id not in owner.sessions(key, None):
            continue
        state: bytes | None = await answered(partial(owner.peek_session_state, key, session_id))
        encoded = None if state is None else b64encode(state).decode()
        return told({"session_id": session_id, "partition": partition, "state_base64": encoded})
    raise HttpError(404, f"There is no session '{session_id}' with messages or a state here.")
