"""Which endpoint stands behind a link, and who may have it (amqp.md 6, 7 and 18).

The order of the questions matters: what kind of node, whether a token opens it, then whether it is
there. A stranger does not learn which entities exist.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from busway.amqp.link import Link
from busway.amqp.performatives import Coordinator
from busway.amqp.types import ULong
from busway.gateway import entrances
from busway.gateway.auth import Right
from busway.gateway.browser import BrowserEndpoint
from busway.gateway.coordinator import CoordinatorEndpoint
from busway.gateway.requests import ReplyEndpoint, RequestEndpoint
from busway.gateway.source_filters import SessionWish, SourceWishes, wishes_of
from busway.gateway.via_entity import via_entity
from busway.model.entities import Entity, Subscription
from busway.model.errors import (
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    NOT_SUPPORTED,
    SESSION_NOT_ALLOWED,
    SESSION_REQUIRED,
    BusError,
)
from busway.model.limits import TIERS
from busway.model.names import Address, parse_address

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

TRANSFER_DESTINATION = "com.microsoft:transfer-destination-address"
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
    if text is None and getattr(terminus, "dynamic", False):
        raise BusError(
            NOT_SUPPORTED,
            detail="Temporary queues (dynamic nodes) are not supported. Create a queue, and name "
            "it; one with AutoDeleteOnIdle goes by itself.",
        )
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
    via_entity(link.session).coordinator_attached()
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
    entity = entrances.open_destination(connection.gateway, address, connection.uri(address))
    properties: dict[Any, Any] = {}
    destination = _transfer_destination(connection, link, properties)
    sender = connection.gateway.endpoints.sender(connection, link, entity, address, destination)
    connection.keep(sender)
    limit = entity.max_message_size_bytes
    # Go takes a ulong here; Python, Java and Go size their batches by it (amqp.md 7.2).
    properties["com.microsoft:max-message-batch-size"] = ULong(sender.batch_max_bytes)
    link.accept(max_message_size=limit, receive_limit=limit, properties=properties)
    via_entity(link.session).attached(link, entity.path)
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
        uri = connection.uri(address)
        properties[name] = value
        return entrances.destination_at(connection.gateway, address, uri).path
    return None


def _attach_receiver(connection: GatewayConnection, link: Link, address: Address) -> None:
    connection.require(address, Right.LISTEN)
    gateway, uri = connection.gateway, connection.uri(address)
    entity = entrances.open_source(gateway, address, uri)
    assert link.source is not None
    wishes = wishes_of(link.source)
    if link.source.filter is not None:
        link.source = replace(link.source, filter=wishes.applied)
    has_sessions = entrances.needs_session(entity, address.sub_queue)
    if wishes.browse:
        _attach_browser(connection, link, entity, address, wishes, has_sessions=has_sessions)
        return
    top_level = entity.topic if isinstance(entity, Subscription) else entity.path
    via = via_entity(link.session)
    via.check_receiver(top_level)
    wish, delete = wishes.session, link.snd_settle_mode == 1
    if has_sessions:
        if wish is None:
            raise BusError(SESSION_REQUIRED)
        _attach_session(connection, link, entity, address, wish, delete=delete)
        via.attached(link, top_level)
        return
    if wish is not None:
        raise BusError(SESSION_NOT_ALLOWED)
    fan_in = gateway.fan_in(entity, address.sub_queue)
    made = connection.gateway.endpoints.receiver
    receiver = made(connection, link, entity, address, fan_in, delete=delete)
    connection.keep(receiver)
    link.accept()
    via.attached(link, top_level)
    receiver.flow()  # its credit may have come along with the attach


def _attach_browser(
    connection: GatewayConnection,
    link: Link,
    entity: Entity,
    address: Address,
    wishes: SourceWishes,
    *,
    has_sessions: bool,
) -> None:
    """As with peek, a session may be named and need not be held."""
    wish = wishes.session
    if wish is not None and not has_sessions:
        raise BusError(SESSION_NOT_ALLOWED)
    if wish is not None and wish.session_id is None:
        raise BusError(
            INVALID_FIELD,
            detail="A browser cannot ask for the next available session. Name one, or leave the "
            "session filter out to browse all of them.",
        )
    session_id = None if wish is None else wish.session_id
    browser = BrowserEndpoint(
        connection, link, entity, address, session_id=session_id, selector=wishes.selector
    )
    connection.keep(browser)
    link.accept()
    browser.flow()  # its credit may have come along with the attach


def _attach_session(
    connection: GatewayConnection,
    link: Link,
    entity: Entity,
    address: Address,
    wish: SessionWish,
    *,
    delete: bool,
) -> None:
    made = connection.gateway.endpoints.session_receiver
    receiver = made(connection, link, entity, address, wish, delete=delete)
    connection.keep(receiver)
    try:
        receiver.start()
    except BusError:
        connection.drop(receiver)
        raise
