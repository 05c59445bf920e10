"""A link: one direction of messages between us and the peer (AMQP 2.6).

This file owns a link's credit and delivery count (2.6.7), the answers to an attach, and the joining
of frames into deliveries. What links share, the numbering of deliveries and the window, is the
session's.

A peer may be gone before a slow answer is ready. Calls that only answer (`accept`, `refuse`,
`settle`, `settle_sent`, `set_credit`, `drained`, `detach`) do nothing then; `send` is refused with
a `LocalError`, because a message would be lost unseen: look at `credit` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from busway.amqp import codec, states
from busway.amqp.delivery_ids import MASK, runs
from busway.amqp.errors import INVALID_FIELD, TRANSFER_LIMIT_EXCEEDED, ProtocolError
from busway.amqp.events import Detached, Event, FlowReceived, TransferReceived, TransferTooLarge
from busway.amqp.partial import PartialDelivery
from busway.amqp.performatives import (
    Attach,
    Coordinator,
    DeliveryState,
    Detach,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)
from busway.amqp.states import LinkState, LocalError, Move

if TYPE_CHECKING:
    from busway.amqp.session import Session

# AMQP 2.8.7: a delivery tag has up to 32 octets.
MAX_TAG_SIZE = 32


class LinkRole(Enum):
    """Our end of the link. On the wire the receiver is `true` (AMQP 2.8.1)."""

    SENDER = False
    RECEIVER = True


class LinkError(ProtocolError):
    """The peer broke a rule that concerns one link: it is detached, the session goes on."""


class Link:
    __slots__ = (
        "context",
        "credit",
        "delivery_count",
        "drain",
        "handle",
        "is_reported_gone",
        "max_message_size",
        "name",
        "partial",
        "pending_bytes",
        "properties",
        "rcv_settle_mode",
        "receive_limit",
        "remote_handle",
        "remote_max_message_size",
        "role",
        "session",
        "snd_settle_mode",
        "source",
        "state",
        "target",
        "unsettled",
        "unwritten",
        "waiting_flow",
    )

    def __init__(self, session: Session, name: str, role: LinkRole, handle: int) -> None:
        self.session = session
        self.name = name
        self.role = role
        self.state = LinkState.UNATTACHED
        self.handle = handle
        self.remote_handle: int | None = None
        self.source: Source | None = None
        self.target: Target | Coordinator | None = None
        self.properties: dict[Any, Any] | None = None
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        # Ours is the limit on what is received; the peer's is what it said about itself.
        self.max_message_size: int | None = None
        self.receive_limit = session.settings.max_message_size
        self.remote_max_message_size: int | None = None
        self.delivery_count = 0
        # Deliveries that may still be sent; on a receiving link, that the peer may still send.
        self.credit = 0
        # The peer asks for its credit to be used up now: `drained` is the answer.
        self.drain = False
        # Deliveries sent and settled by neither side.
        self.unsettled = 0
        # Tags of unsettled deliveries, by id, that the peer has not seen whole: they wait for it to
        # open its session window. Kept when the link is gone: `take_back` tells them.
        self.unwritten: dict[int, bytes] = {}
        # Payload that waits for the peer to open its session window.
        self.pending_bytes = 0
        # The flow that stands behind its last transfer while the window is shut.
        self.waiting_flow: Flow | None = None
        self.partial: PartialDelivery | None = None
        # Events say once that a link is gone.
        self.is_reported_gone = False
        # Free for the owner of the connection.
        self.context: Any = None

    @property
    def is_attached(self) -> bool:
        return self.state is LinkState.ATTACHED and self.session.is_writable

    @property
    def is_sender(self) -> bool:
        return self.role is LinkRole.SENDER

    # Answers to an attach of the peer

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        max_message_size: int | None = None,
        receive_limit: int | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        """Attach our end, echoing what the peer asked for unless told otherwise (amqp.md 7.2).

        `receive_limit` is for a link that takes larger messages than the settings allow to any.

        A client may have sent its flow along with the attach, and no event says so: look at
        `credit` and `drain` afterwards.
        """
        if self.state is not LinkState.ATTACH_RCVD or not self.session.is_writable:
            return
        if source is not None:
            self.source = source
        if target is not None:
            self.target = target
        if max_message_size is None and not self.is_sender:
            # Java makes itself a buffer of this size, of none if it is null.
            max_message_size = self.session.settings.max_message_size
        self.max_message_size = max_message_size
        if receive_limit is not None:
            self.receive_limit = receive_limit
            self.session.connection.make_room(receive_limit)
        self.send_attach(properties)

    def refuse(self, condition: str, description: str | None = None) -> None:
        """Attach without termini, then detach: what every client takes for a no (amqp.md 7.3)."""
        if self.state is not LinkState.ATTACH_RCVD:
            return
        self.is_reported_gone = True
        self.source = self.target = None
        self.send_attach(None)
        self.detach(condition, description)

    def send_attach(self, properties: dict[Any, Any] | None) -> None:
        self.state = states.move(states.LINK, self.state, Move.SEND_ATTACH)
        if self.max_message_size:
            # Zero and null mean no limit of the link's own (AMQP 2.7.3).
            self.receive_limit = min(self.receive_limit, self.max_message_size)
        self.session.write(
            Attach(
                name=self.name,
                handle=self.handle,
                role=self.role.value,
                snd_settle_mode=self.snd_settle_mode,
                rcv_settle_mode=self.rcv_settle_mode,
                source=self.source,
                target=self.target,
                # E11: mandatory for a sender, and Python means it.
                initial_delivery_count=0 if self.is_sender else None,
                max_message_size=self.max_message_size,
                properties=properties,
            )
        )

    def detach(self, condition: str | None = None, description: str | None = None) -> None:
        """Close the link. Always closed=true (E13): links are never resumed."""
        if self.state is LinkState.ATTACH_RCVD and self.session.is_writable:
            # Only an attached end can be detached, so the answer comes first.
            self.source = self.target = None
            self.send_attach(None)
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_SENT):
            return
        error = None if condition is None else Error(condition, description)
        self.state = states.move(states.LINK, self.state, Move.SEND_DETACH)
        self.stop()
        self.session.outgoing.write_in_order(self, Detach(self.handle, closed=True, error=error))
        self.session.link_detaching(self)

    def stop(self) -> None:
        """Nothing more is sent or joined on this link."""
        self.credit = 0
        self.drain = False
        self._drop_partial()

    # Our end receives

    def set_credit(self, credit: int, *, drain: bool = False) -> None:
        """Let the peer send `credit` more deliveries from now on; with `drain`, now or never."""
        if not self.is_attached:
            return
        self.credit = credit
        self.session.write(self.flow(drain=drain))

    def settle(
        self, delivery_ids: Sequence[int], state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Tell the sender the outcome of its deliveries.

        With `settled` false the outcome is proposed (rcv-settle-mode second); the sender's answer
        is a `Settled` event, or `Considered` if it leaves that open.
        """
        if not self.is_attached:
            return
        if settled:
            self.session.settled(delivery_ids)
        else:
            self.session.propose(self, delivery_ids)
        channel = self.session.channel
        for first, last in runs(delivery_ids):
            self.session.write_frame(
                codec.encode_disposition(channel, True, first, last, settled, state)
            )

    def receive_transfer(
        self, transfer: Transfer, payload: bytes
    ) -> TransferReceived | TransferTooLarge | None:
        """Take one frame; returns an event when it completes a delivery."""
        if self.state is not LinkState.ATTACHED:
            if self.state is LinkState.ATTACH_RCVD:
                # There was no credit, and to keep it until the attach is answered has no bound.
                raise LinkError(TRANSFER_LIMIT_EXCEEDED, "transfer on a link without credit")
            return None  # It was under way when our detach was sent.
        partial = self.partial
        if partial is None:
            delivery_id = transfer.delivery_id
            if delivery_id is None:
                raise LinkError(INVALID_FIELD, "a delivery begins without delivery-id")
            self.delivery_count = (self.delivery_count + 1) & MASK
            # Python ignores credit (amqp.md 3), so running out of it is not an error.
            if self.credit:
                self.credit -= 1
            if not transfer.more and not transfer.aborted and len(payload) <= self.receive_limit:
                return TransferReceived(
                    self,
                    delivery_id,
                    transfer.delivery_tag or b"",
                    payload,
                    transfer.message_format or 0,
                    bool(transfer.settled),
                    transfer.state,
                )
            partial = self.partial = PartialDelivery(delivery_id, transfer)
        elif transfer.delivery_id is not None and transfer.delivery_id != partial.delivery_id:
            raise LinkError(
                INVALID_FIELD,
                f"delivery {transfer.delivery_id} begins before {partial.delivery_id} is complete",
            )
        if transfer.aborted:
            self._drop_partial()
            return None
        change = partial.add(transfer, payload, self.receive_limit)
        self.session.connection.charge_partial(change)
        if transfer.more:
            return None
        event: TransferReceived | TransferTooLarge
        if partial.too_large:
            event = TransferTooLarge(
                self, partial.delivery_id, partial.tag, partial.settled, partial.state
            )
        else:
            event = TransferReceived(
                self,
                partial.delivery_id,
                partial.tag,
                partial.payload(),
                partial.message_format,
                partial.settled,
                partial.state,
            )
        self._drop_partial()
        return event

    def _drop_partial(self) -> None:
        if self.partial is not None:
            self.session.connection.charge_partial(self.partial.discard())
            self.partial = None

    # Our end sends

    def send(
        self,
        payload: bytes,
        tag: bytes,
        *,
        settled: bool = False,
        message_format: int = 0,
        state: DeliveryState | None = None,
        promised: bool = False,
    ) -> int:
        """Send a delivery for one credit; returns its delivery id.

        `promised`: it was set apart for the peer before the peer took its credit back. The peer
        must reckon with it, as with any delivery that is under way then (AMQP 2.6.7).
        """
        if self.role is LinkRole.RECEIVER or (self.credit <= 0 and not promised):
            raise LocalError(f"no credit to send on link {self.name!r}")
        if self.state is not LinkState.ATTACHED:
            raise LocalError(f"link {self.name!r} is not attached")
        if len(tag) > MAX_TAG_SIZE:
            raise LocalError(f"a delivery tag of {len(tag)} bytes; {MAX_TAG_SIZE} are allowed")
        self.credit = max(0, self.credit - 1)
        self.delivery_count = (self.delivery_count + 1) & MASK
        return self.session.outgoing.send(self, payload, tag, settled, message_format, state)

    def drained(self) -> None:
        """Answer a drain: what was to be sent is sent, the rest of the credit is given up.

        AMQP 2.6.7; also if no credit is left (amqp.md 9).
        """
        if not self.is_attached:
            return
        self.delivery_count = (self.delivery_count + self.credit) & MASK
        self.credit = 0
        self.drain = False
        self.session.outgoing.write_in_order(self, self.flow(drain=True))

    def settle_sent(
        self, delivery_ids: Sequence[int], state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Confirm to the receiver what it has decided about deliveries that we sent.

        With `settled` false they stay on record, and the receiver may decide again: in a
        transaction that is still open, or where its decision was refused (AMQP 4.4.2).
        """
        if not self.is_attached:
            return
        if settled:
            self.session.outgoing.forget(self, delivery_ids)
        channel = self.session.channel
        for first, last in runs(delivery_ids):
            self.session.write_frame(
                codec.encode_disposition(channel, False, first, last, settled, state)
            )

    def take_back(self) -> list[bytes]:
        """Tags of unsettled deliveries that the peer has not seen whole, and never will from now
        on. To be asked when the link is about to end, or has ended."""
        tags = list(self.unwritten.values())
        if tags:
            self.unwritten.clear()
            self.session.outgoing.drop_waiting(self)
        return tags

    def forget(self, delivery_ids: Sequence[int]) -> None:
        """Drop deliveries from the record: a later disposition is an `UnknownDisposed`."""
        self.session.outgoing.forget(self, delivery_ids)

    # What the peer says about the link

    def receive_flow(self, flow: Flow) -> FlowReceived | None:
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_RCVD):
            return None
        if self.is_sender:
            # 2.6.7: the receiver counts from the deliveries that it has seen. Before our attach
            # it may not know the count, which is then the initial one, zero.
            limit = (flow.delivery_count or 0) + (flow.link_credit or 0)
            credit = (limit - self.delivery_count) & MASK
            # Less than what is already under way leaves nothing.
            self.credit = credit if credit <= (flow.link_credit or 0) else 0
            self.drain = flow.drain
        elif flow.drain and flow.delivery_count is not None:
            # The sender has used up the credit of a drain without sending.
            given_up = (flow.delivery_count - self.delivery_count) & MASK
            if given_up <= MASK // 2:
                # More than the credit, if some was taken back while the answer was on its way.
                self.delivery_count = flow.delivery_count
                self.credit = max(0, self.credit - given_up)
        if self.state is LinkState.ATTACH_RCVD:
            return None
        return FlowReceived(self)

    def flow(self, *, drain: bool = False) -> Flow:
        """Our view of the link, with all fields of the session (E10)."""
        flow = self.session.flow()
        flow.handle = self.handle
        flow.delivery_count = self.delivery_count
        flow.link_credit = self.credit
        flow.drain = drain
        if self.is_sender:
            flow.available = 0
        return flow

    def receive_attach(self, attach: Attach) -> None:
        """Take over what the peer says, as its wish or as its answer to ours."""
        self.state = states.move(states.LINK, self.state, Move.RECEIVE_ATTACH)
        self.remote_handle = attach.handle
        self.source = attach.source
        self.target = attach.target
        self.properties = attach.properties
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.remote_max_message_size = attach.max_message_size
        if not self.is_sender:
            self.delivery_count = attach.initial_delivery_count or 0

    def receive_detach(self) -> None:
        """Answer the peer's detach if it was the first to say so."""
        if self.state is LinkState.ATTACH_RCVD:
            self.source = self.target = None
            self.send_attach(None)
        self.state = states.move(states.LINK, self.state, Move.RECEIVE_DETACH)
        self.stop()
        if self.state is LinkState.DETACH_RCVD:
            self.state = states.move(states.LINK, self.state, Move.SEND_DETACH)
            self.session.write(Detach(self.handle, closed=True))

    def report_gone(self, error: Error | None, events: list[Event]) -> None:
        if not self.is_reported_gone:
            self.is_reported_gone = True
            events.append(Detached(self, error))

    def vanish(self) -> None:
        """The session or the connection is gone, and the link with it, without frames."""
        self.state = LinkState.DETACHED
        self.stop()
        self.unsettled = 0
        self.pending_bytes = 0
