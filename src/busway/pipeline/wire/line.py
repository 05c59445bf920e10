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
from busway.amqp.types import Symbol
from busway.model.errors import SERVER_BUSY_CONDITION, TIMEOUT
from busway.remote.connection import Pass
from busway.remote.trust import trust

log = logging.getLogger(__name__)

ANSWER_WAIT_S = 60.0
READ_BYTES = 256 * 1024
TOKEN_TYPE = "servicebus.windows.net:sastoken"
TRANSFER_DESTINATION = Symbol("com.microsoft:transfer-destination-address")
RETRYABLE = {SERVER_BUSY_CONDITION, TIMEOUT.condition, "amqp:link:detach-forced"}
OK_STATUSES = (200, 202)
NOTHING_STATUS = 204


class RefusedError(Exception):
    """The broker says no, however often it is asked."""


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
        endpoint = allowed.endpoint
        self._socket = socket.create_connection((endpoint.host, endpoint.port), ANSWER_WAIT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls:
                with trust(endpoint) as context:
                    self._socket = context.wrap_socket(self._socket, server_hostname=endpoint.host)
            self._name = f"busway-pipeline-{uuid4()}"
            self._engine = Connection(
                ConnectionSettings(container_id=self._name, hostname=endpoint.host),
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

    def receiver(self, address: str) -> Link:
        """A link to receive on: messages are locked, and settlements confirmed."""
        link = self._session.attach(
            f"{self._name}-receiver",
            LinkRole.RECEIVER,
            source=Source(address),
            target=Target(self._name),
            snd_settle_mode=0,
            rcv_settle_mode=1,
        )
        self.until(lambda: link.name in self._attached)
        return link

    def send(self, link: Link, message: bytes, state: DeliveryState | None = None) -> int:
        return link.send(message, next(self._tags).to_bytes(8, "big"), state=state)

    # --- requests --------------------------------------------------------------------------------

    def ask(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        """An operation of the entity's `$management`; empty if there is nothing to tell."""
        payload = self._request(
            f"{self.entity}/$management",
            encode_message(
                properties=Properties(message_id=str(next(self._tags)), reply_to="management"),
                application_properties={"operation": f"com.microsoft:{operation}"},
                body=body,
            ),
            "management",
        )
        told = read_application_properties(payload)
        status = int(told.get("statusCode", 0))
        if status == NOTHING_STATUS:
            return {}
        if status not in OK_STATUSES:
            raise RefusedError(str(told.get("statusDescription", status)))
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
        if int(told.get("status-code", 0)) not in OK_STATUSES:
            raise RefusedError(
                f"The broker does not let this key use '{entity}': "
                f"{told.get('status-description', told.get('status-code'))}"
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
        deadline = time.monotonic() + ANSWER_WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise BrokenError("the broker does not answer")
            self.turn()

    def write(self) -> None:
        output = self._engine.take_output()
        if output:
            self._socket.sendall(output)

    def turn(self) -> None:
        """Write what waits, read what comes."""
        self.write()
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise BrokenError("the broker has closed the connection")
        for event in self._engine.receive(data):
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
            case Detached(link=link, error=error):
                self._ended(link, error)
            case Closed(error=error):
                raise BrokenError(text_of(error))

    def _ended(self, link: Link, error: Error | None) -> None:
        if error is not None and error.condition not in RETRYABLE:
            raise RefusedError(text_of(error))
        raise BrokenError(text_of(error) if error is not None else f"{link.name} has ended")


def text_of(error: Error | None) -> str:
    if error is None:
        return "no reason was given"
    return str(error.description or error.condition)
