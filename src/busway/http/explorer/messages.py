"""Messages of a sub-queue: looked at, deleted, and settled one by one."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from uuid import UUID

from aiohttp import web

from busway.broker.locks import token_partition
from busway.gateway import entrances, settlement
from busway.gateway.envelope import Origin
from busway.gateway.peek import PeekWalk
from busway.http.calls import Call
from busway.http.explorer.asking import answered, body_of, entity_of, instant, number, told
from busway.http.explorer.message_json import described
from busway.http.replies import HttpError
from busway.http.rest.messages import lock_token_text
from busway.http.rest.settling import Answer
from busway.model.entities import Entity, Subscription, Topic
from busway.model.errors import (
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    SEND_DISABLED,
    SESSION_REQUIRED,
    BusError,
)
from busway.model.limits import TIERS
from busway.model.message import Message, MessageState, partition_of
from busway.store.base import SubQueueKey, SubQueueKind

COUNT = 50
COUNT_MAX = 250
RESUBMITTED_AT_A_TIME = 250
"""Of each partition, in one commit."""
PREVIEW_BYTES = 512
PREVIEW_MAX = 100 * 1024 * 1024
NUMBER_MAX = (1 << 63) - 1
STATES = {each.name.lower(): each for each in MessageState}


async def peek(call: Call) -> web.StreamResponse:
    """D-26: in the order of numbers, so partition after partition. `next` is where to go on."""
    entity = entity_of(call)
    first = number(call, "from", 0, NUMBER_MAX)
    count = max(1, number(call, "count", COUNT, COUNT_MAX))
    preview = None
    if call.request.query.get("preview") != "all":
        preview = number(call, "preview", PREVIEW_BYTES, PREVIEW_MAX)
    state = _state(call)
    partition = _partition(call, entity)
    found: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()
    walk = PeekWalk(
        call.gateway.router, entity, call.target.sub_queue, count, lambda all_: _set(found, all_)
    )
    walk.within(call.request.query.get("session"), partition)
    walk.in_state(state).walk(first)
    messages = await found
    origin = Origin(entity, call.target.sub_queue)
    following = None if walk.is_at_the_end else messages[-1].number + 1
    return told(
        {
            "messages": [described(each, origin, preview=preview) for each in messages],
            "next": following,
        }
    )


def _set(found: asyncio.Future[list[Message]], messages: list[Message]) -> None:
    if not found.done():
        found.set_result(messages)


def _state(call: Call) -> MessageState | None:
    word = call.request.query.get("state")
    if word is not None and word not in STATES:
        raise HttpError(400, f"'state' is '{word[:40]}'. There are {', '.join(STATES)}.")
    return None if word is None else STATES[word]


def _partition(call: Call, entity: Entity) -> int | None:
    if "partition" not in call.request.query:
        return None
    return number(call, "partition", 0, len(entity.placement) - 1)


async def purge(call: Call) -> web.StreamResponse:
    """Delete what nobody has locked, oldest first in each partition; says how many, and whether
    there may be more, so that a caller can show how far it is."""
    entity = entity_of(call)
    state = _state(call) or MessageState.ACTIVE
    session_id = call.request.query.get("session")
    before_ms = instant(call, "before")
    if before_ms is None:
        before_ms = call.now_ms() + 1
    limit = TIERS[call.gateway.catalog.namespace.tier].batch_delete_max_messages
    left = max(1, number(call, "count", limit, limit))
    deleted, skipped = 0, []
    for partition in range(len(entity.placement)):
        if left == 0:
            break
        key = SubQueueKey(entity.incarnation, partition, call.target.sub_queue)
        try:
            owner = call.gateway.router.available_owner(entity, partition)
            removed: int = await answered(
                partial(owner.delete_batch, key, left, before_ms, session_id, state=state)
            )
        except BusError:
            skipped.append(partition)
            continue
        deleted, left = deleted + removed, left - removed
    return told({"deleted": deleted, "more": left == 0, "unavailable_partitions": skipped})


async def lock(call: Call) -> web.StreamResponse:
    """DEF-2: deferred messages, by their numbers; they come with the tokens of their locks."""
    entity = entrances.open_source(call.gateway, call.target.address, call.uri)
    if entrances.needs_session(entity, call.target.sub_queue):
        raise BusError(SESSION_REQUIRED)
    wanted = _numbers((await body_of(call, ("sequence_numbers",))).get("sequence_numbers"))
    partitions = {partition_of(each) for each in wanted}
    if len(partitions) != 1 or not 0 <= min(partitions) < len(entity.placement):
        raise BusError(MESSAGE_NOT_FOUND)
    (partition,) = partitions
    key = SubQueueKey(entity.incarnation, partition, call.target.sub_queue)
    owner = call.gateway.router.available_owner(entity, partition)
    messages: list[Message] = await answered(partial(owner.receive_deferred, key, wanted, False))
    origin = Origin(entity, call.target.sub_queue)
    return told(
        {
            "messages": [
                described(each, origin, preview=PREVIEW_BYTES)
                | {"lock_token": lock_token_text(each)}
                for each in messages
            ]
        }
    )


async def resubmit(call: Call) -> web.StreamResponse:
    """Dead letters go back to their entity, those of a subscription to its topic. Each leaves in
    the commit that stores its copy, so none is lost or doubled, whatever breaks in between."""
    entity = entity_of(call)
    if call.target.sub_queue is not SubQueueKind.DEAD_LETTER:
        raise HttpError(400, "Only dead letters are resubmitted: ask below '/$DeadLetterQueue'.")
    _check_takes_messages(call, entity)
    wanted = (await body_of(call, ("sequence_numbers",))).get("sequence_numbers")
    by_partition: dict[int, list[int] | None] = dict.fromkeys(range(len(entity.placement)))
    if wanted is not None:
        numbers = _numbers(wanted)
        by_partition = {}
        for each in numbers:
            listed = by_partition.setdefault(partition_of(each), [])
            assert listed is not None
            listed.append(each)
        if not all(0 <= each < len(entity.placement) for each in by_partition):
            raise BusError(MESSAGE_NOT_FOUND)
    moved, more = 0, False
    for partition, some in by_partition.items():
        owner = call.gateway.router.available_owner(entity, partition)
        key = SubQueueKey(entity.incarnation, partition, call.target.sub_queue)
        count: int = await answered(partial(owner.resubmit, key, some, RESUBMITTED_AT_A_TIME))
        moved += count
        more = more or (some is None and count == RESUBMITTED_AT_A_TIME)
    return told({"resubmitted": moved, "more": more})


def _check_takes_messages(call: Call, entity: Entity) -> None:
    target = entity
    if isinstance(entity, Subscription):
        topic = call.gateway.catalog.get(entity.topic_incarnation)
        assert isinstance(topic, Topic)
        target = topic
    if not target.status.can_send:
        raise BusError(SEND_DISABLED, uri=target.path)


def _numbers(wanted: Any) -> list[int]:
    if not isinstance(wanted, list) or not wanted or not all(type(each) is int for each in wanted):
        raise HttpError(400, "'sequence_numbers' must be a list of whole numbers.")
    return wanted


SETTLEMENTS = {
    "complete": settlement.COMPLETE.kind,
    "abandon": settlement.ABANDON.kind,
    "defer": settlement.DEFER.kind,
    "dead-letter": settlement.DEAD_LETTER.kind,
}


async def settle(call: Call) -> web.StreamResponse:
    """A message that a request has locked: by `POST .../messages/head`, or by `lock` above."""
    entity = entity_of(call)
    wanted = await body_of(call, ("lock_token", "settlement", "reason", "description"))
    kind = SETTLEMENTS.get(str(wanted.get("settlement")))
    if kind is None:
        raise HttpError(400, f"'settlement' must be one of {', '.join(SETTLEMENTS)}.")
    token = _token(wanted.get("lock_token"))
    partition = token_partition(token)
    if partition is None or partition >= len(entity.placement):
        raise BusError(LOCK_LOST)
    decision = settlement.from_status(
        kind, wanted.get("reason"), wanted.get("description"), properties=None
    )
    owner = call.gateway.router.available_owner(entity, partition)
    key = SubQueueKey(entity.incarnation, partition, call.target.sub_queue)
    answer = Answer()
    owner.settle(key, token, decision, answer, 0)
    await answer.outcome
    return told({"settled": wanted["settlement"]})


def _token(value: Any) -> bytes:
    try:
        return UUID(str(value)).bytes_le
    except ValueError:
        raise BusError(LOCK_LOST) from None
