"""Which request of the explorer does what, and the right that it takes.

    GET    /{entity}/$explorer                  the entity: description, counts, partitions
    GET    /{entity}/$explorer/messages         peek: ?from=, count=, state=, session=,
                                                partition=, preview=
    DELETE /{entity}/$explorer/messages         delete messages: ?state=, before=, session=
    POST   /{entity}/$explorer/messages/lock    {"sequence_numbers": [...]} locks deferred messages
    POST   /{entity}/$explorer/messages/settle  {"lock_token": ..., "settlement": "dead-letter"}
    POST   /{entity}/$explorer/resubmit         {"sequence_numbers": [...]}: dead letters go back;
                                                all of them, some at a time, without numbers
    GET    /{entity}/$explorer/sessions         sessions with messages or a state
    GET    /{entity}/$explorer/sessions/{id}    one of them, with its state
    POST   /{topic}/$explorer/try               which rules would take a message, and why not

The entity is a queue, a topic or `{topic}/Subscriptions/{name}`, each with `/$DeadLetterQueue`,
`/$Transfer` or `/$Transfer/$DeadLetterQueue` where the messages of that sub-queue are meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from busway.gateway.auth import Right
from busway.http.calls import Call
from busway.http.explorer import messages, overview, sessions, try_out
from busway.http.replies import HttpError

Operation = Callable[[Call], Awaitable[web.StreamResponse]]

OPERATIONS: dict[tuple[str, str], tuple[Right, Operation]] = {
    ("GET", ""): (Right.MANAGE, overview.show),
    ("GET", "messages"): (Right.LISTEN, messages.peek),
    ("DELETE", "messages"): (Right.LISTEN, messages.purge),
    ("POST", "messages/lock"): (Right.LISTEN, messages.lock),
    ("POST", "messages/settle"): (Right.LISTEN, messages.settle),
    ("POST", "resubmit"): (Right.SEND | Right.LISTEN, messages.resubmit),
    ("GET", "sessions"): (Right.LISTEN, sessions.show_all),
    ("GET", "sessions/{id}"): (Right.LISTEN, sessions.show),
    ("POST", "try"): (Right.MANAGE, try_out.answer),
}


async def answer(call: Call) -> web.StreamResponse:
    rest = call.target.rest
    page = "/".join(each.lower() for each in rest)
    if len(rest) == 2 and rest[0].lower() == "sessions":
        page = "sessions/{id}"
    method = "GET" if call.method == "HEAD" else call.method
    found = OPERATIONS.get((method, page))
    if found is None:
        call.demand(Right.LISTEN)
        raise _not_found(call, page)
    right, operation = found
    call.demand(right)
    return await operation(call)


def _not_found(call: Call, page: str) -> HttpError:
    allowed = ", ".join(method for method, each in OPERATIONS if each == page)
    if allowed:
        text = f"{call.method} is not a request that this page takes; it takes {allowed}."
        return HttpError(405, text, headers={hdrs.ALLOW: allowed})
    there = dict.fromkeys(f"$explorer/{each}".rstrip("/") for _, each in OPERATIONS)
    return HttpError(404, f"Below an entity there are {', '.join(there)}.")
