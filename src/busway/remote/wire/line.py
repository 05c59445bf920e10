"""One AMQP connection to a broker, from its first byte to its end, for callers that wait.

It drives the same engine as the broker, from the other side. Who has one makes its links, takes
turns (`turn`: write what waits, read what comes) and finds what came in `answers`, `settled` and
`arrived`. A connection that breaks is of no more use; another one may be.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import uuid4

from busway.amqp.codec import decode_value
from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import (
    Attached,
    Closed,
    Detached,
    Disposed,
    Event,
    Settled,
    TransferReceived,
)
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import (
    Accepted,
    Coordinator,
    DeliveryState,
    Error,
    Properties,
    Source,
    Target,
)
from busway.amqp.sections import (
    AMQP_VALUE,
    encode_message,
    read_application_properties,
    walk_sections,
)
from busway.amqp.types import Symbol, UInt
from busway.model.errors import NOT_FOUND, SERVER_BUSY_CONDITION, TIMEOUT, UNAUTHORIZED
from busway.remote.connection import Pass
from busway.remote.trust import trust

log = logging.getLogger(__name__)

ANSWER_WAIT_S = 60.0
READ_BYTES = 256 * 1024
BEAT_S = 5.0
"""How often it is seen whether the broker should hear that we are there (AMQP 2.4.5)."""
SHORTEST_WAIT_S = 0.001
"""Zero would mean not to wait at all, and that is another kind of socket."""
TOKEN_TYPE = "servicebus.windows.net:sastoken"
TRANSFER_DESTINATION = Symbol("com.microsoft:transfer-destination-address")
RETRYABLE = {SERVER_BUSY_CONDITION, TIMEOUT.condition, "amqp:link:detach-forced"}
SESSION_FILTER = Symbol("com.microsoft:session-filter")
TIMEOUT_PROPERTY = Symbol("com.microsoft:timeout")
BATCH_FORMAT = 0x8001_3700
"""Of a transfer that holds several messages (amqp.md 8)."""
MESSAGE_BYTES_MAX = 128 << 20
OK_STATUSES = (200, 201, 202)
NOTHING_STATUS = 204
CONDITIONS = {401: UNAUTHORIZED.condition, 404: NOT_FOUND.condition}
"""What a status says, where a broker names no condition."""


class RefusedError(Exception):
    """The broker says no, however often it is asked."""

    def __init__(self, text: str, condition: str | None = None) -> None:
        super().__init__(text)
        self.condition = condition


class BrokenError(Exception):
    """This connection is of no more use; another one may be."""


class Line:
    """Whoever shows a pass may have links to its entity."""

    def __init__(self, entity: str, allowed: Pass) -> None:
        self.entity = entity
        self.answers: list[tuple[list[int], object]] = []
        """To deliveries that we sent: their ids and states. The caller takes them away."""
        self.settled: list[tuple[list[int], object]] = []
        """Deliveries to us whose settlement the broker has confirmed."""
        self.arrived: list[TransferReceived] = []
        """Deliveries on links that the caller made."""
        self._tags = count(1)
        self._replies: dict[str, list[bytes]] = {}
        """By name of the link, of requests."""
        self._requests: dict[str, Link] = {}
        self._attached: set[str] = set()
        self._leaving: set[str] = set()
        self._asks_for_session: str | None = None
        endpoint = allowed.endpoint
        self._socket = socket.create_connection((endpoint.host, endpoint.port), ANSWER_WAIT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls:
                with trust(endpoint) as context:
                    self._socket = context.wrap_socket(self._socket, server_hostname=endpoint.host)
            self._name = f"busway-{uuid4()}"
            self._engine = Connection(
                ConnectionSettings(
                    container_id=self._name,
                    hostname=endpoint.host,
                    max_message_size=MESSAGE_BYTES_MAX,
                    max_partial_bytes=2 * MESSAGE_BYTES_MAX,
                ),
                role=Role.CLIENT,
            )
            self._engine.open()
            self._session = self._engine.begin()
            self.show_pass(entity, allowed)
        except BaseException:
            self._socket.close()
            raise

    # --- links -----------------------------------------------------------------------------------

    def sender(self, address: str, *, destination: str | None = None) -> Link:
        """A link to send on, with credit; to another entity by way of this one, if that is said."""
        link = self._session.attach(
            self._name,
            LinkRole.SENDER,
            source=Source(self._name),
            target=Target(address),
            properties=None if destination is None else {TRANSFER_DESTINATION: destination},
        )
        self.until(lambda: link.name in self._attached and link.credit > 0)
        return link

    def coordinator(self) -> Link:
        """A link that transactions are declared and discharged on (amqp.md 14)."""
        name = f"{self._name}-coordinator"
        link = self._session.attach(
            name, LinkRole.SENDER, source=Source(name), target=Coordinator()
        )
        self.until(lambda: link.name in self._attached and link.credit > 0)
        return link

    def receiver(self, address: str, *, settled: bool = False) -> Link:
        """A link to receive on: messages are locked, and settlements confirmed; or `settled`: gone
        when they are sent."""
        link = self._session.attach(
            f"{self._name}-receiver",
            LinkRole.RECEIVER,
            source=Source(address),
            target=Target(self._name),
            snd_settle_mode=1 if settled else 0,
            rcv_settle_mode=0 if settled else 1,
        )
        self.until(lambda: link.name in self._attached)
        return link

    def session_receiver(
        self, address: str, session_id: str | None, wait_s: float, *, settled: bool = False
    ) -> tuple[Link, str]:
        """A link that holds a session, and its id; the next one with messages for None.

        Raises `RefusedError` with the condition of a time-out if none has come within `wait_s`.
        """
        name = f"{self._name}-session-{next(self._tags)}"
        link = self._session.attach(
            name,
            LinkRole.RECEIVER,
            source=Source(address, filter={SESSION_FILTER: session_id}),
            target=Target(self._name),
            snd_settle_mode=1 if settled else 0,
            rcv_settle_mode=0 if settled else 1,
            properties={TIMEOUT_PROPERTY: UInt(max(1, round(wait_s * 1000)))},
        )
        self._asks_for_session = name
        if not self.wait(lambda: name in self._attached, wait_s + ANSWER_WAIT_S):
            raise BrokenError("the broker does not answer")
        self._asks_for_session = None
        source = link.source
        held = None if source is None else (source.filter or {}).get(SESSION_FILTER, session_id)
        return link, str(getattr(held, "value", held))

    def detach(self, link: Link) -> None:
        """End a link, and wait until the broker has."""
        self._leaving.add(link.name)
        link.detach()
        self.until(lambda: link.name not in self._leaving)

    def send(
        self,
        link: Link,
        message: bytes,
        state: DeliveryState | None = None,
        *,
        batch: bool = False,
    ) -> int:
        tag = next(self._tags).to_bytes(8, "big")
        return link.send(message, tag, state=state, message_format=BATCH_FORMAT if batch else 0)

    # --- requests --------------------------------------------------------------------------------

    def ask(self, operation: str, body: dict[str, Any], link: Link | None = None) -> dict[str, Any]:
        """An operation of the entity's `$management`; empty if there is nothing to tell.

        `link`: the one that holds the session or the locks that it is about.
        """
        asked: dict[str, Any] = {"operation": f"com.microsoft:{operation}"}
        if link is not None:
            asked["associated-link-name"] = link.name
        payload = self._request(
            f"{self.entity}/$management",
            encode_message(
                properties=Properties(message_id=str(next(self._tags)), reply_to="management"),
                application_properties=asked,
                body=body,
            ),
            "management",
        )
        told = read_application_properties(payload)
        status = int(told.get("statusCode", 0))
        if status == NOTHING_STATUS:
            return {}
        if status not in OK_STATUSES:
            condition = str(told.get("errorCondition") or CONDITIONS.get(status, ""))
            raise RefusedError(_untracked(str(told.get("statusDescription", status))), condition)
        for code, _, value, _ in walk_sections(payload):
            if code == AMQP_VALUE:
                answer = decode_value(payload, value)[0]
                return answer if isinstance(answer, dict) else {}
        return {}

    def show_pass(self, entity: str, allowed: Pass) -> None:
        """Put a token where brokers look for it (amqp.md 5): the first one, or one for more."""
        payload = self._request(
            "$cbs",
            encode_message(
                properties=Properties(message_id="pass", reply_to="cbs"),
                application_properties={
                    "operation": "put-token",
                    "type": TOKEN_TYPE,
                    "name": f"sb://{allowed.endpoint.host}/{entity}",
                },
                body=allowed.token,
            ),
            "cbs",
        )
        told = read_application_properties(payload)
        status = int(told.get("status-code", 0))
        if status == NOT_FOUND.status:
            raise RefusedError(str(told.get("status-description", status)), NOT_FOUND.condition)
        if status not in OK_STATUSES:
            raise RefusedError(
                f"The broker does not let this key use '{entity}': "
                f"{told.get('status-description', status)}",
                CONDITIONS.get(status, UNAUTHORIZED.condition),
            )

    def _request(self, node: str, request: bytes, name: str) -> bytes:
        replies, requests = f"{name}-replies", f"{name}-requests"
        if requests not in self._requests:
            inward = self._session.attach(
                replies, LinkRole.RECEIVER, source=Source(node), target=Target(name)
            )
            outward = self._session.attach(
                requests, LinkRole.SENDER, source=Source(name), target=Target(node)
            )
            self._replies[replies] = []
            self.until(lambda: {replies, requests} <= self._attached)
            inward.set_credit(1_000_000)
            self._requests[requests] = outward
        link, waiting = self._requests[requests], self._replies[replies]
        self.until(lambda: link.credit > 0)
        self.send(link, request)
        self.until(lambda: bool(waiting))
        return waiting.pop()

    # --- turns -----------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool]) -> None:
        if not self.wait(condition, ANSWER_WAIT_S):
            raise BrokenError("the broker does not answer")

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Take turns until it is so; whether it is, after so long at most."""
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.turn(min(left, BEAT_S))
        return True

    def write(self) -> None:
        output = self._engine.take_output()
        if output:
            self._socket.settimeout(ANSWER_WAIT_S)
            self._socket.sendall(output)

    def turn(self, wait_s: float | None = None) -> None:
        """Write what waits, read what comes. Nothing need come within `wait_s`; without it, a
        broker that says nothing is one that is gone."""
        self.write()
        self._socket.settimeout(ANSWER_WAIT_S if wait_s is None else max(wait_s, SHORTEST_WAIT_S))
        try:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise BrokenError("the broker has closed the connection")
            events = self._engine.receive(data)
        except TimeoutError as error:
            if wait_s is None:
                raise BrokenError("the broker does not answer") from error
            events = []
        for event in [*events, *self._engine.tick(time.monotonic_ns() // 1_000_000)]:
            self._take(event)

    def close(self) -> None:
        try:
            self._engine.close()
            self._socket.settimeout(1.0)
            self._socket.sendall(self._engine.take_output())
        except OSError as problem:
            log.debug("left without a word: %s", problem)
        finally:
            self._socket.close()

    def _take(self, event: Event) -> None:
        match event:
            case Attached(link=link):
                self._attached.add(link.name)
            case Disposed(link=link, delivery_ids=delivery_ids, state=state):
                if link.name not in self._requests:
                    self.answers.append((delivery_ids, state))
            case Settled(delivery_ids=delivery_ids, state=state):
                self.settled.append((delivery_ids, state))
            case TransferReceived(link=link):
                if link.name in self._replies:
                    self._replies[link.name].append(event.payload)
                    link.settle([event.delivery_id], Accepted())
                else:
                    self.arrived.append(event)
            case Detached(link=link) if link.name in self._leaving:
                self._leaving.remove(link.name)
            case Detached(link=link, error=error):
                self._ended(link, error)
            case Closed(error=error):
                raise BrokenError(text_of(error))

    def _ended(self, link: Link, error: Error | None) -> None:
        if error is not None and (
            error.condition not in RETRYABLE or link.name == self._asks_for_session
        ):
            raise RefusedError(text_of(error), error.condition)
        raise BrokenError(text_of(error) if error is not None else f"{link.name} has ended")


def text_of(error: Error | None) -> str:
    if error is None:
        return "no reason was given"
    return _untracked(str(error.description or error.condition))


def _untracked(text: str) -> str:
    """What it says to a person; the tracking id behind it is for those who run the service."""
    return text.partition(" TrackingId:")[0].partition(" Reference:")[0]
