"""Which endpoint stands behind a link, and who may have it (amqp.md 6, 7 and 18).

The order of the questions matters: what kind of node, whether a token opens it, then whether it is
there. A stranger does not learn which entities exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from busway.amqp.link import Link
from busway.amqp.performatives import Coordinator
from busway.amqp.types import ULong
from busway.gateway.auth import Right
from busway.gateway.receiver import ReceiverEndpoint
from busway.gateway.requests import ReplyEndpoint, RequestEndpoint
from busway.gateway.router import kind_of
from busway.gateway.sender import SenderEndpoint
from busway.model.entities import Queue
from busway.model.errors import (
    ENTITY_DISABLED,
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
from busway.model.names import Address, SubQueueKind, parse_address

if TYPE_CHECKING:
    from busway.gateway.connection import GatewayConnection

SESSION_FILTER = "com.microsoft:session-filter"
REQUEST_SIZE_MAX = 2**64 - 1
"""What the service says on `$cbs` and `$management`; the connection's own limit still holds."""


def attach(connection: GatewayConnection, link: Link) -> None:
    """Accept the link and put its endpoint behind it, or raise why not."""
    address = _address(link)
    if address.cbs or address.management:
        _attach_requests(connection, link, address)
    elif link.is_sender:
        _attach_receiver(connection, link, address)
    else:
        _attach_sender(connection, link, address)


def _address(link: Link) -> Address:
    if isinstance(link.target, Coordinator):
        raise BusError(NOT_IMPLEMENTED, operation="transaction coordinator")
    terminus = link.source if link.is_sender else link.target
    text = None if terminus is None else terminus.address
    if text is None:
        raise BusError(NOT_FOUND, uri="")
    return parse_address(text)


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
    if address.sub_queue is not SubQueueKind.MAIN:
        raise BusError(SEND_TO_SUB_QUEUE, uri=connection.uri(address))
    queue = _queue(connection, address)
    if not queue.status.can_send:
        raise _disabled(connection, queue, address, SEND_DISABLED)
    sender = SenderEndpoint(connection, link, queue, address)
    connection.keep(sender)
    limit = queue.max_message_size_bytes
    # Go takes a ulong here; Python, Java and Go size their batches by it (amqp.md 7.2).
    properties = {"com.microsoft:max-message-batch-size": ULong(limit)}
    link.accept(max_message_size=limit, properties=properties)
    sender.start()


def _attach_receiver(connection: GatewayConnection, link: Link, address: Address) -> None:
    connection.require(address, Right.LISTEN)
    queue = _queue(connection, address)
    if not queue.status.can_receive:
        raise _disabled(connection, queue, address, RECEIVE_DISABLED)
    _check_session(link, queue, address)
    fan_in = connection.gateway.fan_in(queue, kind_of(address))
    delete = link.snd_settle_mode == 1
    receiver = ReceiverEndpoint(connection, link, queue, address, fan_in, delete=delete)
    connection.keep(receiver)
    link.accept()
    receiver.flow()  # its credit may have come along with the attach


def _queue(connection: GatewayConnection, address: Address) -> Queue:
    queue = connection.gateway.find_queue(address)
    if queue is None or address.sub_queue is SubQueueKind.TRANSFER:
        raise BusError(NOT_FOUND, uri=connection.uri(address))
    return queue


def _disabled(
    connection: GatewayConnection, queue: Queue, address: Address, partly: ErrorKind
) -> BusError:
    wholly = not queue.status.can_send and not queue.status.can_receive
    return BusError(ENTITY_DISABLED if wholly else partly, uri=connection.uri(address))


def _check_session(link: Link, queue: Queue, address: Address) -> None:
    wanted = link.source is not None and SESSION_FILTER in (link.source.filter or {})
    # The dead-letter queue of a session entity knows no sessions (SES-12).
    if queue.requires_session and address.sub_queue is SubQueueKind.MAIN:
        if not wanted:
            raise BusError(SESSION_REQUIRED)
        raise BusError(NOT_IMPLEMENTED, operation="session receiver")
    if wanted:
        raise BusError(SESSION_NOT_ALLOWED)
