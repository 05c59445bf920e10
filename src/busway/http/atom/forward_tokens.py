"""Whether a caller may name a destination of forwarding: it must be able to send there (http.md 3).

Clients bring a token for each destination. Python signs its whole address, JavaScript only the
host, without a scheme. Where there is no such token, that of the request must do. None of them is
kept or logged.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import hdrs

from busway.gateway import auth
from busway.gateway.auth import Access, Right
from busway.gateway.bearer import token_in
from busway.http.calls import Call
from busway.model.entities import Queue, Subscription
from busway.model.errors import UNAUTHORIZED, BusError
from busway.model.names import name_key, resource_path

HEADERS = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_letters_to": "ServiceBusDlqSupplementaryAuthorization",
}


def check_destinations(
    call: Call, entity: Queue | Subscription, old: Queue | Subscription | None = None
) -> None:
    """Raises 401. A destination that stays as it was needs no new token."""
    for field, header in HEADERS.items():
        path = resource_path(getattr(entity, field) or "")
        token = call.request.headers.get(header)
        if not path or (token is None and path == getattr(old, field, None)):
            continue
        _check(call, path, token or call.request.headers[hdrs.AUTHORIZATION])


def _check(call: Call, path: str, token: str) -> None:
    clock_ms, key = call.clock_ms(), name_key(path)
    opened: Sequence[Access]
    bearer = token_in(token)
    if bearer is not None:
        opened = call.gateway.verify_bearer(bearer, key, call.own_host)
    else:
        rules = call.gateway.access_rules
        opened = [auth.verify(token, key, rules, clock_ms, call.own_host, bare_host=True)]
    if not any(access.allows(key, Right.SEND, clock_ms, key) for access in opened):
        raise BusError(UNAUTHORIZED, claim="Send", uri=f"sb://{call.authority}/{path}")
