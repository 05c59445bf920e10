"""Complete, unlock and renew: what becomes of a message that a request has locked.

A lock belongs to whoever knows its token, on whatever connection (LOCK-6). The path names the
message, too, by its id or its sequence number, and both have to be of the same message.
"""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

from aiohttp import web

from busway.broker.locks import token_partition
from busway.broker.seams import Settlement
from busway.gateway import entrances, settlement
from busway.gateway.router import Owner
from busway.http.calls import Call
from busway.http.replies import empty
from busway.http.rest import messages, values
from busway.http.rest.names import BROKER_PROPERTIES
from busway.model.errors import LOCK_LOST, BusError
from busway.model.message import Message
from busway.store.base import SubQueueKey


async def complete(call: Call) -> web.StreamResponse:
    return await _settle(call, settlement.COMPLETE)


async def unlock(call: Call) -> web.StreamResponse:
    return await _settle(call, settlement.ABANDON)


async def renew(call: Call) -> web.StreamResponse:
    owner, key, token = _locked(call)
    (until_ms,) = owner.renew(key, [token])
    described = {"LockedUntilUtc": values.http_date(until_ms)}
    return empty(200, {BROKER_PROPERTIES: json.dumps(described)})


async def _settle(call: Call, decision: Settlement) -> web.StreamResponse:
    owner, key, token = _locked(call)
    answer = Answer()
    owner.settle(key, token, decision, answer, 0)
    await answer.outcome
    return empty(200)


def _locked(call: Call) -> tuple[Owner, SubQueueKey, bytes]:
    gateway, address = call.gateway, call.target.address
    entity = entrances.entity_at(gateway, address, call.uri)
    named, token_text = call.target.rest
    try:
        token = UUID(token_text).bytes_le
    except ValueError:
        raise BusError(LOCK_LOST) from None
    partition = token_partition(token)
    if partition is None or partition >= len(entity.placement):
        raise BusError(LOCK_LOST)
    owner = gateway.router.available_owner(entity, partition)
    key = SubQueueKey(entity.incarnation, partition, address.sub_queue)
    if named not in _names_of(owner.locked(key, token)):
        raise BusError(LOCK_LOST)
    return owner, key, token


def _names_of(message: Message) -> tuple[str | None, ...]:
    return str(message.number), messages.id_text(messages.properties_of(message.bare).message_id)


class Answer:
    """Where the answer to one command goes."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def committed(self, tags: list[int]) -> None:
        if not self.outcome.done():
            self.outcome.set_result(None)

    def failed(self, tag: int, error: BusError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
