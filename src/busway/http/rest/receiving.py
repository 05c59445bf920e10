"""Peek-lock and receive-and-delete: the head of a sub-queue, for one request.

A request is a receiver with a credit of one beside all links of the entity, and takes its turn
among them (P-26). Who leaves while it waits is withdrawn; a message that was locked for it
meanwhile goes back uncounted.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from urllib.parse import quote

from aiohttp import web

from busway.broker.seams import Grant, Timer
from busway.gateway import entrances, envelope, settlement
from busway.gateway.gateway import Gateway
from busway.http.calls import Call, echoed
from busway.http.replies import empty
from busway.http.rest import messages
from busway.model.durations import SECOND_MS
from busway.model.entities import Entity
from busway.model.errors import SESSION_REQUIRED, BusError
from busway.model.message import Message, partition_of
from busway.model.names import Address
from busway.store.base import SubQueueKey

log = logging.getLogger("busway.http")

TIMEOUT_DEFAULT_S = 60.0
TIMEOUT_MAX_S = 240.0
"""Who asks for longer is answered then: proxies give up on a silent connection after about this."""
LOOK_MS = 1_000
"""Also who does not want to wait gets what is there: partitions that have to ask their store are
waited for, and this is when one is taken for empty. (D-22 gives a drain 50 ms, because a link can
be told later; a request cannot.)"""
URL_CHARACTERS = "/%:@!$&'()*+,;=~"
_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


async def peek_lock(call: Call) -> web.StreamResponse:
    return await _receive(call, delete=False)


async def receive_and_delete(call: Call) -> web.StreamResponse:
    return await _receive(call, delete=True)


async def _receive(call: Call, *, delete: bool) -> web.StreamResponse:
    timeout_ms = _timeout_ms(call)
    receiver = HeadReceiver(call.gateway, call.target.address, call.uri, delete=delete)
    message = await receiver.take(timeout_ms)
    if message is None:
        return empty(204)
    try:
        reply = _reply(call, message, receiver.origin, locked=not delete)
        # Written here, so that it is known whether there was still somebody to write to.
        await reply.prepare(call.request)
        await reply.write_eof()
    except (Exception, asyncio.CancelledError):
        receiver.hand_back(message)
        raise
    return reply


def _timeout_ms(call: Call) -> int:
    text = call.request.query.get("timeout")
    if text is None:
        return int(TIMEOUT_DEFAULT_S * SECOND_MS)
    if _SECONDS.fullmatch(text) is None:
        raise messages.refused("'timeout' must be a number of seconds, 0 or more.")
    return int(min(float(text), TIMEOUT_MAX_S) * SECOND_MS)


def _reply(call: Call, message: Message, origin: envelope.Origin, *, locked: bool) -> web.Response:
    bare = envelope.bare_of(message)
    headers = messages.headers_of(message, bare, origin, locked=locked)
    headers.update(echoed(call.request))
    if locked:
        headers["Location"] = _location(call, message)
    return web.Response(status=201 if locked else 200, headers=headers, body=messages.body_of(bare))


def _location(call: Call, message: Message) -> str:
    """Where to complete, unlock and renew: beside `head`, as the client wrote it."""
    beside = call.target.raw.rstrip("/").rpartition("/")[0]
    token = messages.lock_token_text(message)
    return f"{call.base}{quote(beside, safe=URL_CHARACTERS)}/{message.number}/{token}"


def receivable(gateway: Gateway, address: Address, uri: str) -> Entity:
    """The entity, if a request can receive from it now."""
    entity = entrances.open_source(gateway, address, uri)
    if entrances.needs_session(entity, address.sub_queue):
        raise BusError(SESSION_REQUIRED)
    return entity


class HeadReceiver:
    """A receiver with one credit and one answer. `delete` is receive-and-delete (D-6)."""

    __slots__ = (
        "_address",
        "_closed",
        "_fan_in",
        "_gateway",
        "_grant",
        "_grant_was_used",
        "_last_look",
        "_outcome",
        "_overdue",
        "_recalled",
        "_timer",
        "_uri",
        "delete",
        "entity",
        "origin",
        "turn_is_due",
    )

    def __init__(self, gateway: Gateway, address: Address, uri: str, *, delete: bool) -> None:
        self.entity = receivable(gateway, address, uri)
        self.origin = envelope.Origin(self.entity, address.sub_queue)
        self.delete = delete
        self.turn_is_due = False
        self._gateway = gateway
        self._address = address
        self._uri = uri
        self._outcome: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._grant: Grant | None = None
        self._grant_was_used = False
        self._recalled = False
        self._last_look = False
        """The time is up: answer once every partition has been asked."""
        self._overdue = False
        """So is the time for that: ask no more, and wait for what is being removed only."""
        self._closed = False
        self._timer: Timer | None = None
        self._fan_in = gateway.fan_in(self.entity, address.sub_queue)
        self._fan_in.join(self)
        gateway.receivers.joined(self.entity)
        gateway.visitors.come(self, self._fan_in)
        gateway.idle.used(self.entity)

    async def take(self, timeout_ms: int) -> Message | None:
        """The next message, locked or removed; None if there is none in time. To be asked once."""
        try:
            self._look(timeout_ms)
            return await self._outcome
        except asyncio.CancelledError:
            outcome = self._outcome
            if outcome.done() and not outcome.cancelled() and outcome.exception() is None:
                self.hand_back(outcome.result())
            raise
        finally:
            self._leave()

    def hand_back(self, message: Message | None) -> None:
        """The message did not reach the client. What was removed for it is gone (D-6)."""
        if message is None:
            return
        if self.delete:
            log.warning("a message was removed for a request whose client had left")
            return
        partition = partition_of(message.number)
        key = SubQueueKey(self.incarnation, partition, self._address.sub_queue)
        settlement.hand_back(self._gateway.router, self.entity, key, [message])

    # --- Time ------------------------------------------------------------------------------------

    def _look(self, timeout_ms: int) -> None:
        if timeout_ms == 0:
            self._time_is_up()
            return
        self._ask()
        if not self._outcome.done():
            self._at(timeout_ms, self._time_is_up)

    def _ask(self) -> None:
        self._fan_in.hungry(self)
        self._fan_in.turn()

    def _time_is_up(self) -> None:
        self._last_look = True
        self._ask()
        if self._grant is None:
            self._answer(None)
        elif not self._outcome.done():
            self._at(LOOK_MS, self._look_is_over)

    def _look_is_over(self) -> None:
        self._overdue = True
        self._recall()
        # What is being removed for this request is on its way to it: it is waited for (D-6).
        if self._grant is None or not self.delete:
            self._answer(None)

    def turn(self) -> None:
        """A partition had nothing, and the time is up: ask the next, or answer."""
        if self._closed or self._outcome.done() or self._grant is not None:
            return
        if not self._overdue:
            self._ask()
        if self._grant is None:
            self._answer(None)

    def _at(self, in_ms: int, callback: Callable[[], None]) -> None:
        host = self._gateway.host
        self._timer = host.at(host.now_ms() + in_ms, callback)

    # --- As the fan-in and partitions see it -----------------------------------------------------

    def free_credit(self) -> int:
        taken = self._closed or self._overdue or self._grant is not None or self._outcome.done()
        return 0 if taken else 1

    def lend(self, grant: Grant) -> None:
        self._grant = grant
        self._grant_was_used = False

    def deliver(self, grant: Grant, messages: list[Message]) -> None:
        self._grant_was_used = True
        for message in messages:  # there is one
            if self._closed or self._outcome.done():
                self.hand_back(message)
            else:
                self._outcome.set_result(message)

    def finished(self, grant: Grant) -> None:
        self._grant = None
        # Not used and not asked back: there is no more.
        self._fan_in.returned(grant.key, empty=not self._grant_was_used and not self._recalled)
        if self._closed or self._outcome.done():
            return
        self._fan_in.hungry(self)
        if self._last_look:
            # Not from here: the fan-in may be in the middle of asking the other partitions.
            self._gateway.at_turn_end(self)

    def _recall(self) -> None:
        grant = self._grant
        if grant is not None and not self._recalled:
            self._recalled = True
            owner = self._gateway.router.owner(self.entity, grant.key.partition)
            if owner is not None:
                owner.recall(grant)

    # --- As the gateway sees it ------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        return self.entity.incarnation

    def entity_changed(self) -> None:
        try:
            receivable(self._gateway, self._address, self._uri)
        except BusError as error:
            self.fail(error)

    def fail(self, error: BusError) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(error)

    # --- The end ---------------------------------------------------------------------------------

    def _answer(self, message: Message | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result(message)

    def _leave(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._recall()
        self._fan_in.leave(self)
        self._gateway.receivers.left(self.entity)
        self._gateway.visitors.go(self)
