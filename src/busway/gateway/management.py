"""`$management`: requests about an entity's messages (management-amqp.md).

One table says what may be asked, which right it takes and who answers. Replies have the exact AMQP
types that the client libraries test for (section 3): arrays where they want arrays, lists where
they want lists.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from busway.amqp.performatives import TransactionalState
from busway.amqp.types import Symbol
from busway.gateway import message_operations as messages
from busway.gateway import rule_operations as rules
from busway.gateway import session_operations as sessions
from busway.gateway.auth import Right
from busway.gateway.calls import Call, status_of
from busway.gateway.requests import Request
from busway.model.entities import Topic
from busway.model.errors import (
    ARGUMENT_ERROR,
    INVALID_OPERATION,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RECEIVE_DISABLED,
    SERVER_BUSY,
    UNAUTHORIZED,
    BusError,
)

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

SERVER_TIMEOUT_DEFAULT_MS = 60_000
SERVER_TIMEOUT_MAX_MS = 24 * 60 * 60_000


class InTransactions(Enum):
    """What an operation is that comes with the state of a transaction (TXN-1). .NET marks nearly
    every request so that is made inside a `TransactionScope`."""

    OUTSIDE = "done as if there were none: it changes nothing, or nothing that can be taken back"
    PART = "part of it: a rollback undoes it"
    REFUSED = "refused: it cannot be undone, and who asks expects that"


@dataclass(frozen=True, slots=True)
class Operation:
    right: Right
    answer: Callable[[Call], None] | None
    in_transactions: InTransactions = InTransactions.OUTSIDE


PART, REFUSED = InTransactions.PART, InTransactions.REFUSED

OPERATIONS: dict[str, Operation] = {
    "renew-lock": Operation(Right.LISTEN, messages.renew_lock),
    "peek-message": Operation(Right.LISTEN, messages.peek_message),
    "receive-by-sequence-number": Operation(Right.LISTEN, messages.receive_by_sequence_number),
    "update-disposition": Operation(Right.LISTEN, messages.update_disposition, PART),
    "schedule-message": Operation(Right.SEND, messages.schedule_message, PART),
    "cancel-scheduled-message": Operation(Right.SEND, messages.cancel_scheduled_message, PART),
    "batch-delete-messages": Operation(Right.LISTEN, messages.batch_delete_messages, REFUSED),
    "renew-session-lock": Operation(Right.LISTEN, sessions.renew_session_lock),
    "set-session-state": Operation(Right.LISTEN, sessions.set_session_state, PART),
    "get-session-state": Operation(Right.LISTEN, sessions.get_session_state),
    "get-message-sessions": Operation(Right.LISTEN, sessions.get_message_sessions),
    "add-rule": Operation(Right.MANAGE, rules.add_rule, PART),
    "remove-rule": Operation(Right.MANAGE, rules.remove_rule, PART),
    # Manage, says the service; clients that only listen may look (amqp.md 18).
    "enumerate-rules": Operation(Right.LISTEN, rules.enumerate_rules),
}
"""By name, without the `com.microsoft:` in front."""

UNKNOWN = Operation(Right.NONE, None)


class ManagementService:
    """Serves the `$management` nodes of all entities."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def serve(self, request: Request) -> None:
        now_ms = self._gateway.host.now_ms()
        try:
            request.timeout_ms = _server_timeout_ms(request)
            request.deadline_ms = now_ms + request.timeout_ms
            name = request.operation.removeprefix("com.microsoft:")
            operation = OPERATIONS.get(name, UNKNOWN)
            call = self._check(request, operation)
            assert operation.answer is not None
            with nullcontext() if call.transaction is None else call.transaction.operation():
                operation.answer(call)
            if not request.answered:
                self._gateway.await_answer(request)
        except BusError as error:
            self.refuse(request, error)

    def refuse(self, request: Request, error: BusError) -> None:
        properties = status_of(error.kind.status, self._gateway.describe(error))
        properties["errorCondition"] = Symbol(error.condition)
        request.answer(properties, {})

    def _check(self, request: Request, operation: Operation) -> Call:
        address, connection = request.address, request.connection
        clock_ms = self._gateway.host.clock_ms()
        if not connection.tokens.allow(address, operation.right, clock_ms):
            claim = operation.right.name or "Listen"
            raise BusError(UNAUTHORIZED, claim=claim.title(), uri=str(address))
        if operation.answer is None:
            raise BusError(NOT_IMPLEMENTED, operation=request.operation or "(none)")
        transaction = None
        if isinstance(request.state, TransactionalState):
            if operation.in_transactions is InTransactions.REFUSED:
                raise BusError(
                    INVALID_OPERATION,
                    detail=f"'{request.operation}' cannot be part of a transaction, because it "
                    "cannot be undone. Ask for it outside of one.",
                )
            if operation.in_transactions is InTransactions.PART:
                transaction = connection.transaction(request.state.txn_id)
        entity = self._gateway.find(address)
        if entity is None:
            raise BusError(NOT_FOUND, uri=connection.uri(address))
        if (
            Right.LISTEN in operation.right
            and not isinstance(entity, Topic)
            and not entity.status.can_receive
        ):
            raise BusError(RECEIVE_DISABLED, uri=connection.uri(address))
        if connection.requests_open >= connection.gateway.settings.requests_open_max:
            raise BusError(SERVER_BUSY)
        if not isinstance(request.body, dict):
            raise BusError(ARGUMENT_ERROR, detail="The request has no map as its body.")
        self._gateway.idle.used(entity)  # PEEK-4
        return Call(self._gateway, request, entity, request.body, transaction)


def _server_timeout_ms(request: Request) -> int:
    for name in ("com.microsoft:server-timeout", "server-timeout"):
        value = request.properties.get(name)
        if isinstance(value, int) and value > 0:
            return min(int(value), SERVER_TIMEOUT_MAX_MS)
    return SERVER_TIMEOUT_DEFAULT_MS
