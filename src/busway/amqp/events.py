"""What a connection tells its owner: the values that `receive`, `eof` and `tick` return.

Events come in the order of the frames that caused them. Whatever begins also ends, once: every
`AttachRequested` or `Attached` link gets one `Detached` unless it was refused, every `Begun`
session one `Ended` after its links, and the connection one `Closed` after its sessions, whoever
started it and even if the transport just went away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.amqp.performatives import Attach, Error, Open
    from busway.amqp.session import Session


@dataclass(slots=True)
class Opened:
    """The peer's open has come; a server has already answered it."""

    open: Open


@dataclass(slots=True)
class Begun:
    """A session is mapped: the peer's begin was answered, or the peer answered ours."""

    session: Session


@dataclass(slots=True)
class AttachRequested:
    """The peer wants a link: answer with `link.accept` or `link.refuse`, now or later."""

    link: Link
    attach: Attach


@dataclass(slots=True)
class Attached:
    """The peer has accepted a link that we asked for."""

    link: Link


@dataclass(slots=True)
class TransferReceived:
    """A whole delivery, its frames joined."""

    link: Link
    delivery_id: int
    tag: bytes
    payload: bytes
    message_format: int
    settled: bool
    state: Any


@dataclass(slots=True)
class TransferTooLarge:
    """A whole delivery that was larger than the link allows; its payload was thrown away.

    If it is not `settled`, the peer waits for an answer: `amqp:link:message-size-exceeded`.
    """

    link: Link
    delivery_id: int
    tag: bytes
    settled: bool
    state: Any


@dataclass(slots=True)
class FlowReceived:
    """Credit or drain of a link has changed, or the peer only told us its view of it."""

    link: Link


@dataclass(slots=True)
class Disposed:
    """What the peer, as receiver, has decided about deliveries that we sent on this link.

    With `settled` false it waits for `link.settle_sent`.
    """

    link: Link
    delivery_ids: list[int]
    tags: list[bytes]
    state: Any
    settled: bool


@dataclass(slots=True)
class UnknownDisposed:
    """The same about delivery ids that are not, or no longer, unsettled on this session."""

    session: Session
    first: int
    last: int
    state: Any
    settled: bool


@dataclass(slots=True)
class Settled:
    """The peer, as sender, has settled deliveries for which we had only proposed a state."""

    link: Link
    delivery_ids: list[int]
    state: Any


@dataclass(slots=True)
class Considered:
    """The peer, as sender, has answered what we proposed without settling it: a transaction is to
    decide, or the proposal was refused and another may follow (AMQP 4.4.2)."""

    link: Link
    delivery_ids: list[int]
    state: Any


@dataclass(slots=True)
class Detached:
    """The link is gone; `error` is the peer's reason, or ours if the peer broke a rule."""

    link: Link
    error: Error | None


@dataclass(slots=True)
class Ended:
    """The session is gone, its links before it."""

    session: Session
    error: Error | None


@dataclass(slots=True)
class Closed:
    """The connection is gone, its sessions before it. Nothing more will come."""

    error: Error | None


Event = (
    Opened
    | Begun
    | AttachRequested
    | Attached
    | TransferReceived
    | TransferTooLarge
    | FlowReceived
    | Disposed
    | UnknownDisposed
    | Settled
    | Considered
    | Detached
    | Ended
    | Closed
)
