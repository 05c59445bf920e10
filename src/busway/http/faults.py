"""`/$busway/stores/{store}/fault`: make a store slow, ill or gone, and well again (P-5, P-41).

Only on a server that was started for that (`--allow-faults`), and for whoever may manage. All
namespaces of the server share its stores, so all of them notice.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.health import Examiner
from busway.http.map import describe_store, names
from busway.http.replies import HttpError
from busway.http.services import Store
from busway.store.faults import Fault

BODY_BYTES_MAX = 4_096
DELAY_MS_MAX = 60_000
"""A call that waits cannot be called back: so much later the store is well again at the latest."""
MODES = ", ".join(fault.value for fault in Fault)


class FaultRoom:
    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner

    async def answer(self, call: Call, name: str) -> web.StreamResponse:
        """POST tells the store what to be, and asks it for a commit: so it is noticed at once."""
        call.demand(Right.MANAGE)
        if not call.services.allow_faults:
            raise HttpError(
                403,
                "This server does not let its stores be broken. Start it with --allow-faults "
                "(or BUSWAY_ALLOW_FAULTS=1) to rehearse outages; never where messages matter.",
            )
        store = _find(call, name)
        if call.method == "POST":
            fault, delay_ms = _read(await call.body(BODY_BYTES_MAX))
            store.faults.be(fault, delay_s=delay_ms / 1000)
        elif call.method != "GET":
            raise HttpError(
                405, "A fault is asked for with GET and set with POST.", headers={"Allow": ALLOW}
            )
        finding = await self._examiner.examine(store, call.services.host, again=True)
        return web.json_response(describe_store(store, finding))


ALLOW = "GET, POST"


def _find(call: Call, name: str) -> Store:
    """By name, id or position."""
    stores = call.services.stores()
    for position, store in enumerate(stores):
        if name.lower() in (store.name, store.store_id, str(position)):
            return store
    raise HttpError(404, f"There is no store '{name}'. There are {names(stores)}.")


def _read(body: bytes) -> tuple[Fault, int]:
    """`{"mode": "slow", "delay_ms": 200}`; the delay is for that mode only."""
    try:
        wanted: Any = json.loads(body)
    except ValueError as error:
        raise _refused(f"the body is not JSON: {error}") from None
    if not isinstance(wanted, dict):
        raise _refused("the body is not an object")
    unknown = sorted(set(wanted) - {"mode", "delay_ms"})
    if unknown:
        raise _refused(f"'{unknown[0]}' is not known")
    mode, delay_ms = wanted.get("mode"), wanted.get("delay_ms", 0)
    if not isinstance(mode, str) or mode not in {fault.value for fault in Fault}:
        raise _refused(f"the mode is {json.dumps(mode)}")
    if type(delay_ms) is not int or not 0 <= delay_ms <= DELAY_MS_MAX:
        raise _refused(f"the delay is {json.dumps(delay_ms)}")
    if Fault(mode) is Fault.SLOW and delay_ms == 0:
        raise _refused("a slow store needs a delay")
    return Fault(mode), delay_ms


def _refused(what: str) -> HttpError:
    return HttpError(
        400,
        f"{what[0].upper()}{what[1:]}. Send an object with 'mode', one of {MODES}; for 'slow' also "
        f"'delay_ms', a whole number from 1 to {DELAY_MS_MAX}.",
    )
