"""Requests and replies over a pair of links: what `$cbs` and `$management` have in common.

This file owns how a request is read, which link its reply goes to (management-amqp.md 2), and that
replies wait for credit, in order and not without bound. What a request means is its service's.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from busway.amqp import codec
from busway.amqp.errors import DECODE_ERROR, NOT_ALLOWED, ProtocolError
from busway.amqp.events import TransferReceived
from busway.amqp.link import Link
from busway.amqp.performatives import Accepted, Error, Properties, Rejected
from busway.amqp.sections import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    PROPERTIES,
    encode_message,
    read_application_properties,
    read_properties,
    walk_sections,
)
from busway.model.errors import REPLIES_NOT_TAKEN, BusError
from busway.model.limits import PEEK_REPLY_MAX_BYTES
from busway.model.names import Address

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

log = logging.getLogger("busway.gateway")

REQUEST_CREDIT = 100
"""What the service gives (amqp.md 7.2); replenished at half."""
HELD_MAX = REQUEST_CREDIT
"""Requests that wait until replies are taken: what a client that keeps to its credit can send."""
RESUMED_AT_ONCE = 16
SMALL_REPLY_BYTES = 1_024
LARGE_REPLIES = ("com.microsoft:peek-message", "com.microsoft:receive-by-sequence-number")
"""Operations whose replies have messages in them."""
REPLIES_WAITING_MAX = 1_000
"""Replies that wait for a client's credit; beyond it they are dropped: it does not read them."""


class Request:
    """One request, read; answered once, or never if nobody waits any more."""

    __slots__ = (
        "_endpoint",
        "_is_awaited",
        "address",
        "answered",
        "body",
        "deadline_ms",
        "message_id",
        "properties",
        "reply_to",
        "state",
        "timeout_ms",
    )

    def __init__(self, endpoint: RequestEndpoint, payload: bytes, state: Any) -> None:
        self._endpoint = endpoint
        self.address = endpoint.address
        self.state = state
        """Of the transfer: a transactional state, or None."""
        self.message_id: Any = None
        """With its AMQP type: the reply's correlation id must have the same (section 3)."""
        self.reply_to: str | None = None
        self.properties: dict[str, Any] = {}
        self.body: Any = None
        self.timeout_ms = 0
        self.deadline_ms = 0
        self.answered = False
        self._is_awaited = False
        self._read(payload)

    def _read(self, payload: bytes) -> None:
        for code, _, start, stop in walk_sections(payload):
            if code == PROPERTIES:
                properties = read_properties(payload)
                self.message_id, self.reply_to = properties.message_id, properties.reply_to
            elif code == APPLICATION_PROPERTIES:
                self.properties = read_application_properties(payload)
            elif code == AMQP_VALUE:
                self.body, _ = codec.decode_value(payload[start:stop])

    @property
    def connection(self) -> GatewayConnection:
        return self._endpoint.connection

    @property
    def operation(self) -> str:
        return str(self.properties.get("operation", ""))

    @property
    def reply_max_bytes(self) -> int:
        """About so large its reply may be."""
        return PEEK_REPLY_MAX_BYTES if self.operation in LARGE_REPLIES else SMALL_REPLY_BYTES

    def awaited(self) -> None:
        """The answer is not there yet: it counts against what a connection may have open."""
        self._is_awaited = True
        self.connection.requests_open += 1
        self.connection.reply_bytes_expected += self.reply_max_bytes

    def answer(self, properties: dict[str, Any], body: Any) -> None:
        """Reply to whoever still waits for it."""
        if self.answered:
            return
        self.answered = True
        endpoint = self._endpoint
        if self._is_awaited:
            endpoint.connection.requests_open -= 1
            endpoint.connection.reply_bytes_expected -= self.reply_max_bytes
        link = endpoint.connection.reply_link(endpoint, self.reply_to)
        if link is None:
            log.debug("a reply has no link to go to", extra=endpoint.connection.named())
            return
        link.offer(
            encode_message(
                properties=Properties(correlation_id=self.message_id),
                application_properties=properties,
                body=body,
            )
        )


class Service(Protocol):
    """What stands behind a request link."""

    def serve(self, request: Request) -> None: ...


class RequestEndpoint:
    """The endpoint behind the link on which a client sends requests."""

    __slots__ = ("_held", "_held_bytes", "address", "closed", "connection", "link", "service")

    def __init__(
        self, connection: GatewayConnection, link: Link, address: Address, service: Service
    ) -> None:
        self.connection = connection
        self.link = link
        self.address = address
        self.service = service
        self.closed = False
        self._held: deque[TransferReceived] = deque()
        """Requests that are not read before replies are taken, in their order."""
        self._held_bytes = 0

    def start(self) -> None:
        self.link.set_credit(REQUEST_CREDIT)

    def transfer(self, event: TransferReceived) -> None:
        """What is asked while replies wait is kept unread, and the link gets no more credit. A
        client that goes on all the same loses the link."""
        if not self._held and not self.connection.replies_wait:
            self._serve(event)
            return
        self._held.append(event)
        self._held_bytes += len(event.payload)
        limit = self.connection.gateway.settings.reply_bytes_max
        if len(self._held) > HELD_MAX or self._held_bytes > limit:
            self.connection.detach(self, BusError(REPLIES_NOT_TAKEN, count=len(self._held)))
        else:
            self.connection.requests_wait = True

    def resume(self) -> None:
        """Replies may have been taken."""
        for _ in range(RESUMED_AT_ONCE):
            if not self._held or self.connection.replies_wait:
                break
            event = self._held.popleft()
            self._held_bytes -= len(event.payload)
            self._serve(event)
        if self._held:
            self.connection.requests_wait = True

    def _serve(self, event: TransferReceived) -> None:
        if self.link.credit <= REQUEST_CREDIT // 2:
            self.link.set_credit(REQUEST_CREDIT)
        try:
            request = Request(self, event.payload, event.state)
        except ProtocolError as error:
            if not event.settled:
                fault = Error(DECODE_ERROR, f"The request cannot be read: {error}", None)
                self.link.settle([event.delivery_id], Rejected(fault))
            return
        if not event.settled:
            # At once: Python takes a later rejection of a message for one of its request.
            self.link.settle([event.delivery_id], Accepted())
        self.service.serve(request)

    def too_large(self, delivery_id: int, settled: bool) -> None:
        if not settled:
            fault = Error(NOT_ALLOWED, "The request is too large.", None)
            self.link.settle([delivery_id], Rejected(fault))

    def close(self) -> None:
        self.closed = True
        self._held.clear()
        self._held_bytes = 0


class ReplyEndpoint:
    """The endpoint behind the link on which a client receives replies."""

    __slots__ = ("_next_tag", "_waiting", "address", "closed", "connection", "link")

    def __init__(self, connection: GatewayConnection, link: Link, address: Address) -> None:
        self.connection = connection
        self.link = link
        self.address = address
        self.closed = False
        self._waiting: deque[bytes] = deque()
        self._next_tag = 0

    def offer(self, payload: bytes) -> None:
        if len(self._waiting) >= REPLIES_WAITING_MAX:
            log.warning("a client does not take its replies", extra=self.connection.named())
            return
        self._waiting.append(payload)
        self.connection.reply_bytes += len(payload)
        self.flow()

    def flow(self) -> None:
        """Send what waits, as far as credit goes, settled: Python never settles it."""
        link = self.link
        while self._waiting and link.credit > 0:
            self._next_tag += 1
            payload = self._waiting.popleft()
            self.connection.reply_bytes -= len(payload)
            link.send(payload, self._next_tag.to_bytes(8, "big"), settled=True)
        if link.drain:
            link.drained()

    def close(self) -> None:
        self.closed = True
        self.connection.reply_bytes -= sum(map(len, self._waiting))
        self._waiting.clear()


def choose_reply_link(
    links: list[ReplyEndpoint], request: RequestEndpoint, reply_to: str | None
) -> ReplyEndpoint | None:
    """The three rules of management-amqp.md section 2, in their order. Never another connection."""
    node = request.address.key
    here = [link for link in links if link.address.key == node and not link.closed]
    same_session = [link for link in here if link.link.session is request.link.session]
    for candidates in (same_session, here):
        for link in candidates:
            if reply_to is not None and reply_to in (_target_address(link.link), link.link.name):
                return link
        if candidates is same_session and same_session:
            return same_session[-1]
    return None


def _target_address(link: Link) -> str | None:
    return getattr(link.target, "address", None)
