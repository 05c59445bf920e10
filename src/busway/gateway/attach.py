"""Which endpoint stands behind a link, and who may have it (amqp.md 6, 7 and 18).

The order of the questions matters: what kind of node, whether a token opens it, then whether it is
there. A stranger does not learn which entities exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from busway.amqp.link import Link
from busway.amqp.performatives import Coordinator
from busway.amqp.types import ULong
from busway.gateway.auth import Right
from busway.gateway.coordinator import CoordinatorEndpoint
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.requests import ReplyEndpoint, RequestEndpoint
from busway.gateway.sender import SenderEndpoint
from busway.gateway.session_receiver import SessionReceiverEndpoint, SessionWish, wish_of
from busway.model.entities import Entity, Queue, Subscription, Topic
from busway.model.errors import (
    ENTITY_DISABLED,
    INVALID_OPERATION,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RECEIVE_DISABLED,
    SEND_DISABLED,
    SEND_TO_SUB_QUEUE,
    SESSION_NOT_ALLOWED,
    SESSION_REQUIRED,
    BusError,
    ErrorKind,
)
from busway.model.limits import KIB, TIERS
from busway.model.names import Address, SubQueueKind, parse_address

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
RECEIVER_ON_FORWARDING = (
    "Cannot create a message receiver on an entity with auto-forwarding enabled."
)
REQUEST_SIZE_MAX = 2**64 - 1
"""What the service says on `$cbs` and `$management`; the connection's own limit still holds."""


def attach(connection: GatewayConnection, link: Link) -> None:
    """Accept the link and put its endpoint behind it, or raise why not."""
    if isinstance(link.target, Coordinator) and not link.is_sender:
        _attach_coordinator(connection, link)
        return
    address = _address(link)
    if address.cbs or address.management:
        _attach_requests(connection, link, address)
    elif link.is_sender:
        _attach_receiver(connection, link, address)
    else:
        _attach_sender(connection, link, address)


def _address(link: Link) -> Address:
    terminus = link.source if link.is_sender else link.target
    text = None if terminus is None or isinstance(terminus, Coordinator) else terminus.address
    if text is None:
        raise BusError(NOT_FOUND, uri="")
    return parse_address(text)


def _attach_coordinator(connection: GatewayConnection, link: Link) -> None:
    """No token is asked for: Java attaches it first. What a transaction does is allowed or not on
    the links that do it, and a connection without any token ends soon (amqp.md 5)."""
    gateway = connection.gateway
    if not TIERS[gateway.catalog.namespace.tier].transactions:  # TXN-7
        raise BusError(NOT_IMPLEMENTED, operation="transaction coordinator")
    coordinator = CoordinatorEndpoint(connection, link)
    connection.keep(coordinator)
    link.accept()
    coordinator.start()


def _attach_requests(connection: GatewayConnection, link: Link, address: Address) -> None:
    gateway = connection.gateway
    if address.management:
        connection.require(address, Right.NONE)  # what is asked there needs more, each by itself
        if not gateway.exists(address):
            raise BusError(NOT_FOUND, uri=connection.uri(address))
    if link.is_sender:
        reply = ReplyEndpoint(connection, link, address)
        connection.keep(reply)
        link.accept(max_message_size=REQUEST_SIZE_MAX)
        reply.flow()
    else:
        service = gateway.cbs if address.cbs else gateway.management
        request = RequestEndpoint(connection, link, address, service)
        connection.keep(request)
        link.accept(max_message_size=REQUEST_SIZE_MAX)
        request.start()


def _attach_sender(connection: GatewayConnection, link: Link, address: Address) -> None:
    connection.require(address, Right.SEND)
    entity = _entity(connection, address)
    if address.sub_queue is not SubQueueKind.MAIN or isinstance(entity, Subscription):
        raise BusError(SEND_TO_SUB_QUEUE, uri=connection.uri(address))
    if not entity.status.can_send:
        raise _disabled(connection, entity, address, SEND_DISABLED)
    properties: dict[Any, Any] = {}
    destination = _transfer_destination(connection, link, properties)
    sender = SenderEndpoint(connection, link, entity, address, destination)
    connection.keep(sender)
    limit = entity.max_message_size_kb * KIB
    # Go takes a ulong here; Python, Java and Go size their batches by it (amqp.md 7.2).
    properties["com.microsoft:max-message-batch-size"] = ULong(limit)
    link.accept(max_message_size=limit, properties=properties)
    sender.start()


def _transfer_destination(
    connection: GatewayConnection, link: Link, properties: dict[Any, Any]
) -> str | None:
    """Send-via: where messages go by way of this entity; echoed, and open to the same client."""
    for name, value in (link.properties or {}).items():
        if str(name) != TRANSFER_DESTINATION:
            continue
        address = parse_address(str(value))
        connection.require(address, Right.SEND)
        entity = _entity(connection, address)
        if isinstance(entity, Subscription) or address.sub_queue is not SubQueueKind.MAIN:
            raise BusError(SEND_TO_SUB_QUEUE, uri=connection.uri(address))
        properties[name] = value
        return entity.path
    return None


def _attach_receiver(connection: GatewayConnection, link: Link, address: Address) -> None:
    connection.require(address, Right.LISTEN)
    entity = _entity(connection, address)
    if not isinstance(entity, Topic):
        if not entity.status.can_receive:
            raise _disabled(connection, entity, address, RECEIVE_DISABLED)
        _check_forwarding(entity, address)
    connection.gateway.receivers.check(entity, connection.uri(address))
    wish = wish_of(link)
    delete = link.snd_settle_mode == 1
    if _needs_session(entity, address):
        if wish is None:
            raise BusError(SESSION_REQUIRED)
        _attach_session(connection, link, entity, address, wish, delete=delete)
        return
    if wish is not None:
        raise BusError(SESSION_NOT_ALLOWED)
    fan_in = connection.gateway.fan_in(entity, address.sub_queue)
    receiver = ReceiverEndpoint(connection, link, entity, address, fan_in, delete=delete)
    connection.keep(receiver)
    link.accept()
    receiver.flow()  # its credit may have come along with the attach


def _attach_session(
    connection: GatewayConnection,
    link: Link,
    entity: Entity,
    address: Address,
    wish: SessionWish,
    *,
    delete: bool,
) -> None:
    receiver = SessionReceiverEndpoint(connection, link, entity, address, wish, delete=delete)
    connection.keep(receiver)
    try:
        receiver.start()
    except BusError:
        connection.drop(receiver)
        raise


def _entity(connection: GatewayConnection, address: Address) -> Entity:
    entity = connection.gateway.find(address)
    if entity is None or address.sub_queue is SubQueueKind.TRANSFER:
        raise BusError(NOT_FOUND, uri=connection.uri(address))
    return entity


def _disabled(
    connection: GatewayConnection, entity: Entity, address: Address, partly: ErrorKind
) -> BusError:
    wholly = not entity.status.can_send and not entity.status.can_receive
    return BusError(ENTITY_DISABLED if wholly else partly, uri=connection.uri(address))


def _check_forwarding(entity: Queue | Subscription, address: Address) -> None:
    """FWD-1, DLQ-4: what is forwarded is received where it goes to."""
    forwards = {
        SubQueueKind.MAIN: entity.forward_to,
        SubQueueKind.DEAD_LETTER: entity.forward_dead_letters_to,
    }
    if forwards.get(address.sub_queue) is not None:
        raise BusError(INVALID_OPERATION, detail=RECEIVER_ON_FORWARDING)


def _needs_session(entity: Entity, address: Address) -> bool:
    """The dead-letter queue of a session entity knows no sessions (SES-12)."""
    if isinstance(entity, Topic) or address.sub_queue is not SubQueueKind.MAIN:
        return False
    return entity.requires_session
