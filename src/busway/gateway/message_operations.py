"""`$management` operations on messages (management-amqp.md 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from busway.amqp.errors import ProtocolError
from busway.amqp.types import Array, Int, Timestamp
from busway.gateway import envelope, sends, settlement
from busway.gateway.batch_reading import BatchReading, memory_of
from busway.gateway.calls import Call, Collected
from busway.gateway.partition_turns import OtherTurns
from busway.gateway.peek import PeekWalk
from busway.gateway.router import Owner
from busway.model.entities import Queue
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    CANCEL_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    NUMBERS_OF_SEVERAL_PARTITIONS,
    SEND_DISABLED,
    SESSION_LOCK_LOST,
    BusError,
)
from busway.model.limits import TIERS
from busway.model.message import Message, partition_of
from busway.model.partitioning import partition_of_key
from busway.model.session_ids import session_key

if TYPE_CHECKING:
    from busway.gateway.transactions import OpenTransaction

# --- 4.1, LOCK-3 ---------------------------------------------------------------------------------


def renew_lock(call: Call) -> None:
    """SDKs send one token at a time."""
    expirations: dict[bytes, int] = {}
    for partition, tokens in call.lock_tokens().items():
        owner = call.gateway.router.available_owner(call.holder, partition)
        expirations.update(zip(tokens, owner.renew(call.key(partition), tokens), strict=True))
    asked = [token.bytes_le for token in call.items("lock-tokens", UUID)]
    times = [Timestamp(expirations[token]) for token in asked]
    call.succeed({"expirations": Array(times, Timestamp)})


# --- 4.2, D-26 -----------------------------------------------------------------------------------


def peek_message(call: Call) -> None:
    count = call.integer("message-count")
    if count <= 0:
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'message-count' must be above 0.")
    omit_body = bool(call.arguments.get("omit-message-body"))
    start = max(call.integer("from-sequence-number"), 0)
    origin = envelope.Origin(call.entity, call.request.address.sub_queue)

    def done(messages: list[Message]) -> None:
        encoded = [
            {"message": envelope.encode_peeked(each, origin, omit_body=omit_body)}
            for each in messages
        ]
        call.succeed({"messages": encoded} if encoded else {}, 200 if encoded else 204)

    session_id = call.text("session-id")
    if session_id is None and call.has_sessions:
        held = call.held_session()  # Go names no session but the link that holds it
        session_id = None if held is None else held.session_id
    if session_id is not None:
        session_id = session_key(call.entity, session_id)
    walk = PeekWalk(call.gateway.router, call.entity, call.request.address.sub_queue, count, done)
    only = None
    if session_id is not None and isinstance(call.entity, Queue):
        # Copies of a topic may have got another session id by an action (RUL-7), and stay where
        # they are: those are looked for everywhere.
        only = partition_of_key(session_id, len(call.entity.placement))
    walk.within(session_id, only).walk(start)


# --- 4.3, SCH-1, SCH-2 ---------------------------------------------------------------------------


def schedule_message(call: Call) -> None:
    """All of them or none; what is scheduled for the past is there at once."""
    entity = call.destination
    if not entity.status.can_send:  # SCH-8
        raise BusError(SEND_DISABLED, uri=call.request.connection.uri(call.request.address))
    payloads = [_payload(call, each) for each in call.items("messages", dict)]
    host = call.gateway.host
    if call.transaction is not None:
        call.transaction.check_count(len(payloads))
        try:
            keyed = [envelope.keyed(each, entity, host) for each in payloads]
        except ProtocolError as error:
            raise _unreadable(error) from error
        call.transaction.schedule(entity, keyed)
        call.succeed(_numbers([message for message, _, _ in keyed]))
        return
    envelope.check_count(len(payloads), call.gateway.batch_max_messages)
    size = memory_of(sum(len(payload) for payload in payloads), len(payloads))

    def all_read(ones: list[envelope.One]) -> None:
        def done(error: BusError | None) -> None:
            if error is not None:
                call.fail(error)
            else:
                call.succeed(_numbers([message for message, _, _ in ones]))

        try:
            sends.dispatch(call.gateway, entity, envelope.parts_of(ones, entity), size, done)
        except BusError as error:
            call.fail(error)

    def refuse(error: BusError | ProtocolError) -> None:
        call.fail(error if isinstance(error, BusError) else _unreadable(error))

    reading = BatchReading(
        payloads,
        lambda payload: envelope.read_one(payload, entity, host),
        all_read,
        refuse,
        is_void=lambda: call.request.answered,
        dropped=lambda: None,
        slice_messages=call.gateway.settings.slice_messages,
    )
    if not reading.advance():
        call.request.connection.begin(reading)


def _unreadable(error: ProtocolError) -> BusError:
    return BusError(ARGUMENT_ERROR, detail=f"A message cannot be read: {error}")


def _payload(call: Call, item: dict[str, Any]) -> bytes:
    payload = item.get("message")
    if not isinstance(payload, bytes):
        raise BusError(ARGUMENT_ERROR, detail="An element of 'messages' has no 'message'.")
    limit = call.destination.max_message_size_bytes
    if len(payload) > limit:
        raise envelope.too_large(len(payload), limit)
    return payload


def _numbers(messages: list[Message]) -> dict[str, Any]:
    return {"sequence-numbers": Array([message.number for message in messages], int)}


# --- 4.4, SCH-2 ----------------------------------------------------------------------------------


def cancel_scheduled_message(call: Call) -> None:
    """All of them or none; SDKs cancel what they scheduled together."""
    entity = call.destination
    by_partition: dict[int, list[int]] = {}
    for number in call.items("sequence-numbers", int):
        by_partition.setdefault(partition_of(int(number)), []).append(int(number))
    for partition, numbers in by_partition.items():
        if not 0 <= partition < len(entity.placement):
            raise _not_cancelled(numbers)
    owners = {
        partition: call.gateway.router.available_owner(entity, partition)
        for partition in by_partition
    }
    if call.transaction is not None:
        _cancel_in_transaction(call, call.transaction, by_partition, owners)
        return

    def cancel() -> None:
        collected = Collected(call, len(by_partition))
        for partition, numbers in by_partition.items():
            owners[partition].cancel_scheduled(call.key(partition), numbers, collected.done)

    if len(by_partition) == 1:
        cancel()
        return
    # No commit spans partitions, so first everybody is asked whether all are there. Only one that
    # becomes active between that and its cancel can leave others cancelled without it.
    missing = MissingNumbers(len(by_partition), cancel, call.fail)
    for partition, numbers in by_partition.items():
        owners[partition].missing_scheduled(call.key(partition), numbers, missing.answered)


def _cancel_in_transaction(
    call: Call,
    transaction: OpenTransaction,
    by_partition: dict[int, list[int]],
    owners: dict[int, Owner],
) -> None:
    """Done at the discharge. That one is not there is said now, and again if it goes meanwhile."""
    for partition, numbers in by_partition.items():
        transaction.cancel(call.destination, call.key(partition), numbers)

    def refuse(error: BusError) -> None:
        transaction.refuse(error)
        call.fail(error)

    there = MissingNumbers(len(by_partition), lambda: call.succeed({}), refuse)
    for partition, numbers in by_partition.items():
        owners[partition].missing_scheduled(call.key(partition), numbers, there.answered)


class MissingNumbers:
    """Asks several partitions, and goes on if none of them misses a number."""

    def __init__(
        self, count: int, go_on: Callable[[], None], fail: Callable[[BusError], None]
    ) -> None:
        self._open = count
        self._go_on = go_on
        self._fail = fail
        self._missing: list[int] = []
        self._error: BusError | None = None

    def answered(self, outcome: list[int] | BusError) -> None:
        self._open -= 1
        if isinstance(outcome, BusError):
            self._error = outcome
        else:
            self._missing += outcome
        if self._open == 0:
            if self._error is None and self._missing:
                self._error = _not_cancelled(sorted(self._missing))
            if self._error is None:
                self._go_on()
            else:
                self._fail(self._error)


def _not_cancelled(numbers: list[int]) -> BusError:
    return BusError(CANCEL_NOT_FOUND, numbers=",".join(str(each) for each in numbers))


# --- 4.5, DEF-2 to DEF-5, DEF-7 ------------------------------------------------------------------


def receive_by_sequence_number(call: Call) -> None:
    """All of them, locked or removed, or none."""
    holder = call.holder
    numbers = [int(number) for number in call.items("sequence-numbers", int)]
    mode = call.integer("receiver-settle-mode")
    if mode not in (0, 1):
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'receiver-settle-mode' must be 0 or 1.")
    session = call.session() if call.has_sessions else None
    partitions = {partition_of(number) for number in numbers}
    if len(partitions) > 1:
        raise BusError(NUMBERS_OF_SEVERAL_PARTITIONS, uri=holder.path)
    partition = partitions.pop()
    if not 0 <= partition < len(holder.placement):
        raise BusError(MESSAGE_NOT_FOUND)
    owner = call.gateway.router.available_owner(holder, partition)
    key, delete = call.key(partition), mode == 0
    origin = envelope.Origin(holder, key.kind)
    if session is not None and session.key != key:
        raise BusError(MESSAGE_NOT_FOUND)

    def done(outcome: list[Message] | BusError) -> None:
        if isinstance(outcome, BusError):
            call.fail(outcome)
        elif delete:
            encoded = [envelope.encode(each, origin) for each in outcome]
            call.succeed({"messages": [{"message": each} for each in encoded]})
        elif call.request.answered:
            # Too late: the client was told that it timed out, so it must not hold locks.
            settlement.hand_back(call.gateway.router, holder, key, outcome)
        else:
            call.succeed({"messages": [_locked(each, origin) for each in outcome]})

    owner.receive_deferred(key, numbers, delete, done, session)


def _locked(message: Message, origin: envelope.Origin) -> dict[str, Any]:
    assert message.lock_token is not None
    # Go reads the token from the delivery annotation only, the others from the map.
    return {
        "message": envelope.encode_locked(message, origin),
        "lock-token": UUID(bytes_le=message.lock_token),
    }


# --- 4.6, LOCK-6 ---------------------------------------------------------------------------------


def update_disposition(call: Call) -> None:
    """Tokens are valid for the whole entity, whichever link they came by."""
    holder = call.entity
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
    if call.has_sessions and call.text("session-id") is not None and call.held_session() is None:
        raise BusError(SESSION_LOCK_LOST)
    if call.transaction is not None:
        for partition, tokens in by_partition.items():
            for token in tokens:
                call.transaction.settle(holder, call.key(partition), token, decision)
        call.succeed({})
        return
    router = call.gateway.router
    # Nothing is settled unless everything can be handed over.
    owners = {partition: router.available_owner(holder, partition) for partition in by_partition}
    replies = Collected(call, sum(len(tokens) for tokens in by_partition.values()), lost=call.lost)
    for partition, tokens in by_partition.items():
        for token in tokens:
            owners[partition].settle(call.key(partition), token, decision, replies, 0)


# --- 4.7, LIM-14 ---------------------------------------------------------------------------------


def batch_delete_messages(call: Call) -> None:
    """Also on partitioned entities, where the service refuses it: partition after partition, those
    first whose turn it is, so that many small ones empty all partitions alike."""
    holder = call.holder
    count = call.integer("message-count")
    if count <= 0:
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'message-count' must be above 0.")
    limit = TIERS[call.gateway.catalog.namespace.tier].batch_delete_max_messages
    before_ms = call.integer("enqueued-time-utc", call.gateway.host.now_ms() + 1)
    session_id = call.text("session-id")
    if session_id is not None:
        session_id = session_key(holder, session_id)
    BatchDelete(call, holder, min(count, limit), before_ms, session_id).go_on()


class BatchDelete:
    """One on its way through the partitions; one that is ill is passed over."""

    def __init__(
        self, call: Call, entity: Any, count: int, before_ms: int, session_id: str | None
    ) -> None:
        self._call = call
        self._entity = entity
        self._left = count
        self._before_ms = before_ms
        self._session_id = session_id
        self._deleted = 0
        self._turns = call.gateway.partition_turns
        self._ahead = list(self._turns.order(entity, OtherTurns.DELETIONS))
        self._partition = -1
        self._error: BusError | None = None

    def go_on(self) -> None:
        owner = self._next_owner()
        if owner is None:
            if self._deleted == 0 and self._error is not None:
                self._call.fail(self._error)
            else:
                status = 200 if self._deleted else 204
                self._call.succeed({"message-count": Int(self._deleted)}, status)
            return
        owner.delete_batch(
            self._call.key(self._partition),
            self._left,
            self._before_ms,
            self._session_id,
            self._answered,
        )

    def _next_owner(self) -> Owner | None:
        while self._left > 0 and self._ahead:
            self._partition = self._ahead.pop(0)
            self._turns.asked(self._entity, OtherTurns.DELETIONS, self._partition)
            try:
                return self._call.gateway.router.available_owner(self._entity, self._partition)
            except BusError as error:
                self._error = error
        return None

    def _answered(self, outcome: int | BusError) -> None:
        if isinstance(outcome, BusError):
            self._error = outcome
        else:
            self._deleted += outcome
            self._left -= outcome
        self.go_on()
