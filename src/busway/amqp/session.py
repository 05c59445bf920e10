"""A session: what the links of one channel share (AMQP 2.5).

This file owns the numbering of deliveries and transfers, the two windows, the handles, and the
record of deliveries that were sent and not settled. Frames go out in the order of the calls unless
the peer's window is shut; then they wait here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from busway.amqp import codec, states
from busway.amqp.delivery_ids import MASK, pick
from busway.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    RESOURCE_LIMIT_EXCEEDED,
    STOLEN,
    UNATTACHED_HANDLE,
    ProtocolError,
)
from busway.amqp.events import (
    Attached,
    AttachRequested,
    Begun,
    Disposed,
    Ended,
    Event,
    Settled,
    UnknownDisposed,
)
from busway.amqp.link import Link, LinkError, LinkRole
from busway.amqp.performatives import (
    Attach,
    Begin,
    Composite,
    Coordinator,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)
from busway.amqp.settings import ConnectionSettings
from busway.amqp.states import LinkState, LocalError, Move, SessionState

if TYPE_CHECKING:
    from busway.amqp.connection import Connection

# A transfer frame without its payload and tag: frame header 8, descriptor 3, list 9, fields 35.
_TRANSFER_OVERHEAD = 64

# A transfer frame already encoded, or a performative that must not overtake those before it.
_Waiting = tuple[Link, bytes | Composite, int]


class SessionError(ProtocolError):
    """The peer broke a rule that concerns one session: it is ended, the connection goes on."""


class Session:
    __slots__ = (
        "_by_handle",
        "_by_remote_handle",
        "_proposed",
        "_unsettled",
        "_waiting",
        "_window_used",
        "channel",
        "connection",
        "context",
        "is_reported_gone",
        "is_writable",
        "next_delivery_id",
        "next_incoming_id",
        "next_outgoing_id",
        "remote_channel",
        "remote_handle_max",
        "remote_window",
        "settings",
        "state",
    )

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.settings: ConnectionSettings = connection.settings
        self.channel = channel
        self.remote_channel: int | None = None
        self.state = SessionState.UNMAPPED
        # Frames may be written: our begin is out, our end is not.
        self.is_writable = False
        # Transfer ids count frames, delivery ids count deliveries (E8, E10).
        self.next_outgoing_id = 0
        self.next_incoming_id = 0
        self.next_delivery_id = 0
        # How many transfer frames the peer takes; and how many of ours it has used.
        self.remote_window = 0
        self.remote_handle_max = MASK
        self._window_used = 0
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._unsettled: dict[int, tuple[Link, bytes]] = {}
        # Deliveries of the peer for which a state was proposed, not settled (second mode).
        self._proposed: dict[int, Link] = {}
        self._waiting: deque[_Waiting] = deque()
        # Events say once that a session is gone.
        self.is_reported_gone = False
        # Free for the owner of the connection.
        self.context: object = None

    @property
    def links(self) -> list[Link]:
        """The links that are attached or being attached."""
        alive = (LinkState.ATTACH_SENT, LinkState.ATTACH_RCVD, LinkState.ATTACHED)
        return [link for link in self._by_handle.values() if link.state in alive]

    # What our side asks for

    def attach(
        self,
        name: str,
        role: LinkRole,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        max_message_size: int | None = None,
        properties: dict[object, object] | None = None,
    ) -> Link:
        """Ask the peer for a link; its answer is `Attached`, or `Detached` if it refuses."""
        if not self.is_writable:
            raise LocalError("cannot attach a link to a session that has ended")
        if (name, role) in self.connection.links_by_name:
            raise LocalError(f"there is a link {name!r} in this direction")
        link = Link(self, name, role, self._free_handle(0))
        link.source = source
        link.target = target
        link.snd_settle_mode = snd_settle_mode
        link.rcv_settle_mode = rcv_settle_mode
        link.max_message_size = max_message_size
        self._by_handle[link.handle] = link
        self.connection.links_by_name[name, role] = link
        self.connection.link_count += 1
        link.send_attach(properties)
        return link

    def end(self, condition: str | None = None, description: str | None = None) -> None:
        """End the session and with it its links; `Ended` follows when the peer has answered."""
        self._send_end(None if condition is None else Error(condition, description))

    def settle_unknown(self, first: int, last: int, state: DeliveryState | None) -> None:
        """Answer an `UnknownDisposed` (amqp.md 10)."""
        self.write_frame(codec.encode_disposition(self.channel, False, first, last, True, state))

    # Writing

    def write_frame(self, frame: bytes) -> None:
        if self.is_writable:
            self.connection.write_frame(frame)

    def write(self, performative: Composite) -> None:
        if self.is_writable:
            self.connection.write_frame(codec.encode_frame(self.channel, performative))

    def write_in_order(self, link: Link, performative: Composite) -> None:
        """Write what must not overtake the link's transfers: its flow and its detach."""
        if self._waiting:
            self._waiting.append((link, performative, 0))
        else:
            self.write(performative)

    def flow(self) -> Flow:
        """Our view of the session (E10). Reading is what limits a peer, so the window is open."""
        self._window_used = 0
        return Flow(
            next_incoming_id=self.next_incoming_id,
            incoming_window=self.settings.incoming_window,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=self.settings.outgoing_window,
        )

    def send_begin(self) -> None:
        self.state = states.move(states.SESSION, self.state, Move.SEND_BEGIN)
        self.is_writable = True
        self.write(
            Begin(
                remote_channel=self.remote_channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self.settings.incoming_window,
                outgoing_window=self.settings.outgoing_window,
                handle_max=self.settings.handle_max,
            )
        )

    def _send_end(self, error: Error | None) -> None:
        if not self.is_writable:
            return
        step = Move.SEND_END if error is None else Move.SEND_END_WITH_ERROR
        self.state = states.move(states.SESSION, self.state, step)
        self.write(End(error))
        self.stop()

    def stop(self) -> None:
        """Nothing more is sent on this session."""
        self.is_writable = False
        self._waiting.clear()
        for link in self._by_handle.values():
            link.stop()

    # Deliveries that we send

    def send_delivery(
        self,
        link: Link,
        payload: bytes,
        tag: bytes,
        settled: bool,
        message_format: int,
        state: DeliveryState | None,
    ) -> int:
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & MASK
        if not settled:
            self._unsettled[delivery_id] = (link, tag)
            link.unsettled += 1
        room = self.connection.remote_max_frame_size - _TRANSFER_OVERHEAD - len(tag)
        if len(payload) <= room and self.remote_window > 0 and not self._waiting and state is None:
            self.remote_window -= 1
            self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
            self.connection.write_frame(
                codec.encode_transfer(
                    self.channel,
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
        self._split(link, first, payload, room)
        self.send_waiting()
        return delivery_id

    def _split(self, link: Link, transfer: Transfer, payload: bytes, room: int) -> None:
        """Queue a delivery in frames that fit; only the first says which delivery it is (E9)."""
        start = 0
        while True:
            piece = payload[start : start + room]
            start += room
            transfer.more = start < len(payload)
            frame = codec.encode_frame(self.channel, transfer, piece)
            self._waiting.append((link, frame, len(piece)))
            link.pending_bytes += len(piece)
            if not transfer.more:
                return
            transfer = Transfer(handle=link.handle, settled=transfer.settled, batchable=True)

    def send_waiting(self) -> None:
        """Write what the peer's window has room for."""
        waiting = self._waiting
        while waiting:
            link, item, size = waiting[0]
            if isinstance(item, bytes):
                if self.remote_window <= 0:
                    return
                self.remote_window -= 1
                self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
                link.pending_bytes -= size
                self.connection.write_frame(item)
            else:
                if isinstance(item, Flow):
                    item.next_incoming_id = self.next_incoming_id
                    item.next_outgoing_id = self.next_outgoing_id
                self.write(item)
            waiting.popleft()

    def forget_sent(self, link: Link, delivery_ids: Sequence[int]) -> None:
        for delivery_id in delivery_ids:
            entry = self._unsettled.get(delivery_id)
            if entry is not None and entry[0] is link:
                del self._unsettled[delivery_id]
                link.unsettled -= 1

    def propose(self, link: Link, delivery_ids: Sequence[int]) -> None:
        for delivery_id in delivery_ids:
            self._proposed[delivery_id] = link

    # Handles

    def _free_handle(self, wanted: int) -> int:
        """A handle for our end; the peer's own number if it is free, which reads well in traces."""
        handle = wanted
        if handle in self._by_handle or handle > self.remote_handle_max:
            handle = next(n for n in range(len(self._by_handle) + 1) if n not in self._by_handle)
        if handle > self.remote_handle_max:
            raise SessionError(RESOURCE_LIMIT_EXCEEDED, "no handle is left for another link")
        return handle

    def link_detaching(self, link: Link) -> None:
        """Our detach is out: the name is free for a new link, the handles are not yet."""
        if link.remote_handle is not None:
            self.connection.forget_link_name(link)

    def _remove(self, link: Link) -> None:
        if self._by_handle.pop(link.handle, None) is link:
            self.connection.link_count -= 1
        if link.remote_handle is not None:
            self._by_remote_handle.pop(link.remote_handle, None)
        self.connection.forget_link_name(link)
        if link.unsettled:
            ids = [i for i, (owner, _) in self._unsettled.items() if owner is link]
            self.forget_sent(link, ids)
        for delivery_id in [i for i, owner in self._proposed.items() if owner is link]:
            del self._proposed[delivery_id]

    def _drop_waiting(self, link: Link) -> list[_Waiting]:
        """Take the frames of a link that is gone out of the queue.

        Other links' deliveries behind them keep their numbers, which leaves a gap (E8). It takes a
        shut window, a shared session and a detach at once to get here.
        """
        if not self._waiting:
            return []
        dropped = [entry for entry in self._waiting if entry[0] is link]
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not link)
        link.pending_bytes = 0
        return dropped

    def _link(self, remote_handle: int) -> Link:
        link = self._by_remote_handle.get(remote_handle)
        if link is None:
            raise SessionError(UNATTACHED_HANDLE, f"handle {remote_handle} is not attached")
        return link

    # What the peer sends

    def receive(self, performative: Composite, payload: bytes, events: list[Event]) -> None:
        """Handle one frame of this channel; a broken rule costs the link or the session."""
        if not self.is_writable:
            # Our end is out: all but the peer's end is discarded (AMQP 2.5.5).
            if isinstance(performative, End):
                self._receive_end(performative, events)
            return
        try:
            kind = type(performative)
            if kind is Transfer:
                self._receive_transfer(performative, payload, events)  # type: ignore[arg-type]
            elif kind is Disposition:
                self._receive_disposition(performative, events)  # type: ignore[arg-type]
            elif kind is Flow:
                self._receive_flow(performative, events)  # type: ignore[arg-type]
            elif isinstance(performative, Attach):
                self._receive_attach(performative, events)
            elif isinstance(performative, Detach):
                self._receive_detach(performative, events)
            elif isinstance(performative, End):
                self._receive_end(performative, events)
            else:
                raise ProtocolError(ILLEGAL_STATE, f"{kind.__name__} inside a session")
        except SessionError as error:
            reason = Error(error.condition, error.description)
            self._send_end(reason)
            self.report_gone(reason, events)

    def receive_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        self.state = states.move(states.SESSION, self.state, Move.RECEIVE_BEGIN)
        self.remote_channel = channel
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window
        self.remote_handle_max = begin.handle_max
        if self.state is SessionState.BEGIN_RCVD:
            self.send_begin()
        if self.state is SessionState.MAPPED:
            events.append(Begun(self))

    def _receive_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> None:
        self.next_incoming_id = (self.next_incoming_id + 1) & MASK
        self._window_used += 1
        if self._window_used * 2 >= self.settings.incoming_window:
            self.write(self.flow())
        link = self._link(transfer.handle)
        if link.role is LinkRole.SENDER:
            raise SessionError(ILLEGAL_STATE, f"transfer to the sender of link {link.name!r}")
        try:
            event = link.receive_transfer(transfer, payload)
        except LinkError as error:
            link.detach(error.condition, error.description)
            link.report_gone(Error(error.condition, error.description), events)
        else:
            if event is not None:
                events.append(event)

    def _receive_flow(self, flow: Flow, events: list[Event]) -> None:
        # AMQP 2.5.6. A peer that has not seen our begin counts from our initial id, zero.
        self.next_incoming_id = flow.next_outgoing_id
        under_way = (self.next_outgoing_id - (flow.next_incoming_id or 0)) & MASK
        self.remote_window = flow.incoming_window - under_way
        self.send_waiting()
        if flow.handle is None:
            if flow.echo:
                self.write(self.flow())
            return
        link = self._link(flow.handle)
        event = link.receive_flow(flow)
        if event is not None:
            events.append(event)
        if flow.echo:
            if link.state is LinkState.ATTACHED:
                self.write_in_order(link, link.flow())
            else:
                self.write(self.flow())

    def _receive_disposition(self, disposition: Disposition, events: list[Event]) -> None:
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        if not disposition.role:
            self._receive_settlement(first, last, disposition, events)
            return
        state, settled = disposition.state, disposition.settled
        unsettled = self._unsettled
        if first == last:
            entry = unsettled.get(first)
            if entry is None:
                events.append(UnknownDisposed(self, first, last, state, settled))
                return
            link, tag = entry
            events.append(Disposed(link, [first], [tag], state, settled))
            if settled:
                del unsettled[first]
                link.unsettled -= 1
            return
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
        for run_first, run_last in unknown:
            events.append(UnknownDisposed(self, run_first, run_last, state, settled))

    def _receive_settlement(
        self, first: int, last: int, disposition: Disposition, events: list[Event]
    ) -> None:
        """The sender settles what we had only proposed; anything else it says changes nothing."""
        if not disposition.settled:
            return
        by_link: dict[Link, Settled] = {}
        for delivery_id in pick(self._proposed, first, last)[0]:
            link = self._proposed.pop(delivery_id)
            settled = by_link.get(link)
            if settled is None:
                settled = by_link[link] = Settled(link, [], disposition.state)
                events.append(settled)
            settled.delivery_ids.append(delivery_id)

    def _receive_attach(self, attach: Attach, events: list[Event]) -> None:
        if attach.handle > self.settings.handle_max:
            # AMQP 2.7.2 asks for the connection to be closed, not only the session.
            raise ProtocolError(
                FRAMING_ERROR, f"handle {attach.handle} is above {self.settings.handle_max}"
            )
        if attach.handle in self._by_remote_handle:
            raise SessionError(HANDLE_IN_USE, f"handle {attach.handle} is in use")
        role = LinkRole.SENDER if attach.role else LinkRole.RECEIVER
        link = self.connection.links_by_name.get((attach.name, role))
        if link is not None and link.remote_handle is None and link.session is self:
            self._receive_attach_answer(link, attach, events)
            return
        if link is not None:
            # AMQP 2.6.1: a name stands for one link of each direction between two containers. Who
            # attaches it again has lost the first one; the first one goes (2.8.18, stolen).
            link.detach(STOLEN, f"link {link.name!r} was attached again")
            link.report_gone(Error(STOLEN), events)
        if self.connection.link_count >= self.settings.max_links:
            raise SessionError(
                RESOURCE_LIMIT_EXCEEDED, f"more than {self.settings.max_links} links"
            )
        link = Link(self, attach.name, role, self._free_handle(attach.handle))
        link.receive_attach(attach)
        self._by_handle[link.handle] = link
        self._by_remote_handle[attach.handle] = link
        self.connection.links_by_name[attach.name, role] = link
        self.connection.link_count += 1
        events.append(AttachRequested(link, attach))

    def _receive_attach_answer(self, link: Link, attach: Attach, events: list[Event]) -> None:
        link.receive_attach(attach)
        self._by_remote_handle[attach.handle] = link
        if link.state is LinkState.DETACH_SENT:
            self.connection.forget_link_name(link)
        elif attach.source is not None or attach.target is not None:
            events.append(Attached(link))
        # Without termini it is a refusal, and the detach that says why comes next (2.6.3).

    def _receive_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._link(detach.handle)
        link.receive_detach()
        for _, item, _ in self._drop_waiting(link):
            if isinstance(item, Detach):
                # Ours was waiting behind transfers that nobody wants any more.
                self.write(item)
        self._remove(link)
        link.report_gone(detach.error, events)

    def _receive_end(self, end: End, events: list[Event]) -> None:
        self.state = states.move(states.SESSION, self.state, Move.RECEIVE_END)
        if self.state is SessionState.END_RCVD:
            self.state = states.move(states.SESSION, self.state, Move.SEND_END)
            self.write(End())
            self.stop()
        self.connection.forget_session(self)
        self.report_gone(end.error, events)

    # Telling the owner

    def report_gone(self, error: Error | None, events: list[Event]) -> None:
        """The links of an ended session need no detach of their own (Go sends none)."""
        self.stop()
        self._unsettled.clear()
        self._proposed.clear()
        for link in list(self._by_handle.values()):
            link.vanish()
            self._remove(link)
            link.report_gone(error, events)
        if not self.is_reported_gone:
            self.is_reported_gone = True
            events.append(Ended(self, error))
