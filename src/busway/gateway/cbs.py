"""The `$cbs` node: tokens that clients put on their connection (amqp.md 5).

Tokens belong to the connection and are kept by audience. What they allow is decided in `auth.py`;
here is how long: a token put again extends, an expired one closes the links that lived on it, and
a connection without any is dropped after a while. A client whose entity is missing asks again
without a pause (.NET: a thousand times a second); so a repeated answer is held back for a moment.

Whether a token has expired is judged by the machine's clock, read each time: its expiry was written
by the clock of a client. How long a connection has had none is measured in broker time (D-25).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from busway.amqp.types import Int
from busway.broker.seams import Host
from busway.gateway import auth
from busway.gateway.auth import Access, Right
from busway.gateway.bearer import KeysAwaited, looks_like_one
from busway.gateway.requests import Request
from busway.model.errors import ARGUMENT_ERROR, NOT_FOUND, SERVER_BUSY, TOKEN_MALFORMED, BusError
from busway.model.limits import TOKEN_WAIT_MAX_MS
from busway.model.names import Address, audience_key, parse_address

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

log = logging.getLogger("busway.gateway")

TOKENS_MAX = 1_000
"""Audiences on one connection; each takes memory until it expires."""
REPEATED_WITHIN_MS = 1_000
REPEATED_WAITS_MS = 500
"""How soon after a *not found* another one on the same connection is a repeated one, and how long
it is held back then."""
HELD_MAX = 100
"""Repeated ones that are held on one connection; beyond it they are answered at once."""


class NotFoundAnswers:
    """Those of one connection: the first at once, repeated ones together, a moment later. There is
    at most one timer."""

    __slots__ = ("_held", "_told_ms")

    def __init__(self) -> None:
        self._held: list[Callable[[], None]] = []
        self._told_ms: int | None = None

    def tell(self, answer: Callable[[], None], host: Host) -> None:
        now_ms = host.now_ms()
        is_first = self._told_ms is None or now_ms - self._told_ms >= REPEATED_WITHIN_MS
        if (is_first and not self._held) or len(self._held) >= HELD_MAX:
            self._told_ms = now_ms
            answer()
            return
        self._held.append(answer)
        if len(self._held) == 1:
            host.at(now_ms + REPEATED_WAITS_MS, partial(self._tell_held, host))

    def _tell_held(self, host: Host) -> None:
        held, self._held = self._held, []
        self._told_ms = host.now_ms()
        for answer in held:
            answer()


class Tokens:
    """What one connection may do, by audience."""

    __slots__ = (
        "_by_audience",
        "_opens_less",
        "_unauthorised_since_ms",
        "_wait_max_ms",
        "not_found",
    )

    def __init__(self, now_ms: int, wait_max_ms: int = TOKEN_WAIT_MAX_MS) -> None:
        self._wait_max_ms = wait_max_ms
        self._by_audience: dict[str, Access] = {}
        self._opens_less = False
        """A token took the place of one that opened more: links may have lived on that."""
        self._unauthorised_since_ms: int | None = now_ms
        self.not_found = NotFoundAnswers()

    @property
    def is_any(self) -> bool:
        return bool(self._by_audience)

    @property
    def rule_names(self) -> list[str]:
        """Whose keys were shown, for those who look at the connection."""
        return sorted({access.rule_name for access in self._by_audience.values()})

    def put(self, access: Access) -> None:
        if access.scope not in self._by_audience and len(self._by_audience) >= TOKENS_MAX:
            raise BusError(SERVER_BUSY)
        before = self._by_audience.get(access.scope)
        if before is not None and not access.opens_all_of(before):
            self._opens_less = True
        self._by_audience[access.scope] = access
        self._unauthorised_since_ms = None

    def allow(self, address: Address, right: Right, clock_ms: int) -> bool:
        """Whether some token opens this node for `right`; `Right.NONE` asks for any token."""
        path, entity = address.node, address.path
        return any(
            access.allows(path, right, clock_ms, entity) for access in self._by_audience.values()
        )

    def expire(self, clock_ms: int, now_ms: int) -> bool:
        """Forget what has expired by the clock. True if less is open than before: links may have
        to go."""
        gone = [
            audience
            for audience, access in self._by_audience.items()
            if access.expires_ms is not None and access.expires_ms <= clock_ms
        ]
        for audience in gone:
            del self._by_audience[audience]
        if gone and not self._by_audience:
            self._unauthorised_since_ms = now_ms
        opens_less, self._opens_less = bool(gone) or self._opens_less, False
        return opens_less

    def overdue(self, now_ms: int) -> bool:
        """No valid token for so long that the connection is dropped."""
        since_ms = self._unauthorised_since_ms
        return since_ms is not None and now_ms - since_ms >= self._wait_max_ms


class CbsService:
    """Serves put-token for all connections of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def serve(self, request: Request, *, may_wait: bool = True) -> None:
        try:
            self._put_token(request, may_wait)
        except KeysAwaited as awaited:
            # Once: if the key is not there then, it is nobody's.
            awaited.then(partial(self.serve, request, may_wait=False))
        except BusError as error:
            # Without an error-condition nothing is lost, and Python reads one as a failure
            # whatever the status is.
            status = _status(error.kind.status, self._gateway.describe(error))
            answer = partial(request.answer, status, None)
            if error.kind is NOT_FOUND:
                request.connection.tokens.not_found.tell(answer, self._gateway.host)
            else:
                answer()
            log.info("put-token refused: %s", error, extra=request.connection.named())
        else:
            request.answer(_status(202, "Accepted"), None)

    def _put_token(self, request: Request, may_wait: bool) -> None:
        if request.operation.lower() != "put-token":
            raise BusError(ARGUMENT_ERROR, detail=f"'{request.operation}' is not put-token.")
        name, token = request.properties.get("name"), request.body
        if not isinstance(name, str) or not isinstance(token, str):
            raise BusError(TOKEN_MALFORMED, detail="it has no text, or no audience as its 'name'")
        connection, clock_ms = request.connection, self._gateway.host.clock_ms()
        audience = audience_key(name)
        own_host = partial(self._gateway.answers_to, connection.hostname)
        opened: Sequence[Access]
        if looks_like_one(token):
            opened = self._gateway.verify_bearer(token, audience, own_host, may_wait=may_wait)
        else:
            rules = self._gateway.access_rules
            opened = [auth.verify(token, audience, rules, clock_ms, own_host)]
        if audience and not self._gateway.exists(parse_address(audience)):
            # Only told to who could open it; Python then speaks of authentication, as on Azure.
            raise BusError(NOT_FOUND, uri=name)
        for access in opened:
            connection.prove(access)


def _status(code: int, description: str) -> dict[str, Any]:
    return {"status-code": Int(code), "status-description": description}
