"""Which request on messages does what, and the right that it takes (http.md section 9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.replies import HttpError
from busway.http.rest.receiving import peek_lock, receive_and_delete
from busway.http.rest.sending import send
from busway.http.rest.settling import complete, renew, unlock
from busway.model.errors import LOCK_LOST, NOT_FOUND, SESSION_LOCK_LOST, BusError

Operation = Callable[[Call], Awaitable[web.StreamResponse]]

OPERATIONS: dict[tuple[str, int], tuple[Right, Operation]] = {
    # by how many segments follow `messages`: none, `head`, or a message and its lock
    ("POST", 0): (Right.SEND, send),
    ("POST", 1): (Right.LISTEN, peek_lock),
    ("DELETE", 1): (Right.LISTEN, receive_and_delete),
    ("DELETE", 2): (Right.LISTEN, complete),
    ("PUT", 2): (Right.LISTEN, unlock),
    ("POST", 2): (Right.LISTEN, renew),
}

STATUSES = {NOT_FOUND: 410, LOCK_LOST: 404, SESSION_LOCK_LOST: 404}
"""Where messaging answers with another status than management and links have for it."""


async def answer(call: Call) -> web.StreamResponse:
    right, operation = OPERATIONS[call.method, len(call.target.rest)]
    call.demand(right)
    try:
        return await operation(call)
    except BusError as error:
        status = STATUSES.get(error.kind)
        if status is None:
            raise
        raise HttpError(status, error.text) from error
