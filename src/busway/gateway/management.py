"""`$management`: requests about an entity's messages (management-amqp.md).

One table says what may be asked, which right it takes and who answers; what is still to come is in
it without an answerer, and answers *not implemented*. Replies have the exact AMQP types that the
client libraries test for (section 3): arrays where they want arrays, lists where they want lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from busway.amqp.types import Array, Int, Symbol, Timestamp
from busway.broker.locks import token_partition
from busway.gateway import envelope, settlement
from busway.gateway.auth import Right
from busway.gateway.peek import PeekWalk
from busway.gateway.requests import Request
from busway.gateway.router import kind_of
from busway.model.entities import Queue
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    NUMBERS_OF_SEVERAL_PARTITIONS,
    RECEIVE_DISABLED,
    SERVER_BUSY,
    UNAUTHORIZED,
    BusError,
)
from busway.model.message import Message, partition_of
from busway.store.base import SubQueueKey

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

SERVER_TIMEOUT_DEFAULT_MS = 60_000
SERVER_TIMEOUT_MAX_MS = 24 * 60 * 60_000
TOKENS_PER_REQUEST_MAX = 1_000
"""Lock tokens or sequence numbers; SDKs send one, or a handful."""


@dataclass(slots=True)
class Call:
    """A request that passed its checks: what it is about, and its body."""

    gateway: Gateway
    request: Request
    queue: Queue
    arguments: dict[str, Any]

    def key(self, partition: int) -> SubQueueKey:
        return SubQueueKey(self.queue.incarnation, partition, kind_of(self.request.address))

    def succeed(self, body: dict[str, Any], status: int = 200) -> None:
        self.request.answer(_status(status, "OK" if status == 200 else "NoContent"), body)

    def fail(self, error: BusError) -> None:
        self.gateway.management.refuse(self.request, error)

    # Arguments, of whatever integer or text type they are.

    def integer(self, name: str) -> int:
        value = self.arguments.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BusError(ARGUMENT_ERROR, detail=f"'{name}' is missing or not an integer.")
        return int(value)

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
            if partition is None or partition >= len(self.queue.placement):
                raise BusError(LOCK_LOST)
            by_partition.setdefault(partition, []).append(octets)
        return by_partition


# --- The operations ------------------------------------------------------------------------------


def renew_lock(call: Call) -> None:
    """4.1. LOCK-3; SDKs send one token at a time."""
    expirations: dict[bytes, int] = {}
    for partition, tokens in call.lock_tokens().items():
        owner = call.gateway.router.available_owner(call.queue, partition)
        expirations.update(zip(tokens, owner.renew(call.key(partition), tokens), strict=True))
    asked = [token.bytes_le for token in call.items("lock-tokens", UUID)]
    times = [Timestamp(expirations[token]) for token in asked]
    call.succeed({"expirations": Array(times, Timestamp)})


def peek_message(call: Call) -> None:
    """4.2, D-26."""
    count = call.integer("message-count")
    if count <= 0:
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'message-count' must be above 0.")
    omit_body = bool(call.arguments.get("omit-message-body"))
    start = max(call.integer("from-sequence-number"), 0)

    def done(messages: list[Message]) -> None:
        encoded = [
            {
                "message": envelope.encode_peeked(
                    each, partitioned=call.queue.enable_partitioning, omit_body=omit_body
                )
            }
            for each in messages
        ]
        call.succeed({"messages": encoded} if encoded else {}, 200 if encoded else 204)

    PeekWalk(call.gateway.router, call.queue, kind_of(call.request.address), count, done).walk(
        start
    )


def receive_by_sequence_number(call: Call) -> None:
    """4.5, DEF-2 to DEF-4, DEF-7: all of them, locked or removed, or none."""
    numbers = [int(number) for number in call.items("sequence-numbers", int)]
    mode = call.integer("receiver-settle-mode")
    if mode not in (0, 1):
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'receiver-settle-mode' must be 0 or 1.")
    partitions = {partition_of(number) for number in numbers}
    if len(partitions) > 1:
        raise BusError(NUMBERS_OF_SEVERAL_PARTITIONS, uri=call.queue.path)
    partition = partitions.pop()
    if not 0 <= partition < len(call.queue.placement):
        raise BusError(MESSAGE_NOT_FOUND)
    owner = call.gateway.router.available_owner(call.queue, partition)
    key, delete = call.key(partition), mode == 0

    def done(outcome: list[Message] | BusError) -> None:
        if isinstance(outcome, BusError):
            call.fail(outcome)
        elif delete:
            call.succeed({"messages": [_removed(each, call.queue) for each in outcome]})
        elif call.request.answered:
            # Too late: the client was told that it timed out, so it must not hold locks.
            for each in outcome:
                assert each.lock_token is not None
                owner.settle(key, each.lock_token, settlement.RELEASE, settlement.UNANSWERED, 0)
        else:
            call.succeed({"messages": [_locked(each, call.queue) for each in outcome]})

    owner.receive_deferred(key, numbers, delete, done)


def _removed(message: Message, queue: Queue) -> dict[str, Any]:
    return {"message": envelope.encode(message, partitioned=queue.enable_partitioning)}


def _locked(message: Message, queue: Queue) -> dict[str, Any]:
    assert message.lock_token is not None
    # Go reads the token from the delivery annotation only, the others from the map.
    return {
        "message": envelope.encode_deferred(message, partitioned=queue.enable_partitioning),
        "lock-token": UUID(bytes_le=message.lock_token),
    }


def update_disposition(call: Call) -> None:
    """4.6. Tokens are valid for the whole entity, whichever link they came by (LOCK-6)."""
    status = str(call.arguments.get("disposition-status", ""))
    kind = settlement.DISPOSITION_STATUSES.get(status.lower())
    if kind is None:
        raise BusError(ARGUMENT_ERROR, detail=f"'{status}' is not a disposition-status.")
    arguments = call.arguments
    decision = settlement.from_status(
        kind,
        arguments.get("deadletter-reason"),
        arguments.get("deadletter-description"),
        arguments.get("properties-to-modify"),
    )
    by_partition = call.lock_tokens()
    router = call.gateway.router
    # Nothing is settled unless everything can be handed over.
    owners = {
        partition: router.available_owner(call.queue, partition) for partition in by_partition
    }
    replies = Settling(call, sum(len(tokens) for tokens in by_partition.values()))
    for partition, tokens in by_partition.items():
        for token in tokens:
            owners[partition].settle(call.key(partition), token, decision, replies, 0)


class Settling:
    """Waits for every token of one update-disposition; the first failure is the answer."""

    def __init__(self, call: Call, count: int) -> None:
        self._call = call
        self._open = count
        self._error: BusError | None = None

    def committed(self, tags: list[int]) -> None:
        self._answered(len(tags))

    def failed(self, tag: int, error: BusError) -> None:
        self._error = self._error or error
        self._answered(1)

    def _answered(self, count: int) -> None:
        self._open -= count
        if self._open == 0:
            if self._error is not None:
                self._call.fail(self._error)
            else:
                self._call.succeed({})


@dataclass(frozen=True, slots=True)
class Operation:
    right: Right
    answer: Callable[[Call], None] | None = None
    """None: known, and not implemented yet."""


OPERATIONS: dict[str, Operation] = {
    "com.microsoft:renew-lock": Operation(Right.LISTEN, renew_lock),
    "com.microsoft:peek-message": Operation(Right.LISTEN, peek_message),
    "com.microsoft:receive-by-sequence-number": Operation(Right.LISTEN, receive_by_sequence_number),
    "com.microsoft:update-disposition": Operation(Right.LISTEN, update_disposition),
    "com.microsoft:schedule-message": Operation(Right.SEND),
    "com.microsoft:cancel-scheduled-message": Operation(Right.SEND),
    "com.microsoft:batch-delete-messages": Operation(Right.LISTEN),
    "com.microsoft:renew-session-lock": Operation(Right.LISTEN),
    "com.microsoft:set-session-state": Operation(Right.LISTEN),
    "com.microsoft:get-session-state": Operation(Right.LISTEN),
    "com.microsoft:get-message-sessions": Operation(Right.LISTEN),
    "com.microsoft:add-rule": Operation(Right.MANAGE),
    "com.microsoft:remove-rule": Operation(Right.MANAGE),
    "com.microsoft:enumerate-rules": Operation(Right.LISTEN),
}

UNKNOWN = Operation(Right.NONE)


class ManagementService:
    """Serves the `$management` nodes of all entities."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def serve(self, request: Request) -> None:
        now_ms = self._gateway.host.now_ms()
        try:
            request.timeout_ms = _server_timeout_ms(request)
            request.deadline_ms = now_ms + request.timeout_ms
            operation = OPERATIONS.get(request.operation, UNKNOWN)
            call = self._check(request, operation, now_ms)
            assert operation.answer is not None
            operation.answer(call)
            if not request.answered:
                self._gateway.await_answer(request)
        except BusError as error:
            self.refuse(request, error)

    def refuse(self, request: Request, error: BusError) -> None:
        properties = _status(error.kind.status, self._gateway.describe(error))
        properties["errorCondition"] = Symbol(error.condition)
        request.answer(properties, {})

    def _check(self, request: Request, operation: Operation, now_ms: int) -> Call:
        address, connection = request.address, request.connection
        if not connection.tokens.allow(address, operation.right, now_ms):
            claim = operation.right.name or "Listen"
            raise BusError(UNAUTHORIZED, claim=claim.title(), uri=str(address))
        if operation.answer is None or request.state is not None:
            raise BusError(NOT_IMPLEMENTED, operation=request.operation or "(none)")
        queue = self._gateway.find_queue(address)
        if queue is None:
            raise BusError(NOT_FOUND, uri=connection.uri(address))
        if Right.LISTEN in operation.right and not queue.status.can_receive:
            raise BusError(RECEIVE_DISABLED, uri=connection.uri(address))
        if connection.requests_open >= connection.gateway.settings.requests_open_max:
            raise BusError(SERVER_BUSY)
        if not isinstance(request.body, dict):
            raise BusError(ARGUMENT_ERROR, detail="The request has no map as its body.")
        return Call(self._gateway, request, queue, request.body)


def _server_timeout_ms(request: Request) -> int:
    for name in ("com.microsoft:server-timeout", "server-timeout"):
        value = request.properties.get(name)
        if isinstance(value, int) and value > 0:
            return min(int(value), SERVER_TIMEOUT_MAX_MS)
    return SERVER_TIMEOUT_DEFAULT_MS


def _status(code: int, description: str) -> dict[str, Any]:
    return {"statusCode": Int(code), "statusDescription": description}
