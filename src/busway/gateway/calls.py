"""A `$management` request that passed its checks, as operations see it (management-amqp.md 3).

Arguments come in whatever integer, text or array type a client library chose; replies have the
exact types that they test for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from busway.amqp.types import Int
from busway.broker.locks import token_partition
from busway.broker.seams import SessionLock
from busway.gateway.requests import Request
from busway.gateway.router import Destination
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    INVALID_OPERATION,
    LOCK_LOST,
    SEND_TO_SUB_QUEUE,
    SESSION_LOCK_LOST,
    BusError,
    ErrorKind,
)
from busway.model.names import SubQueueKind
from busway.store.base import SubQueueKey

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway
    from busway.gateway.transactions import OpenTransaction

TOKENS_PER_REQUEST_MAX = 1_000
"""Lock tokens, sequence numbers or messages; SDKs send one, or a handful."""


@dataclass(slots=True)
class Call:
    """What a request is about, and its body."""

    gateway: Gateway
    request: Request
    entity: Entity
    arguments: dict[str, Any]
    transaction: OpenTransaction | None = None
    """The one that it is part of."""

    def key(self, partition: int) -> SubQueueKey:
        return SubQueueKey(self.entity.incarnation, partition, self.request.address.sub_queue)

    def succeed(self, body: dict[str, Any], status: int = 200) -> None:
        self.request.answer(status_of(status, "OK" if status == 200 else "NoContent"), body)

    def fail(self, error: BusError) -> None:
        self.gateway.management.refuse(self.request, error)

    # What it is asked of.

    @property
    def holder(self) -> Queue | Subscription:
        """The entity, where it must be one that holds messages for receivers."""
        if isinstance(self.entity, Topic):
            raise BusError(
                INVALID_OPERATION,
                detail=f"'{self.request.operation}' is not an operation of a topic. Ask one of its "
                "subscriptions.",
            )
        return self.entity

    @property
    def destination(self) -> Destination:
        """The entity, where it must be one that messages are sent to."""
        address = self.request.address
        if isinstance(self.entity, Subscription) or address.sub_queue is not SubQueueKind.MAIN:
            raise BusError(SEND_TO_SUB_QUEUE, uri=address.node)
        return self.entity

    @property
    def has_sessions(self) -> bool:
        """Whether messages here are received in sessions (SES-12)."""
        return (
            not isinstance(self.entity, Topic)
            and self.entity.requires_session
            and self.request.address.sub_queue is SubQueueKind.MAIN
        )

    def held_session(self) -> SessionLock | None:
        """The session that this connection holds and the request means: by its id, or, as Go asks,
        by the link that holds it."""
        link_name = self.request.properties.get("associated-link-name")
        return self.request.connection.session_lock(
            self.entity.incarnation,
            self.text("session-id"),
            None if link_name is None else str(link_name),
        )

    @property
    def lost(self) -> ErrorKind:
        """What a lock token is that no message has (LOCK-5): settled already, or, where messages
        are received in sessions and this connection holds none that is meant, lost with it."""
        if not self.has_sessions or self.held_session() is not None:
            return LOCK_LOST
        holds_some = self.request.connection.holds_session(self.entity.incarnation)
        return LOCK_LOST if holds_some and self.text("session-id") is None else SESSION_LOCK_LOST

    def session(self) -> SessionLock:
        lock = self.held_session()
        if lock is None or not lock.valid:
            raise BusError(SESSION_LOCK_LOST)
        return lock

    # Arguments.

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.arguments.get(name, default)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise BusError(ARGUMENT_ERROR, detail=f"'{name}' is missing or not an integer.")
        return int(value)

    def text(self, name: str) -> str | None:
        value = self.arguments.get(name)
        if value is not None and not isinstance(value, str):
            raise BusError(ARGUMENT_ERROR, detail=f"'{name}' is not a string.")
        return None if value is None else str(value)

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if not value:
            raise BusError(ARGUMENT_ERROR, detail=f"'{name}' is missing or empty.")
        return value

    def items(self, name: str, kind: type) -> list[Any]:
        """An array or a list (section 3), not empty and not endless."""
        value = self.arguments.get(name)
        if isinstance(value, kind):
            value = [value]
        if not isinstance(value, list) or not value:
            raise BusError(ARGUMENT_ERROR, detail=f"'{name}' is missing or empty.")
        if len(value) > TOKENS_PER_REQUEST_MAX:
            limit = f"'{name}' has more than {TOKENS_PER_REQUEST_MAX} elements."
            raise BusError(ARGUMENT_OUT_OF_RANGE, detail=limit)
        if not all(isinstance(each, kind) for each in value):
            raise BusError(ARGUMENT_ERROR, detail=f"'{name}' has an element of a wrong type.")
        return value

    def lock_tokens(self) -> dict[int, list[bytes]]:
        """The tokens by partition. In bodies a token is a uuid in network order (amqp.md 10)."""
        by_partition: dict[int, list[bytes]] = {}
        for token in self.items("lock-tokens", UUID):
            octets = token.bytes_le
            partition = token_partition(octets)
            if partition is None or partition >= len(self.entity.placement):
                raise BusError(self.lost)
            by_partition.setdefault(partition, []).append(octets)
        return by_partition


def status_of(code: int, description: str) -> dict[str, Any]:
    return {"statusCode": Int(code), "statusDescription": description}


class Collected:
    """Waits for the answers to several commands of one request; the first failure is the answer.

    `lost` is what it is for this client that a lock token is not known."""

    def __init__(self, call: Call, count: int, *, lost: ErrorKind = LOCK_LOST) -> None:
        self._call = call
        self._open = count
        self._lost = lost
        self._error: BusError | None = None

    def committed(self, tags: list[int]) -> None:
        self._answered(len(tags))

    def failed(self, tag: int, error: BusError) -> None:
        self._error = self._error or (BusError(self._lost) if error.kind is LOCK_LOST else error)
        self._answered(1)

    def done(self, error: BusError | None) -> None:
        """One answer of a command that says it so."""
        if error is None:
            self._answered(1)
        else:
            self.failed(0, error)

    def _answered(self, count: int) -> None:
        self._open -= count
        if self._open == 0:
            if self._error is not None:
                self._call.fail(self._error)
            else:
                self._call.succeed({})
