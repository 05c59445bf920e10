"""A delivery that arrives in several transfer frames (AMQP 2.6.14), until it is whole.

Frames of one delivery are not mixed with another's on the same link, so a link has one of these at
most. The bytes that it holds are charged to the connection, since a peer can leave as many open as
it has links.
"""

from __future__ import annotations

from busway.amqp.errors import RESOURCE_LIMIT_EXCEEDED, ProtocolError
from busway.amqp.performatives import DeliveryState, Transfer

# What a piece costs beside its bytes: a peer that sends a delivery byte by byte pays for it.
PIECE_OVERHEAD_BYTES = 64


class PartialRoom:
    """What the unfinished deliveries of all connections of a node may hold together."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def charge(self, change: int) -> None:
        self.used_bytes += change
        if change > 0 and self.used_bytes > self.limit_bytes:
            raise ProtocolError(
                RESOURCE_LIMIT_EXCEEDED,
                f"the unfinished deliveries of all clients hold more than {self.limit_bytes} bytes;"
                " finish one delivery before the next begins, and try again",
            )


class PartialDelivery:
    __slots__ = (
        "charged_bytes",
        "delivery_id",
        "message_format",
        "pieces",
        "settled",
        "size",
        "state",
        "tag",
        "too_large",
    )

    def __init__(self, delivery_id: int, first: Transfer) -> None:
        self.delivery_id = delivery_id
        self.tag = first.delivery_tag or b""
        self.message_format = first.message_format or 0
        self.settled = False
        self.state: DeliveryState | None = None
        self.pieces: list[bytes] = []
        self.size = 0
        self.charged_bytes = 0
        self.too_large = False

    def add(self, transfer: Transfer, payload: bytes, limit: int) -> int:
        """Take one more frame; returns by how many bytes the charge has changed."""
        # AMQP 2.7.5: settled on any frame settles the delivery; the last state given counts.
        if transfer.settled:
            self.settled = True
        if transfer.state is not None:
            self.state = transfer.state
        if self.too_large or not payload:
            return 0
        self.size += len(payload)
        if self.size > limit:
            # What is left of it is read and forgotten, so that the link can go on.
            self.too_large = True
            return self.discard()
        self.pieces.append(payload)
        charge = len(payload) + PIECE_OVERHEAD_BYTES
        self.charged_bytes += charge
        return charge

    def discard(self) -> int:
        """Let the bytes go; returns the change of the charge."""
        change = -self.charged_bytes
        self.charged_bytes = 0
        self.pieces.clear()
        return change

    def payload(self) -> bytes:
        return b"".join(self.pieces)
