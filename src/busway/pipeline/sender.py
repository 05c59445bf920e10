"""A sender for Spark's tasks: many messages over one AMQP connection, each acknowledged.

It drives the same engine as the broker, from the other side. Messages go out as fast as credit
allows; whoever calls `finish` knows that all of them are stored. A broker that is busy or being
restarted is waited for. What was under way when a connection broke is sent again, and may then be
there twice unless the entity detects duplicates: that is for the caller to know.
"""

from __future__ import annotations

import logging
import random
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from uuid import uuid4

from busway.amqp.connection import Connection, ConnectionSettings, Role
from busway.amqp.events import Attached, Closed, Detached, Disposed, Event, TransferReceived
from busway.amqp.link import Link, LinkRole
from busway.amqp.performatives import Accepted, Error, Properties, Rejected, Source, Target
from busway.amqp.sections import encode_message, read_application_properties
from busway.model.errors import SERVER_BUSY_CONDITION, TIMEOUT
from busway.pipeline.connection import Pass

log = logging.getLogger(__name__)

PATIENCE_S = 120.0
"""How long a broker that does not take messages is tried again: longer than a restart takes."""
ANSWER_WAIT_S = 60.0
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
WINDOW = 2_000
"""Messages under way at most: enough to keep the broker's commits full."""
READ_BYTES = 256 * 1024
TOKEN_TYPE = "servicebus.windows.net:sastoken"
RETRYABLE = {SERVER_BUSY_CONDITION, TIMEOUT.condition, "amqp:link:detach-forced"}
ACCEPTED_STATUS = 202


class SendError(Exception):
    """The broker will not take a message, however often it is asked."""


class _Broken(Exception):  # noqa: N818
    """This connection is of no more use; another one may be."""


class Sender:
    """Messages to one queue or topic. For one thread."""

    def __init__(
        self,
        entity: str,
        allowed: Pass,
        *,
        patience_s: float = PATIENCE_S,
        window: int = WINDOW,
    ) -> None:
        self.entity = entity
        self._allowed = allowed
        self._patience_s = patience_s
        self._window = window
        self._line: _Line | None = None
        self._waiting: deque[bytes] = deque()
        """To be sent, in order."""
        self._under_way: dict[int, bytes] = {}
        """Sent and not answered, by delivery id, in order."""
        self._until = time.monotonic() + patience_s
        self._pause_s = FIRST_PAUSE_S
        self.accepted = 0

    def send(self, message: bytes) -> None:
        """Take an encoded message; it is stored when `finish` has returned."""
        self._waiting.append(message)
        while len(self._waiting) + len(self._under_way) >= self._window:
            self._step()

    def send_all(self, messages: Iterable[bytes]) -> int:
        """Send them, wait until all are stored, and leave."""
        try:
            for message in messages:
                self.send(message)
            return self.finish()
        finally:
            self.close()

    def finish(self) -> int:
        """Wait until everything is stored; how many messages were, since it was made."""
        while self._waiting or self._under_way:
            self._step()
        return self.accepted

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    # --- turns -----------------------------------------------------------------------------------

    def _step(self) -> None:
        """Send what may be sent, and take in at least one answer."""
        try:
            if self._line is None:
                self._line = _Line(self.entity, self._allowed)
            line = self._line
            while self._waiting and line.credit > 0:
                message = self._waiting.popleft()
                self._under_way[line.send(message)] = message
            for delivery_ids, state in line.exchange():
                self._answered(delivery_ids, state)
        except (OSError, _Broken) as problem:
            self.close()
            self._waiting.extendleft(reversed(self._under_way.values()))
            self._under_way.clear()
            self._rest(problem)

    def _answered(self, delivery_ids: list[int], state: object) -> None:
        if isinstance(state, Accepted):
            for delivery_id in delivery_ids:
                if self._under_way.pop(delivery_id, None) is not None:
                    self.accepted += 1
            self._until, self._pause_s = time.monotonic() + self._patience_s, FIRST_PAUSE_S
            return
        error = state.error if isinstance(state, Rejected) else None
        if error is None or error.condition not in RETRYABLE:
            raise SendError(f"'{self.entity}' does not take a message: {_text(error)}")
        # All that is under way goes again, in its order: what was taken meanwhile is a duplicate.
        raise _Broken(_text(error))

    def _rest(self, problem: Exception) -> None:
        if time.monotonic() + self._pause_s > self._until:
            raise SendError(
                f"The broker at {self._allowed.endpoint.host}:{self._allowed.endpoint.port} takes "
                f"no messages for '{self.entity}': {problem or type(problem).__name__}."
            ) from problem
        log.info("sending again in %.1f s: %s", self._pause_s, problem)
        time.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)


class _Line:
    """One connection with a link on it, from its first byte to its end."""

    def __init__(self, entity: str, allowed: Pass) -> None:
        self._tags = count(1)
        self._answers: list[tuple[list[int], object]] = []
        self._replies: list[bytes] = []
        self._attached: set[str] = set()
        endpoint = allowed.endpoint
        self._socket = socket.create_connection((endpoint.host, endpoint.port), ANSWER_WAIT_S)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls:
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=endpoint.host)
            name = f"busway-pipeline-{uuid4()}"
            self._engine = Connection(
                ConnectionSettings(container_id=name, hostname=endpoint.host), role=Role.CLIENT
            )
            self._engine.open()
            self._session = self._engine.begin()
            self._show_pass(entity, allowed)
            self._link = self._session.attach(
                name, LinkRole.SENDER, source=Source(name), target=Target(entity)
            )
            self._until(lambda: self._link.name in self._attached and self._link.credit > 0)
        except BaseException:
            self._socket.close()
            raise

    @property
    def credit(self) -> int:
        return self._link.credit

    def send(self, message: bytes) -> int:
        return self._link.send(message, next(self._tags).to_bytes(8, "big"))

    def exchange(self) -> list[tuple[list[int], object]]:
        """Write what waits, read what comes; the answers to deliveries among it."""
        self._turn()
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        try:
            self._engine.close()
            self._socket.settimeout(1.0)
            self._socket.sendall(self._engine.take_output())
        except OSError as problem:
            log.debug("left without a word: %s", problem)
        finally:
            self._socket.close()

    # --- its beginning ---------------------------------------------------------------------------

    def _show_pass(self, entity: str, allowed: Pass) -> None:
        """Put the token where brokers look for it (amqp.md 5)."""
        replies = self._session.attach(
            "cbs-replies", LinkRole.RECEIVER, source=Source("$cbs"), target=Target("cbs-replies")
        )
        requests = self._session.attach(
            "cbs-requests", LinkRole.SENDER, source=Source("cbs-requests"), target=Target("$cbs")
        )
        self._until(lambda: {"cbs-replies", "cbs-requests"} <= self._attached)
        replies.set_credit(1)
        self._until(lambda: requests.credit > 0)
        audience = f"sb://{allowed.endpoint.host}/{entity}"
        requests.send(
            encode_message(
                properties=Properties(message_id="pass", reply_to="cbs-replies"),
                application_properties={
                    "operation": "put-token",
                    "type": TOKEN_TYPE,
                    "name": audience,
                },
                body=allowed.token,
            ),
            b"pass",
        )
        self._until(lambda: bool(self._replies))
        told = read_application_properties(self._replies.pop())
        status = int(told.get("status-code", 0))
        if status not in (200, ACCEPTED_STATUS):
            raise SendError(
                f"The broker does not let this key send to '{entity}': "
                f"{told.get('status-description', status)}"
            )

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWER_WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise _Broken("the broker does not answer")
            self._turn()

    # --- bytes and events ------------------------------------------------------------------------

    def _turn(self) -> None:
        output = self._engine.take_output()
        if output:
            self._socket.sendall(output)
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise _Broken("the broker has closed the connection")
        for event in self._engine.receive(data):
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Attached(link=link):
                self._attached.add(link.name)
            case Disposed(link=link, delivery_ids=delivery_ids, state=state):
                if link.name != "cbs-requests":
                    self._answers.append((delivery_ids, state))
            case TransferReceived(link=link, delivery_id=delivery_id, payload=payload):
                self._replies.append(payload)
                link.settle([delivery_id], Accepted())
            case Detached(link=link, error=error):
                self._ended(link, error)
            case Closed(error=error):
                raise _Broken(_text(error))

    def _ended(self, link: Link, error: Error | None) -> None:
        if error is not None and error.condition not in RETRYABLE:
            raise SendError(_text(error))
        raise _Broken(_text(error) if error is not None else f"the link {link.name} has ended")


def _text(error: Error | None) -> str:
    if error is None:
        return "no reason was given"
    return str(error.description or error.condition)
