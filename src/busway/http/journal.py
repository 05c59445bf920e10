"""`/{entity}/$journal`: what happened to the messages of an entity, for readers in bulk (D-31).

    GET    .../$journal                    where each partition's journal begins and ends
    PUT    .../$journal                    switch capture: {"capture": true}, and say how much is
                                           kept: {"retention": "3d"}; needs Manage
    GET    .../$journal/plan               how far to read for so many rows or bytes
    GET    .../$journal/at                 the offsets at a time
    GET    .../$journal/read               a range of a partition, as an Arrow IPC stream
    GET    .../$journal/consumers[/name]   who holds what
    PUT    .../$journal/consumers/name     keep what follows an offset
    DELETE .../$journal/consumers/name     and no longer

Everything is asked off the message loop (`Services.journals`). Replies are JSON, errors too: their
`error` is a word that a program can act on, their `detail` a sentence for its user.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

from aiohttp import web

from busway.broker.journal_arrow import PipelineMissingError
from busway.broker.journal_reader import (
    EpochDiffersError,
    JournalAheadError,
    JournalDamagedError,
    JournalError,
    JournalGapError,
)
from busway.gateway import entrances
from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.model.durations import MINUTE_MS, SECOND_MS
from busway.model.entities import Entity, Subscription
from busway.model.errors import BusError
from busway.model.journal import BY_NAME, epoch_of
from busway.model.retention import LIMITS, OWN_LIMITS, read_limit, show_limit
from busway.store.base import StoreUnavailable

log = logging.getLogger(__name__)

ARROW = "application/vnd.apache.arrow.stream"
BODY_BYTES_MAX = 64 * 1024
CONSUMER_CHARS_MAX = 100
HOLD_MAX_S = 30 * 24 * 3600
OFFSET_VERSION = 1
NUMBER_MAX = (1 << 63) - 1


class JournalRefusedError(HttpError):
    """An error of this face, with what a program needs to know of it."""

    def __init__(self, status: int, word: str, detail: str, **facts: Any) -> None:
        super().__init__(status, detail)
        self.body = {"code": status, "error": word, "detail": detail, **facts}


def _bad(detail: str) -> JournalRefusedError:
    return JournalRefusedError(400, "bad-request", detail)


async def answer(call: Call) -> web.StreamResponse:
    try:
        return await _routed(call)
    except JournalRefusedError as refusal:
        return web.json_response(refusal.body, status=refusal.status)
    except JournalGapError as gap:
        facts = {"partition": gap.partition, "asked": gap.asked, "earliest": gap.earliest}
        return _told(410, "gap", gap, facts)
    except JournalDamagedError as damaged:
        facts = {
            "partition": damaged.partition,
            "asked": damaged.asked,
            "next": damaged.next_offset,
        }
        return _told(410, "damaged", damaged, facts)
    except EpochDiffersError as error:
        return _told(409, "epoch", error, {"asked": error.asked, "epoch": error.epoch})
    except JournalAheadError as ahead:
        facts = {"partition": ahead.partition, "asked": ahead.asked, "next": ahead.next_offset}
        return _told(400, "ahead", ahead, facts)
    except PipelineMissingError as error:
        return _told(501, "not-installed", error, {})  # nobody should wait for that
    except (StoreUnavailable, JournalError) as error:
        return _told(503, "busy", error, {})
    except BusError as error:
        if error.kind.status == 404:
            return _told(404, "not-found", error, {})
        raise


def _told(status: int, word: str, error: Exception, facts: Mapping[str, Any]) -> web.Response:
    return web.json_response(
        {"code": status, "error": word, "detail": str(error), **facts}, status=status
    )


async def _routed(call: Call) -> web.StreamResponse:
    rest = tuple(part.lower() for part in call.target.rest[:1])
    match (call.method, rest, len(call.target.rest)):
        case ("GET", (), _):
            return _json(await _heads(call, _entity(call, Right.LISTEN)))
        case ("PUT", (), _):
            return _json(await _switch(call))
        case ("GET", ("plan",), 1):
            return _json(await _plan(call))
        case ("GET", ("at",), 1):
            return _json(await _at(call))
        case ("GET", ("read",), 1):
            return await _read(call)
        case ("GET", ("consumers",), 1 | 2):
            return _json(await _consumers(call))
        case ("PUT", ("consumers",), 2):
            return _json(await _hold(call))
        case ("DELETE", ("consumers",), 2):
            return _json(await _release(call))
    call.demand(Right.LISTEN)
    raise JournalRefusedError(
        405, "bad-request", f"{call.method} is not a request that this takes."
    )


def _entity(call: Call, right: Right) -> Entity:
    call.demand(right)
    return entrances.entity_at(call.gateway, call.target.address, call.uri)


def _json(body: object) -> web.Response:
    return web.json_response(body, headers={"Cache-Control": "no-store"})


# --- Heads, and the switch -----------------------------------------------------------------------


async def _heads(call: Call, entity: Entity) -> dict[str, Any]:
    heads = await call.services.journals.heads(entity)
    if not entity.capture and all(head.next_offset == 0 for _, head in heads):
        raise JournalRefusedError(
            404,
            "not-captured",
            f"'{entity.path}' is not captured, so it has no journal. Switch it on with a PUT of "
            '{"capture": true} here, with "busway capture", or with capture = true in the '
            "configuration.",
            **_limits(call, entity),
        )
    path, subscription = entity.path, None
    if isinstance(entity, Subscription):
        path, subscription = entity.topic, entity.name
    return {
        "entity": path,
        "subscription": subscription,
        "epoch": epoch_of(entity),
        "capture": entity.capture,
        "since": _instant(entity.captured_ms),
        **_limits(call, entity),
        "partitions": [
            {
                "partition": partition,
                "earliest": head.earliest,
                "next": head.next_offset,
                "rows": head.next_offset - head.earliest,
                "bytes": head.bytes,
                "earliest_time": _instant(head.earliest_ms),
                "latest_time": _instant(head.last_ms),
            }
            for partition, head in heads
        ],
    }


async def _switch(call: Call) -> dict[str, Any]:
    entity = _entity(call, Right.MANAGE)
    changed = _changed(entity, await _body(call))
    if changed != entity:
        entity = call.gateway.catalog.update(changed, call.now_ms())
    if not entity.capture:
        return {"capture": False, **_limits(call, entity)}
    return await _heads(call, entity)


def _changed(entity: Entity, wanted: Any) -> Entity:
    """What a request leaves out stays as it is; a limit that is null is the server's again."""
    if not isinstance(wanted, dict) or not wanted or wanted.keys() - {"capture", *OWN_LIMITS}:
        raise _bad(
            'The body must be {"capture": true} or {"capture": false}, and may say how much is '
            f"kept: {', '.join(OWN_LIMITS)}."
        )
    capture = wanted.get("capture", entity.capture)
    if not isinstance(capture, bool):
        raise _bad("capture must be true or false.")
    own = {LIMITS[word]: _limit(word, wanted[word]) for word in OWN_LIMITS if word in wanted}
    limits = replace(entity.capture_limits, **own)
    return replace(entity, capture=capture, capture_limits=limits)


def _limit(word: str, value: object) -> int | None:
    try:
        return None if value is None else read_limit(word, value)
    except ValueError as allowed:
        raise _bad(f"{word} must be {allowed}, or null to have it as the server does.") from None


def _limits(call: Call, entity: Entity) -> dict[str, Any]:
    """How much is kept, and which of that the entity says itself."""
    limits = call.services.journal_limits.of(entity.capture_limits)
    stated = entity.capture_limits.stated()
    return {
        "limits": {word: show_limit(word, getattr(limits, LIMITS[word])) for word in OWN_LIMITS},
        "own_limits": [word for word in OWN_LIMITS if LIMITS[word] in stated],
    }


# --- Planning and reading ------------------------------------------------------------------------


async def _plan(call: Call) -> dict[str, Any]:
    entity = _entity(call, Right.LISTEN)
    epoch, start = _offset(call.request.query.get("from"))
    rows, size = _number(call, "rows"), _number(call, "bytes")
    ends = await call.services.journals.plan(entity, start, rows=rows, size=size, epoch=epoch)
    return {"to": _shown(epoch_of(entity), ends)}


async def _at(call: Call) -> dict[str, Any]:
    entity = _entity(call, Right.LISTEN)
    time_ms = _time(call.request.query.get("time", ""))
    return _shown(epoch_of(entity), await call.services.journals.at(entity, time_ms))


async def _read(call: Call) -> web.StreamResponse:
    entity = _entity(call, Right.LISTEN)
    partition = _needed(call, "partition")
    if partition >= len(entity.placement):
        raise _bad(f"partition is {partition}, and '{entity.path}' has {len(entity.placement)}.")
    first, stop = _needed(call, "from"), _needed(call, "to")
    if first > stop:
        raise _bad(f"from is {first}, behind to, which is {stop}.")
    query = call.request.query
    columns = _columns(query.get("columns"))
    stream = call.services.journals.stream(
        entity, partition, first, stop, columns, epoch=query.get("epoch")
    )
    async with aclosing(stream) as chunks:
        # What can be refused is refused with the first one, before a status is sent.
        chunk = await anext(chunks)
        reply = web.StreamResponse(headers={"Content-Type": ARROW, "Cache-Control": "no-store"})
        await reply.prepare(call.request)
        await reply.write(chunk)
        try:
            async for chunk in chunks:
                await reply.write(chunk)
        except (JournalError, StoreUnavailable) as error:
            # The status is sent: all that can be told is that this is not the end.
            log.warning("a reader of '%s' is cut off: %s", entity.path, error)
            if call.request.transport is not None:
                call.request.transport.close()
            return reply
    await reply.write_eof()
    return reply


def _columns(text: str | None) -> list[str] | None:
    if not text:
        return None
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in BY_NAME:
            raise _bad(f"There is no column '{name}'. There are: {', '.join(BY_NAME)}.")
    return names


# --- Consumers -----------------------------------------------------------------------------------


async def _consumers(call: Call) -> Any:
    entity = _entity(call, Right.LISTEN)
    holds = await call.services.journals.holds(entity)
    heads = dict(await call.services.journals.heads(entity))
    found = {
        name: {
            "name": name,
            "offset": _shown(epoch_of(entity), {part: hold.offset for part, hold in parts}),
            "expires": _instant(max(hold.until_ms for _, hold in parts)),
            "lag_rows": sum(heads[part].next_offset - (hold.offset or 0) for part, hold in parts),
        }
        for name, parts in sorted(holds.items())
    }
    if len(call.target.rest) == 1:
        return list(found.values())
    name = call.target.rest[1]
    if name not in found:
        raise JournalRefusedError(404, "not-found", f"There is no consumer '{name}' here.")
    return found[name]


async def _hold(call: Call) -> dict[str, Any]:
    entity = _entity(call, Right.LISTEN)
    name = _consumer_name(call)
    match await _body(call):
        case {"offset": offset, **rest}:
            epoch, start = _offset(json.dumps(offset))
            life_s = rest.get("expires_s")
        case _:
            raise _bad('The body must be {"offset": {...}, "expires_s": 86400}.')
    if life_s is None:
        life_s = call.services.journal_limits.hold_ms // SECOND_MS
    elif not isinstance(life_s, int) or isinstance(life_s, bool) or not 1 <= life_s <= HOLD_MAX_S:
        raise _bad(f"expires_s must be a whole number from 1 to {HOLD_MAX_S}.")
    if epoch is not None and epoch != epoch_of(entity):
        raise EpochDiffersError(entity.path, epoch, epoch_of(entity))
    until_ms = call.now_ms() + life_s * SECOND_MS
    await _set_holds(call, entity, name, start, until_ms)
    return {"name": name, "offset": _shown(epoch_of(entity), start), "expires": _instant(until_ms)}


async def _release(call: Call) -> dict[str, Any]:
    entity = _entity(call, Right.LISTEN)
    name = _consumer_name(call)
    ended = dict.fromkeys(range(len(entity.placement)))
    await _set_holds(call, entity, name, ended, call.now_ms() + MINUTE_MS)
    return {"name": name, "offset": None}


async def _set_holds(
    call: Call, entity: Entity, name: str, offsets: Mapping[int, int | None], until_ms: int
) -> None:
    """One commit in each partition; a part that fails is told, and may be asked again."""

    def ask(partition: int, offset: int | None) -> Callable[[asyncio.Future[None]], None]:
        def asked(done: asyncio.Future[None]) -> None:
            owner = call.gateway.router.available_owner(entity, partition)
            owner.hold_journal(
                entity.incarnation, partition, name, offset, until_ms, lambda e: settle(done, e)
            )

        return asked

    await asyncio.gather(*(once(ask(part, offset)) for part, offset in offsets.items()))


def settle(done: asyncio.Future[None], error: BusError | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def once(start: Callable[[asyncio.Future[None]], None]) -> Awaitable[None]:
    """A callback's answer, awaited."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    start(done)
    return done


def _consumer_name(call: Call) -> str:
    name = call.target.rest[1]
    if not name or len(name) > CONSUMER_CHARS_MAX or not name.isprintable():
        raise _bad(f"A consumer's name has 1 to {CONSUMER_CHARS_MAX} characters that can be seen.")
    return name


# --- What requests say ---------------------------------------------------------------------------


async def _body(call: Call) -> Any:
    try:
        return json.loads(await call.body(BODY_BYTES_MAX))
    except (ValueError, RecursionError):
        raise _bad("The body is not JSON.") from None


def _offset(text: str | None) -> tuple[str | None, dict[int, int]]:
    """An offset of our readers: `{"epoch": "...", "p": {"00": 12}, "v": 1}`; none begins all."""
    if text is None:
        return None, {}
    try:
        match json.loads(text):
            case {"epoch": str(epoch), "p": dict(places), "v": 1}:
                return epoch, {int(part): _natural(offset) for part, offset in places.items()}
    except (ValueError, RecursionError):
        pass
    raise _bad('An offset is like {"epoch": "12-18c", "p": {"00": 120, "01": 98}, "v": 1}.')


def _natural(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(value)
    return value


def _shown(epoch: str, offsets: Mapping[int, int | None]) -> dict[str, Any]:
    digits = max(2, len(str(max(offsets, default=0))))
    places = {f"{partition:0{digits}d}": offsets[partition] for partition in sorted(offsets)}
    return {"epoch": epoch, "p": places, "v": OFFSET_VERSION}


def _number(call: Call, name: str) -> int | None:
    text = call.request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        _not_a_number(name, text)
    return int(text)


def _needed(call: Call, name: str) -> int:
    number = _number(call, name)
    if number is None:
        raise _bad(f"Say which {name}: it is a whole number.")
    return number


def _not_a_number(name: str, text: str) -> NoReturn:
    raise _bad(f"{name} is '{text[:40]}', and must be a whole number.")


def _time(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise _bad("time must be like 2026-11-16T12:00:00Z, or milliseconds since 1970.") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1000)


def _instant(time_ms: int) -> str | None:
    if not time_ms:
        return None
    when = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"
