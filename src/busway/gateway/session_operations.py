"""`$management` operations on sessions (management-amqp.md 5, SES-10, SES-11).

Who holds a session is known by the connection: its lock, or the link that the request names.
"""

from __future__ import annotations

import logging

from busway.amqp.types import Array, Int, Symbol, Timestamp
from busway.gateway.calls import Call, Collected, status_of
from busway.gateway.router import Owner
from busway.model.entities import Queue, Subscription, Topic
from busway.model.errors import (
    ARGUMENT_ERROR,
    ARGUMENT_OUT_OF_RANGE,
    MESSAGE_SIZE_EXCEEDED,
    NOT_FOUND,
    SESSION_LOCK_LOST,
    SESSION_NOT_FOUND,
    BusError,
)

log = logging.getLogger("busway.gateway")

LISTING_FROM_MS = 253_402_300_800_000
"""The year 10000: at or above it, sessions with messages or a state are listed (5.4)."""


def renew_session_lock(call: Call) -> None:
    lock = call.session()
    until_ms = _owner(call).renew_session(lock)
    call.succeed({"expiration": Timestamp(until_ms)})


def set_session_state(call: Call) -> None:
    lock = call.session()
    state = call.arguments.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise BusError(ARGUMENT_ERROR, detail="'session-state' is neither binary nor null.")
    limit = _state_bytes_max(call)
    if state is not None and len(state) > limit:  # LIM-13
        raise BusError(MESSAGE_SIZE_EXCEEDED, delivery_id=0, size_bytes=len(state), max_bytes=limit)
    if call.transaction is not None:
        call.transaction.set_session_state(call.entity, lock, state)
        call.succeed({})
    else:
        _owner(call).set_session_state(lock, state, Collected(call, 1), 0)


def _state_bytes_max(call: Call) -> int:
    """As large as a message of the queue, or of the subscription's topic."""
    entity = call.gateway.catalog.get(call.holder.incarnation)
    if isinstance(entity, Subscription):
        entity = call.gateway.catalog.get(entity.topic_incarnation)
    if not isinstance(entity, Queue | Topic):
        raise BusError(NOT_FOUND, uri=call.entity.path)
    return entity.max_message_size_bytes


def get_session_state(call: Call) -> None:
    lock = call.session()

    def done(outcome: bytes | BusError | None) -> None:
        if isinstance(outcome, BusError):
            call.fail(outcome)
        else:
            # The key is always there: Java and JS look for it without asking.
            call.succeed({"session-state": outcome})

    _owner(call).session_state(lock, done)


def get_message_sessions(call: Call) -> None:
    """5.4: of all partitions, in the order of their ids, so that paging by `skip` is stable.

    Who names the last one that it has, as Java does, gets those behind it, however many were
    there when it began; the `skip` that comes along says the same less well.
    """
    updated_ms = call.integer("last-updated-time", LISTING_FROM_MS)
    skip, top = call.integer("skip", 0), call.integer("top", 100)
    if skip < 0 or top <= 0:
        raise BusError(ARGUMENT_OUT_OF_RANGE, detail="'skip' or 'top' is out of range.")
    after_ms = None if updated_ms >= LISTING_FROM_MS else updated_ms
    found: set[str] = set()
    for partition in range(len(call.holder.placement) if call.has_sessions else 0):
        try:
            owner = call.gateway.router.available_owner(call.entity, partition)
            found.update(owner.sessions(call.key(partition), after_ms))
        except BusError as error:
            log.warning("sessions of partition %d are not listed: %s", partition, error)
    last = call.text("last-session-id")
    if last is None:
        page = sorted(found)[skip : skip + top]
    else:
        page = sorted(each for each in found if each > last)[:top]
    if page:
        ids = Array(page, str)
        call.succeed({"skip": Int(skip + len(page)), "sessions-ids": ids})
    else:
        nothing = BusError(SESSION_NOT_FOUND, uri=call.entity.path)
        properties = status_of(204, nothing.text)
        properties["errorCondition"] = Symbol(nothing.condition)
        call.request.answer(properties, {})


def _owner(call: Call) -> Owner:
    lock = call.session()
    owner = call.gateway.router.owner(call.entity, lock.key.partition)
    if owner is None:
        raise BusError(SESSION_LOCK_LOST)
    return owner
