"""Bugs on purpose in how links are served: mends that are taken out again.

Each was a fault of a gateway or of a line. `--bug` plants one for the length of a simulation; a
test holds the simulation of links to finding it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from busway.broker.line import Line
from busway.broker.seams import Grant
from busway.gateway import settlement
from busway.gateway.fanin import GRANT_MESSAGES_MAX, FanIn
from busway.gateway.receiver import ReceiverEndpoint
from busway.model.message import Message

Planted = Mapping[tuple[type, str], Callable[..., Any]]


# A hand-back wakes the grant that it comes from, in a call inside the call, as often as there is
# credit; and while a page is read, all of that is lent.


def _pair_without_end(fan_in: FanIn) -> None:
    link = next(iter(fan_in._hungry))
    free = link.free_credit()
    if free <= 0:
        del fan_in._hungry[link]
        return
    key = next(iter(fan_in._ready))
    del fan_in._ready[key]
    owner = fan_in._router.owner(fan_in._entity, key.partition)
    if owner is None or not owner.available:
        return
    share = free // (len(fan_in._ready) + 1)
    grant = Grant(link, key, max(1, min(share, GRANT_MESSAGES_MAX)), delete=link.delete)
    fan_in._ready[key] = None
    link.lend(grant)
    owner.grant(grant)
    if link in fan_in._hungry and link.free_credit() != free:
        fan_in._hungry.move_to_end(link)


def _serve_waiting_again(line: Line) -> None:
    if line.held_back:
        return
    grants = line._grants
    while grants and len(line.window):
        grant = grants[0]
        line._shelf.serve(line, grant)
        if grants and grants[0] is grant:
            if grant.left:
                break
            grants.popleft()
            if grant.reserved == 0:
                grant.receiver.finished(grant)
    if grants and not line.in_store and not line.paging:
        line.finish_all()
    line._read_ahead()


def _hand_back_only(link: ReceiverEndpoint, grant: Grant, messages: list[Message]) -> None:
    if not link.delete:
        settlement.hand_back(link.gateway.router, link.entity, grant.key, messages)


# A drain that the client took back keeps its link from being served.


def _flow_with_old_drain(link: ReceiverEndpoint) -> None:
    if link.link.drain:
        link._drain()
    elif link.link.credit < link._lent:
        link._recall()
    else:
        link.feed.hungry(link)


# More is taken than the session window holds, and stays locked when the link ends.


def _credit_without_window(link: ReceiverEndpoint) -> int:
    if link.closed or link._drain_is_overdue or not link.connection._can_write():
        return 0
    return link.link.credit - link._lent


def _keep_unwritten(link: ReceiverEndpoint) -> None:
    pass


LINK_BUGS: dict[str, Planted] = {
    "hand-back-without-end": {
        (FanIn, "_pair"): _pair_without_end,
        (Line, "serve_waiting"): _serve_waiting_again,
        (ReceiverEndpoint, "_hand_back"): _hand_back_only,
    },
    "drain-never-over": {(ReceiverEndpoint, "flow"): _flow_with_old_drain},
    "window-ignored": {
        (ReceiverEndpoint, "free_credit"): _credit_without_window,
        (ReceiverEndpoint, "_hand_back_unwritten"): _keep_unwritten,
    },
}


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """Puts it in, and takes it out again; nothing if it is none of these."""
    methods = LINK_BUGS.get(bug or "", {})
    before = {(owner, name): owner.__dict__[name] for owner, name in methods}
    try:
        for (owner, name), method in methods.items():
            setattr(owner, name, method)
        yield
    finally:
        for (owner, name), method in before.items():
            setattr(owner, name, method)
