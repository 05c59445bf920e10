"""A session: what the links of one channel share (AMQP 2.5).

This file owns a session's life, the handles of its links, and what the peer sends on the channel.
What we send, its numbers, its window and its record, is in `outgoing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from busway.amqp import codec, states
from busway.amqp.delivery_ids import MASK, look_cost, pick
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
    Considered,
    Ended,
    Event,
    Settled,
)
from busway.amqp.link import Link, LinkError, LinkRole
from busway.amqp.outgoing import Outgoing
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


class SessionError(ProtocolError):
    """The peer broke a rule that concerns one session: it is ended, the connection goes on."""


class Session:
    __slots__ = (
        "_by_handle",
        "_by_remote_handle",
        "_proposed",
        "_window_used",
        "channel",
        "connection",
        "context",
        "is_reported_gone",
        "is_writable",
        "next_incoming_id",
        "outgoing",
        "remote_channel",
        "remote_handle_max",
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
        # Counts transfer frames, not deliveries (E10).
        self.next_incoming_id = 0
        # How much of our window the peer has used since it was last told.
        self._window_used = 0
        self.outgoing = Outgoing(self)
        self.remote_handle_max = MASK
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        # Deliveries of the peer for which a state was proposed, not settled (second mode).
        self._proposed: dict[int, Link] = {}
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
        handle = self._free_handle(0)
        if handle is None:
            raise LocalError("no handle is left for another link")
        link = Link(self, name, role, handle)
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

    def flow(self) -> Flow:
        """Our view of the session (E10). Reading is what limits a peer, so the window is open."""
        self._window_used = 0
        return Flow(
            next_incoming_id=self.next_incoming_id,
            incoming_window=self.settings.incoming_window,
            next_outgoing_id=self.outgoing.next_transfer_id,
            outgoing_window=self.settings.outgoing_window,
        )

    def send_begin(self) -> None:
        self.state = states.move(states.SESSION, self.state, Move.SEND_BEGIN)
        self.is_writable = True
        self.write(
            Begin(
                remote_channel=self.remote_channel,
                next_outgoing_id=self.outgoing.next_transfer_id,
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
        self.outgoing.stop()
        for link in self._by_handle.values():
            link.stop()

    def propose(self, link: Link, delivery_ids: Sequence[int]) -> None:
        for delivery_id in delivery_ids:
            self._proposed[delivery_id] = link

    def settled(self, delivery_ids: Sequence[int]) -> None:
        """Nothing that was proposed before waits for an answer any more."""
        if self._proposed:
            for delivery_id in delivery_ids:
                self._proposed.pop(delivery_id, None)

    # Handles

    def _free_handle(self, wanted: int) -> int | None:
        """A handle for our end: the peer's own number if it is free, which traces read well."""
        if wanted not in self._by_handle and wanted <= self.remote_handle_max:
            return wanted
        lowest = next(n for n in range(len(self._by_handle) + 1) if n not in self._by_handle)
        return lowest if lowest <= self.remote_handle_max else None

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
        self.outgoing.forget_link(link)
        for delivery_id in [i for i, owner in self._proposed.items() if owner is link]:
            del self._proposed[delivery_id]

    def _link(self, remote_handle: int) -> Link:
        link = self._by_remote_handle.get(remote_handle)
        if link is None:
            raise SessionError(UNATTACHED_HANDLE, f"handle {remote_handle} is not attached")
        return link

    # What the peer sends

    def receive(self, performative: Composite, payload: bytes, events: list[Event]) -> int:
        """Handle one frame of this channel; a broken rule costs the link or the session.

        Returns for how many frames it counts.
        """
        cost = 1
        if not self.is_writable:
            # Our end is out: all but the peer's end is discarded (AMQP 2.5.5).
            if isinstance(performative, End):
                self._receive_end(performative, events)
            return cost
        try:
            # In the order of how often they come.
            if isinstance(performative, Transfer):
                self._receive_transfer(performative, payload, events)
            elif isinstance(performative, Disposition):
                cost = self._receive_disposition(performative, events)
            elif isinstance(performative, Flow):
                self._receive_flow(performative, events)
            elif isinstance(performative, Attach):
                self._receive_attach(performative, events)
            elif isinstance(performative, Detach):
                self._receive_detach(performative, events)
            elif isinstance(performative, End):
                self._receive_end(performative, events)
            else:
                name = type(performative).__name__
                raise ProtocolError(ILLEGAL_STATE, f"{name} inside a session")
        except SessionError as error:
            reason = Error(error.condition, error.description)
            self._send_end(reason)
            self.report_gone(reason, events)
        return cost

    def receive_begin(self, begin: Begin, channel: int, events: list[Event]) -> None:
        self.state = states.move(states.SESSION, self.state, Move.RECEIVE_BEGIN)
        self.remote_channel = channel
        self.next_incoming_id = begin.next_outgoing_id
        self.outgoing.window = begin.incoming_window
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
        self.outgoing.open_window(flow.next_incoming_id or 0, flow.incoming_window)
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
                self.outgoing.write_in_order(link, link.flow())
            else:
                self.write(self.flow())

    def _receive_disposition(self, disposition: Disposition, events: list[Event]) -> int:
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        if disposition.role:
            return self.outgoing.receive_disposition(first, last, disposition, events)
        return self._receive_settlement(first, last, disposition, events)

    def _receive_settlement(
        self, first: int, last: int, disposition: Disposition, events: list[Event]
    ) -> int:
        """The sender settles what we had only proposed, or says what it makes of that so far.

        Returns for how many frames the disposition counts.
        """
        cost = 1 + look_cost(self._proposed, first, last)
        kind = Settled if disposition.settled else Considered
        by_link: dict[Link, Settled | Considered] = {}
        for delivery_id in pick(self._proposed, first, last)[0]:
            link = self._proposed[delivery_id]
            if disposition.settled:
                del self._proposed[delivery_id]
            told = by_link.get(link)
            if told is None:
                told = by_link[link] = kind(link, [], disposition.state)
                events.append(told)
            told.delivery_ids.append(delivery_id)
            cost += 1
        return cost

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
        handle = self._free_handle(attach.handle)
        if handle is None:
            raise SessionError(RESOURCE_LIMIT_EXCEEDED, "the peer has no handle left for our end")
        if self.connection.link_count >= self.connection.links_max:
            limit = f"more than {self.connection.links_max} links"
            if self.connection.is_stranger:
                limit += " without a valid token; put one on $cbs first"
            raise SessionError(RESOURCE_LIMIT_EXCEEDED, limit)
        link = Link(self, attach.name, role, handle)
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
        for waiting in self.outgoing.drop_waiting(link):
            if isinstance(waiting, Detach):
                # Ours was behind transfers that nobody wants any more.
                self.write(waiting)
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
        self._proposed.clear()
        for link in list(self._by_handle.values()):
            link.vanish()
            self._remove(link)
            link.report_gone(error, events)
        if not self.is_reported_gone:
            self.is_reported_gone = True
            events.append(Ended(self, error))
