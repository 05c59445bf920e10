"""What a session sends: its numbers, the peer's window, and the record of what is unsettled.

Delivery ids count deliveries over all links of the session (E8), transfer ids count frames (E10).
Frames go out in the order of the calls; while the peer's window is shut they wait here, and what
must not overtake them with them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from busway.amqp import codec
from busway.amqp.delivery_ids import MASK, look_cost, pick
from busway.amqp.events import Disposed, Event, UnknownDisposed
from busway.amqp.performatives import Composite, DeliveryState, Disposition, Flow, Transfer

if TYPE_CHECKING:
    from busway.amqp.link import Link
    from busway.amqp.session import Session

# A transfer frame without its payload and tag: frame header 8, descriptor 3, list 9, fields 35.
_TRANSFER_OVERHEAD = 64


class Outgoing:
    __slots__ = (
        "_session",
        "_unsettled",
        "_waiting",
        "claimed",
        "next_delivery_id",
        "next_transfer_id",
        "window",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self.next_delivery_id = 0
        self.next_transfer_id = 0
        # How many more transfer frames the peer takes.
        self.window = 0
        # How many of them the owner of the connection has set apart for what it is going to send.
        self.claimed = 0
        self._unsettled: dict[int, tuple[Link, bytes]] = {}
        # Transfer frames already encoded, and performatives that must not overtake them; with
        # the payload bytes of each, and the delivery id if the frame completes one.
        self._waiting: deque[tuple[Link, bytes | Composite, int, int | None]] = deque()

    @property
    def room(self) -> int:
        """How many more transfer frames would be written at once, beside those set apart."""
        return 0 if self._waiting else self.window - self.claimed

    def write_in_order(self, link: Link, performative: Composite) -> None:
        """Write what must not overtake the link's transfers: its flow and its detach.

        While the window is shut, one flow stands behind the last transfer of a link: what a peer
        asks for again and again is said once, with the newest figures.
        """
        if not self._waiting:
            self._session.write(performative)
            return
        if isinstance(performative, Flow):
            waiting = link.waiting_flow
            if waiting is not None:
                waiting.delivery_count = performative.delivery_count
                waiting.link_credit = performative.link_credit
                waiting.drain = waiting.drain or performative.drain
                return
            link.waiting_flow = performative
        self._waiting.append((link, performative, 0, None))

    def send(
        self,
        link: Link,
        payload: bytes,
        tag: bytes,
        settled: bool,
        message_format: int,
        state: DeliveryState | None,
    ) -> int:
        session = self._session
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & MASK
        if not settled:
            self._unsettled[delivery_id] = (link, tag)
            link.unsettled += 1
        room = session.connection.remote_max_frame_size - _TRANSFER_OVERHEAD - len(tag)
        if len(payload) <= room and self.window > 0 and not self._waiting and state is None:
            self.window -= 1
            self.next_transfer_id = (self.next_transfer_id + 1) & MASK
            session.connection.write_frame(
                codec.encode_transfer(
                    session.channel,
                    link.handle,
                    delivery_id,
                    tag,
                    message_format,
                    settled,
                    False,
                    payload,
                )
            )
            return delivery_id
        first = Transfer(
            handle=link.handle,
            delivery_id=delivery_id,
            delivery_tag=tag,
            message_format=message_format,
            settled=settled,
            state=state,
            batchable=True,
        )
        if state is not None:
            room = max(1, room - len(codec.encode_value(state)))
        if not settled:
            link.unwritten[delivery_id] = tag
        self._split(link, first, payload, room)
        self._send_waiting()
        return delivery_id

    def _split(self, link: Link, transfer: Transfer, payload: bytes, room: int) -> None:
        """Queue a delivery in frames that fit; only the first says which delivery it is (E9)."""
        session = self._session
        delivery_id = transfer.delivery_id
        start = 0
        while True:
            piece = payload[start : start + room]
            start += room
            transfer.more = start < len(payload)
            frame = codec.encode_frame(session.channel, transfer, piece)
            completes = None if transfer.more else delivery_id
            self._waiting.append((link, frame, len(piece), completes))
            link.waiting_flow = None
            link.pending_bytes += len(piece)
            session.connection.pending_bytes += len(piece)
            if not transfer.more:
                return
            transfer = Transfer(handle=link.handle, settled=transfer.settled, batchable=True)

    def _send_waiting(self) -> None:
        """Write what the peer's window has room for."""
        session = self._session
        waiting = self._waiting
        while waiting:
            link, item, size, completes = waiting[0]
            if isinstance(item, bytes):
                if self.window <= 0:
                    return
                self.window -= 1
                self.next_transfer_id = (self.next_transfer_id + 1) & MASK
                link.pending_bytes -= size
                if completes is not None:
                    link.unwritten.pop(completes, None)
                session.connection.pending_bytes -= size
                session.connection.write_frame(item)
            else:
                if isinstance(item, Flow):
                    if link.waiting_flow is item:
                        link.waiting_flow = None
                    item.next_incoming_id = session.next_incoming_id
                    item.next_outgoing_id = self.next_transfer_id
                session.write(item)
            waiting.popleft()

    def forget(self, link: Link, delivery_ids: Sequence[int]) -> None:
        for delivery_id in delivery_ids:
            entry = self._unsettled.get(delivery_id)
            if entry is not None and entry[0] is link:
                del self._unsettled[delivery_id]
                link.unsettled -= 1

    def open_window(self, next_incoming_id: int, incoming_window: int) -> None:
        """The peer has said up to which transfer id it takes frames (AMQP 2.5.6)."""
        under_way = (self.next_transfer_id - next_incoming_id) & MASK
        self.window = incoming_window - under_way
        self._send_waiting()

    def receive_disposition(
        self, first: int, last: int, disposition: Disposition, events: list[Event]
    ) -> int:
        """What the peer has decided, told link by link; and what is not on record.

        However many gaps a range has, only the first is told of: one frame is answered by one, and
        who keeps to the protocol decides about each delivery once. Returns for how many frames the
        disposition counts.
        """
        state, settled = disposition.state, disposition.settled
        unsettled = self._unsettled
        if first == last:
            entry = unsettled.get(first)
            if entry is None:
                events.append(UnknownDisposed(self._session, first, last, state, settled))
                return 1
            link, tag = entry
            events.append(Disposed(link, [first], [tag], state, settled))
            if settled:
                del unsettled[first]
                link.unsettled -= 1
            return 1
        cost = 1 + look_cost(unsettled, first, last)
        found, unknown = pick(unsettled, first, last)
        by_link: dict[Link, Disposed] = {}
        for delivery_id in found:
            link, tag = unsettled[delivery_id]
            disposed = by_link.get(link)
            if disposed is None:
                disposed = by_link[link] = Disposed(link, [], [], state, settled)
                events.append(disposed)
            disposed.delivery_ids.append(delivery_id)
            disposed.tags.append(tag)
            if settled:
                del unsettled[delivery_id]
                link.unsettled -= 1
        if unknown:
            events.append(UnknownDisposed(self._session, *unknown[0], state, settled))
        return cost + len(found)

    def forget_link(self, link: Link) -> None:
        if link.unsettled:
            self.forget(link, [i for i, (owner, _) in self._unsettled.items() if owner is link])

    def drop_waiting(self, link: Link) -> list[bytes | Composite]:
        """Take the frames of a link that is gone out of the queue.

        Other links' deliveries behind them keep their numbers, which leaves a gap (E8). It takes a
        shut window, a shared session and a detach at once to get here.
        """
        if not self._waiting:
            return []
        dropped = [item for owner, item, _, _ in self._waiting if owner is link]
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not link)
        self._session.connection.pending_bytes -= link.pending_bytes
        link.pending_bytes = 0
        link.waiting_flow = None
        return dropped

    def stop(self) -> None:
        """Nothing more is sent."""
        self._session.connection.pending_bytes -= sum(size for _, _, size, _ in self._waiting)
        self._waiting.clear()
        self._unsettled.clear()
