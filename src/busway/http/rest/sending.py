"""Sending: one message, or a batch that is taken as a whole (http.md section 9).

Answered when it is committed (MSG-2), with the checks and the ways of messages that come by link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiohttp import hdrs, web

from busway.gateway import entrances, envelope, sends
from busway.gateway.batch_reading import SLICE_MESSAGES, memory_of
from busway.gateway.router import Destination
from busway.http.calls import Call
from busway.http.replies import empty
from busway.http.rest import messages, values
from busway.http.rest.messages import refused
from busway.http.rest.names import BROKER_PROPERTIES, OTHER_PROPERTIES, is_reserved
from busway.model.durations import SECOND_MS, format_timespan
from busway.model.errors import SERVER_BUSY, TIMEOUT, BusError
from busway.model.limits import TIERS

T = TypeVar("T")
R = TypeVar("R")

BATCH_TYPE = "application/vnd.microsoft.servicebus.json"


async def send(call: Call) -> web.StreamResponse:
    entity = _destination(call)
    if call.gateway.over_budget():
        raise BusError(SERVER_BUSY, refused=True)  # before the body is read (D-8)
    limit = _limit(call, entity)
    body = await call.body(limit, too_large=lambda size: envelope.too_large(f"above {size}", size))
    entity = _destination(call)  # as it is by now
    payloads = await _payloads(call, body)
    size = sum(len(payload) for payload in payloads)
    if size > limit:
        raise envelope.too_large(size, limit)
    await _commit(call, entity, payloads, size)
    call.gateway.idle.used(entity)
    return empty(201)


def _limit(call: Call, entity: Destination) -> int:
    """LIM-1: what is larger than a tier's usual messages comes by AMQP only."""
    usual = TIERS[call.gateway.catalog.namespace.tier].message_max_bytes
    return min(entity.max_message_size_bytes, usual)


def _destination(call: Call) -> Destination:
    return entrances.open_destination(call.gateway, call.target.address, call.uri)


async def _in_slices(items: list[T], work: Callable[[T], R]) -> list[R]:
    """Others have a turn after every `SLICE_MESSAGES` of them."""
    found: list[R] = []
    for start in range(0, len(items), SLICE_MESSAGES):
        if start:
            await asyncio.sleep(0)
        found += [work(item) for item in items[start : start + SLICE_MESSAGES]]
    return found


async def _commit(call: Call, entity: Destination, payloads: list[bytes], size: int) -> None:
    gateway = call.gateway
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(error: BusError | None) -> None:
        if committed.done():
            return  # given up, or nobody waits any more
        if error is None:
            committed.set_result(None)
        else:
            committed.set_exception(error)

    envelope.check_count(len(payloads), gateway.batch_max_messages)
    ones = await _in_slices(
        payloads, lambda payload: envelope.read_one(payload, entity, gateway.host)
    )
    parts = envelope.parts_of(ones, entity)
    sends.dispatch(gateway, entity, parts, memory_of(size, len(ones)), done)
    timeout_ms = gateway.settings.send_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / SECOND_MS):
            await committed
    except TimeoutError:
        raise BusError(TIMEOUT, timeout=format_timespan(timeout_ms)) from None


# --- What a request says -------------------------------------------------------------------------


async def _payloads(call: Call, body: bytes) -> list[bytes]:
    content_type = call.request.headers.get(hdrs.CONTENT_TYPE)
    now_ms = call.gateway.host.now_ms()
    if content_type is not None and content_type.partition(";")[0].strip().lower() == BATCH_TYPE:
        return await _batch(call, body, now_ms)
    headers = call.request.headers
    described = _object(headers.get(BROKER_PROPERTIES, "{}"), f"The header {BROKER_PROPERTIES}")
    return [messages.payload_of(body, content_type, described, _user_properties(call), now_ms)]


def _user_properties(call: Call) -> dict[str, Any]:
    headers = call.request.headers
    found: dict[str, Any] = {}
    for name in dict.fromkeys(headers):
        if not is_reserved(name):
            # Several of one name are a list in one (RFC 9110, section 5.3).
            found[str(name)] = values.from_header(_text(", ".join(headers.getall(name))))
    others = headers.get(OTHER_PROPERTIES)
    if others is not None:
        what = f"The header {OTHER_PROPERTIES}"
        found |= _json_properties(_object(others, what), what)
    return found


async def _batch(call: Call, body: bytes, now_ms: int) -> list[bytes]:
    """All of them, or a reason why not."""
    try:
        items = values.parse_json(body)
    except ValueError as problem:
        raise refused(f"The batch is not JSON: {problem}.") from None
    if not isinstance(items, list):
        raise refused("A batch is a JSON array of objects.")
    envelope.check_count(len(items), call.gateway.batch_max_messages)
    return await _in_slices(
        list(enumerate(items)),
        lambda item: _batched(item[1], f"Message {item[0]} of the batch", now_ms),
    )


def _batched(item: Any, what: str, now_ms: int) -> bytes:
    if not isinstance(item, dict):
        raise refused(f"{what} is not a JSON object.")
    body = item.get("Body")
    if not isinstance(body, str):
        raise refused(f"{what} has no 'Body', or one that is not text.")
    described, properties = (
        {} if item.get(name) is None else item[name]
        for name in ("BrokerProperties", "UserProperties")
    )
    if not isinstance(described, dict) or not isinstance(properties, dict):
        raise refused(f"'BrokerProperties' and 'UserProperties' of {what} must be JSON objects.")
    content_type = described.get("ContentType")
    if content_type is not None and not isinstance(content_type, str):
        raise refused(f"'ContentType' of {what} must be text.")
    try:
        data = body.encode()
    except UnicodeEncodeError:
        raise refused(f"The 'Body' of {what} has half of a surrogate pair.") from None
    user = _json_properties(properties, what)
    return messages.payload_of(data, content_type, described, user, now_ms)


def _json_properties(properties: Mapping[str, Any], what: str) -> dict[str, Any]:
    found = {}
    for name, value in properties.items():
        try:
            found[name] = values.from_json(value)
        except ValueError as problem:
            raise refused(f"{what} has a property '{name[:80]}': {problem}.") from None
    return found


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        found = values.parse_json(_text(text))
    except ValueError as problem:
        raise refused(f"{what} is not JSON: {problem}.") from None
    if not isinstance(found, dict):
        raise refused(f"{what} is not a JSON object.")
    return found


def _text(header: str) -> str:
    """A header is UTF-8 or else Latin-1; the server leaves bytes that are not the first as
    surrogates."""
    try:
        header.encode()
    except UnicodeEncodeError:
        return header.encode("utf-8", "surrogateescape").decode("latin-1")
    return header
