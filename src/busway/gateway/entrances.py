"""What an address opens: where messages can be sent to, and where they can be had from.

Links and requests ask the same questions here, after their token was looked at: is the entity
there, is it the right kind of place, is it switched on, is there room for one more receiver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.gateway.router import Destination
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import (
    ENTITY_DISABLED,
    INVALID_OPERATION,
    NOT_FOUND,
    RECEIVE_DISABLED,
    RECEIVE_FROM_TOPIC,
    SEND_DISABLED,
    SEND_TO_SUB_QUEUE,
    BusError,
    ErrorKind,
)
from busway.model.names import Address, SubQueueKind

if TYPE_CHECKING:
    from busway.gateway.gateway import Gateway

RECEIVER_ON_FORWARDING = (
    "Cannot create a message receiver on an entity with auto-forwarding enabled."
)


def entity_at(gateway: Gateway, address: Address, uri: str) -> Entity:
    """The entity that an address names or lies in; `uri` is the address in the texts of errors."""
    entity = gateway.find(address)
    if entity is None or address.sub_queue is SubQueueKind.TRANSFER:
        raise BusError(NOT_FOUND, uri=uri)
    return entity


def destination_at(gateway: Gateway, address: Address, uri: str) -> Destination:
    """The queue or topic, where messages may be sent to it."""
    entity = entity_at(gateway, address, uri)
    if address.sub_queue is not SubQueueKind.MAIN or isinstance(entity, Subscription):
        raise BusError(SEND_TO_SUB_QUEUE, uri=uri)
    return entity


def open_destination(gateway: Gateway, address: Address, uri: str) -> Destination:
    """The same, if it takes messages now."""
    entity = destination_at(gateway, address, uri)
    if not entity.status.can_send:
        raise _disabled(entity, SEND_DISABLED, uri)
    return entity


def open_source(gateway: Gateway, address: Address, uri: str) -> Entity:
    """The entity whose messages may be received now, by one more receiver (LIM-10)."""
    entity = entity_at(gateway, address, uri)
    if isinstance(entity, Topic):
        if address.sub_queue is not SubQueueKind.TRANSFER_DEAD_LETTER:
            raise BusError(RECEIVE_FROM_TOPIC, uri=uri)
    else:
        if not entity.status.can_receive:
            raise _disabled(entity, RECEIVE_DISABLED, uri)
        _check_forwarding(entity, address.sub_queue)
    gateway.receivers.check(entity, uri)
    return entity


def needs_session(entity: Entity, sub_queue: SubQueueKind) -> bool:
    """The dead-letter queue of a session entity knows no sessions (SES-12)."""
    if isinstance(entity, Topic) or sub_queue is not SubQueueKind.MAIN:
        return False
    return entity.requires_session


def _disabled(entity: Entity, partly: ErrorKind, uri: str) -> BusError:
    wholly = not entity.status.can_send and not entity.status.can_receive
    return BusError(ENTITY_DISABLED if wholly else partly, uri=uri)


def _check_forwarding(entity: Queue | Subscription, sub_queue: SubQueueKind) -> None:
    """FWD-1, DLQ-4: what is forwarded is received where it goes to."""
    forwards = {
        SubQueueKind.MAIN: entity.forward_to,
        SubQueueKind.DEAD_LETTER: entity.forward_dead_letters_to,
    }
    if forwards.get(sub_queue) is not None:
        raise BusError(INVALID_OPERATION, detail=RECEIVER_ON_FORWARDING)
