"""Requests in, replies out: which room answers, and what becomes of errors.

The listener owns sockets and hands over connections that speak HTTP; `protocol` makes this side of
one. A mistake of ours is a 500 with a tracking id and a line in the log, and ends nobody else's
request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from busway.gateway.bearer import KeysAwaited
from busway.gateway.gateway import Gateway
from busway.http import identity, journal, operations, portal, replies, websocket
from busway.http.atom import operations as management
from busway.http.calls import Call, echoed
from busway.http.explorer import room as explorer
from busway.http.replies import HttpError
from busway.http.rest import room as rest
from busway.http.services import Services
from busway.http.strangers import Caller, Strangers
from busway.http.targets import Kind, Target, parse, path_of
from busway.model.errors import INTERNAL_ERROR, SHUTTING_DOWN, BusError

log = logging.getLogger("busway.http")
wire = logging.getLogger("busway.http.wire")


def _is_worth_an_error(record: logging.LogRecord) -> bool:
    """aiohttp calls it an error when a stranger's bytes are no request; they are told, in a 400."""
    cause = record.exc_info[1] if record.exc_info else None
    return not isinstance(cause, HttpProcessingError)


wire.addFilter(_is_worth_an_error)

SERVER_NAME = "Busway"
KEEP_ALIVE_S = 120.0
"""P-28: consecutive receives on one connection are meant to find it open."""
LINE_BYTES_MAX = 16 * 1024
HEADER_BYTES_MAX = 64 * 1024
"""`BrokerProperties` and application properties come as headers."""

ENDED_BY_LEAVING = frozenset({Kind.MESSAGES, Kind.JOURNAL})
"""Requests that end when their client leaves: one that waits for a message must not get it then,
and nobody reads on for one that is gone.
All others go on, so that what they change is changed as a whole."""


class Request(web.BaseRequest):
    """Its replies, whoever makes them, name no versions: strangers would look up what is wrong with
    them."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers[hdrs.SERVER] = SERVER_NAME


class Connections(web.Server):
    """Knows for which namespace each connection has last asked, for those who count them."""

    def __init__(self, strangers: Strangers, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.strangers = strangers
        self._gateways: dict[RequestHandler, Gateway] = {}

    def __call__(self) -> RequestHandler:
        return Caller(self.strangers, self, loop=self._loop, **self._kwargs)

    def _make_request(self, *parts: Any) -> web.BaseRequest:
        return Request(*parts, self._loop)  # type: ignore[arg-type, call-arg, unused-ignore]

    def asks(self, caller: RequestHandler, gateway: Gateway) -> None:
        before = self._gateways.get(caller)
        if before is not gateway:
            self.leaves(caller)
            self._gateways[caller] = gateway
            gateway.callers[caller] = None

    def leaves(self, caller: RequestHandler) -> None:
        """It has ended, or speaks AMQP from now on."""
        before = self._gateways.pop(caller, None)
        if before is not None:
            del before.callers[caller]

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self.leaves(handler)
        super().connection_lost(handler, exc)


Room = Callable[[Call], Awaitable[web.StreamResponse]]


class HttpServer:
    """All requests of a node, whichever port and coat they came in."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rooms = rooms()
        self._going_on: set[asyncio.Future[web.StreamResponse]] = set()
        self.heard: Callable[[asyncio.BaseProtocol], None] = lambda protocol: None
        """Told at each request that its connection has sent a whole head."""
        self.strangers = Strangers(services.stranger_share, services.host.now_ms)
        self._server = Connections(
            self.strangers,
            self._answer,
            handler_cancellation=True,
            access_log=None,
            logger=wire,
            auto_decompress=False,  # a small body must not become a large one
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=2.0,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )

    @property
    def connection_count(self) -> int:
        return len(self._server.connections)

    def protocol(self) -> asyncio.Protocol:
        """For one connection that was accepted."""
        return self._server()

    def tick(self, now_ms: int) -> None:
        """About once a second: connections without a token that ask for nothing go."""
        self.strangers.tick(now_ms)

    async def close(self, wait_s: float) -> None:
        """Let requests that are being answered end; then close every connection."""
        for gateway in self._services.gateways():
            gateway.visitors.send_away(BusError(SHUTTING_DOWN))
        self._server.pre_shutdown()  # who is kept alive and asks nothing is not waited for
        await self._server.shutdown(wait_s)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        caller = request.protocol
        self.heard(caller)
        await asyncio.sleep(0)  # others first: requests may come in a row, and be answered at once
        await self.strangers.turn(caller)
        reply = await self._answered(request)
        is_last = self.strangers.asked(caller)
        if not reply.prepared:
            reply.headers.update(echoed(request))
            if is_last:
                reply.force_close()
        return reply

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        target = Target(Kind.ROOT, path_of(request.raw_path))
        try:
            target = parse(
                request.method,
                target.raw,
                has_api_version="api-version" in request.query,
                has_resource="resource" in request.query,
            )
        except BusError as error:
            return self._refused(Call(self._services, request, target), error)
        call = Call(self._services, request, target)
        if target.kind is Kind.WEBSOCKET:
            self._server.leaves(request.protocol)
        else:
            self._server.asks(request.protocol, call.gateway)
        reply = self._reply(call)
        if target.kind in ENDED_BY_LEAVING:
            return await reply
        going_on = asyncio.ensure_future(reply)
        self._going_on.add(going_on)
        going_on.add_done_callback(self._going_on.discard)
        return await asyncio.shield(going_on)

    async def _reply(self, call: Call) -> web.StreamResponse:
        target = call.target
        try:
            try:
                return await self._rooms[target.kind](call)
            except KeysAwaited as awaited:
                # Raised by `demand`, so the room has done nothing yet, and may be asked again.
                await fetched(awaited)
                call.may_wait = False
                return await self._rooms[target.kind](call)
        except (BusError, HttpError) as error:
            return self._refused(call, error)
        except (asyncio.CancelledError, ConnectionError):
            raise  # the client has left
        except Exception:
            log.exception("%s %s failed in an unforeseen way", call.method, target.raw)
            return self._refused(call, BusError(INTERNAL_ERROR))

    def _refused(self, call: Call, error: BusError | HttpError) -> web.Response:
        if isinstance(error, HttpError):
            detail = call.detail(error.text, error.sub_code)
            return replies.error(error.status, detail, error.headers)
        detail = call.detail(error.text, error.kind.sub_code)
        return replies.error(error.kind.status, detail)


async def fetched(awaited: KeysAwaited) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    awaited.then(lambda: None if over.done() else over.set_result(None))
    await over


def rooms() -> Mapping[Kind, Room]:
    """Who answers what."""
    table: dict[Kind, Room] = dict.fromkeys(Kind, nobody)
    table[Kind.WEBSOCKET] = websocket.answer
    table[Kind.MESSAGES] = rest.answer
    table[Kind.JOURNAL] = journal.answer
    table[Kind.EXPLORER] = explorer.answer
    table[Kind.PORTAL] = portal.answer
    table[Kind.IDENTITY] = identity.answer
    table.update(operations.rooms())
    table.update(management.rooms())
    table[Kind.ROOT] = portal.for_browsers(table[Kind.ROOT])
    return table


async def nobody(call: Call) -> web.StreamResponse:
    raise HttpError(405, f"{call.method} is not a request that this resource takes.")
