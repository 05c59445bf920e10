"""One client's connection: engine events to endpoints, and what the socket's owner asks of it.

This file owns what a connection may do and for how long, and how it ends. A mistake of ours inside
one connection closes that connection and no other. Which endpoint a link gets is `attach.py`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from busway.amqp.connection import Connection
from busway.amqp.errors import INTERNAL_ERROR
from busway.amqp.events import (
    AttachRequested,
    Closed,
    Detached,
    Disposed,
    Event,
    FlowReceived,
    Opened,
    TransferReceived,
    TransferTooLarge,
    UnknownDisposed,
)
from busway.amqp.link import Link
from busway.amqp.performatives import Rejected, TransactionalState
from busway.amqp.sasl import plain_credentials
from busway.amqp.settings import ConnectionSettings, Role
from busway.broker.seams import SessionLock
from busway.gateway import auth, requests
from busway.gateway.attach import attach
from busway.gateway.auth import Access, Right
from busway.gateway.batch_reading import Sliced
from busway.gateway.browser import BrowserEndpoint
from busway.gateway.cbs import Tokens
from busway.gateway.coordinator import CoordinatorEndpoint
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.requests import ReplyEndpoint, RequestEndpoint
from busway.gateway.sender import SenderEndpoint
from busway.gateway.session_receiver import SessionReceiverEndpoint
from busway.gateway.transactions import OpenTransaction
from busway.model.errors import (
    HOST_CHANGED,
    LOCK_LOST,
    MESSAGE_SIZE_EXCEEDED,
    TOKEN_MISSING,
    TRANSACTION_UNKNOWN,
    UNAUTHORIZED,
    BusError,
)
from busway.model.names import Address
from busway.model.session_ids import session_key

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

log = logging.getLogger("busway.gateway")

CLOSE_ANSWER_MS = 5_000
"""How long a peer may take to answer our close."""

FRAMES_AT_ONCE = 1_000

Receiving = ReceiverEndpoint | BrowserEndpoint
Endpoint = SenderEndpoint | Receiving | RequestEndpoint | ReplyEndpoint | CoordinatorEndpoint


class Peer(Protocol):
    """Who is at the other end."""

    @property
    def connection_id(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def loopback(self) -> bool: ...


class GatewayConnection:
    """The gateway's side of one connection; whoever owns the socket calls it."""

    def __init__(
        self,
        gateway: Gateway,
        peer: Peer,
        on_output: Callable[[], None],
        *,
        encrypted: bool,
        websocket: bool = False,
        gateway_of: Callable[[str], Gateway] | None = None,
    ) -> None:
        self.gateway = gateway
        """Of the namespace that the client wants, as far as it has said; settled by its open."""
        self._gateway_of = gateway_of
        self.peer = peer
        self.websocket = websocket
        self.tokens = Tokens(gateway.host.steady_ms(), gateway.settings.token_wait_ms)
        self.requests_open = 0
        self.transactions: dict[bytes, OpenTransaction] = {}
        """Declared and not discharged, by all control links."""
        self.hostname = ""
        # A password in clear text only where nobody can listen (D-34).
        may_use_password = encrypted or peer.loopback
        mechanisms = (
            ("MSSBCBS", "PLAIN", "ANONYMOUS") if may_use_password else ("MSSBCBS", "ANONYMOUS")
        )
        settings = ConnectionSettings(
            container_id=f"busway_{gateway.settings.node}_{peer.connection_id}"
        )
        self.engine = Connection(
            replace(
                settings,
                mechanisms=mechanisms,
                authenticate=self._authenticate,
                stranger=gateway.settings.stranger,
                partial_room=gateway.partial_room,
            ),
            role=Role.SERVER,
        )
        self.engine.on_output = on_output
        self._on_output = on_output
        self.reply_bytes = 0
        """Of replies that wait for credit."""
        self.reply_bytes_expected = 0
        """What is being answered may bring so much."""
        self.requests_wait = False
        """Whether an endpoint keeps requests until replies are taken."""
        self._endpoints: dict[Endpoint, None] = {}
        self._receivers: dict[Receiving, None] = {}
        """Of these the receiving ones; who was delivered to last is last."""
        self._ended = False
        self._leave_by_ms: int | None = None
        self._socket_is_full = False
        self._deliveries_wait = False
        self._work: Sliced | None = None
        self._later: list[Event] = []
        """What was read and has to wait for that work."""

    @property
    def endpoints(self) -> Collection[Endpoint]:
        """Of its links, for those who count them."""
        return self._endpoints

    def named(self, link: Link | None = None) -> dict[str, str]:
        """For `extra=` of a log line."""
        names = {"connection": self.peer.connection_id, "peer": self.peer.address}
        return names if link is None else names | {"link": link.name}

    def uri(self, address: Address) -> str:
        return f"sb://{self.hostname or 'localhost'}/{address}"

    # --- What the socket's owner asks ------------------------------------------------------------

    @property
    def greeted(self) -> bool:
        """The peer has spoken valid AMQP."""
        return self.engine.remote_open is not None

    @property
    def finished(self) -> bool:
        """Nothing more will be said."""
        return self.engine.closed

    def receive(self, data: bytes) -> None:
        """All at once, for those who have no others waiting."""
        self.feed(data)
        while self.has_input:
            self.advance(FRAMES_AT_ONCE)

    def feed(self, data: bytes) -> None:
        """Keep what was read until `advance` handles it."""
        self.engine.feed(data)

    @property
    def has_input(self) -> bool:
        return self._work is not None or self.engine.has_input

    def advance(self, frames_max: int) -> None:
        """Handle about so many frames of what was fed, or a slice of what takes longer."""
        if self._work is not None:
            self._guarded(self._go_on, self._work)
        else:
            self._guarded(self._take, self.engine.advance(frames_max))
        self._resume_deliveries()  # the peer may have opened its window
        if self.requests_wait:
            self._guarded(self._resume_requests, None)

    def tick(self, now_ms: int) -> None:
        """About once a second: keep-alives, tokens that run out."""
        self._guarded(self._take, self.engine.tick(now_ms))
        if self.requests_wait:
            self._guarded(self._resume_requests, None)
        if not self._ended:
            self._guarded(self._look_at_tokens, now_ms)
        elif self._leave_by_ms is not None and now_ms >= self._leave_by_ms:
            self.engine.eof()

    def take_output(self) -> bytes:
        data = self.engine.take_output()
        self._resume_deliveries()
        if self.requests_wait:
            self._guarded(self._resume_requests, None)
        return data

    def pause_output(self) -> None:
        """The socket is full: no more deliveries until it is not."""
        self._socket_is_full = True

    def resume_output(self) -> None:
        self._socket_is_full = False
        self._resume_deliveries()
        if self.requests_wait:
            self._guarded(self._resume_requests, None)

    def close(self, condition: str, description: str) -> None:
        """Say why it ends; a peer that does not answer in time is not waited for."""
        self._end()
        self.engine.close(condition, description)
        self._leave_by_ms = self.gateway.host.steady_ms() + CLOSE_ANSWER_MS

    def lost(self) -> None:
        """The socket is gone."""
        self.engine.eof()
        self._end()

    def fail(self) -> None:
        """A mistake of ours, already logged: this connection ends, the others go on."""
        try:
            self.close(INTERNAL_ERROR, "The service was unable to process the request.")
        except Exception:
            log.exception("closing a failed connection failed", extra=self.named())
            self.engine.eof()

    # --- Deliveries and the socket ---------------------------------------------------------------

    def room(self, link: Link, frames: int) -> int:
        """How many deliveries of so many frames each a receiver may ask for, beside those that its
        session has asked for already (D-22). If none, it is asked again when there is room."""
        outgoing = link.session.outgoing
        if outgoing.room > 0 and self._can_write():
            # One that is larger than the whole window still goes, as the peer opens it.
            at_least = 0 if outgoing.claimed else 1
            room = max(outgoing.room // frames, at_least)
        else:
            room = 0
        if room <= 0:
            self._deliveries_wait = True
        return room

    def delivered_to(self, receiver: ReceiverEndpoint) -> None:
        """The others come first when there is room again: a small window serves all its links."""
        if receiver in self._receivers:
            del self._receivers[receiver]
            self._receivers[receiver] = None

    def room_returned(self) -> None:
        """A part of a session's window that was set apart is not used."""
        self._resume_deliveries()

    def _can_write(self) -> bool:
        # A client with much credit and a closed session window must not fill our memory.
        waiting = self.engine.output_size + self.engine.pending_bytes
        return not self._socket_is_full and waiting < self.gateway.settings.output_high_bytes

    def _resume_deliveries(self) -> None:
        if self._deliveries_wait and not self._socket_is_full and not self._ended:
            self._deliveries_wait = False
            for receiver in self._receivers:
                receiver.resume()

    def _resume_requests(self, _: None) -> None:
        if self._ended or self._socket_is_full:
            return
        self.requests_wait = False
        for endpoint in [each for each in self._endpoints if isinstance(each, RequestEndpoint)]:
            if not endpoint.closed:
                endpoint.resume()

    # --- Events ----------------------------------------------------------------------------------

    def _guarded(self, step: Callable[[Any], None], argument: Any) -> None:
        try:
            step(argument)
        except Exception:
            log.exception("a connection failed in an unforeseen way", extra=self.named())
            self.fail()

    def begin(self, work: Sliced) -> None:
        """What takes long goes on in the next steps, before anything that came after it."""
        assert self._work is None
        self._work = work

    def _go_on(self, work: Sliced) -> None:
        if work.advance() and self._work is work:
            self._work = None
            events, self._later = self._later, []
            self._take([each for each in events if self._is_meant(each)])

    def _is_meant(self, event: Event) -> bool:
        """Whether an event that had to wait is still for somebody: links may have ended."""
        if not isinstance(event, TransferReceived | TransferTooLarge | Disposed | FlowReceived):
            return True
        return event.link.context in self._endpoints

    def _take(self, events: list[Event]) -> None:
        for at, event in enumerate(events):
            if self._ended:
                return
            if self._work is not None:
                self._later.extend(events[at:])
                return
            match event:
                case TransferReceived(link=link):
                    link.context.transfer(event)
                case Disposed(link=link):
                    if isinstance(link.context, Receiving):
                        link.context.disposed(event)
                case FlowReceived(link=link):
                    if isinstance(link.context, Receiving | ReplyEndpoint):
                        link.context.flow()
                case AttachRequested(link=link):
                    self._attach(link)
                case TransferTooLarge(link=link):
                    limit = link.receive_limit
                    self._refuse_in_transaction(
                        event.state,
                        BusError(
                            MESSAGE_SIZE_EXCEEDED,
                            delivery_id=event.delivery_id,
                            size_bytes=f"above {limit}",
                            max_bytes=limit,
                        ),
                    )
                    link.context.too_large(event.delivery_id, event.settled)
                case UnknownDisposed():
                    self._answer_unknown(event)
                case Detached(link=link):
                    if link.context is not None:
                        self.drop(link.context)
                case Opened(open=opened):
                    self._opened(opened.hostname)
                case Closed(error=error):
                    if error is not None:
                        log.info(
                            "closed: %s %s", error.condition, error.description, extra=self.named()
                        )
                    self._end()
                case _:
                    pass  # begun and ended sessions need nothing; their links are told of

    def _opened(self, hostname: str | None) -> None:
        self.hostname = hostname or self.engine.sasl_hostname or ""
        had = self.gateway
        self._choose_namespace(self.hostname)
        try:
            if self.gateway is not had and self.tokens.is_any:
                # What a password has opened is not carried over to another namespace.
                asked = self.engine.sasl_hostname or ""
                raise BusError(HOST_CHANGED, asked=asked, opened=self.hostname)
            self.gateway.opened(self)
        except BusError as error:
            log.info("connection refused: %s", error, extra=self.named())
            self.close(error.condition, self.gateway.describe(error))

    def _choose_namespace(self, hostname: str) -> None:
        if self._gateway_of is not None:
            self.gateway = self._gateway_of(hostname)

    def _answer_unknown(self, event: UnknownDisposed) -> None:
        """Settled by us already, or never sent: the lock is not there any more (amqp.md 10)."""
        if not event.settled and event.state is not None:
            error = BusError(LOCK_LOST)
            self._refuse_in_transaction(event.state, error)
            fault = Rejected(self.gateway.wire_error(error))
            event.session.settle_unknown(event.first, event.last, fault)

    def _refuse_in_transaction(self, state: Any, error: BusError) -> None:
        """An operation that is refused before an endpoint sees it ends its transaction, too: a
        commit without it would look like one with it (TXN-6, P-33)."""
        if isinstance(state, TransactionalState) and state.txn_id in self.transactions:
            with suppress(BusError), self.transactions[state.txn_id].operation():
                raise error

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        work, self._work, self._later = self._work, None, []
        if work is not None:
            work.drop()
        for endpoint in list(self._endpoints):
            endpoint.close()
        self._endpoints.clear()
        self._receivers.clear()
        self.gateway.disconnected(self)

    # --- Access ----------------------------------------------------------------------------------

    def _authenticate(self, mechanism: str, initial_response: bytes | None) -> bool:
        """SASL PLAIN: rule name and key, good for as long as the connection (amqp.md 2)."""
        credentials = plain_credentials(initial_response) if mechanism == "PLAIN" else None
        if credentials is None:
            return False
        self._choose_namespace(self.engine.sasl_hostname or "")
        try:
            access = auth.verify_password(*credentials, self.gateway.access_rules)
        except BusError as error:
            log.info("SASL PLAIN refused: %s", error, extra=self.named())
            return False
        self.prove(access)
        return True

    @property
    def is_stranger(self) -> bool:
        """No valid token or password was shown yet."""
        return self.engine.is_stranger

    def prove(self, access: Access) -> None:
        """A valid token or password: from the first one on, it is no stranger."""
        self.gateway.proved(self)
        self.tokens.put(access)
        self.engine.trust()

    def close_for_strangers(self, error: BusError) -> None:
        log.info("closed: too many connections without a token", extra=self.named())
        self.close(error.condition, self.gateway.describe(error))
        self._on_output()

    @property
    def replies_wait(self) -> bool:
        """Whether it should take replies before more of what it asks is read: as much waits as a
        connection may have to write, or all that is being answered could be too much."""
        settings = self.gateway.settings
        waiting = self.reply_bytes + self.engine.pending_bytes + self.engine.output_size
        if waiting >= settings.output_high_bytes:
            return True
        return waiting + self.reply_bytes_expected >= settings.reply_bytes_max

    def require(self, address: Address, right: Right) -> None:
        """Raise *unauthorized* unless a token opens this node for `right`."""
        if not self.tokens.allow(address, right, self.gateway.host.clock_ms()):
            raise BusError(UNAUTHORIZED, claim=claim_of(right), uri=self.uri(address))

    def _look_at_tokens(self, now_ms: int) -> None:
        clock_ms = self.gateway.host.clock_ms()
        if self.tokens.overdue(now_ms):
            error = BusError(TOKEN_MISSING, uri=f"sb://{self.hostname}/")
            log.info("closed: no valid token in time", extra=self.named())
            self.close(error.condition, self.gateway.describe(error))
        elif self.tokens.expire(clock_ms, now_ms):
            for endpoint in list(self._endpoints):
                if isinstance(endpoint, CoordinatorEndpoint):
                    continue  # needs nothing of its own
                address, right = endpoint.address, right_of(endpoint)
                if not address.cbs and not self.tokens.allow(address, right, clock_ms):
                    error = BusError(UNAUTHORIZED, claim=claim_of(right), uri=self.uri(address))
                    self.detach(endpoint, error)

    # --- Links -----------------------------------------------------------------------------------

    def _attach(self, link: Link) -> None:
        try:
            attach(self, link)
        except BusError as error:
            log.info("link refused: %s", error, extra=self.named(link))
            link.refuse(error.condition, self.gateway.describe(error))

    def keep(self, endpoint: Endpoint) -> None:
        """The endpoint of a link that is being accepted."""
        endpoint.link.context = endpoint
        self._endpoints[endpoint] = None
        if isinstance(endpoint, Receiving):
            self._receivers[endpoint] = None

    def drop(self, endpoint: Endpoint) -> None:
        self._endpoints.pop(endpoint, None)
        if isinstance(endpoint, Receiving):
            self._receivers.pop(endpoint, None)
        endpoint.close()

    def detach(self, endpoint: Endpoint, error: BusError) -> None:
        """The link ends, and the client is told why."""
        log.info("link detached: %s", error, extra=self.named(endpoint.link))
        self.drop(endpoint)
        endpoint.link.detach(error.condition, self.gateway.describe(error))

    def detach_entity(self, incarnation: int, error: BusError) -> None:
        """The entity is gone or changed: its links must not go on as if it were not."""
        for endpoint in list(self._endpoints):
            if (
                isinstance(endpoint, SenderEndpoint | Receiving)
                and endpoint.entity.incarnation == incarnation
            ):
                self.detach(endpoint, error)

    def transaction(self, transaction_id: bytes) -> OpenTransaction:
        found = self.transactions.get(transaction_id)
        if found is None:
            raise BusError(TRANSACTION_UNKNOWN)
        return found

    def is_settling(self, token: bytes) -> bool:
        """Whether a transaction that is open here settles the message with this lock."""
        return any(transaction.settles(token) for transaction in self.transactions.values())

    def session_lock(
        self, incarnation: int, session_id: str | None, link_name: str | None
    ) -> SessionLock | None:
        """The session that a link of this connection holds: of this id, or by that link's name."""
        for endpoint in self._endpoints:
            if (
                isinstance(endpoint, SessionReceiverEndpoint)
                and endpoint.lock is not None
                and endpoint.entity.incarnation == incarnation
                and (
                    endpoint.lock.session_id == session_key(endpoint.entity, session_id)
                    if session_id is not None
                    else endpoint.link.name == link_name
                )
            ):
                return endpoint.lock
        return None

    def holds_session(self, incarnation: int) -> bool:
        return any(
            isinstance(endpoint, SessionReceiverEndpoint)
            and endpoint.entity.incarnation == incarnation
            for endpoint in self._endpoints
        )

    def reply_link(self, request: RequestEndpoint, reply_to: str | None) -> ReplyEndpoint | None:
        links = [each for each in self._endpoints if isinstance(each, ReplyEndpoint)]
        return requests.choose_reply_link(links, request, reply_to)


def right_of(endpoint: Endpoint) -> Right:
    """What a link needs for as long as it is there (amqp.md 18)."""
    if isinstance(endpoint, SenderEndpoint):
        return Right.SEND
    if isinstance(endpoint, Receiving):
        return Right.LISTEN
    return Right.NONE


def claim_of(right: Right) -> str:
    """The word of the service's text; any token at all is asked for as the least of them."""
    return "Send" if right is Right.SEND else "Listen"
